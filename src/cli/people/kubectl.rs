//! Verbs of kubectl: this process replaces itself by kubectl.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::bail;

/// Kinds whose short names have another meaning for kubectl, or none.
const NAMES: [(&str, &[&str]); 2] = [
    ("workloads.kueue.x-k8s.io", &["wl", "workload", "workloads"]),
    ("workloadpriorityclasses.kueue.x-k8s.io", &["wpc", "priorityclass"]),
];

/// Arguments that only kubectl reads.
#[derive(Debug, clap::Args)]
pub(crate) struct KubectlArgs {
    /// Arguments of kubectl.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub(super) rest: Vec<OsString>,
}

/// Replaces this process by kubectl with these arguments. Returns only if that fails.
pub(super) fn become_kubectl<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(args: I) -> anyhow::Result<()> {
    let error = Command::new("kubectl").args(args).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        let path = std::env::var("PATH").unwrap_or_default();
        bail!("kubectl is not on PATH ({path})");
    }
    bail!("kubectl: {error}")
}

/// Runs kubectl with a verb.
pub(super) fn hand_over(verb: &str, args: &KubectlArgs) -> anyhow::Result<ExitCode> {
    let mut words: Vec<OsString> = vec![verb.into()];
    words.extend(args.rest.iter().cloned());
    if let Some(kind) = words.iter_mut().skip(1).find(|word| !is_flag(word)) {
        *kind = kubectl_name(kind);
    }
    become_kubectl(words).map(|()| ExitCode::SUCCESS)
}

pub(super) fn is_flag(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| word.starts_with('-'))
}

/// Returns kubectl's name of a kind.
fn kubectl_name(kind: &OsStr) -> OsString {
    let Some(text) = kind.to_str() else { return kind.to_owned() };
    let (word, rest) = text.split_once('/').map_or((text, None), |(word, rest)| (word, Some(rest)));
    let known = NAMES.iter().find(|(_, names)| names.contains(&word));
    let name = known.map_or(word, |(name, _)| name);
    rest.map_or_else(|| name.into(), |rest| format!("{name}/{rest}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_names_that_kubectl_knows() {
        for (given, expected) in [
            ("wl", "workloads.kueue.x-k8s.io"),
            ("workload/x", "workloads.kueue.x-k8s.io/x"),
            ("wpc", "workloadpriorityclasses.kueue.x-k8s.io"),
            ("cq", "cq"),
            ("job/wl", "job/wl"),
        ] {
            assert_eq!(kubectl_name(OsStr::new(given)), expected, "{given}");
        }
    }
}

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

/// Long flags of the verbs that kubectl gets, and of `describe`, whose value may be the next word.
const LONG_WITH_VALUE: [&str; 40] = [
    "as",
    "as-group",
    "as-uid",
    "as-user-extra",
    "cache-dir",
    "certificate-authority",
    "chunk-size",
    "client-certificate",
    "client-key",
    "cluster",
    "color",
    "context",
    "field-manager",
    "field-selector",
    "filename",
    "kubeconfig",
    "kustomize",
    "label-columns",
    "log-flush-frequency",
    "namespace",
    "output",
    "password",
    "patch",
    "patch-file",
    "profile",
    "profile-output",
    "raw",
    "request-timeout",
    "selector",
    "server",
    "sort-by",
    "source",
    "subresource",
    "template",
    "tls-server-name",
    "token",
    "type",
    "user",
    "username",
    "v",
];
/// Short ones.
const SHORT_WITH_VALUE: &str = "nslfkoLpv";

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
    let words = std::iter::once(OsString::from(verb)).chain(with_kubectl_names(&args.rest));
    become_kubectl(words).map(|()| ExitCode::SUCCESS)
}

/// Returns the words of a command line with kubectl's names of kinds: of the first argument, and of each TYPE/NAME.
fn with_kubectl_names(words: &[OsString]) -> Vec<OsString> {
    let mut named = words.to_vec();
    for (number, place) in arguments(words).into_iter().enumerate() {
        if let Some(word) = named.get_mut(place)
            && (number == 0 || word.to_str().is_some_and(|word| word.contains('/')))
        {
            *word = kubectl_name(word);
        }
    }
    named
}

/// Returns the places of the words that are neither flags nor the values of flags.
pub(super) fn arguments(words: &[OsString]) -> Vec<usize> {
    let (mut places, mut is_value, mut has_no_more_flags) = (Vec::new(), false, false);
    for (place, word) in words.iter().enumerate() {
        let text = word.to_str().unwrap_or_default();
        if std::mem::take(&mut is_value) {
            continue;
        }
        if has_no_more_flags || !text.starts_with('-') {
            places.push(place);
        } else if text == "--" {
            has_no_more_flags = true;
        } else {
            is_value = takes_next_word(text);
        }
    }
    places
}

/// Returns whether the value of a flag is the next word. Of short flags in one word, the first that takes a value has the rest of
/// that word, if there is one.
fn takes_next_word(flag: &str) -> bool {
    if let Some(long) = flag.strip_prefix("--") {
        return LONG_WITH_VALUE.contains(&long);
    }
    let mut letters = flag.chars().skip(1);
    letters.any(|letter| SHORT_WITH_VALUE.contains(letter)) && letters.next().is_none()
}

/// Returns kubectl's name of a kind, of kinds with commas between them, or of the kind in TYPE/NAME.
fn kubectl_name(kind: &OsStr) -> OsString {
    let Some(text) = kind.to_str() else { return kind.to_owned() };
    let (word, rest) = text.split_once('/').map_or((text, None), |(word, rest)| (word, Some(rest)));
    let name = |word: &str| {
        let known = NAMES.iter().find(|(_, names)| names.contains(&word));
        known.map_or(word, |(name, _)| name).to_owned()
    };
    let names = word.split(',').map(name).collect::<Vec<_>>().join(",");
    match rest {
        None => names.into(),
        Some(rest) => format!("{names}/{rest}").into(),
    }
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
            ("cq,wl,pods", "cq,workloads.kueue.x-k8s.io,pods"),
        ] {
            assert_eq!(kubectl_name(OsStr::new(given)), expected, "{given}");
        }
    }

    /// The value of a flag is no kind, wherever the flag stands.
    #[test]
    fn the_kind_is_found_behind_flags_with_values() {
        let wl = "workloads.kueue.x-k8s.io";
        for (line, expected) in [
            ("wl", wl.to_owned()),
            ("-n team wl", format!("-n team {wl}")),
            ("-n wl wl", format!("-n wl {wl}")),
            ("-nwl wl", format!("-nwl {wl}")),
            ("-wn wl wl x", format!("-wn wl {wl} x")),
            ("-A wl", format!("-A {wl}")),
            ("--namespace=wl wl wl", format!("--namespace=wl {wl} wl")),
            ("--as wl --as-group wl -o wl -l wl wl", format!("--as wl --as-group wl -o wl -l wl {wl}")),
            ("--show-labels wl -v 6", format!("--show-labels {wl} -v 6")),
            ("wl/a -p wl wl/b job/wl", format!("{wl}/a -p wl {wl}/b job/wl")),
            ("-- wl -n", format!("-- {wl} -n")),
            ("-f wl", "-f wl".to_owned()),
            ("--raw /wl/x", "--raw /wl/x".to_owned()),
            ("-n", "-n".to_owned()),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let named = with_kubectl_names(&words);
            let named: Vec<&str> = named.iter().map(|word| word.to_str().unwrap()).collect();
            assert_eq!(named.join(" "), expected, "{line}");
        }
    }
}

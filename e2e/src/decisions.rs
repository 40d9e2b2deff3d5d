//! Replays recorded scheduling decisions of Kueue: the checker runs `sluice simulate --jsonl`. Needs no cluster.

use crate::binaries::{self, Build};
use crate::paths;
use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use tokio::process::Command;

/// Suites that are replayed.
pub const SUITES: [&str; 16] = [
    "schedule",
    "fair-sharing",
    "preemption",
    "fair-preemption",
    "concurrent-admission",
    "admission-fair-sharing",
    "generated-flat",
    "generated-hier",
    "generated-fair",
    "generated-flavor",
    "generated-afs",
    "tas",
    "tas-preemption",
    "tas-placement",
    "generated-tas",
    "generated-second-pass",
];

/// Shell script that plays scenarios from its standard input with a command, and keeps the outcome in a folder, by what was played.
const PLAY: &str = r#"cat >"$0/scenarios" && outcome="$0/$(cksum <"$0/scenarios" | tr -d ' ')" &&
    "$@" <"$0/scenarios" >"$outcome" && cat "$outcome""#;
/// Shell script that takes the outcome of scenarios from the folder.
const TAKE: &str = r#"cat "$0/$(cksum | tr -d ' ')""#;

/// Runs the checker with these options. All decisions and conditions must match the recording or be listed as deviations, and 98 % of
/// the queues. Scenarios are played once, for the first of the two comparisons.
pub async fn run(checker: &Path, options: &[OsString]) -> Result<()> {
    let program = binaries::sluice(Build::Dev)?;
    let outcomes = paths::target().join("conformance/outcomes");
    if outcomes.exists() {
        fs::remove_dir_all(&outcomes)?;
    }
    fs::create_dir_all(&outcomes)?;
    let simulate = [program.into_os_string(), "simulate".into(), "--jsonl".into()];
    let exact = ["--level", "decisions", "--level", "conditions"];
    let approximate = ["--level", "queues", "--together", "--min", "98"];
    let nothing: &[OsString] = &[];
    for (levels, script, played) in
        [(exact.as_slice(), PLAY, simulate.as_slice()), (approximate.as_slice(), TAKE, nothing)]
    {
        let mut command = Command::new("python3");
        command.arg(checker).args(levels).args(options);
        command.args(["--", "sh", "-c", script]).arg(&outcomes).args(played).current_dir(paths::root());
        let status = command.kill_on_drop(true).status().await.context("cannot run python3")?;
        if !status.success() {
            bail!("scheduling decisions differ from the recording");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::Stdio;

    /// Returns what a script prints if it succeeds.
    fn printed(script: &str, folder: &Path, command: &[&str], input: &str) -> Option<String> {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script]).arg(folder).args(command);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = shell.wait_with_output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn outcomes_are_taken_for_the_same_scenarios() {
        let folder = std::env::temp_dir().join(format!("sluice-outcomes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (scenarios, outcome) in [("a\n", "b\n"), ("aa\n", "bb\n")] {
            let played = printed(PLAY, &folder, &["tr", "a", "b"], scenarios);
            assert_eq!(played.as_deref(), Some(outcome));
        }
        assert_eq!(printed(TAKE, &folder, &[], "a\n").as_deref(), Some("b\n"));
        assert_eq!(printed(TAKE, &folder, &[], "aa\n").as_deref(), Some("bb\n"));
        assert_eq!(printed(TAKE, &folder, &[], "aaa\n"), None);
        assert_eq!(printed(PLAY, &folder, &["false"], "aaaa\n"), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}

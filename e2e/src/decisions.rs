//! Replays recorded scheduling decisions of Kueue: the checker runs `sluice simulate --jsonl`. Needs no cluster.

use crate::binaries::{self, Build};
use crate::paths;
use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
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

/// Runs the checker with these options. All decisions and conditions must match the recording or be listed as deviations, and 98 % of
/// the queues.
pub async fn run(checker: &Path, options: &[OsString]) -> Result<()> {
    let program = binaries::sluice(Build::Dev)?;
    let exact = ["--level", "decisions", "--level", "conditions"];
    let approximate = ["--level", "queues", "--together", "--min", "98"];
    for levels in [exact.as_slice(), approximate.as_slice()] {
        let mut command = Command::new("python3");
        command.arg(checker).args(levels).args(options);
        command.arg("--").arg(&program).args(["simulate", "--jsonl"]).current_dir(paths::root());
        let status = command.kill_on_drop(true).status().await.context("cannot run python3")?;
        if !status.success() {
            bail!("scheduling decisions differ from the recording");
        }
    }
    Ok(())
}

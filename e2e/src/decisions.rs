//! Recorded decisions of Kueue's scheduler, replayed by `sluice simulate --jsonl` under the shared checker. No cluster.

use crate::conformance::ConformanceRequest;
use crate::{binaries, paths};
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use tokio::process::Command;

/// The suites that are judged.
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

/// Runs the checker: decisions and conditions must all be as recorded or listed as a deviation, of the queues 98 %.
pub async fn run(request: &ConformanceRequest, checker: &Path) -> Result<()> {
    let program = binaries::sluice(false)?;
    let exact = ["--level", "decisions", "--level", "conditions"];
    let close = ["--level", "queues", "--together", "--min", "98"];
    for levels in [exact.as_slice(), close.as_slice()] {
        let mut command = Command::new("python3");
        command.arg(checker).args(levels).args(request.options(
            "--suite",
            &SUITES,
            "conformance-deviations.tsv",
        ));
        command.arg("--").arg(&program).args(["simulate", "--jsonl"]).current_dir(paths::root());
        let status = command.kill_on_drop(true).status().await.context("cannot run python3")?;
        if !status.success() {
            bail!("not every decision is as recorded");
        }
    }
    Ok(())
}

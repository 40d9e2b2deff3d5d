//! Ctrl-C on the demo, at any time, leaves no process and no folder.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, bail, ensure};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::wait::eventually;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// Output at which the signal is sent: before any process runs, when all processes run, when Jobs are running and
/// pending.
const INTERRUPT_POINTS: [&str; 3] = ["starting etcd", "  ready after", "2. physics is full"];

pub(crate) async fn interrupted_demo_leaves_nothing(_: &mut Cluster, _: &Fixture) -> Result<()> {
    for point in INTERRUPT_POINTS {
        let mut demo = Command::new(env!("CARGO_BIN_EXE_sluice-e2e"))
            .arg("demo")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let outcome = interrupt(&mut demo, point).await;
        // It has already exited unless a check failed.
        let _ = demo.kill();
        outcome.with_context(|| format!("interrupted at {point:?}"))?;
    }
    Ok(())
}

async fn interrupt(demo: &mut Child, point: &str) -> Result<()> {
    let folder = format!("run-{}", demo.id());
    let mut lines = BufReader::new(demo.stdout.take().context("no output")?).lines();
    loop {
        let Some(line) = lines.next().transpose()? else { bail!("the demo ended before it printed this") };
        if line.starts_with(point) {
            break;
        }
    }
    let started = eventually("a process of the demo is running", async || {
        let count = processes(&folder)?;
        ensure!(count > 0, "no process is running");
        Ok(count)
    })
    .await?;
    // Like a terminal, send the signal to the whole foreground process group.
    let group = format!("kill -INT -{}", demo.id());
    ensure!(Command::new("sh").args(["-c", &group]).status()?.success(), "no signal was sent");
    // Read the remaining output, so that a full pipe does not block the demo.
    while lines.next().transpose()?.is_some() {}
    let status = demo.wait()?;
    ensure!(!status.success(), "the interrupted demo exited with success");
    eventually(format!("all {started} processes have exited"), async || {
        let left = processes(&folder)?;
        ensure!(left == 0, "{left} are still running");
        Ok(())
    })
    .await?;
    ensure!(!sluice_e2e::paths::controlplane().join(&folder).exists(), "its folder still exists");
    Ok(())
}

/// Counts the processes that name this folder on their command lines.
fn processes(folder: &str) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path().join("cmdline");
        // A process may exit while the processes are listed.
        let line = std::fs::read(path).unwrap_or_default();
        count += usize::from(String::from_utf8_lossy(&line).contains(folder));
    }
    Ok(count)
}

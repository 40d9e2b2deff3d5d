//! Ctrl-C on the demo, whenever it comes, leaves no process and no folder.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, bail, ensure};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::wait::eventually;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// What the demo has printed when the signal comes: nothing runs yet, everything runs, Jobs run and wait.
const INTERRUPT_POINTS: [&str; 3] = ["starting etcd", "  ready after", "2. physics is full"];

pub(crate) async fn interrupted_demo_leaves_nothing(_: &mut Cluster, _: &Fixture) -> Result<()> {
    for moment in INTERRUPT_POINTS {
        let mut demo = Command::new(env!("CARGO_BIN_EXE_sluice-e2e"))
            .arg("demo")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let outcome = interrupt(&mut demo, moment).await;
        // It has ended unless something went wrong.
        let _ = demo.kill();
        outcome.with_context(|| format!("interrupted at {moment:?}"))?;
    }
    Ok(())
}

async fn interrupt(demo: &mut Child, moment: &str) -> Result<()> {
    let folder = format!("run-{}", demo.id());
    let mut lines = BufReader::new(demo.stdout.take().context("no output")?).lines();
    loop {
        let Some(line) = lines.next().transpose()? else { bail!("it ended before") };
        if line.starts_with(moment) {
            break;
        }
    }
    let started = eventually("something of it runs", async || {
        let count = processes(&folder)?;
        ensure!(count > 0, "nothing does");
        Ok(count)
    })
    .await?;
    // As a terminal does it: the whole foreground group gets the signal.
    let group = format!("kill -INT -{}", demo.id());
    ensure!(Command::new("sh").args(["-c", &group]).status()?.success(), "no signal was sent");
    // What it still prints must not fill the pipe.
    while lines.next().transpose()?.is_some() {}
    let status = demo.wait()?;
    ensure!(!status.success(), "it says that all went well");
    eventually(format!("none of {started} processes is left"), async || {
        let left = processes(&folder)?;
        ensure!(left == 0, "{left} are");
        Ok(())
    })
    .await?;
    ensure!(!sluice_e2e::paths::controlplane().join(&folder).exists(), "its folder is left");
    Ok(())
}

/// How many processes name this folder on their command lines.
fn processes(folder: &str) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path().join("cmdline");
        // Processes come and go while they are listed.
        let line = std::fs::read(path).unwrap_or_default();
        count += usize::from(String::from_utf8_lossy(&line).contains(folder));
    }
    Ok(count)
}

//! A run of `sluice migrate` in the background, on a cluster that is switched live, and what it prints.

use crate::cases::note;
use crate::live_switch::{Live, TAKEOVER};
use anyhow::{Context as _, Result, ensure};
use sluice_e2e::process::{Process, tail};
use sluice_e2e::wait::within;
use std::fs;
use std::path::PathBuf;

/// Returns the components of `config` that a run has printed.
pub(crate) fn printed_components(output: &str) -> Result<Vec<String>> {
    let line = output.lines().find_map(|line| line.split_once("under components: "));
    let (_, components) = line.context("no components are printed")?;
    Ok(components.split(", ").map(|component| component.replace("../", "")).collect())
}

/// A migration that runs in the background.
pub(crate) struct Run {
    pub(crate) process: Process,
    log: PathBuf,
    verb: &'static str,
}

impl Run {
    /// Begins one and waits until it asks for commands.
    pub(crate) async fn begin(live: &Live, verb: &'static str) -> Result<Self> {
        let log = live.file(&format!("migrate-{verb}.log"));
        let mut command = live.command(&[verb, "--yes"])?;
        let process = Process::start("sluice migrate", &mut command, &log, &live.installation.plane.guard)?;
        let run = Self { process, log, verb };
        within(TAKEOVER, format!("{verb} prints its commands"), async || {
            ensure!(run.text()?.contains("waiting for"), "{}", run.text()?);
            Ok(())
        })
        .await?;
        Ok(run)
    }

    pub(crate) fn text(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// Returns the commands that it has printed.
    pub(crate) fn commands(&self) -> Result<Vec<String>> {
        let output = self.text()?;
        let lines = output.lines().map(str::trim);
        let commands: Vec<String> = lines
            .filter(|line| line.starts_with("kubectl ") || line.starts_with("helm "))
            .map(str::to_owned)
            .collect();
        ensure!(!commands.is_empty(), "no commands in\n{output}");
        Ok(commands)
    }

    /// Waits for its end; it must have come to its last step.
    pub(crate) async fn wait_until_done(&self) -> Result<()> {
        within(TAKEOVER, format!("{} is done", self.verb), async || {
            let output = self.text()?;
            ensure!(self.process.check().is_err(), "it still runs:\n{}", tail(&self.log, 20));
            ensure!(output.contains("step 7 of 7, everything is stored in v1beta2: done"), "{output}");
            Ok(())
        })
        .await?;
        note(format_args!("{}: {} lines", self.verb, self.text()?.lines().count()));
        Ok(())
    }
}

//! Runs of `sluice migrate` in a switch: they are killed when each step begins, and repeated.

use super::takeover::Takeover;
use crate::binaries::{self, Build};
use crate::process::{Process, tail};
use crate::wait::{TIMEOUT, within};
use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Steps before the one in which the user replaces the manager, and that one.
const BEFORE: usize = 3;
/// All steps.
const STEPS: usize = 7;

impl Takeover<'_> {
    /// Goes as far as a run does before the manager is replaced: it is killed, repeated, prints the command, and waits.
    pub(super) async fn migrate_until_replaced(&self, verb: &str) -> Result<()> {
        for step in 1..=BEFORE {
            let run = self.begin(verb, step)?;
            run.wait_for(&format!("step {step} of {STEPS}")).await?;
            if step == BEFORE {
                run.wait_for("run this").await?;
            }
            run.process.kill();
        }
        Ok(())
    }

    /// Kills a run as each of the remaining steps begins, repeats it to its end, and once more, when it has nothing to do.
    pub(super) async fn migrate_to_the_end(&self, verb: &str) -> Result<()> {
        for step in BEFORE + 1..=STEPS {
            let run = self.begin(verb, step)?;
            run.wait_for(&format!("step {step} of {STEPS}")).await?;
            run.process.kill();
        }
        let output = self.migrate(&[verb, "--yes", "--timeout", "60"])?;
        ensure!(output.contains(&format!("step {STEPS} of {STEPS}")), "{output}");
        let again = self.migrate(&[verb, "--dry-run"])?;
        let due: Vec<&str> =
            again.lines().filter(|line| line.starts_with("step") && !line.ends_with(": done")).collect();
        ensure!(due.is_empty(), "still due after the end:\n{again}");
        println!("{}: migrate {verb}, killed at each step: {}", self.store.name, output.lines().count());
        Ok(())
    }

    /// Runs `sluice migrate` to its end; returns its output.
    pub(super) fn migrate(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments)?.output().context("cannot run sluice")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!(
                "sluice migrate {}: {}\n{text}{}",
                arguments.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(text)
    }

    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(binaries::sluice(Build::Dev)?);
        command.arg("migrate").args(arguments).arg("--kubeconfig").arg(self.plane.admin_kubeconfig());
        Ok(command)
    }

    fn begin(&self, verb: &str, number: usize) -> Result<Run> {
        let log = self.plane.folder().join(format!("migrate-{verb}-{number}.log"));
        let mut command = self.command(&[verb, "--yes"])?;
        let process = Process::start("sluice migrate", &mut command, &log, &self.plane.guard)?;
        Ok(Run { process, log })
    }
}

/// A run in the background.
struct Run {
    process: Process,
    log: PathBuf,
}

impl Run {
    /// Waits until its output has a text.
    async fn wait_for(&self, text: &str) -> Result<()> {
        within(TIMEOUT, format!("sluice migrate prints {text:?}"), async || {
            let found = fs::read_to_string(&self.log)?.contains(text);
            ensure!(found, "its output ends:\n{}", tail(&self.log, 20));
            Ok(())
        })
        .await
    }
}

//! Builds that run at the same time and print what they do. The first that fails interrupts the others.
//!
//! Invariant: no build starts after one has failed.

use anyhow::{Context as _, Error, Result, bail};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(15);
/// Lines of a failed build that its error has.
const LAST_LINES: usize = 20;

/// What a line of a build's standard error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A package or crate is compiled.
    Step(&'a str),
    /// Nothing to show unless the build fails.
    Quiet,
    /// To be shown at once.
    Shown,
}

/// How a build's output is read: its name, the word for what it counts, and what its lines are.
pub(crate) struct Reading {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) line: fn(&str) -> Line<'_>,
}

#[derive(Default)]
struct Running {
    pids: Vec<u32>,
    first_error: Option<Error>,
}

/// Builds that end together.
#[derive(Default)]
pub struct Builds(Mutex<Running>);

impl Builds {
    /// Runs both at the same time; returns the error of the one that failed first.
    pub fn both(
        &self,
        one: impl FnOnce(&Self) -> Result<()> + Send,
        other: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        thread::scope(|scope| {
            scope.spawn(|| self.record(one(self)));
            self.record(other(self));
        });
        self.running().first_error.take().map_or(Ok(()), Err)
    }

    /// Runs a command that builds with Cargo, such as `cargo build --bin sluice`.
    pub fn cargo(&self, words: &[OsString]) -> Result<()> {
        let (program, arguments) = words.split_first().context("no command")?;
        let shown: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        println!("Rust: {}", shown.join(" "));
        let mut command = Command::new(program);
        command.args(arguments);
        without_cargo_run(&mut command);
        let reading = Reading { name: "Rust".to_owned(), unit: "crates", line: line_of_cargo };
        self.follow(&mut command, &reading).with_context(|| shown.join(" "))
    }

    /// Runs a build to its end.
    pub(crate) fn follow(&self, command: &mut Command, reading: &Reading) -> Result<()> {
        let begun = Instant::now();
        let Reading { name, unit, line: kind_of } = reading;
        let mut child = self.spawn(command)?;
        let (sender, lines) = mpsc::channel();
        let stderr = child.stderr.take().context("no standard error")?;
        let reader = thread::spawn(move || {
            let lines = BufReader::new(stderr).split(b'\n').map_while(Result::ok);
            for line in lines {
                // The other side stops listening only when it has failed itself.
                let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        let (mut next, mut count, mut now, mut last) =
            (begun + PROGRESS, 0_u32, "starting".to_owned(), Vec::new());
        loop {
            match lines.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(line) => match kind_of(&line) {
                    Line::Step(step) => {
                        count += 1;
                        step.clone_into(&mut now);
                    }
                    Line::Quiet => {
                        if last.len() == LAST_LINES {
                            last.remove(0);
                        }
                        last.push(line);
                    }
                    Line::Shown => eprintln!("{line}"),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= next {
                next = Instant::now() + PROGRESS;
                println!("  {name}: {count} {unit} after {} s, now {now}", begun.elapsed().as_secs());
            }
        }
        // Before it is waited for: its id may then belong to another process.
        self.running().pids.retain(|pid| *pid != child.id());
        let status = child.wait()?;
        let _ = reader.join();
        if !status.success() {
            last.insert(0, format!("failed ({status})"));
            bail!(last.join("\n"));
        }
        println!("  {name}: {count} {unit}, done in {} s", begun.elapsed().as_secs());
        Ok(())
    }

    fn spawn(&self, command: &mut Command) -> Result<Child> {
        let mut running = self.running();
        if running.first_error.is_some() {
            bail!("another build has failed");
        }
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let child =
            command.spawn().with_context(|| format!("cannot run {}", command.get_program().display()))?;
        running.pids.push(child.id());
        Ok(child)
    }

    /// Keeps the first error and ends what is still running.
    fn record(&self, outcome: Result<()>) {
        let Err(error) = outcome else { return };
        let mut running = self.running();
        if running.first_error.is_none() {
            running.first_error = Some(error);
        }
        for pid in &running.pids {
            let script = format!("kill -TERM {pid}");
            let _ = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status();
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the variables that `cargo run` sets: build scripts would see them as a change, and many crates would be built again.
pub fn without_cargo_run(command: &mut Command) {
    let is_of_cargo_run = |name: &OsString| {
        ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|word| name.to_string_lossy().starts_with(word))
    };
    for name in std::env::vars_os().map(|(name, _)| name).filter(is_of_cargo_run) {
        command.env_remove(name);
    }
}

fn line_of_cargo(line: &str) -> Line<'_> {
    match line.trim_start().split_once(' ') {
        Some(("Compiling", of)) => Line::Step(of.split(' ').next().unwrap_or(of)),
        Some(("Downloading" | "Downloaded" | "Updating" | "Blocking" | "Finished" | "Executable", _)) => {
            Line::Quiet
        }
        _ => Line::Shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    /// A build that would take a minute.
    fn long(builds: &Builds) -> Result<()> {
        let reading = Reading { name: "long".to_owned(), unit: "steps", line: |_| Line::Quiet };
        builds.follow(Command::new("sleep").arg("60"), &reading)
    }

    #[test]
    fn first_failure_interrupts_the_other_build() {
        let begun = Instant::now();
        let error =
            Builds::default().both(long, |builds| builds.cargo(&words("false --locked"))).unwrap_err();
        assert!(format!("{error:#}").contains("false --locked: failed"), "{error:#}");
        let error = Builds::default().both(|_| bail!("no compiler"), long).unwrap_err();
        assert_eq!(format!("{error:#}"), "no compiler");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }

    #[test]
    fn error_has_the_last_lines_of_the_build() {
        let script = "for n in $(seq 30); do echo line $n >&2; done; exit 3";
        let reading = Reading { name: "failing".to_owned(), unit: "steps", line: |_| Line::Quiet };
        let error = Builds::default().follow(Command::new("sh").args(["-c", script]), &reading).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("line 30") && text.contains("line 11") && !text.contains("line 10"), "{text}");
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let error = Builds::default().cargo(&words("/no/such/cargo build")).unwrap_err();
        assert!(format!("{error:#}").contains("cannot run /no/such/cargo"), "{error:#}");
    }

    #[test]
    fn warnings_and_errors_of_cargo_are_shown() {
        assert_eq!(line_of_cargo("   Compiling kube v5.0.0"), Line::Step("kube"));
        assert_eq!(line_of_cargo("  Downloaded kube v5.0.0"), Line::Quiet);
        for line in ["error[E0308]: mismatched types", "warning: unused", "   --> src/lib.rs:1:1", ""] {
            assert_eq!(line_of_cargo(line), Line::Shown, "{line}");
        }
    }
}

//! The walk over the steps of one direction.
//!
//! Invariants: a write is made only if its step found it due in the cluster just before, so that a run that was killed between
//! any two writes can be repeated and ends in the same state. While the API server does not answer nothing is decided: the
//! cluster is read again first.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::Instant;

use super::inventory::{self, Inventory};
use super::steps::{self, Change, Direction, State, Step};
use crate::kube::client::{CallError, Caller};

/// Interval between two reads of the cluster while a command of the user takes effect.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long an API server that has just started may take to read all kinds, while a manager that converts them is available.
const SETTLING: Duration = Duration::from_secs(30);
/// Number of attempts after which a step that is still due must have another writer against it.
const MAX_ATTEMPTS: usize = 5;

/// One run over the steps.
pub(super) struct Walk<'a> {
    pub(super) caller: &'a Caller,
    /// Namespace of the manager.
    pub(super) namespace: &'a str,
    /// Longest wait for the effect of a command, and for an API server that does not answer.
    pub(super) timeout: Duration,
    /// Prints text for the user.
    pub(super) print: &'a dyn Fn(&str) -> anyhow::Result<()>,
}

impl Walk<'_> {
    /// Reads the cluster. Waits for an API server that does not answer, or that cannot read all kinds yet. `noted` is set once
    /// the wait is printed.
    async fn read(&self, deadline: Instant, noted: &mut bool) -> anyhow::Result<Inventory> {
        let settled = Instant::now() + SETTLING;
        loop {
            let why = match Inventory::read(self.caller, self.namespace).await {
                Ok(inventory) => match inventory.unread_kind() {
                    Some(why) if Instant::now() < settled => why,
                    _ => return Ok(inventory),
                },
                Err(error) if is_outage(&error) && Instant::now() < deadline => format!("{error:#}"),
                Err(error) => return Err(error),
            };
            self.note_outage(noted, &why)?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Prints once, unless `noted` is set, why the run waits.
    fn note_outage(&self, noted: &mut bool, why: &str) -> anyhow::Result<()> {
        if std::mem::replace(noted, true) {
            return Ok(());
        }
        (self.print)(&format!("  waiting for the API server: {why}\n"))
    }

    /// Prints the due steps; returns whether there is none. The titles of steps after one that waits for the user say that they
    /// depend on its effect.
    pub(super) async fn preview(&self, direction: Direction) -> anyhow::Result<bool> {
        let inventory = self.read(Instant::now() + SETTLING, &mut false).await?;
        let steps = steps::of(direction);
        let (mut done, mut waits) = (true, false);
        for (position, step) in steps.iter().enumerate() {
            let state = (step.state)(&inventory);
            done &= matches!(state, State::Done);
            let title = title(position, steps.len(), step);
            let title = if waits { format!("{title}, as far as the command above leaves it") } else { title };
            self.show(&title, &state)?;
            if matches!(state, State::Refused(_)) {
                break;
            }
            waits |= matches!(state, State::Command { .. });
        }
        Ok(done)
    }

    /// Takes all steps.
    pub(super) async fn take(&self, direction: Direction) -> anyhow::Result<()> {
        let steps = steps::of(direction);
        for (position, step) in steps.iter().enumerate() {
            self.take_step(&title(position, steps.len(), step), step).await?;
        }
        Ok(())
    }

    /// Does one step, or waits until the user has done it.
    async fn take_step(&self, title: &str, step: &Step) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.timeout;
        let (mut attempts, mut shown, mut noted, mut interrupted) = (0, None, false, false);
        loop {
            let read = self.read(deadline, &mut noted).await.with_context(|| title.to_owned());
            let state = (step.state)(&read?);
            match &state {
                State::Done => return self.show(title, &state),
                State::Refused(_) => {
                    self.show(title, &state)?;
                    bail!("{title}: refused");
                }
                State::Changes(changes) => {
                    if attempts == MAX_ATTEMPTS {
                        bail!(
                            "{title}: still due after {attempts} attempts: something else writes the same objects"
                        );
                    }
                    if !std::mem::take(&mut interrupted) {
                        self.show(title, &state)?;
                    }
                    match self.make_all(changes).await {
                        Ok(()) => attempts += 1,
                        Err(error) if is_outage(&error) && Instant::now() < deadline => {
                            self.note_outage(&mut noted, &format!("{error:#}"))?;
                            interrupted = true;
                            tokio::time::sleep(POLL_INTERVAL).await;
                        }
                        Err(error) => return Err(error.context(title.to_owned())),
                    }
                }
                State::Command { lines, waits_for } => {
                    match &shown {
                        None => self.show(title, &state)?,
                        Some(last) if last != waits_for => {
                            (self.print)(&format!("  waiting for {waits_for}\n"))?;
                        }
                        Some(_) => {}
                    }
                    shown = Some(waits_for.clone());
                    if Instant::now() > deadline {
                        let hint = if lines.is_empty() {
                            ""
                        } else {
                            "; the commands above are not run, or without effect"
                        };
                        bail!(
                            "{title}: after {} s still waiting for {waits_for}{hint}",
                            self.timeout.as_secs()
                        );
                    }
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
        }
    }

    async fn make_all(&self, changes: &[Change]) -> anyhow::Result<()> {
        for change in changes {
            self.make(change).await.with_context(|| change.what.clone())?;
        }
        Ok(())
    }

    /// Makes one change. An object that does not exist needs no deletion.
    async fn make(&self, change: &Change) -> anyhow::Result<()> {
        match self.caller.call(change.verb.clone(), &change.path, change.content, change.body.as_ref()).await
        {
            Err(error) if error.code() == Some(inventory::NOT_FOUND) => Ok(()),
            outcome => Ok(outcome.map(drop)?),
        }
    }

    fn show(&self, title: &str, state: &State) -> anyhow::Result<()> {
        let text = match state {
            State::Done => format!("{title}: done\n"),
            State::Refused(reasons) => format!("{title}: refused\n{}", indented(reasons)),
            State::Changes(changes) => {
                let lines: Vec<String> = changes.iter().map(|change| change.what.clone()).collect();
                format!("{title}\n{}", indented(&lines))
            }
            State::Command { lines, waits_for } if lines.is_empty() => {
                format!("{title}\n  waiting for {waits_for}\n")
            }
            State::Command { lines, waits_for } => {
                format!("{title}: run this\n{}  waiting for {waits_for}\n", indented(lines))
            }
        };
        (self.print)(&text)
    }
}

/// Returns whether a call failed because the API server, its store, or a webhook that it asks does not answer.
fn is_outage(error: &anyhow::Error) -> bool {
    let call = error.chain().find_map(|cause| cause.downcast_ref::<CallError>());
    call.is_some_and(CallError::is_outage)
}

fn title(position: usize, count: usize, step: &Step) -> String {
    format!("step {} of {count}, {}", position + 1, step.title)
}

fn indented(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |text, line| text + "  " + line + "\n")
}

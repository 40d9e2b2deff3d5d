//! `sluice move workload`: gives Workloads another LocalQueue.
//!
//! A pending Workload moves in place. One with quota is stopped first, because its queue cannot change while it has any; if
//! that is interrupted, the commands for the rest are printed.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::args::{WorkloadArgs, WriteArgs};
use super::changing::patch;
use super::connection::{ConnectionArgs, Session};
use super::failure::{NOT_FOUND, Outcomes, not_found};
use super::kinds::PeopleKind;
use super::pages::encoded;
use super::preview::{self, Preview};
use super::reading::clock;
use super::targets::{self, Owner, Target};
use super::writing::{DryRun, Writer};
use super::{counted, note, note_lines};
use crate::api::names::QUEUE_NAME_LABEL;
use crate::cli::files;
use crate::people::duration::{TimeLimit, human, parse};
use crate::people::object_text::name_text;
use crate::people::workload_object::{WorkloadState, is_true, run_time, text_at};

/// Interval between two reads of a Workload that releases its quota.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `move`.
#[derive(Debug, clap::Args)]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    kind: MoveKind,
}

#[derive(Debug, clap::Subcommand)]
enum MoveKind {
    /// Give Workloads another LocalQueue
    #[command(aliases = ["wl", "workloads", "kwl", "kueueworkload", "kueueworkloads"])]
    Workload {
        #[command(flatten)]
        workloads: WorkloadArgs,
        /// The LocalQueue.
        #[arg(long, value_name = "LOCALQUEUE")]
        to: String,
        /// Stop Workloads that have quota, and resume them in the other queue.
        #[arg(long)]
        evict: bool,
        /// How long to wait for the quota.
        #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse)]
        timeout: TimeLimit,
    },
}

/// Parameters of a move.
struct Move<'a> {
    session: &'a Session,
    write: &'a WriteArgs,
    to: &'a str,
    evict: bool,
    timeout: Option<Duration>,
    /// Whether the positions after the move are shown.
    asks: bool,
}

pub(crate) async fn run(args: &MoveArgs) -> anyhow::Result<ExitCode> {
    let MoveKind::Workload { workloads, to, evict, timeout } = &args.kind;
    args.write.output.format()?;
    if workloads.all_namespaces {
        bail!("a LocalQueue is of one namespace: -A cannot be used with move");
    }
    let session = args.connection.connect().await?;
    let cluster_queue = cluster_queue(&session, to).await?.ok_or(());
    let Ok(cluster_queue) = cluster_queue else {
        let namespace = session.namespace.as_str();
        let collection = PeopleKind::LocalQueue.collection(Some(namespace));
        return Err(not_found(&session.caller, "localqueue", to, &collection, Some(namespace)).await);
    };
    let (targets, failed) = targets::read(&session, workloads).await?;
    let mut outcomes = Outcomes::default();
    for error in failed {
        outcomes.count(Err(error));
    }
    let moved = Move {
        session: &session,
        write: &args.write,
        to,
        evict: *evict,
        timeout: timeout.0,
        asks: targets.len() <= preview::MOST,
    };
    if workloads.is_bulk() && !targets.is_empty() {
        let count = counted(targets.len(), "workload");
        note(&format!("This moves {count} to LocalQueue {to}:"));
        note_lines(targets.iter().map(Target::line));
        if !args.write.confirm(&format!("move {count}"))? {
            note("nothing was changed");
            return Ok(ExitCode::SUCCESS);
        }
    }
    for target in targets {
        outcomes.count(moved.one(target, &cluster_queue).await);
    }
    Ok(outcomes.status())
}

/// Returns the ClusterQueue of a LocalQueue; `None` if there is no such LocalQueue.
async fn cluster_queue(session: &Session, name: &str) -> anyhow::Result<Option<String>> {
    match session.caller.get(&PeopleKind::LocalQueue.object(&session.namespace, name)).await {
        Ok(queue) => Ok(Some(text_at(&queue, "/spec/clusterQueue").unwrap_or_default().to_owned())),
        Err(error) if error.code() == Some(NOT_FOUND) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Move<'_> {
    async fn one(&self, target: Target, to_cluster_queue: &str) -> anyhow::Result<()> {
        let names = subject(&target);
        let from = text_at(&target.workload, "/spec/queueName").unwrap_or_default().to_owned();
        if from == self.to {
            note(&format!("{names} is in {from} already"));
            return Ok(());
        }
        let state = target.state();
        if state == WorkloadState::Finished {
            bail!("{names} has finished");
        }
        let has_quota = is_true(&target.workload, "QuotaReserved");
        if has_quota && !self.evict {
            let (namespace, name) = (encoded(target.namespace()), encoded(target.name()));
            let path = format!("namespaces/{namespace}/workloadviews/{name}");
            return Err(refusal(&target, &names, clock::of_manager(self.session, &path).await));
        }
        let before = cluster_queue(self.session, &from).await?;
        note(&format!(
            "{names}: {from} -> {} (ClusterQueue {} -> {to_cluster_queue})",
            self.to,
            before.as_deref().unwrap_or("none")
        ));
        if self.asks {
            let change = preview::change("queue", &json!(self.to));
            let preview = Preview::after(self.session, &target, &change).await;
            let lines = preview.iter().flat_map(|preview| [preview.position(), preview.warning()]);
            lines.flatten().for_each(|line| note(&format!("  {line}")));
        }
        let writer = Writer { caller: &self.session.caller, dry_run: self.write.dry_run };
        if !has_quota {
            return self.relabel(&writer, &target).await;
        }
        self.stop(&writer, &target).await?;
        if self.write.dry_run == DryRun::Client || self.write.dry_run == DryRun::Server {
            // Nothing was stopped, so a server would refuse the next writes.
            return files::print(&format!(
                "{names} would be stopped, moved and resumed{}\n",
                self.write.dry_run.suffix()
            ));
        }
        let left = |error: anyhow::Error, step: &str| {
            let name = target.name();
            anyhow!("{error:#}\nleft to do: {step}sluice resume workload {name} -n {}", target.namespace())
        };
        let relabel = format!("set label {QUEUE_NAME_LABEL}={} of {names}, then ", self.to);
        let interrupted = tokio::signal::ctrl_c();
        let moved = async {
            self.wait_for_quota(&target).await?;
            self.relabel(&writer, &target).await
        };
        let outcome = tokio::select! {
            outcome = moved => outcome,
            _ = interrupted => Err(anyhow!("interrupted")),
        };
        outcome.map_err(|error| left(error, &relabel))?;
        let now = self.session.caller.get(&target.path()).await?;
        let resume = |_: &Value| Ok(json!({"spec": {"active": true}}));
        patch(&writer, &target.path(), now, resume).await.map(drop).map_err(|error| left(error, ""))
    }

    async fn stop(&self, writer: &Writer<'_>, target: &Target) -> anyhow::Result<()> {
        let stop = |_: &Value| Ok(json!({"spec": {"active": false}}));
        patch(writer, &target.path(), target.workload.clone(), stop).await.map(drop)
    }

    async fn wait_for_quota(&self, target: &Target) -> anyhow::Result<()> {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let now = self.session.caller.get(&target.path()).await?;
            if !is_true(&now, "QuotaReserved") {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                bail!(
                    "{} still has quota after {}: use --timeout",
                    target.name(),
                    human_timeout(self.timeout)
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Sets the queue name of the owners, or of the Workload if it has no owner.
    async fn relabel(&self, writer: &Writer<'_>, target: &Target) -> anyhow::Result<()> {
        if target.owners.is_empty() {
            let now = self.session.caller.get(&target.path()).await?;
            let decide = |_: &Value| Ok(json!({"spec": {"queueName": self.to}}));
            let stored = patch(writer, &target.path(), now, decide).await?;
            return self.write.print(&stored, "moved");
        }
        for owner in &target.owners {
            let stored = set_label(writer, owner, QUEUE_NAME_LABEL, self.to).await?;
            self.write.print(&stored, "moved")?;
        }
        Ok(())
    }
}

/// Sets a label of the owner that was read, if it is still the same object.
pub(super) async fn set_label(
    writer: &Writer<'_>,
    owner: &Owner,
    label: &str,
    value: &str,
) -> anyhow::Result<Value> {
    let now = writer.caller.get(&owner.path).await?;
    if text_at(&now, "/metadata/uid") != Some(owner.uid.as_str()) {
        bail!("skipped: {} was created again since it was read", owner.name);
    }
    patch(writer, &owner.path, now, |_| Ok(json!({"metadata": {"labels": {label: value}}}))).await
}

/// Returns the names of the jobs of a Workload, or its own name if it has no job.
pub(super) fn subject(target: &Target) -> String {
    match target.owners.as_slice() {
        [] => name_text(&target.workload),
        [only] => only.name.clone(),
        [first, rest @ ..] => format!("{} and {} more", first.name, rest.len()),
    }
}

/// Returns the error for a Workload with quota, whose pods would be stopped. `now` is the time to which their run time counts.
fn refusal(target: &Target, names: &str, now: Timestamp) -> anyhow::Error {
    let pods: usize = target
        .workload
        .pointer("/status/admission/podSetAssignments")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|assignment| usize::try_from(assignment.get("count")?.as_u64()?).ok())
        .sum();
    match run_time(&target.workload, now) {
        Some(seconds) => {
            anyhow!(
                "{names} is admitted; moving it stops {} that have run for {}: use --evict",
                counted(pods, "pod"),
                human(seconds)
            )
        }
        None => anyhow!(
            "{names} has quota for {}; moving it gives the quota back: use --evict",
            counted(pods, "pod")
        ),
    }
}

fn human_timeout(timeout: Option<Duration>) -> String {
    human(timeout.and_then(|timeout| i64::try_from(timeout.as_secs()).ok()).unwrap_or_default())
}

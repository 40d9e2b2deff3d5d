//! `sluice stop` and `sluice resume`.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::args::{WorkloadArgs, WriteArgs};
use super::changing::patch;
use super::connection::{ConnectionArgs, Session};
use super::failure::{NOT_FOUND, Outcomes, not_found};
use super::kinds::PeopleKind;
use super::targets::{self, Target};
use super::writing::Writer;
use super::{counted, note};

/// Arguments of `stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    kind: StopKind,
}

#[derive(Debug, clap::Subcommand)]
enum StopKind {
    /// Stop a ClusterQueue: nothing is admitted, and what runs is evicted
    #[command(aliases = ["cq", "clusterqueues"])]
    Clusterqueue(QueueArgs),
    /// Stop a LocalQueue
    #[command(aliases = ["lq", "localqueues"])]
    Localqueue(QueueArgs),
    /// Stop Workloads: they give their quota back and wait until they are resumed
    #[command(aliases = ["wl", "workloads", "kwl", "kueueworkload", "kueueworkloads"])]
    Workload(WorkloadArgs),
}

#[derive(Debug, clap::Args)]
struct QueueArgs {
    /// Names of the queues.
    #[arg(required = true)]
    names: Vec<String>,
    /// Let what runs run.
    #[arg(long)]
    keep_already_running: bool,
}

/// Arguments of `resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    kind: ResumeKind,
}

#[derive(Debug, clap::Subcommand)]
enum ResumeKind {
    /// Resume a ClusterQueue
    #[command(aliases = ["cq", "clusterqueues"])]
    Clusterqueue {
        /// Names of the queues.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Resume a LocalQueue
    #[command(aliases = ["lq", "localqueues"])]
    Localqueue {
        /// Names of the queues.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Resume Workloads
    #[command(aliases = ["wl", "workloads", "kwl", "kueueworkload", "kueueworkloads"])]
    Workload(WorkloadArgs),
}

/// A verb: its name, the word in its output, and whether objects are active afterwards.
struct Verb {
    name: &'static str,
    done: &'static str,
    active: bool,
}

/// Queues, and the stop policy that they get.
struct Policy<'a> {
    kind: PeopleKind,
    names: &'a [String],
    stop: &'static str,
}

const STOP: Verb = Verb { name: "stop", done: "stopped", active: false };
const RESUME: Verb = Verb { name: "resume", done: "resumed", active: true };

fn policy(kind: PeopleKind, queues: &QueueArgs) -> Policy<'_> {
    let stop = if queues.keep_already_running { "Hold" } else { "HoldAndDrain" };
    Policy { kind, names: &queues.names, stop }
}

pub(crate) async fn stop(args: &StopArgs) -> anyhow::Result<ExitCode> {
    let session = args.connection.connect().await?;
    match &args.kind {
        StopKind::Clusterqueue(queues) => {
            set_policy(&session, &args.write, &STOP, &policy(PeopleKind::ClusterQueue, queues)).await
        }
        StopKind::Localqueue(queues) => {
            set_policy(&session, &args.write, &STOP, &policy(PeopleKind::LocalQueue, queues)).await
        }
        StopKind::Workload(workloads) => set_active(&session, &args.write, &STOP, workloads).await,
    }
}

pub(crate) async fn resume(args: &ResumeArgs) -> anyhow::Result<ExitCode> {
    let session = args.connection.connect().await?;
    match &args.kind {
        ResumeKind::Clusterqueue { names } => {
            set_policy(
                &session,
                &args.write,
                &RESUME,
                &Policy { kind: PeopleKind::ClusterQueue, names, stop: "None" },
            )
            .await
        }
        ResumeKind::Localqueue { names } => {
            set_policy(
                &session,
                &args.write,
                &RESUME,
                &Policy { kind: PeopleKind::LocalQueue, names, stop: "None" },
            )
            .await
        }
        ResumeKind::Workload(workloads) => set_active(&session, &args.write, &RESUME, workloads).await,
    }
}

async fn set_policy(
    session: &Session,
    write: &WriteArgs,
    verb: &Verb,
    change: &Policy<'_>,
) -> anyhow::Result<ExitCode> {
    let Policy { kind, names, stop } = *change;
    write.output.format()?;
    let resource = kind.resource();
    let lower = resource.kind.to_lowercase();
    let namespace = resource.namespaced.then_some(session.namespace.as_str());
    let mut outcomes = Outcomes::default();
    let mut queues = Vec::new();
    for name in names {
        match session.caller.get(&kind.object(&session.namespace, name)).await {
            Ok(queue) => queues.push((name, queue)),
            Err(error) if error.code() == Some(NOT_FOUND) => {
                let collection = kind.collection(namespace);
                outcomes.count(Err(not_found(&session.caller, &lower, name, &collection, namespace).await));
            }
            Err(error) => outcomes.count(Err(error.into())),
        }
    }
    if queues.len() > 1 {
        let lines = queues.iter().map(|(name, _)| format!("{lower}/{name}"));
        list(verb, &counted(queues.len(), &lower), lines);
        if !write.confirm(&format!("{} {}", verb.name, counted(queues.len(), &lower)))? {
            note("nothing was changed");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let writer = Writer { caller: &session.caller, dry_run: write.dry_run };
    for (name, queue) in queues {
        let decide = |_: &Value| Ok(json!({"spec": {"stopPolicy": stop}}));
        let outcome = patch(&writer, &kind.object(&session.namespace, name), queue, decide).await;
        outcomes.count(outcome.and_then(|stored| write.print(&stored, verb.done)));
    }
    Ok(outcomes.status())
}

async fn set_active(
    session: &Session,
    write: &WriteArgs,
    verb: &Verb,
    args: &WorkloadArgs,
) -> anyhow::Result<ExitCode> {
    write.output.format()?;
    let (targets, failed) = targets::read(session, args).await?;
    let mut outcomes = Outcomes::default();
    for error in failed {
        outcomes.count(Err(error));
    }
    // Objects of a selection that are in the wanted state already need no write.
    let is_due = |target: &Target| {
        let active = target.workload.pointer("/spec/active").and_then(Value::as_bool).unwrap_or(true);
        !args.names.is_empty() || active != verb.active
    };
    let targets: Vec<Target> = targets.into_iter().filter(is_due).collect();
    if targets.is_empty() {
        if args.names.is_empty() {
            note(&format!("no workload to {}", verb.name));
        }
        return Ok(outcomes.status());
    }
    if args.is_bulk() {
        let count = counted(targets.len(), "workload");
        list(verb, &count, targets.iter().map(Target::line));
        if !write.confirm(&format!("{} {count}", verb.name))? {
            note("nothing was changed");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let writer = Writer { caller: &session.caller, dry_run: write.dry_run };
    for target in targets {
        let path = target.path();
        let decide = |_: &Value| Ok(json!({"spec": {"active": verb.active}}));
        let outcome = patch(&writer, &path, target.workload, decide).await;
        outcomes.count(outcome.and_then(|stored| write.print(&stored, verb.done)));
    }
    Ok(outcomes.status())
}

/// Lists the objects that a verb is about to change.
fn list(verb: &Verb, count: &str, lines: impl Iterator<Item = String>) {
    let third = format!("{}s", verb.name);
    note(&format!("This {third} {count}:"));
    super::note_lines(lines);
}

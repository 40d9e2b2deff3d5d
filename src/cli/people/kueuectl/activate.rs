//! `kueuectl stop` and `resume`: the stop policy of a queue, or whether a Workload is active.

use serde_json::{Value, json};

use super::flags::{DryRunArgs, PrintArgs, go_bool, one_argument};
use crate::cli::people::connection::ConnectionArgs;
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::writing::{Write, Writer, merged};

/// Arguments of `stop`.
#[derive(Debug, clap::Args)]
pub(super) struct StopArgs {
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(subcommand)]
    kind: StopKind,
}

#[derive(Debug, clap::Subcommand)]
enum StopKind {
    /// Stop the Workload
    #[command(aliases = ["kwl", "kueueworkload", "kueueworkloads"])]
    Workload(NameArgs),
    /// Stop the LocalQueue
    #[command(alias = "lq")]
    Localqueue(StopQueueArgs),
    /// Stop the ClusterQueue
    #[command(alias = "cq")]
    Clusterqueue(StopQueueArgs),
}

#[derive(Debug, clap::Args)]
struct NameArgs {
    name: Vec<String>,
    #[command(flatten)]
    print: PrintArgs,
}

#[derive(Debug, clap::Args)]
struct StopQueueArgs {
    name: Vec<String>,
    /// Keep workloads that run already.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_parser = go_bool, action = clap::ArgAction::Set)]
    keep_already_running: bool,
    #[command(flatten)]
    print: PrintArgs,
}

/// Arguments of `resume`.
#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(subcommand)]
    kind: ResumeKind,
}

#[derive(Debug, clap::Subcommand)]
enum ResumeKind {
    /// Resume the Workload
    #[command(aliases = ["kwl", "kueueworkload", "kueueworkloads"])]
    Workload(NameArgs),
    /// Resume the LocalQueue
    #[command(alias = "lq")]
    Localqueue(NameArgs),
    /// Resume the ClusterQueue
    #[command(alias = "cq")]
    Clusterqueue(NameArgs),
}

/// A change of one object.
struct Change<'a> {
    kind: PeopleKind,
    name: &'a [String],
    patch: Value,
    /// Word in the line about the change.
    done: &'static str,
    print: &'a PrintArgs,
}

/// Stops an object.
pub(super) async fn stop(connection: &ConnectionArgs, args: &StopArgs) -> anyhow::Result<()> {
    let queue = |kind, queue: &StopQueueArgs| {
        let policy = if queue.keep_already_running { "Hold" } else { "HoldAndDrain" };
        (kind, json!({"spec": {"stopPolicy": policy}}))
    };
    let ((kind, patch), done, name, print) = match &args.kind {
        StopKind::Workload(workload) => (
            (PeopleKind::Workload, json!({"spec": {"active": false}})),
            "stopped",
            &workload.name,
            &workload.print,
        ),
        StopKind::Localqueue(args) => (queue(PeopleKind::LocalQueue, args), "", &args.name, &args.print),
        StopKind::Clusterqueue(args) => (queue(PeopleKind::ClusterQueue, args), "", &args.name, &args.print),
    };
    make(connection, &args.dry_run, Change { kind, name, patch, done, print }).await
}

/// Resumes an object.
pub(super) async fn resume(connection: &ConnectionArgs, args: &ResumeArgs) -> anyhow::Result<()> {
    let policy = json!({"spec": {"stopPolicy": "None"}});
    let (kind, patch, done, NameArgs { name, print }) = match &args.kind {
        ResumeKind::Workload(args) => {
            (PeopleKind::Workload, json!({"spec": {"active": true}}), "resumed", args)
        }
        ResumeKind::Localqueue(args) => (PeopleKind::LocalQueue, policy, "", args),
        ResumeKind::Clusterqueue(args) => (PeopleKind::ClusterQueue, policy, "", args),
    };
    make(connection, &args.dry_run, Change { kind, name, patch, done, print }).await
}

async fn make(connection: &ConnectionArgs, dry_run: &DryRunArgs, change: Change<'_>) -> anyhow::Result<()> {
    let name = one_argument(change.name)?;
    let dry_run = dry_run.strategy()?;
    change.print.format()?;
    let session = connection.connect().await?;
    let path = change.kind.object(&session.namespace, name);
    let read = session.caller.get(&path).await?;
    let writer = Writer { caller: &session.caller, dry_run };
    let shown = merged(&read, &change.patch);
    let stored = writer.send(&path, Write::Patch { read: &read, patch: change.patch }).await?;
    change.print.print(&stored.unwrap_or(shown), change.done, dry_run)
}

//! `kueuectl delete workload`: deletes the jobs of Workloads, and Workloads without a job.
//!
//! Invariant: only the objects that were read are deleted, by their UID; an object that was created again under the same name
//! is kept.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::bail;
use serde_json::Value;

use super::flags::{AllNamespacesArgs, DryRunArgs, go_bool, page_size};
use super::list::text;
use super::pass_through::RestArgs;
use crate::cli::files;
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::discovery::Discovery;
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::note;
use crate::cli::people::pages::{ListOptions, Pages, items};
use crate::cli::people::writing::{DryRun, Write, Writer};
use crate::kube::client::CallError;

const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;
/// Lines of the list before the question.
const SHOWN: usize = 20;

/// Arguments of `delete`.
#[derive(Debug, clap::Args)]
pub(super) struct DeleteArgs {
    #[command(subcommand)]
    pub(super) kind: DeleteKind,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum DeleteKind {
    /// Delete the given Workload and its corresponding Job
    #[command(aliases = ["kwl", "kueueworkload", "kueueworkloads"])]
    Workload(WorkloadArgs),
    /// Passed to kubectl
    #[command(alias = "cq")]
    Clusterqueue(RestArgs),
    /// Passed to kubectl
    #[command(alias = "lq")]
    Localqueue(RestArgs),
    /// Passed to kubectl
    #[command(alias = "rf")]
    Resourceflavor(RestArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct WorkloadArgs {
    names: Vec<String>,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    all_namespaces: AllNamespacesArgs,
    /// Do not ask.
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_parser = go_bool, action = clap::ArgAction::Set)]
    yes: bool,
    /// Delete all Workloads of the namespace.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_parser = go_bool, action = clap::ArgAction::Set)]
    all: bool,
}

/// A Workload and the jobs that own it.
struct Deletion {
    workload: Owned,
    namespace: String,
    owners: Vec<Owned>,
}

/// An object that is deleted.
struct Owned {
    path: String,
    /// `PLURAL.GROUP/NAME`.
    name: String,
    uid: String,
}

pub(super) async fn run(connection: &ConnectionArgs, args: &WorkloadArgs) -> anyhow::Result<()> {
    if !args.all && args.names.is_empty() {
        bail!("requires at least 1 arg(s), only received 0");
    }
    if args.all && !args.names.is_empty() {
        bail!("name cannot be provided when a selector is specified");
    }
    if args.all_namespaces.all_namespaces && !args.names.is_empty() {
        bail!("a resource cannot be retrieved by name across all namespaces");
    }
    let dry_run = args.dry_run.strategy()?;
    let session = connection.connect().await?;
    let deletions = read(&session, args).await?;
    if deletions.is_empty() {
        return Ok(());
    }
    let has_jobs = deletions.iter().any(|deletion| !deletion.owners.is_empty());
    if dry_run == DryRun::None && !args.yes && has_jobs && !confirm(&deletions, args.all)? {
        return files::print("Deletion is canceled\n");
    }
    let writer = Writer { caller: &session.caller, dry_run };
    for Deletion { workload, owners, .. } in &deletions {
        // The garbage collector deletes the Workload of a job.
        let objects = if owners.is_empty() { std::slice::from_ref(workload) } else { owners };
        for object in objects {
            delete(&writer, object).await?;
        }
    }
    Ok(())
}

/// Deletes an object, unless it no longer exists or was replaced.
async fn delete(writer: &Writer<'_>, object: &Owned) -> anyhow::Result<()> {
    match writer.send(&object.path, Write::Delete { uid: &object.uid }).await {
        Err(error) if error.code() == Some(CONFLICT) => {
            note(&format!("skipped: {} was created again since it was read", object.name));
            return Ok(());
        }
        Err(error) if error.code() != Some(NOT_FOUND) => return Err(error.into()),
        _ => {}
    }
    files::print(&format!("{} deleted{}\n", object.name, writer.dry_run.suffix()))
}

/// Reads the Workloads, page by page or by name; keeps only the parts that deleting needs.
async fn read(session: &Session, args: &WorkloadArgs) -> anyhow::Result<Vec<Deletion>> {
    let mut discovery = Discovery::new(&session.caller);
    let mut deletions = Vec::new();
    if args.all {
        let namespace = args.all_namespaces.namespace(&session.namespace);
        let options = ListOptions { page: page_size()?, ..ListOptions::default() };
        let mut pages = Pages::new(&session.caller, &PeopleKind::Workload.collection(namespace), &options);
        while let Some(mut page) = pages.next().await? {
            for workload in items(&mut page) {
                deletions.push(of(&mut discovery, &workload).await?);
            }
        }
    }
    for name in &args.names {
        match session.caller.get(&PeopleKind::Workload.object(&session.namespace, name)).await {
            Ok(workload) => deletions.push(of(&mut discovery, &workload).await?),
            Err(CallError::Status { code: NOT_FOUND, message, .. }) => note(&message),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(deletions)
}

async fn of(discovery: &mut Discovery<'_>, workload: &Value) -> anyhow::Result<Deletion> {
    let (namespace, name) = (text(workload, "/metadata/namespace"), text(workload, "/metadata/name"));
    let mut owners = Vec::new();
    for owner in workload.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
    {
        let (version, kind) = (text(owner, "/apiVersion"), text(owner, "/kind"));
        let Some(served) = discovery.of_kind(&version, &kind).await? else {
            bail!("no matches for kind {kind:?} in version {version:?}");
        };
        let owner_name = text(owner, "/name");
        owners.push(Owned {
            path: served.object(&namespace, &owner_name),
            name: format!("{}/{owner_name}", served.full_name()),
            uid: text(owner, "/uid"),
        });
    }
    let workload = Owned {
        path: PeopleKind::Workload.object(&namespace, &name),
        name: format!("workload.kueue.x-k8s.io/{name}"),
        uid: text(workload, "/metadata/uid"),
    };
    Ok(Deletion { workload, namespace, owners })
}

/// Lists what would be deleted and asks.
fn confirm(deletions: &[Deletion], all: bool) -> anyhow::Result<bool> {
    let with_jobs: Vec<&Deletion> = deletions.iter().filter(|deletion| !deletion.owners.is_empty()).collect();
    let mut message = "This operation will also delete:\n".to_owned();
    let shown = if all { SHOWN } else { with_jobs.len() };
    let line = |deletion: &&Deletion| {
        let owners: Vec<&str> = deletion.owners.iter().map(|owner| owner.name.as_str()).collect();
        let workload = deletion.workload.name.split_once('/').map_or("", |(_, name)| name);
        format!("  - {} associated with the {}/{workload} workload\n", owners.join(", "), deletion.namespace)
    };
    // kueuectl has an empty line between the lines of named workloads.
    let between = if all { "" } else { "\n" };
    message.push_str(&with_jobs.iter().take(shown).map(line).collect::<Vec<_>>().join(between));
    if with_jobs.len() > shown {
        let _ = writeln!(message, "  - and {} more", with_jobs.len() - shown);
    }
    if all {
        let jobs: usize = with_jobs.iter().map(|deletion| deletion.owners.len()).sum();
        let _ = writeln!(message, "{} workloads and {jobs} jobs.", deletions.len());
    }
    files::print(&format!("{message}Do you want to proceed (y/n)? "))?;
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("y")))
}

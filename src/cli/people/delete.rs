//! `sluice delete workload`: deletes the jobs of Workloads, and Workloads without a job.
//!
//! Invariant: only the objects that were read are deleted, by their UID.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;

use anyhow::{anyhow, bail};

use super::args::{WorkloadArgs, WriteArgs, answer};
use super::connection::ConnectionArgs;
use super::failure::{CONFLICT, NOT_FOUND, Outcomes};
use super::targets::{self, Target};
use super::writing::{DryRun, Write, Writer};
use super::{counted, note, note_all_lines, note_lines};
use crate::cli::files;
use crate::people::object_text::name_text;
use crate::people::workload_object::text_at;

/// Arguments of `delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    kind: DeleteKind,
}

#[derive(Debug, clap::Subcommand)]
enum DeleteKind {
    /// Delete the jobs of Workloads, and Workloads without a job
    #[command(aliases = ["wl", "workloads", "kwl", "kueueworkload", "kueueworkloads"])]
    Workload {
        #[command(flatten)]
        workloads: WorkloadArgs,
        /// Name each object before the question.
        #[arg(long)]
        show_all: bool,
    },
}

pub(crate) async fn run(args: &DeleteArgs) -> anyhow::Result<ExitCode> {
    let DeleteKind::Workload { workloads, show_all } = &args.kind;
    args.write.output.format()?;
    let session = args.connection.connect().await?;
    let (targets, failed) = targets::read(&session, workloads).await?;
    let mut outcomes = Outcomes::default();
    for error in failed {
        outcomes.count(Err(error));
    }
    if targets.is_empty() {
        if workloads.names.is_empty() {
            note("no workload to delete");
        }
        return Ok(outcomes.status());
    }
    let jobs: usize = targets.iter().map(|target| target.owners.len()).sum();
    let bare = targets.iter().filter(|target| target.owners.is_empty()).count();
    let what = match (jobs, bare) {
        (0, _) => counted(bare, "workload"),
        (_, 0) => counted(jobs, "job"),
        _ => format!("{} and {}", counted(jobs, "job"), counted(bare, "workload")),
    };
    let place = if workloads.all_namespaces {
        "all namespaces".to_owned()
    } else {
        format!("namespace {}", session.namespace)
    };
    let theirs = if targets.len() == 1 { "its" } else { "their" };
    note(&format!("This deletes {} and {theirs} jobs in {place}:", counted(targets.len(), "workload")));
    let lines = targets.iter().map(Target::line);
    if *show_all {
        note_all_lines(lines);
    } else {
        note_lines(lines);
    }
    if !confirm(args, workloads, &targets, &what)? {
        note("nothing was deleted");
        return Ok(ExitCode::SUCCESS);
    }
    let writer = Writer { caller: &session.caller, dry_run: args.write.dry_run };
    for target in &targets {
        if target.owners.is_empty() {
            let uid = text_at(&target.workload, "/metadata/uid").unwrap_or_default();
            outcomes.count(delete(&writer, &target.path(), &name_text(&target.workload), uid).await);
        }
        // The garbage collector deletes the Workload of a job.
        for owner in &target.owners {
            outcomes.count(delete(&writer, &owner.path, &owner.name, &owner.uid).await);
        }
    }
    Ok(outcomes.status())
}

/// Asks for confirmation. For all namespaces the counts by namespace are shown, and the user must type the number.
fn confirm(
    args: &DeleteArgs,
    workloads: &WorkloadArgs,
    targets: &[Target],
    what: &str,
) -> anyhow::Result<bool> {
    let is_everything = workloads.all && workloads.all_namespaces;
    if !is_everything || args.write.yes || args.write.dry_run != DryRun::None {
        return args.write.confirm(&format!("delete {what}"));
    }
    let mut by_namespace: BTreeMap<&str, usize> = BTreeMap::new();
    for target in targets {
        *by_namespace.entry(target.namespace()).or_default() += 1;
    }
    note_all_lines(
        by_namespace.iter().map(|(namespace, count)| format!("{count:>6} in namespace {namespace}")),
    );
    if !std::io::stdin().is_terminal() {
        bail!("refusing to delete {what} without confirmation: use --yes");
    }
    write!(std::io::stderr(), "Type the number of workloads to delete {what}: ")?;
    Ok(answer()? == targets.len().to_string())
}

async fn delete(writer: &Writer<'_>, path: &str, name: &str, uid: &str) -> anyhow::Result<()> {
    match writer.send(path, Write::Delete { uid }).await {
        Err(error) if error.code() == Some(CONFLICT) => {
            Err(anyhow!("skipped: {name} was created again since it was read"))
        }
        // A missing object is the wanted result.
        Err(error) if error.code() == Some(NOT_FOUND) => files::print(&format!("{name} is gone already\n")),
        Err(error) => Err(error.into()),
        Ok(_) => files::print(&format!("{name} deleted{}\n", writer.dry_run.suffix())),
    }
}

//! `sluice reprioritize workload`: gives Workloads another priority class.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};

use super::args::{WorkloadArgs, WriteArgs};
use super::changing::patch;
use super::connection::ConnectionArgs;
use super::failure::{NOT_FOUND, Outcomes, not_found};
use super::move_workload::{set_label, subject};
use super::preview::{self, Preview};
use super::targets::{self, Target};
use super::writing::Writer;
use super::{counted, note, note_all_lines, note_lines};
use crate::api::GROUP;
use crate::api::names::PRIORITY_CLASS_LABEL;
use crate::cache::Kind;
use crate::kube::client::all_path;
use crate::people::workload_object::WorkloadState;

/// Arguments of `reprioritize`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReprioritizeArgs {
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    kind: ReprioritizeKind,
}

#[derive(Debug, clap::Subcommand)]
enum ReprioritizeKind {
    /// Give Workloads another WorkloadPriorityClass
    #[command(aliases = ["wl", "workloads", "kwl", "kueueworkload", "kueueworkloads"])]
    Workload {
        #[command(flatten)]
        workloads: WorkloadArgs,
        /// The WorkloadPriorityClass.
        #[arg(long, value_name = "NAME")]
        class: String,
    },
}

pub(crate) async fn run(args: &ReprioritizeArgs) -> anyhow::Result<ExitCode> {
    let ReprioritizeKind::Workload { workloads, class } = &args.kind;
    args.write.output.format()?;
    let session = args.connection.connect().await?;
    let classes = all_path(&Kind::WorkloadPriorityClass.resource());
    let value = match session.caller.get(&format!("{classes}/{}", super::pages::encoded(class))).await {
        Ok(class) => class.get("value").and_then(Value::as_i64).unwrap_or_default(),
        Err(error) if error.code() == Some(NOT_FOUND) => {
            return Err(not_found(&session.caller, "workloadpriorityclass", class, &classes, None).await);
        }
        Err(error) => return Err(error.into()),
    };
    let (targets, failed) = targets::read(&session, workloads).await?;
    let mut outcomes = Outcomes::default();
    for error in failed {
        outcomes.count(Err(error));
    }
    if workloads.is_bulk() && !targets.is_empty() {
        let count = counted(targets.len(), "workload");
        note(&format!("This gives {count} the priority class {class} ({value}):"));
        note_lines(targets.iter().map(Target::line));
        if !args.write.confirm(&format!("reprioritize {count}"))? {
            note("nothing was changed");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let writer = Writer { caller: &session.caller, dry_run: args.write.dry_run };
    let asks = targets.len() <= preview::MOST;
    for target in targets {
        let change = preview::change("priority", &json!(value));
        let preview = if asks { Preview::after(&session, &target, &change).await } else { None };
        outcomes.count(one(&writer, &args.write, &target, (class, value, preview)).await);
    }
    Ok(outcomes.status())
}

async fn one(
    writer: &Writer<'_>,
    write: &WriteArgs,
    target: &Target,
    (class, value, preview): (&str, i64, Option<Preview>),
) -> anyhow::Result<()> {
    let names = subject(target);
    if target.state() == WorkloadState::Finished {
        bail!("{names} has finished");
    }
    let before = target.workload.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or_default();
    let position = preview.as_ref().and_then(Preview::position);
    let position = position.map(|position| format!(", {position}")).unwrap_or_default();
    note(&format!("{names}: priority {before} -> {value}{position}"));
    note_all_lines(preview.iter().flat_map(Preview::preemptions));
    if target.owners.is_empty() {
        let reference = json!({"group": GROUP, "kind": "WorkloadPriorityClass", "name": class});
        let decide = |_: &Value| Ok(json!({"spec": {"priorityClassRef": reference, "priority": value}}));
        let stored = patch(writer, &target.path(), target.workload.clone(), decide).await?;
        return write.print(&stored, "reprioritized");
    }
    for owner in &target.owners {
        let stored = set_label(writer, owner, PRIORITY_CLASS_LABEL, class).await?;
        write.print(&stored, "reprioritized")?;
    }
    Ok(())
}

//! `sluice status`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{TableArgs, ViewQuery, WatchArgs, note_partial, read, rows};
use crate::cli::people::connection::ConnectionArgs;
use crate::people::views;
use crate::visibility::views::ManagerView;

/// The answer is no, and a flag asked.
const EXIT_NO: u8 = 4;

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// Exit with status 4 unless all is well.
    #[arg(long)]
    fail: bool,
}

pub(crate) async fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    args.table.format()?;
    args.table.check_manager("the state of the manager")?;
    let session = args.connection.connect().await?;
    let read_list = async || {
        let found = rows(&session, "managerviews", &ViewQuery::default(), "managerviews").await?;
        Ok(found.into_list())
    };
    args.watch.run(read_list, Value::clone, |list| print(args, list)).await
}

fn print(args: &StatusArgs, list: &Value) -> anyhow::Result<ExitCode> {
    note_partial(list);
    let views: Vec<ManagerView> = read(&list.get("items").cloned().unwrap_or_default())?;
    // The leader knows most; a replica that answers without one is better than nothing.
    let Some(place) = views.iter().position(|view| view.leads).or((!views.is_empty()).then_some(0)) else {
        bail!("no replica of the manager is known");
    };
    let view = views.get(place).context("replica")?;
    let answer = list.pointer(&format!("/items/{place}")).cloned().unwrap_or_else(|| json!(null));
    args.table.print(&answer, |_: Value, look| Ok(views::status(view, look)))?;
    let is_well = view.conditions.is_empty() && view.leader.is_some();
    Ok(if args.fail && !is_well { ExitCode::from(EXIT_NO) } else { ExitCode::SUCCESS })
}

//! `sluice status`: the state of the manager.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use super::{PAGE, TableArgs, ViewQuery, WatchArgs, encoded, note_partial, read, rows, time_of};
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::kinds::MANAGER;
use crate::people::views;
use crate::visibility::views::ManagerView;

/// Exit status if the answer is no and a flag makes that an error.
const EXIT_NO: u8 = 4;

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    watch: WatchArgs,
    /// Exit with status 4 unless all is well.
    #[arg(long)]
    fail: bool,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    args.table.format()?;
    args.table.check_manager("the state of the manager")?;
    let session = args.connection.connect().await?;
    let read_list = async || {
        let found = rows(&session, "managerviews", &ViewQuery::default(), "managerviews").await?;
        let mut list = found.into_list();
        if let Some((ready, replicas)) = replicas(&session).await {
            for leader in leaders(&mut list) {
                leader.insert("readyReplicas".to_owned(), json!(ready));
                leader.insert("replicas".to_owned(), json!(replicas));
            }
        }
        Ok(list)
    };
    args.watch.run(read_list, Value::clone, |list| print(args, list)).await
}

fn print(args: &StatusArgs, list: &Value) -> anyhow::Result<ExitCode> {
    note_partial(list);
    let views: Vec<ManagerView> = read(&list.get("items").cloned().unwrap_or_default())?;
    // The leader's row has the most; without a leader the first replica is shown.
    let Some(place) = views.iter().position(|view| view.leads).or((!views.is_empty()).then_some(0)) else {
        bail!("no replica of the manager is known");
    };
    let view = views.get(place).context("replica")?;
    let answer = list.pointer(&format!("/items/{place}")).cloned().unwrap_or_else(|| json!(null));
    // The list has the time, not the row.
    args.table.print_at(&answer, time_of(list), |_: Value, look| Ok(views::status(view, look)))?;
    let is_well = view.conditions.is_empty() && view.leader.is_some();
    Ok(if args.fail && !is_well { ExitCode::from(EXIT_NO) } else { ExitCode::SUCCESS })
}

/// Returns the rows of leaders.
fn leaders(list: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let rows = list.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten();
    rows.filter_map(|row| row.get_mut("leader")?.as_object_mut())
}

/// Returns the numbers of ready and wanted replicas of the manager, from its Deployments; `None` if the user may not read them.
/// The manager itself knows only the replicas that answer.
async fn replicas(session: &Session) -> Option<(u64, u64)> {
    let path = format!("/apis/apps/v1/deployments?limit={PAGE}&labelSelector={}", encoded(MANAGER));
    let found = session.caller.get(&path).await.ok()?;
    let deployments = found.get("items")?.as_array()?;
    let sum = |pointer: &str, default: u64| {
        let number =
            |deployment: &Value| deployment.pointer(pointer).and_then(Value::as_u64).unwrap_or(default);
        deployments.iter().map(number).fold(0, u64::saturating_add)
    };
    (!deployments.is_empty()).then(|| (sum("/status/readyReplicas", 0), sum("/spec/replicas", 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_with_a_leader_are_completed() {
        let mut list = json!({"items": [{"leads": true, "leader": {"name": "m-0"}}, {"leads": false}]});
        for leader in leaders(&mut list) {
            leader.insert("replicas".to_owned(), json!(2));
        }
        assert_eq!(
            list,
            json!({"items": [{"leads": true, "leader": {"name": "m-0", "replicas": 2}}, {"leads": false}]})
        );
    }
}

//! Text of `list preemption`.

use super::time::at;
use super::{Look, ResourceNames};
use crate::people::duration::human;
use crate::people::text_table::{Narrow, Side, TextTable};
use crate::visibility::history::workload_text;
use crate::visibility::views::{PreemptionReport, PreemptionView};

/// Returns the preemptions as a table, the newest first.
pub fn preemptions(report: &PreemptionReport, all_namespaces: bool, look: Look) -> String {
    let amounts = report.items.iter().flat_map(|item| &item.amounts);
    let names = ResourceNames::of(amounts.map(|amount| amount.resource.as_str()));
    let mut columns = vec![("TIME", Side::Whole)];
    columns.extend(all_namespaces.then_some(("NAMESPACE", Side::Left)));
    columns.extend([("VICTIM", Side::Left), ("PREEMPTOR", Side::Left), ("REASON", Side::Left)]);
    columns.extend([("PRIORITY", Side::Right), ("AMOUNT", Side::Left)]);
    columns.extend([("RAN", Side::Right), ("RELEASED", Side::Right)]);
    if look.wide {
        columns.extend([("CLUSTERQUEUE", Side::Left), ("JOB", Side::Left), ("BORROWED", Side::Left)]);
    }
    let mut table = TextTable::new(columns);
    let optional = &["RELEASED", "RAN", "PRIORITY", "AMOUNT"];
    table.when_narrow(Narrow { last: Some("REASON"), optional, ..Narrow::default() });
    for item in &report.items {
        table.push(cells(item, all_namespaces, &names, look));
    }
    look.show(&table)
}

fn cells(item: &PreemptionView, all_namespaces: bool, names: &ResourceNames, look: Look) -> Vec<String> {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let time = |seconds: Option<i64>, absent: &str| seconds.map_or_else(|| absent.to_owned(), human);
    let priority = |priority: Option<i64>| priority.map(|priority| priority.to_string());
    let of_both =
        match (priority(item.victim.priority), item.preemptor.as_ref().and_then(|p| priority(p.priority))) {
            (Some(victim), Some(preemptor)) => format!("{victim} by {preemptor}"),
            (victim, _) => victim.unwrap_or_else(|| "-".to_owned()),
        };
    let amounts: Vec<String> = item
        .amounts
        .iter()
        .map(|amount| format!("{} {}", amount.amount.value, names.short(&amount.resource)))
        .collect();
    let mut cells = vec![item.time.map_or_else(|| "-".to_owned(), |time| at(time, look))];
    cells.extend(all_namespaces.then(|| item.victim.namespace.clone()));
    cells.extend([
        item.victim.name.clone(),
        item.preemptor.as_ref().map_or_else(|| "-".to_owned(), workload_text),
        or_dash(&item.reason),
        of_both,
        or_dash(&amounts.join(", ")),
        time(item.ran_seconds, "-"),
        time(item.released_seconds, if item.seeded { "-" } else { "not yet" }),
    ]);
    if look.wide {
        let job = item.victim.job.as_ref().map(|job| format!("{}/{}", job.kind, job.name));
        let borrowed = if item.borrowed { "yes" } else { "no" };
        cells.extend([
            or_dash(&item.victim.cluster_queue),
            or_dash(&job.unwrap_or_default()),
            borrowed.to_owned(),
        ]);
    }
    cells
}

//! Text of `what-if` and of `simulate --compare`: two runs of a simulation side by side.
//!
//! Invariant: the text says nothing that the comparison does not have; what it leaves out it counts.

use super::Look;
use crate::people::text_table::{Side, TextTable, printable};
use crate::simulate::{
    ComparedAmounts, ComparedWorkload, Comparison, Effect, Fate, FatePart, Totals, WorkloadRef,
    format_duration,
};
use std::fmt::Write as _;

/// Number of workloads in the table.
const MAX_ROWS: usize = 50;
/// Number of workloads that are named in a sentence.
const MAX_NAMES: usize = 5;
/// Effects that the first line counts, in its order.
const COUNTED: [Effect; 6] = [
    Effect::Earlier,
    Effect::Later,
    Effect::Evicted,
    Effect::NotAdmitted,
    Effect::GetsStuck,
    Effect::NoLongerStuck,
];

/// Returns the comparison as a table, with what it assumes below.
pub fn what_if(comparison: &Comparison, look: Look) -> String {
    let columns = [("", Side::Left), ("WITHOUT", Side::Words), ("WITH", Side::Words), ("", Side::Left)];
    let mut table = TextTable::new(columns);
    table.wrap_last();
    if let (Some(without), Some(with)) = (&comparison.without, &comparison.with) {
        for row in total_rows(without, with) {
            table.push_whole(row);
        }
    }
    for workload in comparison.workloads.iter().take(MAX_ROWS) {
        table.push(row(workload));
    }
    let mut text = look.show(&table);
    let mut push = |line: &str| text.push_str(&(printable(line) + "\n"));
    let more = comparison.workloads.len().saturating_sub(MAX_ROWS);
    if more > 0 {
        push(&format!("{more} more workloads fare differently: -o json lists all"));
    }
    push(&summary(comparison));
    if let Some(names) = names(&comparison.stays_stuck) {
        push(&format!("Stays stuck: {names}."));
    }
    if !comparison.flavors.is_empty() {
        text.push('\n');
        text.push_str(&flavors(&comparison.flavors, look));
    }
    for (heading, lines) in [("Note:", &comparison.notes), ("Assumed:", &comparison.assumptions)] {
        if !lines.is_empty() {
            // Writing to a String does not fail.
            let _ = writeln!(text, "\n{heading}");
        }
        for line in lines {
            let _ = writeln!(text, "  {}", printable(line));
        }
    }
    text
}

/// Returns how many workloads each effect has, as a sentence.
fn summary(comparison: &Comparison) -> String {
    let counted = COUNTED.into_iter().filter_map(|effect| match comparison.count(effect) {
        0 => None,
        count => Some(format!("{count} {}", effect.as_str())),
    });
    let counted: Vec<String> = counted.collect();
    let different = comparison.workloads.iter().filter(|row| row.differs()).count();
    let workloads = match different {
        0 => return "No workload fares differently.".to_owned(),
        1 => "1 workload fares differently".to_owned(),
        _ => format!("{different} workloads fare differently"),
    };
    if counted.is_empty() { format!("{workloads}.") } else { format!("{workloads}: {}.", counted.join(", ")) }
}

fn total_rows(without: &Totals, with: &Totals) -> [[String; 4]; 6] {
    let length = format_duration(without.seconds.max(with.seconds));
    let total = |name: String, count: fn(&Totals) -> usize| {
        [name, count(without).to_string(), count(with).to_string(), String::new()]
    };
    [
        total(format!("admitted in {length}"), |totals| totals.admitted),
        total("evicted".to_owned(), |totals| totals.evicted),
        total("  preempted".to_owned(), |totals| totals.preempted),
        total(format!("finished in {length}"), |totals| totals.finished),
        total("pending".to_owned(), |totals| totals.pending),
        total("  stuck".to_owned(), |totals| totals.stuck),
    ]
}

/// Returns a workload with what happens to it without and with the change, and why.
fn row(row: &ComparedWorkload) -> [String; 4] {
    let effect = row.effect.as_str();
    let (before, after) = (cause(&row.without), cause(&row.with));
    let mut why = Vec::new();
    if !after.starts_with(effect) {
        why.push(effect.to_owned());
    }
    if !before.is_empty() && before != after {
        why.push(format!("without it {before}"));
    }
    why.push(after);
    let blocker = &row.with.blocked_by;
    if !blocker.is_empty() {
        why.push(format!("blocked by {blocker}"));
    }
    why.retain(|part| !part.is_empty());
    [row.workload.display_name().to_owned(), brief(&row.without), brief(&row.with), why.join("; ")]
}

/// Returns a fate without its cause, which is too long for a column among numbers.
fn brief(fate: &Fate) -> String {
    let parts = fate.parts().into_iter().map(|part| FatePart { rest: String::new(), ..part }.to_string());
    parts.collect::<Vec<_>>().join(", again ")
}

/// Returns what stopped a workload: `preempted by ns/b`, `evicted (NodeFailures)`; empty if nothing did, or if that is not known.
fn cause(fate: &Fate) -> String {
    let parts = fate.parts();
    let caused = parts.iter().find(|part| !part.rest.is_empty());
    caused.map(|part| format!("{}{}", part.words, part.rest)).unwrap_or_default()
}

/// Returns what nodes have and what quotas allow, by flavor-resource.
fn flavors(flavors: &[ComparedAmounts], look: Look) -> String {
    let change = |without: &str, with: &str| {
        if without == with { with.to_owned() } else { format!("{without} -> {with}") }
    };
    let columns = [("", Side::Left), ("NODES", Side::Right), ("QUOTA", Side::Right), ("", Side::Left)];
    let mut table = TextTable::new(columns);
    table.wrap_last();
    for row in flavors {
        table.push([
            format!("{} {}", row.flavor, row.resource),
            change(&row.nodes_without, &row.nodes_with),
            change(&row.quota_without, &row.quota_with),
            row.remark.clone(),
        ]);
    }
    look.show(&table)
}

/// Returns the first names of a list and the number of the others; `None` for no name.
fn names(workloads: &[WorkloadRef]) -> Option<String> {
    let first: Vec<&str> = workloads.iter().take(MAX_NAMES).map(WorkloadRef::display_name).collect();
    match workloads.len().saturating_sub(MAX_NAMES) {
        _ if first.is_empty() => None,
        0 => Some(first.join(", ")),
        more => Some(format!("{} and {more} more", first.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::FateState;

    #[test]
    fn a_row_says_what_stopped_a_workload_in_its_last_column() {
        let preempted = |by: &str| Fate {
            state: FateState::Pending,
            preempted_at: Some(5.0),
            preempted_by: by.to_owned(),
            ..Fate::default()
        };
        let evicted = Fate {
            state: FateState::Pending,
            evicted_at: Some(0.0),
            evicted_for: "ClusterQueueStopped".to_owned(),
            blocked_by: "ClusterQueue q: 0 of 1 cpu".to_owned(),
            ..Fate::default()
        };
        let runs = Fate { state: FateState::Admitted, ..Fate::default() };
        for (effect, without, with, expected) in [
            (
                Effect::Evicted,
                runs.clone(),
                evicted,
                [
                    "runs",
                    "evicted at 0s",
                    "evicted (ClusterQueueStopped); blocked by ClusterQueue q: 0 of 1 cpu",
                ],
            ),
            (
                Effect::Evicted,
                runs.clone(),
                preempted("ns/b"),
                ["runs", "preempted at 5s", "evicted; preempted by ns/b"],
            ),
            (
                Effect::Other,
                preempted("ns/a"),
                preempted("ns/b"),
                ["preempted at 5s", "preempted at 5s", "without it preempted by ns/a; preempted by ns/b"],
            ),
            (Effect::Earlier, runs.clone(), preempted(""), ["runs", "preempted at 5s", "earlier"]),
            (Effect::Other, runs.clone(), runs, ["runs", "runs", ""]),
        ] {
            let workload = WorkloadRef { workload: "ns/w".to_owned(), job: String::new() };
            let found = row(&ComparedWorkload { workload, effect, without, with });
            assert_eq!(found[1..], expected.map(str::to_owned));
        }
    }
}

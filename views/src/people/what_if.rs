//! Text of a what-if answer: what a change does to the workloads of a cluster.
//!
//! Invariant: the text says nothing that the value does not have; what it leaves out it counts.

use crate::simulate::{
    ComparedAmounts, ComparedWorkload, Comparison, Effect, Totals, WorkloadRef, format_duration,
};
use std::fmt::Write;

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

/// Formats a comparison as a table, with what it assumes below.
pub fn what_if(comparison: &Comparison) -> String {
    let mut rows = vec![["", "WITHOUT", "WITH", ""].map(str::to_owned)];
    let totals = comparison.without.as_ref().zip(comparison.with.as_ref());
    rows.extend(totals.into_iter().flat_map(total_rows));
    rows.extend(comparison.workloads.iter().take(MAX_ROWS).map(row));
    let mut text = String::new();
    print(&rows, &mut text);
    let more = comparison.workloads.len().saturating_sub(MAX_ROWS);
    if more > 0 {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{more} more workloads fare differently: -o json lists all");
    }
    let summary = summary(comparison);
    if summary.is_empty() {
        text.push_str("No workload fares differently.\n");
    } else {
        let _ = writeln!(text, "{summary}.");
    }
    if let Some(names) = names(&comparison.stays_stuck) {
        let _ = writeln!(text, "Stays stuck: {names}.");
    }
    if !comparison.flavors.is_empty() {
        let head = ["", "NODES", "QUOTA", ""].map(str::to_owned);
        let flavors: Vec<_> = std::iter::once(head).chain(comparison.flavors.iter().map(flavor)).collect();
        text.push('\n');
        print(&flavors, &mut text);
    }
    for (heading, lines) in [("Note:", &comparison.notes), ("Assumed:", &comparison.assumptions)] {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{heading}\n  {}", lines.join("\n  "));
        }
    }
    text
}

/// Returns how many workloads each effect has, as a sentence without its full stop; empty if none fares differently.
fn summary(comparison: &Comparison) -> String {
    let counted = COUNTED.into_iter().filter_map(|effect| match comparison.count(effect) {
        0 => None,
        count => Some(format!("{count} {}", effect.as_str())),
    });
    let counted: Vec<String> = counted.collect();
    let different = comparison.workloads.iter().filter(|row| row.differs()).count();
    match (different, counted.is_empty()) {
        (0, _) => String::new(),
        (1, true) => "1 workload fares differently".to_owned(),
        (_, true) => format!("{different} workloads fare differently"),
        (1, false) => format!("1 workload fares differently: {}", counted.join(", ")),
        (_, false) => format!("{different} workloads fare differently: {}", counted.join(", ")),
    }
}

fn total_rows((without, with): (&Totals, &Totals)) -> [[String; 4]; 6] {
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

fn row(row: &ComparedWorkload) -> [String; 4] {
    let blocker = &row.with.blocked_by;
    let blocked = if blocker.is_empty() { String::new() } else { format!("blocked by {blocker}") };
    let separator = if row.effect.as_str().is_empty() || blocked.is_empty() { "" } else { "; " };
    let why = format!("{}{separator}{blocked}", row.effect.as_str());
    [row.workload.display_name().to_owned(), row.without.text(), row.with.text(), why]
}

fn flavor(row: &ComparedAmounts) -> [String; 4] {
    let change = |without: &str, with: &str| {
        if without == with { with.to_owned() } else { format!("{without} -> {with}") }
    };
    [
        format!("{} {}", row.flavor, row.resource),
        change(&row.nodes_without, &row.nodes_with),
        change(&row.quota_without, &row.quota_with),
        row.remark.clone(),
    ]
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

/// Writes rows in columns: the first to the left, two numbers to the right, the last without a width.
fn print(rows: &[[String; 4]], text: &mut String) {
    let widths = [0, 1, 2].map(|at| {
        rows.iter().filter_map(|row| row.get(at)).map(|word| word.chars().count()).max().unwrap_or(0)
    });
    let [name, first, second] = widths;
    for [what, without, with, why] in rows {
        let line = format!("{what:<name$}   {without:>first$}   {with:>second$}   {why}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{Fate, FateState};

    #[test]
    fn a_text_counts_what_it_does_not_name() {
        let name = |number: usize| WorkloadRef { workload: format!("ns/w{number}"), job: String::new() };
        let row = |number: usize| ComparedWorkload {
            workload: name(number),
            effect: Effect::Earlier,
            without: Fate { state: FateState::Pending, ..Fate::default() },
            with: Fate { state: FateState::Admitted, admitted_at: Some(60.0), ..Fate::default() },
        };
        let comparison = Comparison {
            workloads: (0..52).map(row).collect(),
            stays_stuck: (0..7).map(name).collect(),
            assumptions: vec!["nothing else arrives".to_owned()],
            ..Comparison::default()
        };
        let text = what_if(&comparison);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["WITHOUT", "WITH"]);
        for expected in [
            "2 more workloads fare differently: -o json lists all",
            "52 workloads fare differently: 52 earlier.",
            "Stays stuck: ns/w0, ns/w1, ns/w2, ns/w3, ns/w4 and 2 more.",
            "Assumed:",
            "  nothing else arrives",
        ] {
            assert!(lines.contains(&expected), "{expected}: {text}");
        }
        assert!(text.contains("ns/w49") && !text.contains("ns/w50"), "{text}");
        assert!(!text.contains("admitted in"), "a reader of some workloads gets no totals: {text}");
        assert_eq!(what_if(&Comparison::default()).lines().nth(1), Some("No workload fares differently."));
    }
}

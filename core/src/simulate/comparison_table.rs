//! The comparison of two runs as text.
//!
//! Invariant: the text says nothing that the value does not have; what it leaves out it counts.

use super::comparison::{ComparedWorkload, Comparison, Totals};
use super::fate::Effect;
use super::flavor_amounts::ComparedAmounts;
use super::tables::format_duration;
use super::timeline::WorkloadRef;
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

impl Comparison {
    /// Formats the comparison as a table, with what it assumes below.
    pub fn table(&self) -> String {
        let mut rows = vec![["", "WITHOUT", "WITH", ""].map(str::to_owned)];
        rows.extend(self.without.as_ref().zip(self.with.as_ref()).into_iter().flat_map(total_rows));
        rows.extend(self.workloads.iter().take(MAX_ROWS).map(row));
        let mut text = String::new();
        print(&rows, &mut text);
        let more = self.workloads.len().saturating_sub(MAX_ROWS);
        if more > 0 {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{more} more workloads fare differently: -o json lists all");
        }
        let summary = self.summary();
        if summary.is_empty() {
            text.push_str("No workload fares differently.\n");
        } else {
            let _ = writeln!(text, "{summary}.");
        }
        if let Some(names) = names(&self.stays_stuck) {
            let _ = writeln!(text, "Stays stuck: {names}.");
        }
        if !self.flavors.is_empty() {
            let head = ["", "NODES", "QUOTA", ""].map(str::to_owned);
            let flavors: Vec<_> = std::iter::once(head).chain(self.flavors.iter().map(flavor)).collect();
            text.push('\n');
            print(&flavors, &mut text);
        }
        for (heading, lines) in [("Note:", &self.notes), ("Assumed:", &self.assumptions)] {
            if !lines.is_empty() {
                let _ = writeln!(text, "\n{heading}\n  {}", lines.join("\n  "));
            }
        }
        text
    }

    /// Returns how many workloads each effect has, as a sentence without its full stop; empty if none fares differently.
    pub fn summary(&self) -> String {
        let counted = COUNTED.into_iter().filter_map(|effect| match self.count(effect) {
            0 => None,
            count => Some(format!("{count} {}", effect.as_str())),
        });
        let counted: Vec<String> = counted.collect();
        let different = self.workloads.iter().filter(|row| row.differs()).count();
        match (different, counted.is_empty()) {
            (0, _) => String::new(),
            (1, true) => "1 workload fares differently".to_owned(),
            (_, true) => format!("{different} workloads fare differently"),
            (1, false) => format!("1 workload fares differently: {}", counted.join(", ")),
            (_, false) => format!("{different} workloads fare differently: {}", counted.join(", ")),
        }
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

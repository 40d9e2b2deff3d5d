//! Text of `usage`.
//!
//! Invariant: the last line has the period for which the numbers are complete, and says so if they do not equal the ledger.

use super::recorded::{conservation, recorded};
use super::{Look, ResourceNames};
use crate::people::duration::human;
use crate::people::text_table::{Narrow, Side, TextTable, printable};
use crate::visibility::history::Bill;
use crate::visibility::views::{HoursView, UsageReport, UsageView};
use jiff::Timestamp;
use std::collections::BTreeSet;

/// Returns the rows, their sums and the sentence about them. `asked` is the start of the period.
pub fn usage(report: &UsageReport, asked: Timestamp, look: Look) -> String {
    text(report, None, asked, look)
}

/// Returns the same with what the rows cost, and what has no price.
pub fn priced_usage(report: &UsageReport, bill: &Bill, asked: Timestamp, look: Look) -> String {
    text(report, Some(bill), asked, look)
}

fn text(report: &UsageReport, bill: Option<&Bill>, asked: Timestamp, look: Look) -> String {
    let resources: BTreeSet<&str> = report.items.iter().map(|row| row.resource.as_str()).collect();
    let names = ResourceNames::of(resources.iter().copied());
    let only = Some(&resources).filter(|all| all.len() == 1).and_then(|all| all.first());
    let mut text = String::new();
    if !report.items.is_empty() {
        let group = report.by.to_uppercase();
        let hours = only.map_or_else(
            || "HOURS".to_owned(),
            |resource| format!("{} HOURS", names.short(resource).to_uppercase()),
        );
        let cost = bill.map(|bill| format!("COST {}", bill.currency));
        let mut columns = vec![(group.as_str(), Side::Left)];
        columns.extend(only.is_none().then_some(("RESOURCE", Side::Left)));
        columns.extend([("JOBS", Side::Right), (hours.as_str(), Side::Right)]);
        columns.extend(cost.as_deref().map(|cost| (cost, Side::Right)));
        columns.extend([
            ("BORROWED", Side::Right),
            ("LOST TO PREEMPTION", Side::Right),
            ("WAIT P50", Side::Right),
            ("WAIT P99", Side::Right),
        ]);
        let mut table = TextTable::new(columns);
        let optional = &["WAIT P50", "WAIT P99", "LOST TO PREEMPTION", "BORROWED"];
        table.when_narrow(Narrow { optional, ..Narrow::default() });
        let shown = |cost: Option<String>| cost.map_or_else(|| "-".to_owned(), |cost| grouped(&cost));
        let of_items = (0..report.items.len()).map(|position| bill.map(|bill| shown(bill.item(position))));
        let of_sums = (0..report.sums.len()).map(|position| bill.map(|bill| shown(bill.sum(position))));
        let costs = of_items.chain(of_sums);
        for (row, cost) in report.items.iter().chain(&report.sums).zip(costs) {
            table.push(cells(row, only.is_none().then(|| names.short(&row.resource)), cost));
        }
        text = look.show(&table);
    }
    let bill = bill.map(bill_text).unwrap_or_default();
    format!("{text}{bill}{}{}.\n", recorded(&report.recorded, asked, look), conservation(&report.recorded))
}

/// Returns the sentences about costs: their sum and its prices, and what they leave out.
fn bill_text(bill: &Bill) -> String {
    let (total, digest) = (grouped(&bill.total()), bill.sha256.get(..12).unwrap_or_default());
    let mut text = format!("Cost {total} {}, by {} (SHA-256 {digest}...).\n", bill.currency, bill.file);
    let without = bill.without_price();
    if !without.is_empty() {
        text = text + "Without a price: " + &without.join(", ") + ".\n";
    }
    if bill.borrowed_is_hidden {
        text.push_str("Borrowed hours are not shown to you, and cost what other hours do.\n");
    }
    text.split_inclusive('\n').map(|line| printable(line.trim_end_matches('\n')) + "\n").collect()
}

/// `cost` is absent without prices.
fn cells(row: &UsageView, resource: Option<&str>, cost: Option<String>) -> Vec<String> {
    let group = if row.group.is_empty() { "-" } else { &row.group };
    let amount = |hours: &HoursView| {
        if hours.text.is_empty() { "-".to_owned() } else { grouped(&hours.text) }
    };
    let wait = |seconds: Option<i64>| seconds.map_or_else(|| "-".to_owned(), human);
    let mut cells = vec![group.to_owned()];
    cells.extend(resource.map(str::to_owned));
    cells.extend([grouped(&row.jobs.to_string()), amount(&row.used)]);
    cells.extend(cost);
    cells.extend([amount(&row.borrowed), amount(&row.lost)]);
    cells.extend([wait(row.wait_p50_seconds), wait(row.wait_p99_seconds)]);
    cells
}

/// Returns a number with a comma before each group of three of its whole digits.
pub(super) fn grouped(number: &str) -> String {
    let whole = number.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(number.len());
    let (whole, rest) = number.split_at(whole);
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut text = sign.to_owned();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        for (number, expected) in [
            ("0", "0"),
            ("999", "999"),
            ("9744", "9,744"),
            ("-1234567.5Gi", "-1,234,567.5Gi"),
            ("100Gi", "100Gi"),
        ] {
            assert_eq!(grouped(number), expected);
        }
    }
}

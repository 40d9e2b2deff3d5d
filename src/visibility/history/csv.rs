//! Answers as CSV (RFC 4180): a header, then a row for each group and resource, or each preemption and flavor-resource. Times are
//! in UTC, amounts whole numbers of units and quantities.
//!
//! Invariant: every field that could end a field or a row is quoted.

use crate::visibility::views::{
    HistoryAmount, HistoryWorkload, HoursView, PreemptionReport, UsageReport, UsageView,
};
use std::fmt::Display;

/// Columns of usage.
const USAGE: [&str; 11] = [
    "group",
    "resource",
    "jobs",
    "used_unit_milliseconds",
    "used_hours",
    "borrowed_unit_milliseconds",
    "borrowed_hours",
    "lost_unit_milliseconds",
    "lost_hours",
    "wait_p50_seconds",
    "wait_p99_seconds",
];
/// Columns of preemptions.
const PREEMPTIONS: [&str; 16] = [
    "time",
    "victim_namespace",
    "victim",
    "victim_cluster_queue",
    "victim_priority",
    "preemptor_namespace",
    "preemptor",
    "preemptor_cluster_queue",
    "preemptor_priority",
    "reason",
    "flavor",
    "resource",
    "amount",
    "ran_seconds",
    "released_seconds",
    "borrowed",
];

/// Returns usage as CSV.
pub fn usage(report: &UsageReport) -> String {
    let mut text = row(USAGE);
    for UsageView {
        group, resource, jobs, used, borrowed, lost, wait_p50_seconds, wait_p99_seconds, ..
    } in &report.items
    {
        let hours = |view: &HoursView| [view.unit_milliseconds.clone(), format!("{:.3}", view.hours)];
        let names = [group.clone(), resource.clone(), jobs.to_string()];
        let times = [used, borrowed, lost].into_iter().flat_map(hours);
        let waits = [optional(*wait_p50_seconds), optional(*wait_p99_seconds)];
        text.push_str(&row(names.into_iter().chain(times).chain(waits)));
    }
    text
}

/// Returns preemptions as CSV.
pub fn preemptions(report: &PreemptionReport) -> String {
    let mut text = row(PREEMPTIONS);
    for item in &report.items {
        let workload = |workload: Option<&HistoryWorkload>| {
            let known = workload.cloned().unwrap_or_default();
            [known.namespace, known.name, known.cluster_queue, optional(known.priority)]
        };
        let unknown = [HistoryAmount::default()];
        let amounts = if item.amounts.is_empty() { &unknown[..] } else { &item.amounts };
        for amount in amounts {
            let first = [optional(item.time)].into_iter().chain(workload(Some(&item.victim)));
            let last = [
                item.reason.clone(),
                amount.flavor.clone(),
                amount.resource.clone(),
                amount.amount.value.clone(),
                optional(item.ran_seconds),
                optional(item.released_seconds),
                item.borrowed.to_string(),
            ];
            text.push_str(&row(first.chain(workload(item.preemptor.as_ref())).chain(last)));
        }
    }
    text
}

fn optional<T: Display>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn row<T: AsRef<str>>(fields: impl IntoIterator<Item = T>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|field| quoted(field.as_ref())).collect();
    fields.join(",") + "\r\n"
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_could_end_a_row_are_quoted() {
        assert_eq!(row(["a", "b,c", "d\"e", "f\r\ng", ""]), "a,\"b,c\",\"d\"\"e\",\"f\r\ng\",\r\n");
    }

    #[test]
    fn an_empty_report_has_its_header() {
        assert!(usage(&UsageReport::default()).starts_with("group,resource,jobs,used_unit_milliseconds,"));
        assert_eq!(preemptions(&PreemptionReport::default()).lines().count(), 1);
    }
}

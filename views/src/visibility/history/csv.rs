//! Answers as CSV (RFC 4180): a header, then a row for each group and resource, or each preemption and flavor-resource. Times are
//! in UTC, amounts whole numbers of units and quantities.
//!
//! Invariant: every field that could end a field or a row early is quoted.

use super::{Bill, Rollup};
use crate::visibility::views::{
    HistoryAmount, HistoryWorkload, HoursView, PreemptionReport, UsageRecordView, UsageReport, UsageView,
    WaitCount,
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

/// Columns of records without a roll-up.
const RUNS: [&str; 22] = [
    "workload_uid",
    "namespace",
    "workload",
    "job_kind",
    "job",
    "local_queue",
    "cluster_queue",
    "priority_class",
    "priority",
    "attempt",
    "part",
    "start",
    "end",
    "until",
    "result",
    "flavor",
    "resource",
    "units",
    "amount",
    "used_unit_milliseconds",
    "used_hours",
    "filled",
];
/// Columns of records with a roll-up.
const SUMS: [&str; 17] = [
    "start",
    "end",
    "namespace",
    "local_queue",
    "cluster_queue",
    "priority_class",
    "flavor",
    "resource",
    "used_unit_milliseconds",
    "used_hours",
    "borrowed_unit_milliseconds",
    "borrowed_hours",
    "lost_unit_milliseconds",
    "lost_hours",
    "ended",
    "evicted",
    "waits",
];

/// Returns usage as CSV.
pub fn usage(report: &UsageReport) -> String {
    let rows = report.items.iter().map(|item| row(usage_fields(item)));
    row(USAGE) + &rows.collect::<String>()
}

/// Returns usage as CSV, with the cost of each row, the currency and the digest of the file of prices.
pub fn priced_usage(report: &UsageReport, bill: &Bill) -> String {
    let mut text = row(USAGE.into_iter().chain(["cost", "currency", "prices_sha256"]));
    for (position, item) in report.items.iter().enumerate() {
        let of_bill = [bill.item(position).unwrap_or_default(), bill.currency.clone(), bill.sha256.clone()];
        text.push_str(&row(usage_fields(item).into_iter().chain(of_bill)));
    }
    text
}

fn usage_fields(item: &UsageView) -> Vec<String> {
    let hours = |view: &HoursView| [view.unit_milliseconds.clone(), view.hours.to_string()];
    let names = [item.group.clone(), item.resource.clone(), item.jobs.to_string()];
    let times = [&item.used, &item.borrowed, &item.lost].into_iter().flat_map(hours);
    let waits = [optional(item.wait_p50_seconds), optional(item.wait_p99_seconds)];
    names.into_iter().chain(times).chain(waits).collect()
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

/// Returns the header of records, without or with a roll-up.
pub fn records_header(rollup: Option<Rollup>) -> String {
    if rollup.is_some() { row(SUMS) } else { row(RUNS) }
}

/// Returns records as rows, without a header.
pub fn records(items: &[UsageRecordView]) -> String {
    items.iter().map(record).collect()
}

fn record(item: &UsageRecordView) -> String {
    let hours = |view: &HoursView| [view.unit_milliseconds.clone(), view.hours.to_string()];
    let period = [optional(item.start), optional(item.end)];
    let fr = [item.flavor.clone(), item.resource.clone()];
    let queues = [item.local_queue.clone(), item.cluster_queue.clone(), item.priority_class.clone()];
    let fields: Vec<String> = match (&item.run, &item.sums) {
        (Some(run), _) => {
            let (kind, job) =
                run.job.as_ref().map(|job| (job.kind.clone(), job.name.clone())).unwrap_or_default();
            let names = [run.uid.clone(), item.namespace.clone(), run.name.clone(), kind, job];
            let numbers = [run.priority.to_string(), run.attempt.to_string(), run.part.to_string()];
            let ended = [optional(run.until), run.result.clone()];
            let amount = [run.units.clone(), run.amount.value.clone()];
            let first = names.into_iter().chain(queues).chain(numbers).chain(period).chain(ended);
            let filled = [run.filled.to_string()];
            first.chain(fr).chain(amount).chain(hours(&item.used)).chain(filled).collect()
        }
        (None, sums) => {
            let sums = sums.clone().unwrap_or_default();
            let wait = |wait: &WaitCount| format!("{}:{}", optional(wait.up_to_seconds), wait.count);
            let waits: Vec<String> = sums.waits.iter().map(wait).collect();
            let numbers = [sums.ended.to_string(), sums.evicted.to_string(), waits.join(" ")];
            let times = [&item.used, &sums.borrowed, &sums.lost].into_iter().flat_map(hours);
            let groups = [item.namespace.clone()].into_iter().chain(queues).chain(fr);
            period.into_iter().chain(groups).chain(times).chain(numbers).collect()
        }
    };
    row(fields)
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

    /// Reasons of conditions may have commas.
    #[test]
    fn records_have_a_field_for_each_column() {
        use crate::visibility::views::{RecordedRun, RecordedSums};
        let run =
            RecordedRun { name: "a".to_owned(), result: "evicted:A,B".to_owned(), ..RecordedRun::default() };
        let run = UsageRecordView { run: Some(run), ..UsageRecordView::default() };
        let text = records(std::slice::from_ref(&run));
        assert_eq!(text, ",,a,,,,,,0,0,0,,,,\"evicted:A,B\",,,,,,0,false\r\n");
        assert_eq!(text.replace("A,B", "").matches(',').count() + 1, RUNS.len());
        let wait = |up_to_seconds, count| WaitCount { up_to_seconds, count };
        let sums = RecordedSums {
            waits: vec![wait(Some(60), 3), wait(None, 1)],
            ended: 7,
            ..RecordedSums::default()
        };
        let sums = UsageRecordView { sums: Some(sums), ..UsageRecordView::default() };
        let text = records(&[sums]);
        assert_eq!(text, ",,,,,,,,,0,,0,,0,7,0,60:3 :1\r\n");
        assert_eq!(text.matches(',').count() + 1, SUMS.len());
        assert!(records_header(None).starts_with("workload_uid,namespace,"));
        assert!(records_header(Some(Rollup::Day)).starts_with("start,end,"));
    }
}

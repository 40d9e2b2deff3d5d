//! Tables of preemptions and usage, as `kubectl get` shows them.
//!
//! Invariant: a workload that the reader may not see is shown by its ClusterQueue only.

use crate::visibility::age::{age, human};
use crate::visibility::table::{Column, TableRow};
use crate::visibility::view_tables::{NAME, number, text, wide};
use crate::visibility::views::{
    HistoryAmount, HistoryWorkload, HoursView, PreemptionView, UsageRecordView, UsageView,
};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Formats a workload of the history as one word, or as its ClusterQueue if the reader may not see it.
pub fn workload_text(workload: &HistoryWorkload) -> String {
    if !workload.name.is_empty() {
        format!("{}/{}", workload.namespace, workload.name)
    } else if workload.cluster_queue.is_empty() {
        "a workload".to_owned()
    } else {
        format!("a workload of ClusterQueue {}", workload.cluster_queue)
    }
}

/// Formats amounts, with the resources without their domains.
fn amounts(amounts: &[HistoryAmount]) -> String {
    let word = |resource: &str| resource.rsplit('/').next().unwrap_or(resource).to_owned();
    let one = |amount: &HistoryAmount| format!("{} {}", amount.amount.value, word(&amount.resource));
    amounts.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl TableRow for PreemptionView {
    const COLUMNS: &'static [Column] = &[
        NAME,
        text("Age", "How long ago the victim was evicted."),
        text("Preemptor", "The preemptor, or its ClusterQueue."),
        text("Reason", "Reason of the preemption."),
        text("Amount", "What the victim used."),
        text("Ran", "How long the victim had quota."),
        text("Released", "After which time its quota was released; empty while it is held."),
        wide(text("Cluster Queue", "ClusterQueue of the victim.")),
        wide(text("Job", "Job of the victim.")),
        wide(text("Time", "When the victim was evicted.")),
    ];

    fn cells(&self, now: Timestamp) -> Vec<Value> {
        let seconds = |seconds: Option<i64>| seconds.map(human).unwrap_or_default();
        let job = self.victim.job.as_ref().map(|job| format!("{}/{}", job.kind, job.name));
        vec![
            json!(self.metadata.name),
            json!(self.time.map(|time| age(time, now)).unwrap_or_default()),
            json!(self.preemptor.as_ref().map(workload_text).unwrap_or_default()),
            json!(self.reason),
            json!(amounts(&self.amounts)),
            json!(seconds(self.ran_seconds)),
            json!(seconds(self.released_seconds)),
            json!(self.victim.cluster_queue),
            json!(job.unwrap_or_default()),
            json!(self.time.map(|time| time.to_string()).unwrap_or_default()),
        ]
    }

    fn metadata(&self) -> Value {
        json!(self.metadata)
    }
}

impl TableRow for UsageView {
    const COLUMNS: &'static [Column] = &[
        Column { name: "Group", ..NAME },
        text("Resource", "The resource."),
        number("Jobs", "Number of workloads that had quota."),
        text("Hours", "Used: cores, bytes or pieces, times hours."),
        text("Borrowed", "Used above the nominal quota."),
        text("Lost", "Used by runs that a preemption ended."),
        text("Wait P50", "Median of the waits for quota."),
        text("Wait P99", "99th percentile of the waits for quota."),
    ];

    fn cells(&self, _: Timestamp) -> Vec<Value> {
        let hours = |view: &HoursView| json!(view.text);
        let seconds = |seconds: Option<i64>| json!(seconds.map(human).unwrap_or_default());
        vec![
            json!(self.group),
            json!(self.resource),
            json!(self.jobs),
            hours(&self.used),
            hours(&self.borrowed),
            hours(&self.lost),
            seconds(self.wait_p50_seconds),
            seconds(self.wait_p99_seconds),
        ]
    }

    fn metadata(&self) -> Value {
        json!(self.metadata)
    }
}

impl TableRow for UsageRecordView {
    const COLUMNS: &'static [Column] = &[
        NAME,
        text("Start", "When it began."),
        text("End", "When it ended; empty while the workload runs."),
        text("Cluster Queue", "The ClusterQueue."),
        text("Flavor", "The flavor."),
        text("Resource", "The resource."),
        text("Amount", "The amount; empty in sums."),
        text("Hours", "Used: cores, bytes or pieces, times hours."),
        text("Result", "How it ended."),
        wide(text("Local Queue", "The LocalQueue.")),
        wide(text("Priority Class", "The priority class.")),
    ];

    fn cells(&self, _: Timestamp) -> Vec<Value> {
        let time = |time: Option<Timestamp>| json!(time.map(|time| time.to_string()).unwrap_or_default());
        let run = self.run.as_ref();
        vec![
            json!(self.metadata.name),
            time(self.start),
            time(self.end),
            json!(self.cluster_queue),
            json!(self.flavor),
            json!(self.resource),
            json!(run.map(|run| run.amount.value.as_str()).unwrap_or_default()),
            json!(self.used.text),
            json!(run.map(|run| run.result.as_str()).unwrap_or_default()),
            json!(self.local_queue),
            json!(self.priority_class),
        ]
    }

    fn metadata(&self) -> Value {
        json!(self.metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::AmountView;

    #[test]
    fn every_row_has_a_cell_for_each_column() {
        let now = Timestamp::from_second(10_000).unwrap();
        assert_eq!(UsageView::default().cells(now).len(), UsageView::COLUMNS.len());
        assert_eq!(UsageRecordView::default().cells(now).len(), UsageRecordView::COLUMNS.len());
        let amount = AmountView { value: "64".to_owned(), number: None };
        let row = PreemptionView {
            time: Some(Timestamp::from_second(4_000).unwrap()),
            preemptor: Some(HistoryWorkload {
                cluster_queue: "rank".to_owned(),
                ..HistoryWorkload::default()
            }),
            amounts: vec![HistoryAmount {
                resource: "nvidia.com/gpu".to_owned(),
                amount,
                ..HistoryAmount::default()
            }],
            ran_seconds: Some(1_831),
            ..PreemptionView::default()
        };
        let cells = row.cells(now);
        assert_eq!(cells.len(), PreemptionView::COLUMNS.len());
        let shown = [
            json!("100m"),
            json!("a workload of ClusterQueue rank"),
            json!(""),
            json!("64 gpu"),
            json!("30m"),
            json!(""),
        ];
        assert_eq!(cells[1..7], shown);
    }
}

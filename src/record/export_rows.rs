//! Rows of an export: runs and segments with an amount, and sums of a group.
//!
//! Invariant: what a run used is counted as in `usage`: not before the record began, and not beyond the longest time that counts.

use super::periods::{Group, Sums};
use super::rows::{AmountRow, OpenRow, RecordRow, WorkloadRow, timestamp};
use super::runs::counted_since;
use crate::visibility::history::export::{amount, hours};
use crate::visibility::views::{
    JobView, RecordedRun, RecordedSums, UsageRecordView, ViewMetadata, WaitCount,
};

/// Time in which a workload had the same amounts, from a segment or an open run.
pub(super) struct Stretch<'a> {
    workload: &'a WorkloadRow,
    pub(super) amounts: &'a [AmountRow],
    pub(super) start: i64,
    /// End; `None` while the workload runs.
    end: Option<i64>,
    attempt: u32,
    part: u32,
    result: &'a str,
    filled: bool,
}

impl<'a> Stretch<'a> {
    pub(super) fn of_segment(row: &'a RecordRow, end: Option<i64>) -> Self {
        Self {
            workload: &row.workload,
            amounts: &row.amounts,
            start: row.start.unwrap_or(row.time).as_millisecond(),
            end,
            attempt: row.attempt,
            part: row.part,
            result: if end.is_some() { &row.result } else { "" },
            filled: row.origin.filled,
        }
    }

    pub(super) fn of_run(run: &'a OpenRow) -> Self {
        Self {
            workload: &run.workload,
            amounts: &run.amounts,
            start: run.since,
            end: None,
            attempt: run.evictions,
            part: run.resizes,
            result: "",
            filled: false,
        }
    }

    /// Returns the row of an amount, in a record that began at one time and an export as of another one.
    pub(super) fn row(
        &self,
        AmountRow { flavor, resource, amount: units }: &AmountRow,
        (began, as_of): (i64, i64),
    ) -> UsageRecordView {
        let WorkloadRow { uid, namespace, name, job_kind, job, .. } = self.workload;
        let until = self.end.unwrap_or(as_of).max(self.start);
        let start = self.start.max(counted_since(began, until)).min(until);
        let used = i128::from(*units).saturating_mul(i128::from(until.saturating_sub(start)));
        let job = (!job.is_empty()).then(|| JobView {
            kind: job_kind.to_string(),
            name: job.to_string(),
            ..JobView::default()
        });
        UsageRecordView {
            metadata: ViewMetadata {
                namespace: namespace.to_string(),
                name: format!("{name}.{}.{}", self.attempt, self.part),
                ..ViewMetadata::default()
            },
            start: Some(timestamp(start)),
            end: self.end.map(timestamp),
            namespace: namespace.to_string(),
            local_queue: self.workload.local_queue.to_string(),
            cluster_queue: self.workload.cluster_queue.to_string(),
            priority_class: self.workload.priority_class.to_string(),
            flavor: flavor.to_string(),
            resource: resource.to_string(),
            used: hours(resource, used),
            run: Some(RecordedRun {
                uid: uid.to_string(),
                name: name.to_string(),
                job,
                priority: self.workload.priority,
                attempt: self.attempt,
                part: self.part,
                until: Some(timestamp(until)),
                result: self.result.to_owned(),
                filled: self.filled,
                amount: amount(resource, *units),
                units: units.to_string(),
            }),
            sums: None,
        }
    }
}

/// Returns the row of the sums of a group.
pub(super) fn sums_row(group: &Group<'_>, (start, end): (i64, i64), sums: &Sums) -> UsageRecordView {
    let waits = sums.waits.iter();
    let waits = waits.map(|(class, count)| WaitCount { up_to_seconds: Sums::longest(*class), count: *count });
    UsageRecordView {
        metadata: ViewMetadata {
            namespace: group.namespace.to_owned(),
            name: group.cluster_queue.to_owned(),
            ..ViewMetadata::default()
        },
        start: Some(timestamp(start)),
        end: Some(timestamp(end)),
        namespace: group.namespace.to_owned(),
        local_queue: group.local_queue.to_owned(),
        cluster_queue: group.cluster_queue.to_owned(),
        priority_class: group.priority_class.to_owned(),
        flavor: group.flavor.to_owned(),
        resource: group.resource.to_owned(),
        used: hours(group.resource, sums.used.0),
        run: None,
        sums: Some(RecordedSums {
            borrowed: hours(group.resource, sums.borrowed.0),
            lost: hours(group.resource, sums.lost.0),
            ended: sums.ended,
            evicted: sums.evicted,
            waits: waits.collect(),
        }),
    }
}

//! Usage in a durable record: runs with a flavor-resource, or sums of an hour or a day.

use super::answer::{AmountView, ListMetadata, ViewMetadata, is_false};
use super::history::{HoursView, Recorded};
use super::workload::JobView;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A page of rows of a durable record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageRecordReport {
    /// Token of the next page, and number of rows after this one.
    pub metadata: ListMetadata,
    /// The rows, in the order of the record. A page that had to pass over many rows of others has fewer, or none.
    pub items: Vec<UsageRecordView>,
    /// For which time all pages together are complete.
    pub recorded: Recorded,
}

/// A row of a durable record: what a workload had of a flavor-resource while its amounts did not change, or with a roll-up the sums of
/// a group in an hour or a day.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageRecordView {
    /// Namespace, and a name for tables.
    pub metadata: ViewMetadata,
    /// The start, which may be before that of the period.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub start: Option<Timestamp>,
    /// The end, which may be after that of the period; absent while the workload runs with these amounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub end: Option<Timestamp>,
    /// The namespace.
    pub namespace: String,
    /// The LocalQueue.
    pub local_queue: String,
    /// The ClusterQueue.
    pub cluster_queue: String,
    /// The priority class; empty without one.
    pub priority_class: String,
    /// The flavor; empty in a row with numbers of workloads.
    pub flavor: String,
    /// The resource; empty in a row with numbers of workloads.
    pub resource: String,
    /// Used from the start to the end.
    pub used: HoursView,
    /// The workload, without a roll-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RecordedRun>,
    /// The other sums of a roll-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sums: Option<RecordedSums>,
}

/// A workload while it had quota and its amounts did not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordedRun {
    /// UID of the workload.
    pub uid: String,
    /// Name of the workload.
    pub name: String,
    /// Job of the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobView>,
    /// Effective priority of the workload.
    pub priority: i64,
    /// Number of evictions before.
    pub attempt: u32,
    /// Number of changes of the amounts before, since the quota was reserved.
    pub part: u32,
    /// Until when the hours count: the end, or the time of the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
    /// How it ended: `Finished`, `Deleted`, `Resized`, `Released` or `evicted:REASON`; empty while it runs.
    pub result: String,
    /// Whether the run, or its end, fills a time without a recorder.
    #[serde(skip_serializing_if = "is_false")]
    pub filled: bool,
    /// The amount.
    pub amount: AmountView,
    /// The amount exactly: thousandths of cores, bytes or pieces.
    pub units: String,
}

/// Sums of a group of workloads in an hour or a day.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordedSums {
    /// Used above the nominal quota.
    pub borrowed: HoursView,
    /// Used by runs that a preemption ended in this time.
    pub lost: HoursView,
    /// Number of workloads that ended.
    pub ended: u64,
    /// Number of evictions.
    pub evicted: u64,
    /// Waits that ended with a reservation, by their length.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitCount>,
}

/// Number of waits up to a length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitCount {
    /// The longest of these waits; absent of waits that are longer than a week.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_seconds: Option<i64>,
    /// Number of waits.
    pub count: u64,
}

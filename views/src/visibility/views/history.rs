//! Answers from the history of the last 24 hours: preemptions and usage, and the time for which they are complete.

use super::answer::{AmountView, ListMetadata, ViewMetadata, is_false};
use super::queues::ReasonCount;
use super::workload::JobView;
use crate::history::Gap;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// For which time an answer is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Recorded {
    /// Since when it is recorded: the start of the period, or later. Absent if nothing is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub from: Option<Timestamp>,
    /// The end of the period.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
    /// The replica whose history it is.
    pub replica: String,
    /// Whether the whole period that was asked for is recorded.
    pub complete: bool,
    /// Number of flavor-resources whose open runs differed from the usage in the ledger at the last comparison; must be 0.
    pub drift: u64,
    /// Times in which nothing was recorded, of a durable record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// A preemption.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PreemptionView {
    /// Namespace of the victim; the name is its name with the number of evictions before, `NAME.N`.
    pub metadata: ViewMetadata,
    /// When the victim was evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub time: Option<Timestamp>,
    /// The victim.
    pub victim: HistoryWorkload,
    /// The preemptor; absent if the conditions of the victim do not name one that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptor: Option<HistoryWorkload>,
    /// Reason of the preemption; empty if it is not known.
    pub reason: String,
    /// What the victim used.
    pub amounts: Vec<HistoryAmount>,
    /// Seconds with quota until the eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_seconds: Option<i64>,
    /// Seconds from the eviction until the quota was released; absent while it is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released_seconds: Option<i64>,
    /// Whether the ClusterQueue of the victim borrowed a resource that the victim used.
    #[serde(skip_serializing_if = "is_false")]
    pub borrowed: bool,
    /// Whether it was before the history began: it is known from the conditions of the victim alone.
    #[serde(skip_serializing_if = "is_false")]
    pub seeded: bool,
    /// Whether it fills a time without a recorder, of a durable record.
    #[serde(skip_serializing_if = "is_false")]
    pub filled: bool,
}

/// A workload of the history. Of one that the reader may not see, only the ClusterQueue is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HistoryWorkload {
    /// Namespace of the workload.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the workload.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// UID of the workload, if it is the victim.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Job of the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobView>,
    /// ClusterQueue of the workload.
    pub cluster_queue: String,
    /// Effective priority of the workload; absent for a preemption before the history began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
}

/// An amount of a flavor-resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HistoryAmount {
    /// The flavor.
    pub flavor: String,
    /// The resource.
    pub resource: String,
    /// The amount.
    pub amount: AmountView,
}

/// Preemptions, the newest first, with their sums.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PreemptionReport {
    /// Token of the next page, and number of rows after this one.
    pub metadata: ListMetadata,
    /// The preemptions.
    pub items: Vec<PreemptionView>,
    /// Number of preemptions that match, on all pages.
    pub total: u64,
    /// What the victims had used until then, by resource, of all that match.
    pub lost: Vec<HoursOf>,
    /// Sums by reason.
    pub by_reason: Vec<PreemptionSumView>,
    /// Sums by the ClusterQueue of the preemptor.
    pub by_preemptor: Vec<PreemptionSumView>,
    /// Sums by the ClusterQueues of preemptor and victim.
    pub matrix: Vec<PreemptionSumView>,
    /// For which time that is complete.
    pub recorded: Recorded,
}

/// A sum of preemptions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PreemptionSumView {
    /// The reason, of a sum by reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// ClusterQueue of the preemptors; empty if they are not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preemptor_cluster_queue: String,
    /// ClusterQueue of the victims.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub victim_cluster_queue: String,
    /// Number of preemptions.
    pub count: u64,
    /// What the victims had used until then, by resource.
    pub lost: Vec<HoursOf>,
}

/// Hours of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HoursOf {
    /// The resource.
    pub resource: String,
    /// The hours.
    pub hours: HoursView,
}

/// Amount × time, of cores, bytes or pieces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HoursView {
    /// Exactly: units (thousandths of cores, bytes, pieces) × milliseconds.
    pub unit_milliseconds: String,
    /// In cores, bytes or pieces × hours.
    pub hours: f64,
    /// The same as texts show it: with the digits that are of use, bytes in gibibytes.
    pub text: String,
}

/// Usage in a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageReport {
    /// Empty: all rows are here.
    pub metadata: ListMetadata,
    /// What it is grouped by.
    pub by: String,
    /// By group and resource.
    pub items: Vec<UsageView>,
    /// The sums, by resource.
    pub sums: Vec<UsageView>,
    /// For which time that is complete.
    pub recorded: Recorded,
    /// How borrowed hours are attributed, where they are not exact.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub attribution: String,
    /// Sums of the first resource by hours, days or weeks, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<UsageStep>,
}

/// Usage of a resource in a part of a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageStep {
    /// Start of the part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub from: Option<Timestamp>,
    /// End of the part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
    /// The resource.
    pub resource: String,
    /// Used.
    pub used: HoursView,
    /// Used above the nominal quota.
    pub borrowed: HoursView,
    /// Used by each of the groups with the most hours of the period, at most 4, the largest first; the same groups in each part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<StepGroup>,
    /// Used by all other groups, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest: Option<HoursView>,
}

/// Usage by a group in a part of a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StepGroup {
    /// The group; empty for what belongs to none.
    pub group: String,
    /// Used.
    pub used: HoursView,
}

/// Usage of a resource by a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageView {
    /// The name is the group with the resource.
    pub metadata: ViewMetadata,
    /// The group; empty for what belongs to none.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// Number of workloads that had quota.
    pub jobs: u64,
    /// Used.
    pub used: HoursView,
    /// Used above the nominal quota.
    pub borrowed: HoursView,
    /// Used by runs that a preemption ended.
    pub lost: HoursView,
    /// Median of the waits that ended with a reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_p50_seconds: Option<i64>,
    /// 99th percentile of the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_p99_seconds: Option<i64>,
    /// The hours by flavor, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flavors: Vec<FlavorUsage>,
}

/// Usage of a resource in one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FlavorUsage {
    /// The flavor.
    pub flavor: String,
    /// Used.
    pub used: HoursView,
    /// Used above the nominal quota.
    pub borrowed: HoursView,
    /// Used by runs that a preemption ended.
    pub lost: HoursView,
}

/// What the workloads of one user used in a period, and which of them were preempted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnReport {
    /// Number of workloads that had quota.
    pub jobs: u64,
    /// Used, by resource.
    pub used: Vec<HoursOf>,
    /// The newest preemptions of these workloads.
    pub preemptions: Vec<PreemptionView>,
    /// Number of preemptions of these workloads.
    pub preemption_count: u64,
    /// For which time that is complete.
    pub recorded: Recorded,
}

/// Lines of charts over the last 24 hours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LineReport {
    /// The lines.
    pub lines: Vec<LineView>,
    /// Sums of the same time, of the lines of all ClusterQueues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<DayReport>,
    /// For which time they are complete.
    pub recorded: Recorded,
}

/// Sums of the last 24 hours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DayReport {
    /// Since when they are complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub from: Option<Timestamp>,
    /// Median of the waits that ended with a reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_p50_seconds: Option<i64>,
    /// 99th percentile of the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_p99_seconds: Option<i64>,
    /// Number of evictions.
    pub evictions: u64,
    /// Number of evictions by reason, the most frequent first.
    pub evictions_by_reason: Vec<ReasonCount>,
}

/// A line of a chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LineView {
    /// What it shows: `usage`, `borrowed`, `pending`, `admissions`, `evictions`, `waitP50` or `waitP99`.
    pub measure: String,
    /// Flavor, of usage.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub flavor: String,
    /// Resource, of usage.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// Pending reason, of pending workloads.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Start of the first point.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub from: Option<Timestamp>,
    /// Milliseconds between two points; the last one may cover less.
    pub step_milliseconds: i64,
    /// Means of amounts and counts in cores, bytes or pieces; numbers of admissions and evictions; seconds of waits.
    pub values: Vec<f64>,
}

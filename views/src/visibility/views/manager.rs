//! The state of the manager: the leader, its decisions and writes, and conditions that need attention.

use super::answer::ViewMetadata;
use super::finding::FindingCounts;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A replica of the manager; of the leader alone the parts about decisions and writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagerView {
    /// The name is the name of the replica.
    pub metadata: ViewMetadata,
    /// The program's version.
    pub version: String,
    /// Whether this replica leads.
    pub leads: bool,
    /// The leader, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderView>,
    /// What it decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decisions: Option<DecisionView>,
    /// What it writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<WriteView>,
    /// What it watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watches: Option<WatchView>,
    /// Number of flavor-resources whose usage in the ledger differs from the sum over the objects; must be 0.
    #[serde(default)]
    pub ledger_drift: u64,
    /// Findings of the last audit, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub findings: Option<FindingCounts>,
    /// Names in its feature gates that are no gates of its version; they have no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_feature_gates: Vec<String>,
    /// What is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryView>,
    /// Names of the conditions of `docs/operate.md` that hold; empty if all is well.
    #[serde(default)]
    pub conditions: Vec<String>,
}

/// The leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderView {
    /// Identity in the Lease.
    pub name: String,
    /// Since when it leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub since: Option<Timestamp>,
    /// Number of replicas that answer: the ones that reported to the leader lately, and the leader; absent where another replica
    /// leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<u64>,
    /// Number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u64>,
}

/// Decisions of the leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionView {
    /// When the last state was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last: Option<Timestamp>,
    /// Admissions in a minute, over the last ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admissions_per_minute: Option<f64>,
    /// Evictions in a minute, over the last ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evictions_per_minute: Option<f64>,
    /// 99th percentile of the time of a cycle, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle_p99_seconds: Option<f64>,
}

/// Writes of the leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriteView {
    /// Workloads that wait for a write slot.
    pub waiting: u64,
    /// Writes without a result.
    pub in_flight: u64,
    /// Objects whose last write failed.
    pub failed: u64,
    /// Decisions to admit that are not confirmed by their write.
    pub assumed_admissions: u64,
    /// Conflicts in a minute, over the last ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflicts_per_minute: Option<f64>,
}

/// Watches of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchView {
    /// Number of watches.
    pub total: u64,
    /// Number of current watches.
    pub current: u64,
    /// Seconds since the oldest of them was heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_seconds: Option<i64>,
}

/// What is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryView {
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub since: Option<Timestamp>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
    /// Bytes that are used.
    pub used_bytes: u64,
    /// Most bytes.
    pub limit_bytes: u64,
    /// Whether it is kept on a volume.
    pub durable: bool,
}

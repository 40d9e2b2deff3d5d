//! Removal of names from the durable record, as an object of the API and as an answer of the process with the record.

use super::{Recorded, ViewMetadata};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A request to remove the names of a namespace from the durable record, and what was removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HistoryPurge {
    /// Metadata of the request, which is not stored.
    pub metadata: ViewMetadata,
    /// Whose names are removed.
    pub spec: HistoryPurgeSpec,
    /// What was removed.
    pub status: HistoryPurgeStatus,
}

/// Whose names are removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HistoryPurgeSpec {
    /// The namespace.
    pub namespace: String,
}

/// What was removed, or in a dry run would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HistoryPurgeStatus {
    /// Number of records without names now: of workloads of the namespace, and of preemptions by them.
    pub records: u64,
    /// Number of sums by hour or day that no longer have the name of a namespace.
    pub sums: u64,
    /// Number of runs that have not ended, and keep their names.
    pub running: u64,
}

/// Removed names, as the process with the record answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PurgeReport {
    /// Number of records.
    pub records: u64,
    /// Number of sums.
    pub sums: u64,
    /// Number of runs that have not ended.
    pub running: u64,
    /// Process with the record.
    pub recorded: Recorded,
}

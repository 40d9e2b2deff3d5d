//! A Workload as a row.

use super::answer::{AmountView, ViewMetadata, is_false};
use super::verdict::BlockerView;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Workload as a row of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadView {
    /// Metadata of the Workload.
    pub metadata: ViewMetadata,
    /// Job of the Workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobView>,
    /// How far it is.
    pub state: WorkloadState,
    /// Name of the LocalQueue; empty if the Workload names none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub local_queue: String,
    /// Name of the ClusterQueue; empty if there is no LocalQueue that names one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_queue: String,
    /// Effective priority: with the boost.
    pub priority: i64,
    /// Name of the priority class; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub priority_class: String,
    /// What an annotation adds to the priority.
    #[serde(default)]
    pub boost: i64,
    /// Since when it is in this state: of a pending one, since when it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub since: Option<Timestamp>,
    /// Where it stands in its queues, if it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// What it asks for, or has; the scarcest resource (largest part of its limit) first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// Why it is in this state: the reason of its condition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Whether it is pending, and not admitted even if all that holds quota ends: it can never be admitted, is behind one that can
    /// not, or the state of an object keeps it out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stuck: bool,
    /// Message of the condition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The first thing that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_blocker: Option<BlockerView>,
}

impl WorkloadView {
    /// Returns the message of a pending one, to be shown if no blocker explains the wait.
    pub fn pending_message(&self) -> &str {
        if self.state == WorkloadState::Pending { &self.message } else { "" }
    }

    /// Returns the row with what a table of 80 columns shows of it, which is less than half of its bytes: without job, queues, labels,
    /// message and blocker, and of the needs the first alone. By the UID a reader finds a row that two pages have.
    #[must_use]
    pub fn brief(self) -> Self {
        let ViewMetadata { namespace, name, uid, .. } = self.metadata;
        Self {
            metadata: ViewMetadata { namespace, name, uid, ..ViewMetadata::default() },
            state: self.state,
            priority: self.priority,
            since: self.since,
            position: self.position,
            needs: self.needs.into_iter().take(1).collect(),
            reason: self.reason,
            stuck: self.stuck,
            ..Self::default()
        }
    }
}

/// The job of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// Group and version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// How far a Workload is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum WorkloadState {
    /// It has no quota.
    #[default]
    Pending,
    /// It has quota, and admission checks are outstanding.
    QuotaReserved,
    /// The job may run.
    Admitted,
    /// It must stop and still has quota.
    Evicted,
    /// The job has finished.
    Finished,
}

impl WorkloadState {
    /// All states.
    pub const ALL: [Self; 5] =
        [Self::Pending, Self::QuotaReserved, Self::Admitted, Self::Evicted, Self::Finished];

    /// Returns the word for the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::QuotaReserved => "QuotaReserved",
            Self::Admitted => "Admitted",
            Self::Evicted => "Evicted",
            Self::Finished => "Finished",
        }
    }
}

/// Position of a pending Workload; 1 is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Position {
    /// In its ClusterQueue.
    pub cluster_queue: u64,
    /// In its LocalQueue.
    pub local_queue: u64,
    /// Number of pending Workloads of the ClusterQueue.
    pub of: u64,
    /// Number of pending Workloads of the LocalQueue.
    pub of_local_queue: u64,
}

/// What a Workload asks for of one resource, over all its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Need {
    /// The resource.
    pub resource: String,
    /// The amount.
    pub amount: AmountView,
    /// The flavors that it has, joined by a comma; empty while it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub flavor: String,
}

//! What goes into the engine and what comes out of it.

use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::api::v1beta2::{ClusterQueuePreemption, FlavorFungibility, QueueingStrategy};
use crate::queue::Verdict;
use crate::quota::{FlavorResource, NodeRef, ResourceGroup};
use crate::resources::{Amount, Requests};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What becomes of resources that a ClusterQueue does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Undeclared {
    /// A workload that asks for one is not admitted.
    #[default]
    Refuse,
    /// They do not count.
    Ignore,
}

/// Settings that hold for every queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineSettings {
    /// Resources that a ClusterQueue does not name.
    pub undeclared: Undeclared,
}

/// A class of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flavor {
    /// Labels of the nodes.
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the nodes.
    pub node_taints: Vec<Taint>,
    /// Tolerations that admitted pods are given.
    pub tolerations: Vec<Toleration>,
    /// Topology of the nodes.
    pub topology_name: Option<Arc<str>>,
}

/// An inner node of the quota tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cohort {
    /// The cohort above.
    pub parent: Option<Arc<str>>,
    /// Quota of its own.
    pub groups: Vec<ResourceGroup>,
}

/// Why a queue admits nothing, in the words of its `Active` condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inactive {
    /// Reason of the condition.
    pub reason: Arc<str>,
    /// Message of the condition.
    pub message: Arc<str>,
}

/// A pool of quota and its rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterQueue {
    /// The cohort above.
    pub cohort: Option<Arc<str>>,
    /// Whether a blocked head blocks the queue.
    pub strategy: QueueingStrategy,
    /// Resources, flavors and limits.
    pub groups: Vec<ResourceGroup>,
    /// Namespaces that may use the queue; absent selects none.
    pub namespace_selector: Option<LabelSelector>,
    /// When the search over flavors stops.
    pub fungibility: FlavorFungibility,
    /// Who may be evicted to make room.
    pub preemption: ClusterQueuePreemption,
    /// Set while the queue is stopped or misses something.
    pub inactive: Option<Inactive>,
}

/// What a workload holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The queue whose quota it is.
    pub cluster_queue: Arc<str>,
    /// How much, by flavor and resource.
    pub usage: BTreeMap<FlavorResource, Amount>,
    /// Identity of the workload.
    pub uid: Arc<str>,
    /// Its LocalQueue.
    pub local_queue: Arc<str>,
    /// Its effective priority.
    pub priority: i64,
    /// Since when it holds the quota; absent until confirmed.
    pub reserved_at: Option<Timestamp>,
    /// Whether it is being evicted.
    pub evicted: bool,
}

/// What became of one head in one cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The workload.
    pub key: ObjectKey,
    /// Its identity.
    pub uid: Arc<str>,
    /// What became of it.
    pub outcome: Outcome,
}

/// Result of judging one head.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It holds the quota from now on.
    Admitted(Assignment),
    /// It waits, and so does every workload like it.
    Pending(Arc<Verdict>),
    /// Another head of this cycle took the quota; it is judged again in the next cycle, so nothing needs to be written.
    Skipped,
}

/// The quota that a workload is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// From this queue.
    pub cluster_queue: Arc<str>,
    /// By pod set, in the workload's order.
    pub pod_sets: Vec<PodSetAssignment>,
}

/// The quota that one pod set is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSetAssignment {
    /// Name of the pod set.
    pub name: Arc<str>,
    /// Number of pods.
    pub count: i32,
    /// Flavor by resource.
    pub flavors: BTreeMap<Arc<str>, Arc<str>>,
    /// Total by resource.
    pub usage: Requests,
}

impl Inactive {
    /// A queue whose cohorts are each other's ancestors.
    pub(super) fn cycle(cohort: &NodeRef) -> Self {
        Self {
            reason: Arc::from("CohortCycle"),
            message: Arc::from(format!("the parents of {cohort} form a cycle")),
        }
    }

    /// What is said of workloads that wait in the queue meanwhile.
    pub(super) fn verdict(&self, queue: &str) -> Verdict {
        let text = format!("ClusterQueue {queue} is inactive: {}", self.message);
        Verdict::plain(PendingReason::Suspended, &text)
    }
}

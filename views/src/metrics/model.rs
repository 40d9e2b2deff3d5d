//! Values of gauges, and optional metric families. `gauges` computes the values, `page` renders them.

use crate::history::HistoryStats;
use std::sync::Arc;

/// Labels of a sample, by name.
pub(super) type MetricLabels = Vec<(&'static str, String)>;

/// Role of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Writes.
    Leader,
    /// Stands by for the lease.
    Follower,
    /// Runs without leader election.
    Standalone,
}

impl Role {
    /// Returns the value of the label `replica_role`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Standalone => "standalone",
        }
    }
}

/// Number of pending workloads, by whether they are parked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingGauges {
    /// Queued for nomination.
    pub active: u64,
    /// Parked until something changes.
    pub inadmissible: u64,
}

/// Whether a ClusterQueue admits workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueStatus {
    /// Inactive.
    #[default]
    Pending,
    /// Active.
    Active,
    /// Being deleted.
    Terminated,
}

/// Number of workloads that are not admitted for one reason.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnadmittedGauge {
    /// Reason of `Admitted=False`.
    pub reason: &'static str,
    /// Reason of `QuotaReserved=False`, or empty.
    pub underlying_cause: &'static str,
    /// Number of workloads.
    pub count: u64,
}

/// Quota and usage of a flavor-resource, in the unit of the resource (cores, bytes). No limit is infinity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceGauges {
    /// Flavor.
    pub flavor: String,
    /// Resource.
    pub resource: String,
    /// Nominal quota; of a cohort, the quota of its subtree.
    pub quota: f64,
    /// Borrowing limit.
    pub borrowing_limit: f64,
    /// Lending limit.
    pub lending_limit: f64,
    /// Usage by workloads with reserved quota.
    pub reserved: f64,
    /// Usage by admitted workloads.
    pub used: f64,
}

/// Values of one ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterQueueGauges {
    /// Name of the ClusterQueue.
    pub name: String,
    /// Its parent cohort, or empty.
    pub cohort: String,
    /// Its root cohort, or empty.
    pub root_cohort: String,
    /// Whether it admits workloads.
    pub status: QueueStatus,
    /// Pending workloads.
    pub pending: PendingGauges,
    /// Number of different equivalence hashes of pending workloads.
    pub pending_hashes: PendingGauges,
    /// Number of preemptors skipped by the last cycle that skipped any.
    pub preemption_skips: Option<u64>,
    /// Number of workloads with reserved quota.
    pub reserving: u64,
    /// Number of admitted workloads.
    pub admitted: u64,
    /// Number of finished workloads that still exist.
    pub finished: u64,
    /// Workloads that are not admitted, by reason.
    pub unadmitted: Vec<UnadmittedGauge>,
    /// Requests of pending workloads, by resource.
    pub pending_requests: Vec<(String, f64)>,
    /// Quota and usage.
    pub resources: Vec<ResourceGauges>,
    /// Weighted share, if fair sharing is enabled; NaN for a node with weight 0 that borrows.
    pub share: Option<f64>,
    /// Time since the head fits and is not admitted; 0 if it does not fit.
    pub head_fits_seconds: f64,
}

/// Values of one LocalQueue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalQueueGauges {
    /// Namespace of the LocalQueue.
    pub namespace: String,
    /// Name within the namespace.
    pub name: String,
    /// Name of the ClusterQueue that it points to.
    pub cluster_queue: String,
    /// Whether it is active.
    pub active: bool,
    /// Pending workloads.
    pub pending: PendingGauges,
    /// Number of workloads with reserved quota.
    pub reserving: u64,
    /// Number of admitted workloads.
    pub admitted: u64,
    /// Number of finished workloads that still exist.
    pub finished: u64,
    /// Workloads that are not admitted, by reason.
    pub unadmitted: Vec<UnadmittedGauge>,
    /// Usage only; quota and limits belong to the ClusterQueue.
    pub resources: Vec<ResourceGauges>,
    /// Past usage divided by weight, if admission fair sharing is enabled.
    pub past_usage: Option<f64>,
}

/// Values of one cohort and its subtree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CohortGauges {
    /// Name of the cohort.
    pub name: String,
    /// Its parent, or empty.
    pub parent: String,
    /// Name of the cohort at the top of the tree.
    pub root: String,
    /// Number of admitted workloads.
    pub admitted: u64,
    /// Quota and reservations.
    pub resources: Vec<ResourceGauges>,
    /// Weighted share, if fair sharing is enabled; NaN for a node with weight 0 that borrows.
    pub share: Option<f64>,
}

/// Values of all gauges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// By ClusterQueue.
    pub cluster_queues: Vec<ClusterQueueGauges>,
    /// By LocalQueue.
    pub local_queues: Vec<LocalQueueGauges>,
    /// By cohort.
    pub cohorts: Vec<CohortGauges>,
    /// Number of flavor-resources whose ledger usage differs from usage recomputed from API objects.
    pub ledger_drift: u64,
    /// Numbers about the history.
    pub history: Arc<HistoryStats>,
}

/// Enabled optional families.
#[derive(Clone, Copy, Debug)]
pub struct MetricFamilies {
    /// Quota and usage of ClusterQueues.
    pub cluster_queue_resources: bool,
    /// All families of LocalQueues.
    pub local_queues: bool,
    /// All families of cohorts, and the position of ClusterQueues in the tree.
    pub cohorts: bool,
    /// Time from the creation of a job to the creation of its Workload.
    pub creation_latency: bool,
}

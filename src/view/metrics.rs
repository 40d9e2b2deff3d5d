//! What gauges show, and which families there are. Plain numbers: `gauges` fills them in, `page` writes them down.

/// Labels of a sample, by name.
pub(super) type MetricLabels = Vec<(&'static str, String)>;

/// What this replica is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It writes.
    Leader,
    /// It waits.
    Follower,
    /// There are no others.
    Standalone,
}

impl Role {
    /// As in the label `replica_role`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Standalone => "standalone",
        }
    }
}

/// Pending workloads, by whether the scheduler will look at them again without a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingGauges {
    /// Waiting for their turn.
    pub active: u64,
    /// Parked until something changes.
    pub inadmissible: u64,
}

/// Whether a ClusterQueue admits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueStatus {
    /// It cannot yet.
    #[default]
    Pending,
    /// It does.
    Active,
    /// It is being deleted.
    Terminated,
}

/// Workloads that are not admitted for one reason.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnadmittedGauge {
    /// Reason of `Admitted=False`.
    pub reason: &'static str,
    /// Reason of `QuotaReserved=False`, or empty.
    pub underlying_cause: &'static str,
    /// How many.
    pub count: u64,
}

/// Quota and use of one resource in one flavor, in the resource's own unit (cores, bytes). No limit is infinity.
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
    /// Reserved.
    pub reserved: f64,
    /// Admitted.
    pub used: f64,
}

/// Numbers of one ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterQueueGauges {
    /// Its name.
    pub name: String,
    /// Its cohort, or empty.
    pub cohort: String,
    /// The cohort's root, or empty.
    pub root_cohort: String,
    /// Its status.
    pub status: QueueStatus,
    /// Waiting workloads.
    pub pending: PendingGauges,
    /// Different scheduling hashes of waiting workloads.
    pub pending_hashes: PendingGauges,
    /// Preemptors that the last cycle that skipped any has skipped.
    pub preemption_skips: Option<u64>,
    /// Workloads that hold quota.
    pub reserving: u64,
    /// Workloads that are admitted.
    pub admitted: u64,
    /// Workloads that have finished and still exist.
    pub finished: u64,
    /// Workloads that are not admitted, by why.
    pub unadmitted: Vec<UnadmittedGauge>,
    /// What waiting workloads ask for, by resource.
    pub pending_requests: Vec<(String, f64)>,
    /// Quota and use.
    pub resources: Vec<ResourceGauges>,
    /// Weighted share, while fair sharing is on; not a number for one without weight that borrows.
    pub share: Option<f64>,
}

/// Numbers of one LocalQueue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalQueueGauges {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Where it leads.
    pub cluster_queue: String,
    /// Whether it is active.
    pub active: bool,
    /// Waiting workloads.
    pub pending: PendingGauges,
    /// Workloads that hold quota.
    pub reserving: u64,
    /// Workloads that are admitted.
    pub admitted: u64,
    /// Workloads that have finished and still exist.
    pub finished: u64,
    /// Workloads that are not admitted, by why.
    pub unadmitted: Vec<UnadmittedGauge>,
    /// Use (quota and limits are the ClusterQueue's).
    pub resources: Vec<ResourceGauges>,
    /// What it has used by weight, while admission fair sharing is on.
    pub past_usage: Option<f64>,
}

/// Numbers of one cohort with all below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CohortGauges {
    /// Its name.
    pub name: String,
    /// Its parent, or empty.
    pub parent: String,
    /// Its root.
    pub root: String,
    /// Admitted workloads.
    pub admitted: u64,
    /// Quota and reservations.
    pub resources: Vec<ResourceGauges>,
    /// Weighted share, while fair sharing is on; not a number for one without weight that borrows.
    pub share: Option<f64>,
}

/// Everything that gauges show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// By ClusterQueue.
    pub cluster_queues: Vec<ClusterQueueGauges>,
    /// By LocalQueue.
    pub local_queues: Vec<LocalQueueGauges>,
    /// By cohort.
    pub cohorts: Vec<CohortGauges>,
    /// Quotas whose use in the ledger is not what the objects say.
    pub ledger_drift: u64,
}

/// Which optional families are shown.
#[derive(Clone, Copy, Debug)]
pub struct MetricFamilies {
    /// Quota and use of ClusterQueues.
    pub cluster_queue_resources: bool,
    /// Everything about LocalQueues.
    pub local_queues: bool,
    /// Everything about cohorts, and the place of ClusterQueues among them.
    pub cohorts: bool,
    /// Time from a job to its Workload.
    pub creation_latency: bool,
}

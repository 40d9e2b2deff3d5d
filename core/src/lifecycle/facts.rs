//! Input and output types of the Workload lifecycle: the facts that `plan` reads and the plan that it returns.

use super::eviction::EvictionCause;
use super::{node_failure, pods_ready};
use crate::api::reason::PendingReason;
use crate::api::v1beta2::{Admission, AdmissionCheckState, PodSetRequest, StopPolicy, WorkloadStatus};
use crate::scheduler::PreemptionReason;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// Fields of a Workload that its lifecycle depends on.
#[derive(Clone, Debug)]
pub struct WorkloadInput<'a> {
    /// `metadata.generation`, for the observed generation of conditions.
    pub generation: i64,
    /// `spec.active`.
    pub active: bool,
    /// Whether the Workload has a deletion timestamp.
    pub deleting: bool,
    /// Whether the Workload carries the finalizer of this manager.
    pub has_finalizer: bool,
    /// Whether the Workload was created for a job, or for the pods of a group.
    pub made_for_job: bool,
    /// Whether the Workload is a slice of an elastic job.
    pub is_slice: bool,
    /// Admission gates named by the annotation; `None` if the Workload is not gated.
    pub admission_gates: Option<&'a str>,
    /// `spec.maximumExecutionTimeSeconds`.
    pub max_execution_seconds: Option<i32>,
    /// Current status of the Workload.
    pub status: &'a WorkloadStatus,
}

impl WorkloadOwner {
    /// Returns whether there are pods that may be ready: not before a prebuilt Workload has its job, and not before the first pod
    /// of an object that waits for one.
    pub fn has_pods(&self) -> bool {
        match self {
            Self::None => false,
            Self::Job(job) => job.readiness != pods_ready::Readiness::NoPods,
            Self::Missing { .. } | Self::External => true,
        }
    }

    /// Returns whether the Workload stays until the next one of its job has what it has counted.
    pub(super) const fn waits_for_successor(&self) -> bool {
        matches!(self, Self::Job(JobFacts { waits_for_successor: true, .. }))
    }
}

/// Owner of a Workload.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadOwner {
    /// No owner: the Workload is scheduled on its own.
    None,
    /// A job of a kind that this manager watches; the job exists.
    Job(JobFacts),
    /// A job of a kind that this manager watches; the job no longer exists.
    Missing {
        /// Whether pods of the job are left that hold the quota: they end after it when it is deleted in the background.
        runs: bool,
    },
    /// An object of a kind that another controller manages.
    External,
}

/// State of the job that owns a Workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFacts {
    /// Whether no pod of the job is left, and none comes: it is being deleted, or it is suspended and its pod templates are
    /// as before the start.
    pub stopped: bool,
    /// Set if the job has finished: whether it succeeded, and its message.
    pub finished: Option<(bool, String)>,
    /// Whether all pods of the job are ready.
    pub readiness: pods_ready::Readiness,
    /// Number of pods per pod set that will not run again; their quota can be reclaimed.
    pub reclaimable: Vec<(String, i32)>,
    /// Whether the job no longer matches the prebuilt Workload that it names, or has another one.
    pub out_of_sync: bool,
    /// The text for a Workload whose job came below a queued object and no longer runs on its quota.
    pub taken_over: Option<String>,
    /// Set if the job can never be started: the error.
    pub start_failed: Option<String>,
    /// Number of pods of a group that are missing; `None` if the job has no pods of its own to count.
    pub absent_pods: Option<i32>,
    /// Whether the job must not hold quota at present.
    pub hold: Hold,
    /// Whether the Workload, which is being deleted or has finished, stays until the next one of the job has what it has counted.
    pub waits_for_successor: bool,
    /// Set if the job names another queue than its Workload: that queue, or an empty name.
    pub moved_to: Option<String>,
}

/// Whether a job must not hold quota, although it exists and is active.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// The job does not say; the status of its Workload does.
    #[default]
    Unknown,
    /// It may be queued.
    Free,
    /// It is on hold, with the message.
    Held(String),
}

/// State of the LocalQueue or the ClusterQueue of a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueFact {
    /// The queue exists and admits workloads.
    Active,
    /// The queue is stopped with this policy.
    Stopped(StopPolicy),
    /// The queue exists but is inactive, with the cause.
    Inactive(String),
    /// The queue is being deleted; it exists until no workload uses it.
    Terminating,
    /// The queue does not exist.
    Missing,
}

/// State outside the Workload that its lifecycle depends on.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Names of the LocalQueue and the ClusterQueue, for messages.
    pub queue_names: (&'a str, &'a str),
    /// State of the LocalQueue.
    pub local_queue: QueueFact,
    /// State of the ClusterQueue.
    pub cluster_queue: QueueFact,
    /// Owner of the Workload.
    pub owner: WorkloadOwner,
    /// Names of the admission checks that apply.
    pub checks: Vec<String>,
    /// Why the Workload can never be admitted with its present requests and limits; `None` if they are valid.
    pub misconfigured: Option<String>,
    /// Verdict of the scheduler, if the Workload is queued.
    pub verdict: Option<(PendingReason, String)>,
    /// Set if the Workload is a preemption victim: the reason, and the message for the conditions.
    pub preemption: Option<(PreemptionReason, String)>,
    /// Set if the Workload is a slice of an elastic job that no longer has a part in it, mostly because a newer one has replaced
    /// it: reason and message of the Finished condition.
    pub slice_end: Option<(&'static str, String)>,
    /// New states of the checks that this manager controls and whose present state is outdated.
    pub own_check_states: Vec<AdmissionCheckState>,
    /// Health of the nodes that the pods are assigned to.
    pub node_health: node_failure::NodeHealthReport,
    /// The admission without the topology domains of pods that the Workload no longer asks for, if it has any.
    pub smaller_admission: Option<Admission>,
    /// Room for the pods that a job runs again although they had succeeded.
    pub restarted: RestartedPods,
    /// Until when no more pods are reclaimed, because the job has taken some back; `None` without a limit.
    pub reclaims_from: Option<Timestamp>,
    /// Effective requests, published in the status while the Workload is pending.
    pub resource_requests: Arc<[PodSetRequest]>,
}

/// Pods of an admitted job that run again, although their quota was reclaimed when they succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RestartedPods {
    /// There are none.
    #[default]
    None,
    /// There is quota for them.
    Fit,
    /// They need quota that others have got, with the message. The job runs them already.
    Exceed(String),
    /// They need quota that others have got. They wait for it.
    Wait,
}

/// Settings of the Workload lifecycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifecycleSettings {
    /// Timeouts for pods to become ready; `None` disables the PodsReady condition.
    pub pods_ready: Option<pods_ready::PodsReadyLimits>,
    /// Retention period of finished Workloads; `None` keeps them forever.
    pub retain_finished: Option<SignedDuration>,
    /// Retention period of the job of a Workload that the manager deactivated; `None` keeps the job forever.
    pub retain_deactivated: Option<SignedDuration>,
}

/// The next write to a Workload.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadStep {
    /// Nothing to write.
    NoWrite,
    /// Write this status.
    WriteStatus(Box<WorkloadStatus>),
    /// Set `spec.active` to false.
    Deactivate,
    /// Remove the finalizer of this manager.
    RemoveFinalizer,
    /// Delete the Workload: its retention period has expired.
    Delete,
}

/// State transition to report as event and metric once the write has landed.
#[derive(Clone, Debug, PartialEq)]
pub enum Transition {
    /// The Workload was evicted while it had quota.
    Evicted {
        /// Cause of the eviction.
        cause: EvictionCause,
        /// Whether it is the first eviction with that cause.
        first: bool,
    },
    /// The Workload has finished.
    Finished {
        /// Reason of the condition.
        reason: &'static str,
        /// Message of the condition.
        message: String,
        /// Total time admitted, if the Workload was admitted at the end.
        ran: Option<SignedDuration>,
    },
    /// The evicted Workload has released its quota.
    QuotaReleased,
    /// The retention period of the finished Workload has expired; it is deleted.
    RetentionExpired,
    /// The Workload was preempted: reason and message.
    Preempted(PreemptionReason, String),
    /// The Workload is admitted: all checks are ready and no delayed topology request is pending.
    Admitted,
    /// The Workload is pending: reason and message.
    Pending(PendingReason, String),
    /// All pods are ready for the first time in this admission.
    PodsReady,
    /// An admission check rejected the Workload: the message.
    CheckRejected(String),
    /// A check that this manager controls changed its state: the event message.
    CheckUpdated(String),
    /// The Workload exceeded its maximum execution time, in seconds.
    ExecutionTimeExceeded(i32),
    /// Admission is gated by these gates of the annotation.
    AdmissionGated(String),
    /// The admission gates of the annotation were removed.
    AdmissionGateCleared,
}

/// Whether a Workload belongs in the queue of its ClusterQueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueMembership {
    /// In the queue: the scheduler may nominate it.
    Queued,
    /// Not in the queue but counted as pending: not requeued yet after an eviction, or requests or limits are invalid.
    Waiting,
    /// Not queued: has quota, is finished, deactivated, gated or on hold, or has no usable queue or no job.
    NotQueued,
}

/// Result of a lifecycle decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The next write.
    pub step: WorkloadStep,
    /// Transitions to report once the write has landed.
    pub transitions: Vec<Transition>,
    /// Latest time at which to plan again, if time alone can change the plan.
    pub due: Option<Timestamp>,
    /// Queue membership of the Workload.
    pub membership: QueueMembership,
}

impl Plan {
    pub(super) fn no_write() -> Self {
        Self {
            step: WorkloadStep::NoWrite,
            transitions: Vec::new(),
            due: None,
            membership: QueueMembership::NotQueued,
        }
    }

    pub(super) fn from_step(step: WorkloadStep) -> Self {
        Self { step, ..Self::no_write() }
    }
}

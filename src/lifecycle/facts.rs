//! What the life cycle of a Workload is decided on, and what it decides.

use super::eviction::EvictionCause;
use super::{node_failure, pods_ready};
use crate::api::reason::PendingReason;
use crate::api::v1beta2::{AdmissionCheckState, PodSetRequest, StopPolicy, WorkloadStatus};
use crate::scheduler::PreemptionReason;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// What a Workload says of itself.
#[derive(Clone, Debug)]
pub struct WorkloadInput<'a> {
    /// Generation of the spec.
    pub generation: i64,
    /// `spec.active`.
    pub active: bool,
    /// Whether deletion was asked for.
    pub deleting: bool,
    /// Whether our finalizer is on it.
    pub has_finalizer: bool,
    /// Whether it was made for a job (label with the job's UID).
    pub made_for_job: bool,
    /// Gates of the annotation that holds it back, or none.
    pub admission_gates: Option<&'a str>,
    /// `spec.maximumExecutionTimeSeconds`.
    pub max_execution_seconds: Option<i32>,
    /// Its status.
    pub status: &'a WorkloadStatus,
}

/// Whose Workload it is.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadOwner {
    /// Nobody's: it is scheduled for its own sake.
    None,
    /// A job that the core follows and that exists.
    Job(JobFacts),
    /// A job that the core follows, but that is gone.
    Missing,
    /// An object of a kind that another controller looks after.
    External,
}

/// What a job says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFacts {
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// Whether it is suspended, its template is as before the start, and no pod of it is left.
    pub stopped: bool,
    /// Whether it has ended: whether well, and its message.
    pub finished: Option<(bool, String)>,
    /// Whether all its pods are ready or have succeeded.
    pub pods_ready: bool,
    /// Pods that will not run again.
    pub reclaimable: Vec<(String, i32)>,
    /// The job no longer matches the Workload that it had named itself.
    pub out_of_sync: bool,
    /// A start is impossible for good: why.
    pub start_failed: Option<String>,
}

/// A queue on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueFact {
    /// It is there and admits.
    Active,
    /// It is stopped.
    Stopped(StopPolicy),
    /// It is there, but inactive: why.
    Inactive(String),
    /// It is being deleted, and there as long as somebody uses it.
    Terminating,
    /// It is not there.
    Missing,
}

/// Facts around a Workload.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Names of LocalQueue and ClusterQueue, for messages.
    pub queue_names: (&'a str, &'a str),
    /// The LocalQueue.
    pub local_queue: QueueFact,
    /// The ClusterQueue.
    pub cluster_queue: QueueFact,
    /// Whose it is.
    pub owner: WorkloadOwner,
    /// Checks that apply.
    pub checks: Vec<String>,
    /// Why the requests or limits can never be admitted as they are, or none.
    pub misconfigured: Option<String>,
    /// The scheduler's verdict on it, if it is queued.
    pub verdict: Option<(PendingReason, String)>,
    /// It holds quota that is needed elsewhere: why, with the words for the conditions.
    pub preemption: Option<(PreemptionReason, String)>,
    /// Words for the slice that has taken over from it.
    pub slice_replaced_message: Option<String>,
    /// States of checks of our own that are not what they should be.
    pub own_check_states: Vec<AdmissionCheckState>,
    /// Nodes that its pods were given.
    pub node_health: node_failure::NodeHealthReport,
    /// Effective requests, to be shown while pending.
    pub resource_requests: Arc<[PodSetRequest]>,
}

/// Settings of the life cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifecycleSettings {
    /// Limits on readiness; none turns the PodsReady condition off.
    pub pods_ready: Option<pods_ready::PodsReadyLimits>,
    /// How long finished Workloads are kept; for ever when absent.
    pub retain_finished: Option<SignedDuration>,
    /// How long the job of a Workload is kept that the manager itself has deactivated; for ever when absent.
    pub retain_deactivated: Option<SignedDuration>,
}

/// One write, or none.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadStep {
    /// Nothing to write.
    NoWrite,
    /// Write this status.
    WriteStatus(Box<WorkloadStatus>),
    /// Set `spec.active` to false.
    Deactivate,
    /// Take our finalizer off.
    RemoveFinalizer,
    /// Delete it: it was kept long enough.
    Delete,
}

/// Something to be told when the write has landed.
#[derive(Clone, Debug, PartialEq)]
pub enum Transition {
    /// It was evicted while it held quota; whether for the first time for that cause.
    Evicted(EvictionCause, bool),
    /// It has finished: why, with a sentence, and after so long admitted, if it was admitted.
    Finished(&'static str, String, Option<SignedDuration>),
    /// It was evicted, and has given its quota back.
    QuotaReleased,
    /// It has finished, and is deleted because it was kept long enough.
    RetentionExpired,
    /// It was evicted to make room.
    Preempted(PreemptionReason, String),
    /// All checks are ready.
    Admitted,
    /// It waits, and why.
    Pending(PendingReason, String),
    /// Pods are ready for the first time in this admission.
    PodsReady,
    /// A check was rejected.
    CheckRejected(String),
    /// A check of this controller changed its state: the words for it.
    CheckUpdated(String),
    /// It ran for longer than these seconds.
    ExecutionTimeExceeded(i32),
    /// It is held back by these gates of an annotation.
    AdmissionGated(String),
    /// No annotation holds it back any longer.
    AdmissionGateCleared,
}

/// Where a Workload belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueMembership {
    /// In the queue of its ClusterQueue.
    Queued,
    /// It waits for something else than its turn, and counts as pending all the same.
    Waiting,
    /// Neither: it holds quota, is over, or no queue takes it.
    NotQueued,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The write.
    pub step: WorkloadStep,
    /// To be told when it has landed.
    pub transitions: Vec<Transition>,
    /// When to look again at the latest.
    pub due: Option<Timestamp>,
    /// Where it belongs.
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

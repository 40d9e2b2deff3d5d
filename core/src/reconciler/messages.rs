//! Messages between the core and the shell: deltas in, effects out. Plain data without behavior.

use crate::api::ObjectKey;
use crate::api::v1beta2::WorkloadStatus;
use crate::cache::Kind;
use crate::cache::workload_object::WorkloadObject;
use crate::lifecycle::pods_ready::PodsReadyLimits;
use crate::snapshot::WaitingHead;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// An input of the core. The shell passes deltas in the order in which it received them.
#[derive(Clone, Debug)]
pub enum Delta {
    /// An object as the API server sent it in a watch or a list.
    Applied {
        /// Kind of the object.
        kind: Kind,
        /// The object, without managed fields.
        object: Value,
    },
    /// A Workload as the API server sent it, with spec and status not decoded yet.
    Workload(WorkloadObject),
    /// An object was deleted.
    Deleted {
        /// Kind of the object.
        kind: Kind,
        /// Key of the object.
        key: ObjectKey,
        /// UID of the object: another object of the same name is not affected.
        uid: String,
    },
    /// The answer to a read of one object from the API server, which is not behind any watch.
    Read {
        /// Kind of the object.
        kind: Kind,
        /// Key of the object.
        key: ObjectKey,
        /// The object, without managed fields; `None` if it does not exist.
        object: Option<Value>,
    },
    /// A watch lists all objects again: an object that is not applied before the next `Synced` was deleted.
    Restarted {
        /// Kind of the listed objects.
        kind: Kind,
    },
    /// The list is complete.
    Synced {
        /// Kind of the listed objects.
        kind: Kind,
    },
    /// The objects of a kind that is not managed cannot be read until its next list is complete.
    Unread {
        /// The kind.
        kind: Kind,
    },
    /// A write has ended.
    Written(WriteResult),
    /// Whether this replica may write.
    Leading(bool),
    /// Other times of waiting for pods. Without effect while workloads do not wait for their pods.
    PodsReadyLimits(PodsReadyLimits),
    /// Time has passed.
    Tick,
}

/// An action that the shell must perform.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send a write to the API server and return the result as [`Delta::Written`].
    Write(Write),
    /// Record an event, best effort.
    Event(Event),
    /// Read an object and return it as [`Delta::Read`].
    Refetch {
        /// Kind of the object.
        kind: Kind,
        /// Key of the object.
        key: ObjectKey,
    },
    /// Record an observation in the metrics.
    Observe(Observation),
    /// Log that the head of a ClusterQueue has fitted for minutes and was not admitted; repeated once a minute.
    LogWaitingHead {
        /// The ClusterQueue.
        cluster_queue: String,
        /// The head.
        head: WaitingHead,
    },
}

/// One write. At most one per object is in flight, except for a superseded one that the next write bypasses.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Number of the write, unique in the process.
    pub id: u64,
    /// Kind of the object.
    pub kind: Kind,
    /// Key of the object.
    pub key: ObjectKey,
    /// How the write is sent.
    pub verb: Verb,
    /// `status`, or the object itself.
    pub subresource: Option<&'static str>,
    /// Body. Updates carry `metadata.resourceVersion`, a JSON patch as its first operation; deletes are DeleteOptions with
    /// preconditions.
    pub body: Value,
    /// The status of a Workload, sent in addition to the body. It is serialized directly, because most written bytes
    /// are statuses and a [`Value`] tree of each would be wasted.
    pub status: Option<Arc<WorkloadStatus>>,
    /// Whether `status` is complete, that is, equals the whole status once the write has landed. The response then
    /// needs only metadata.
    pub response_metadata_only: bool,
    /// How urgent the write is.
    pub class: WriteClass,
    /// Set if the write is sent while another write of the same object is in flight. Both carry the same
    /// resourceVersion, so only one of them lands.
    pub bypasses_in_flight: bool,
}

/// How urgent a write is while more writes wait than the API server takes, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteClass {
    /// Reserves or releases quota, or starts or stops what has quota.
    Quota,
    /// Anything else.
    Other,
    /// Only says why a Workload is pending.
    Explanation,
    /// The status of a queue or cohort: these share a rate limit, and a newer write of an object replaces an unsent one.
    QueueStatus,
}

impl WriteClass {
    /// All classes in order.
    pub const ALL: [Self; 4] = [Self::Quota, Self::Other, Self::Explanation, Self::QueueStatus];
}

impl Write {
    /// Returns the request body.
    pub fn payload(&self) -> Payload<'_> {
        Payload { body: &self.body, status: self.status.as_deref() }
    }
}

/// Request body of a write.
pub struct Payload<'a> {
    body: &'a Value,
    status: Option<&'a WorkloadStatus>,
}

impl Serialize for Payload<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct WithStatus<'a> {
            #[serde(flatten)]
            body: &'a Value,
            status: &'a WorkloadStatus,
        }
        match self.status {
            Some(status) => WithStatus { body: self.body, status }.serialize(serializer),
            // A JSON patch is a list.
            None => self.body.serialize(serializer),
        }
    }
}

/// How a write is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create,
    /// Server-side apply, forced, by our field manager.
    Apply,
    /// JSON merge patch by our field manager.
    Merge,
    /// JSON patch (RFC 6902) by our field manager.
    JsonPatch,
    /// DELETE.
    Delete,
}

impl Verb {
    /// Returns the name in metrics and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Apply => "apply",
            Self::Merge => "merge",
            Self::JsonPatch => "json-patch",
            Self::Delete => "delete",
        }
    }
}

/// Result of a write.
#[derive(Clone, Debug)]
pub struct WriteResult {
    /// Number of the write.
    pub id: u64,
    /// Kind of the object.
    pub kind: Kind,
    /// Key of the object.
    pub key: ObjectKey,
    /// How the write ended.
    pub outcome: WriteOutcome,
}

/// How a write ended.
#[derive(Clone, Debug)]
pub enum WriteOutcome {
    /// The write landed. Contains the new object (for a delete, the server's response); spec and status may be missing
    /// if the write has `response_metadata_only`.
    Done(Value),
    /// The object has another version than the write was decided on, or (create) exists already, or a JSON patch does
    /// not apply to it. The shell tried to read the newest object and passed it before this result.
    Conflict,
    /// The object does not exist.
    NotFound,
    /// The API server rejected the write because of its content.
    Rejected {
        /// HTTP status code.
        code: u16,
        /// Message of the API server.
        message: String,
    },
    /// Unknown whether the write landed. The shell tried to read the newest object and passed it before
    /// this result.
    Unavailable {
        /// Error message.
        message: String,
    },
}

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// Something happened as intended.
    Normal,
    /// Something needs attention.
    Warning,
}

impl EventType {
    /// Returns the name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Kind of the object that the event is about.
    pub kind: Kind,
    /// Key of the object.
    pub key: ObjectKey,
    /// UID of the object.
    pub uid: String,
    /// Type of the event.
    pub event_type: EventType,
    /// Reason in CamelCase.
    pub reason: String,
    /// Message for users.
    pub note: String,
    /// Whether it is written once per object, also if a later leader reports it again while the first one exists.
    pub once: bool,
}

impl Event {
    /// Returns whether the event is a warning.
    pub fn is_warning(&self) -> bool {
        self.event_type == EventType::Warning
    }
}

/// An observation for counters and histograms; gauges are computed from the snapshot instead.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// Quota was reserved and the write has landed; the duration is the time since the workload was queued.
    QuotaReserved(ObservationLabels, Duration),
    /// The workload was admitted and the write has landed; the duration is the time since the workload was queued.
    Admitted(ObservationLabels, Duration),
    /// The workload was admitted after other conditions than quota, such as admission checks, were met; the duration is
    /// the time since quota was reserved.
    ChecksPassed(ObservationLabels, Duration),
    /// The pods became ready.
    PodsReady {
        /// Labels of the workload.
        labels: ObservationLabels,
        /// Time since admission.
        since_admission: Duration,
        /// Time since the workload was queued.
        since_queued: Duration,
    },
    /// A scheduling gate was removed from a pod.
    GateRemoved {
        /// Name of the gate.
        gate: &'static str,
        /// ClusterQueue of the workload.
        cluster_queue: String,
        /// Whether the pod belongs to a group of pods.
        is_group: bool,
        /// Time since admission.
        latency: Duration,
    },
    /// The workload was evicted while it held quota.
    Evicted {
        /// Labels of the workload.
        labels: ObservationLabels,
        /// Reason of the Evicted condition.
        reason: String,
        /// Underlying cause, or empty.
        underlying_cause: String,
        /// Whether this is the workload's first eviction for that reason and cause.
        first: bool,
        /// How long the pods had been ready, if they were.
        ready: Option<Duration>,
    },
    /// The quota of an evicted workload was released.
    QuotaReleased {
        /// ClusterQueue in which the workload held quota.
        cluster_queue: String,
        /// Reason of the Evicted condition.
        reason: String,
        /// Time since the eviction.
        latency: Duration,
    },
    /// A workload slice was replaced by another.
    SliceReplaced {
        /// ClusterQueue of the replaced slice.
        cluster_queue: String,
    },
    /// Preemption targets were computed again in a cycle, because they overlapped with the targets of another preemptor.
    TargetsRecomputed {
        /// ClusterQueue of the preemptor.
        cluster_queue: String,
        /// Value of the label `result`.
        result: &'static str,
    },
    /// A workload was preempted.
    Preempted {
        /// ClusterQueue of the preemptor.
        preempting_cluster_queue: String,
        /// ClusterQueue of the victim.
        victim_cluster_queue: String,
        /// Reason of the Preempted condition.
        reason: &'static str,
    },
    /// The workload finished; the duration is its total admitted time, present if it finished while admitted.
    Finished(ObservationLabels, Option<Duration>),
    /// A Workload was created for a job.
    WorkloadCreated {
        /// Kind of the job.
        job_kind: &'static str,
        /// Time since the creation of the job.
        latency: Duration,
    },
    /// A ClusterQueue, a LocalQueue or a Cohort was deleted: its counts are no longer shown.
    QueueDeleted {
        /// Kind of the queue.
        kind: Kind,
        /// Key of the queue.
        key: ObjectKey,
    },
    /// An object is written again and again without the intended effect.
    IneffectiveWrite {
        /// Resource with subresource.
        resource: String,
        /// Verb of the write.
        verb: &'static str,
    },
    /// A scheduling cycle was run. The shell measures its duration.
    AdmissionAttempt {
        /// Whether the cycle admitted a workload.
        admitted: bool,
    },
}

/// Labels shared by the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservationLabels {
    /// ClusterQueue.
    pub cluster_queue: String,
    /// Cohorts above the ClusterQueue, the nearest first.
    pub cohorts: Vec<String>,
    /// LocalQueue.
    pub local_queue: String,
    /// Whether metrics include the LocalQueue.
    pub local_queue_exported: bool,
    /// Namespace of the LocalQueue.
    pub namespace: String,
    /// Name of the priority class, or empty.
    pub priority_class: String,
}

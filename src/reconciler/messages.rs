//! What passes between the core and the shell: deltas in, effects out. Values only.

use crate::api::ObjectKey;
use crate::api::v1beta2::WorkloadStatus;
use crate::cache::Kind;
use crate::cache::workload_object::WorkloadObject;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Something that happened, in the order in which the shell learnt of it.
#[derive(Clone, Debug)]
pub enum Delta {
    /// An object as the server has it, from a watch, a list or a GET.
    Applied {
        /// Kind of the object.
        kind: Kind,
        /// The object, without managed fields.
        object: Value,
    },
    /// A Workload as the server has it, read no further than is needed.
    Workload(WorkloadObject),
    /// An object is gone.
    Deleted {
        /// Kind of the object.
        kind: Kind,
        /// Its key.
        key: ObjectKey,
        /// Its UID: another object of the same name is not touched.
        uid: String,
    },
    /// A watch lists from the start: what is not applied before the next `Synced` is gone.
    Restarted {
        /// Kind that is listed.
        kind: Kind,
    },
    /// The list is complete.
    Synced {
        /// Kind that was listed.
        kind: Kind,
    },
    /// A write has ended.
    Written(WriteResult),
    /// Whether this replica may write.
    Leading(bool),
    /// Time has passed.
    Tick,
}

/// What the shell shall do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Write to the API server and report the result.
    Write(Write),
    /// Record an event, best effort.
    Event(Event),
    /// Read an object and feed it back as `Applied`, or `Deleted` when it is not there.
    Refetch {
        /// Kind of the object.
        kind: Kind,
        /// Its key.
        key: ObjectKey,
    },
    /// Count something for the metrics.
    Observe(Observation),
}

/// One write. The core has at most one under way for each object, but for one that is overtaken.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Number of the write, never used twice by one process.
    pub id: u64,
    /// Kind of the object.
    pub kind: Kind,
    /// Its key.
    pub key: ObjectKey,
    /// What to do.
    pub verb: Verb,
    /// `status`, or the object itself.
    pub subresource: Option<&'static str>,
    /// Body. Updates carry `metadata.resourceVersion`; deletes are DeleteOptions with preconditions.
    pub body: Value,
    /// What a Workload's status is to be, beside the body: most of what is written, so nobody makes a tree of it first.
    pub status: Option<Arc<WorkloadStatus>>,
    /// Whether that is what the status will be as a whole when this lands: of the answer, spec and status may be left out.
    pub response_metadata_only: bool,
    /// Status of queues: sent within a shared budget, the latest of an object wins.
    pub background: bool,
    /// It does not wait for a write of the same object that is under way: both carry the same version.
    pub bypasses_in_flight: bool,
}

impl Write {
    /// All that is sent.
    pub fn payload(&self) -> Payload<'_> {
        Payload { body: &self.body, status: self.status.as_deref() }
    }
}

/// What a write sends.
#[derive(Serialize)]
pub struct Payload<'a> {
    #[serde(flatten)]
    body: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a WorkloadStatus>,
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
    /// DELETE.
    Delete,
}

/// How a write ended.
#[derive(Clone, Debug)]
pub struct WriteResult {
    /// Number of the write.
    pub id: u64,
    /// Kind of the object.
    pub kind: Kind,
    /// Its key.
    pub key: ObjectKey,
    /// The end.
    pub outcome: WriteOutcome,
}

/// End of a write.
#[derive(Clone, Debug)]
pub enum WriteOutcome {
    /// It landed; this is the object now (of a delete, what the server answered). Spec and status may be left out where the
    /// write has foretold them.
    Done(Value),
    /// The object was not the one that the write was decided on, or (create) exists. The newest object was fed back before.
    Conflict,
    /// The object is gone.
    NotFound,
    /// The server refused the content.
    Rejected {
        /// HTTP status code.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// Not known whether it landed. The newest object was fed back before.
    Unavailable {
        /// What went wrong.
        message: String,
    },
}

/// An event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Kind of the object that the event is about.
    pub kind: Kind,
    /// Its key.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: String,
    /// Whether it is a warning.
    pub warning: bool,
    /// Reason, one word.
    pub reason: String,
    /// A sentence.
    pub note: String,
}

/// Something that counters and histograms count; gauges are computed from the snapshot instead.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// Quota was reserved and the write has landed.
    QuotaReserved(ObservationLabels, Duration),
    /// The workload was admitted and the write has landed.
    Admitted(ObservationLabels, Duration),
    /// The workload was admitted so long after its quota was reserved, where something else was waited for.
    ChecksPassed(ObservationLabels, Duration),
    /// Pods were ready, so long after the admission; the second duration counts from the time in the queue.
    PodsReady(ObservationLabels, Duration, Duration),
    /// A scheduling gate was removed from a pod.
    GateRemoved {
        /// Name of the gate.
        gate: &'static str,
        /// ClusterQueue of the workload.
        cluster_queue: String,
        /// Time since the admission.
        latency: Duration,
    },
    /// The workload was evicted while it held quota.
    Evicted {
        /// Queue and priority class.
        labels: ObservationLabels,
        /// Reason of the Evicted condition.
        reason: String,
        /// What was behind it, or empty.
        underlying_cause: String,
        /// Whether this is the workload's first eviction for that reason and cause.
        first: bool,
        /// How long its pods had been ready, if they were.
        ready: Option<Duration>,
    },
    /// An evicted workload gave its quota back.
    QuotaReleased {
        /// ClusterQueue that it had quota of.
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
    /// Preemption targets were chosen a second time, because another workload of the cycle had chosen the same.
    TargetsRecomputed {
        /// ClusterQueue of the preemptor.
        cluster_queue: String,
        /// What came of it.
        result: &'static str,
    },
    /// The workload was evicted to make room for one of this ClusterQueue.
    Preempted {
        /// Queue of the one that it made room for.
        preempting_cluster_queue: String,
        /// Reason of the Preempted condition.
        reason: &'static str,
    },
    /// The workload has finished; the duration is the sum of its times admitted, for one that finished while admitted.
    Finished(ObservationLabels, Option<Duration>),
    /// A Workload was made for a job, so long after the job.
    WorkloadCreated {
        /// Kind of the job.
        job_kind: &'static str,
        /// Time since the job was made.
        latency: Duration,
    },
    /// A cycle was run: its time is measured by the shell; the flag says whether something was admitted.
    AdmissionAttempt {
        /// Whether something was admitted.
        admitted: bool,
    },
}

/// Labels shared by the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservationLabels {
    /// ClusterQueue.
    pub cluster_queue: String,
    /// The cohorts above it, the nearest first.
    pub cohorts: Vec<String>,
    /// LocalQueue.
    pub local_queue: String,
    /// Whether metrics tell of the LocalQueue.
    pub local_queue_exported: bool,
    /// Namespace of the LocalQueue.
    pub namespace: String,
    /// Name of the priority class, or empty.
    pub priority_class: String,
}

//! What the core and the shell say to each other: deltas in, effects out. Values only.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::ObjectKey;

/// The kinds that the core watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// core/v1 Namespace.
    Namespace,
    /// ClusterQueue.
    ClusterQueue,
    /// LocalQueue.
    LocalQueue,
    /// Workload.
    Workload,
    /// A job kind, by its index in the table of job kinds.
    Job(usize),
}

/// Where the API server serves a kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group, empty for core.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural, as in URLs.
    pub plural: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

const fn resource(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Resource {
    Resource {
        group,
        version,
        kind,
        plural,
        namespaced,
    }
}

static NAMESPACE: Resource = resource("", "v1", "Namespace", "namespaces", false);
static CLUSTER_QUEUE: Resource = resource(
    "kueue.x-k8s.io",
    "v1beta2",
    "ClusterQueue",
    "clusterqueues",
    false,
);
static LOCAL_QUEUE: Resource = resource("kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues", true);
static WORKLOAD: Resource = resource("kueue.x-k8s.io", "v1beta2", "Workload", "workloads", true);
static JOB: Resource = resource("batch", "v1", "Job", "jobs", true);

impl Kind {
    /// Every kind.
    pub fn all() -> Vec<Kind> {
        vec![
            Kind::Namespace,
            Kind::ClusterQueue,
            Kind::LocalQueue,
            Kind::Workload,
            Kind::Job(0),
        ]
    }

    /// Where the API server serves it.
    pub fn resource(&self) -> &'static Resource {
        match self {
            Kind::Namespace => &NAMESPACE,
            Kind::ClusterQueue => &CLUSTER_QUEUE,
            Kind::LocalQueue => &LOCAL_QUEUE,
            Kind::Workload => &WORKLOAD,
            Kind::Job(_) => &JOB,
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// An object was added or changed.
    Applied {
        /// Its kind.
        kind: Kind,
        /// The object.
        object: Value,
    },
    /// An object is gone.
    Deleted {
        /// Its kind.
        kind: Kind,
        /// Its key.
        key: ObjectKey,
        /// Its UID; empty when only its absence was seen.
        uid: String,
    },
    /// A list of the kind begins: what it does not show by `Synced` is gone.
    Restarted {
        /// The kind.
        kind: Kind,
    },
    /// The list is complete.
    Synced {
        /// The kind.
        kind: Kind,
    },
    /// A write was answered.
    Written(WriteResult),
    /// This replica won or lost the lease.
    Leading(bool),
    /// The time that was asked for has come.
    Tick,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Change an object.
    Write(Write),
    /// Tell about an object.
    Event(Event),
    /// Read an object again and feed it back.
    Refetch {
        /// Its kind.
        kind: Kind,
        /// Its key.
        key: ObjectKey,
    },
    /// Count something.
    Measure(Measure),
}

/// How a write changes its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create,
    /// Server-side apply.
    Apply,
    /// JSON merge patch.
    Merge,
    /// DELETE; the body is DeleteOptions.
    Delete,
}

/// One change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Named again in its result.
    pub id: u64,
    /// The object's kind.
    pub kind: Kind,
    /// The object's key.
    pub key: ObjectKey,
    /// The object's UID, where it exists.
    pub uid: Option<String>,
    /// How.
    pub verb: Verb,
    /// Subresource, such as `status`.
    pub subresource: Option<&'static str>,
    /// What is sent.
    pub body: Value,
    /// Within the shared budget of queue status writes.
    pub background: bool,
}

/// The answer to a write.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteResult {
    /// The write's id.
    pub id: u64,
    /// The object's kind.
    pub kind: Kind,
    /// The object's key.
    pub key: ObjectKey,
    /// What became of it.
    pub outcome: WriteOutcome,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteOutcome {
    /// Done; the object as it is now.
    Done(Value),
    /// The object had changed; the newest one was fed back before this.
    Conflict,
    /// The object is gone.
    NotFound,
    /// Refused for good.
    Rejected {
        /// HTTP status.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// No usable answer: it may have landed or not.
    Unavailable {
        /// What went wrong.
        message: String,
    },
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Regarding {
    /// Kind.
    pub kind: String,
    /// API version.
    pub api_version: String,
    /// Namespace, empty if cluster-scoped.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// A Kubernetes event to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub regarding: Regarding,
    /// `Normal` or `Warning`.
    pub type_: &'static str,
    /// Reason.
    pub reason: String,
    /// Message.
    pub note: String,
}

/// What counters and histograms count. Names are of queues and classes, never of objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    /// One head was tried.
    Attempt {
        /// Whether it got quota.
        success: bool,
    },
    /// Quota was reserved.
    QuotaReserved {
        /// Where.
        queue: QueueLabels,
        /// Since it was queued.
        wait_seconds: f64,
    },
    /// A workload was admitted.
    Admitted {
        /// Where.
        queue: QueueLabels,
        /// Since it was queued.
        wait_seconds: f64,
    },
    /// A workload was evicted.
    Evicted {
        /// Where.
        queue: QueueLabels,
        /// Why.
        reason: String,
        /// What was behind it, or empty.
        underlying_cause: String,
    },
    /// A workload finished.
    Finished {
        /// Where.
        queue: QueueLabels,
    },
}

/// Queues and priority class of a measured workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueLabels {
    /// ClusterQueue.
    pub cluster_queue: Arc<str>,
    /// LocalQueue's namespace.
    pub namespace: Arc<str>,
    /// LocalQueue's name.
    pub local_queue: Arc<str>,
    /// Priority class, or empty.
    pub priority_class: Arc<str>,
}

/// Stand-in for the settings of the core.
#[derive(Clone, Debug, Default)]
pub struct Settings;

/// Stand-in for what the core publishes.
#[derive(Debug, Default)]
pub struct Snapshot;

/// Stand-in for the core.
#[derive(Debug, Default)]
pub struct State {
    seen: std::collections::BTreeSet<Kind>,
}

impl State {
    /// A core that knows nothing yet.
    pub fn new(_settings: Settings) -> Self {
        Self::default()
    }

    /// Takes in what happened; what is to be done.
    pub fn apply(&mut self, delta: Delta, _now: Timestamp) -> Vec<Effect> {
        if let Delta::Synced { kind } = delta {
            self.seen.insert(kind);
        }
        Vec::new()
    }

    /// When a tick is wanted.
    pub fn next_due(&self) -> Option<Timestamp> {
        None
    }

    /// What readers see.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(Snapshot)
    }

    /// Whether every kind has been listed.
    pub fn synced(&self) -> bool {
        self.seen.len() == Kind::all().len()
    }
}

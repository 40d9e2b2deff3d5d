//! Stand-in for the core.

mod interface;

pub use interface::*;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::admission::{Lookup, OwnerView};

static CLUSTER_QUEUE: Resource = Resource {
    group: "kueue.x-k8s.io",
    version: "v1beta2",
    kind: "ClusterQueue",
    plural: "clusterqueues",
    namespaced: false,
};
static WORKLOAD: Resource = Resource {
    group: "kueue.x-k8s.io",
    version: "v1beta2",
    kind: "Workload",
    plural: "workloads",
    namespaced: true,
};
static NAMESPACE: Resource = Resource {
    group: "",
    version: "v1",
    kind: "Namespace",
    plural: "namespaces",
    namespaced: false,
};
static JOB: Resource = Resource {
    group: "batch",
    version: "v1",
    kind: "Job",
    plural: "jobs",
    namespaced: true,
};

impl Kind {
    /// Every kind.
    pub fn all() -> Vec<Kind> {
        vec![Kind::Namespace, Kind::ClusterQueue, Kind::Workload, Kind::Job(0)]
    }

    /// Where the API server serves it.
    pub fn resource(&self) -> &'static Resource {
        match self {
            Kind::ClusterQueue => &CLUSTER_QUEUE,
            Kind::Workload => &WORKLOAD,
            Kind::Job(_) => &JOB,
            _ => &NAMESPACE,
        }
    }
}

/// Stand-in.
#[derive(Clone, Debug, Default)]
pub struct Settings;

/// Stand-in.
#[derive(Debug, Default)]
pub struct Snapshot;

impl Lookup for Snapshot {
    fn namespace_labels(&self, _: &str) -> Option<&BTreeMap<String, String>> {
        None
    }
    fn local_queue(&self, _: &str, _: &str) -> bool {
        false
    }
    fn default_priority_class(&self) -> bool {
        false
    }
    fn queue_is_multikueue(&self, _: &str, _: &str) -> bool {
        false
    }
    fn owner(&self, _: &str, _: &str, _: &str, _: &str) -> Option<OwnerView> {
        None
    }
}

/// Stand-in.
#[derive(Debug, Default)]
pub struct State {
    seen: BTreeSet<Kind>,
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

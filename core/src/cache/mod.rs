//! Cache of the cluster's objects: one record per object, with the fields that decisions need, and indexes.
//!
//! Invariants:
//! - the cache decides nothing and writes nothing: it stores an object and returns the changes, and the reconciler
//!   reacts;
//! - an object that cannot be read counts as far as it can be read, and a version older than the known one is ignored (I12,
//!   I23);
//! - an object is deleted for good: a read that was in flight when it was deleted does not bring it back.

mod alike_index;
mod ingest;
mod ingest_workload;
pub mod interned_templates;
pub(crate) mod interner;
mod jobs;
mod kind_records;
pub(crate) mod kinds;
mod links;
mod lookup;
pub mod nodes;
mod owned_pods;
pub(crate) mod pod_defaults;
pub(crate) mod pod_owners;
pub(crate) mod pods;
mod priority_classes;
pub(crate) mod provisioning;
mod queues;
pub mod records;
pub(crate) mod related;
mod removal;
pub mod size_index;
pub mod state_index;
mod submitter_index;
mod tombstones;
mod units;
pub(crate) mod unreadable;
mod vanished;
pub mod workload_annotations;
mod workload_index;
pub(crate) mod workload_object;
mod workloads;

pub use alike_index::Alike;
pub(crate) use ingest::{Arrival, Ingested, ObjectIdentity};
pub(crate) use ingest_workload::WorkloadChange;
pub(crate) use jobs::{JobChange, JobId, UnreadJob};
pub use kinds::{ApiResourceInfo, Kind};
pub use links::OwnerEntry;
pub(crate) use pods::{PodChange, UsageUpdate};
pub use workload_index::WorkloadIndex;
pub use workload_object::WorkloadObject;

use crate::api::ObjectKey;
use crate::resources::transform::Transform;
use interned_templates::InternedTemplates;
use jobs::JobRecords;
use nodes::Nodes;
use pod_defaults::PodDefaults;
use pods::Pods;
use priority_classes::PriorityClasses;
use provisioning::ProvisioningRecords;
use queues::QueueRecords;
use records::{CheckRecord, FlavorRecord, MultiKueueClusterRecord, TopologyRecord};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tombstones::Tombstones;
use unreadable::UnreadableObjects;
use workloads::WorkloadRecords;

/// Settings that determine which objects and fields are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodeGates {
    /// `AdmissionGatedBy`.
    pub(crate) admission_gated_by: bool,
    /// `PriorityBoost`.
    pub(crate) priority_boost: bool,
    /// `ElasticJobsViaWorkloadSlices`.
    pub(crate) elastic_jobs: bool,
    /// `PartialAdmission`.
    pub(crate) partial_admission: bool,
    /// `WorkloadIdentifierAnnotations`.
    pub(crate) identifier_annotations: bool,
    /// Whether pods are jobs: the framework of pods is managed, or one whose pods are jobs of their own.
    pub(crate) pod_units: bool,
}

#[cfg(test)]
impl DecodeGates {
    /// Those of a manager of pods.
    const OF_PODS: Self = Self {
        admission_gated_by: true,
        priority_boost: false,
        elastic_jobs: true,
        partial_admission: true,
        identifier_annotations: true,
        pod_units: true,
    };
}

/// The records of all objects.
#[derive(Debug)]
pub(crate) struct Cache {
    gates: DecodeGates,
    namespaces: Namespaces,
    pod_defaults: PodDefaults,
    priority_classes: PriorityClasses,
    flavors: BTreeMap<Arc<str>, FlavorRecord>,
    topologies: BTreeMap<Arc<str>, TopologyRecord>,
    checks: BTreeMap<Arc<str>, CheckRecord>,
    multikueue_clusters: BTreeMap<Arc<str>, MultiKueueClusterRecord>,
    queues: QueueRecords,
    workloads: WorkloadRecords,
    jobs: JobRecords,
    provisioning: ProvisioningRecords,
    nodes: Nodes,
    pods: Pods,
    shared: SharedState,
}

#[derive(Debug, Default)]
struct Namespaces {
    labels: BTreeMap<Arc<str>, Arc<BTreeMap<String, String>>>,
    /// Namespaces that are being deleted.
    deleting: BTreeSet<Arc<str>>,
}

/// State that is shared by several kinds.
#[derive(Debug, Default)]
struct SharedState {
    interned: InternedTemplates,
    /// Keys seen since a list was started, by kind.
    relisted_keys: BTreeMap<Kind, BTreeSet<ObjectKey>>,
    tombstones: Tombstones,
    unreadable: UnreadableObjects,
    /// Raw jobs, and Workloads with admission checks, of the deltas being handled: Workloads and pod templates are made
    /// from them.
    raw_objects: BTreeMap<(Kind, ObjectKey), Value>,
    /// Key of the label or annotation that names the submitter of a Workload; `None` if none is read.
    submitter_key: Option<Box<str>>,
}

impl Cache {
    /// Creates an empty cache.
    pub(crate) fn new(gates: DecodeGates, transform: Transform) -> Self {
        Self {
            gates,
            namespaces: Namespaces::default(),
            pod_defaults: PodDefaults::new(transform),
            priority_classes: PriorityClasses::default(),
            flavors: BTreeMap::new(),
            topologies: BTreeMap::new(),
            checks: BTreeMap::new(),
            multikueue_clusters: BTreeMap::new(),
            queues: QueueRecords::default(),
            workloads: WorkloadRecords::default(),
            jobs: JobRecords::default(),
            provisioning: ProvisioningRecords::default(),
            nodes: Nodes::default(),
            pods: Pods::default(),
            shared: SharedState::default(),
        }
    }

    /// Sets the key of the label or annotation that names the submitter of a Workload. To be called before the first object is stored.
    pub(crate) fn set_submitter_key(&mut self, key: Option<&str>) {
        self.shared.submitter_key = key.map(Box::from);
        self.workloads.set_reads_submitters(key.is_some());
    }

    /// Starts a list of a kind: objects that are not in the list when it is complete were deleted.
    pub(crate) fn start_list(&mut self, kind: Kind) {
        self.shared.relisted_keys.insert(kind, BTreeSet::new());
        if let Kind::Related(kind) = kind {
            self.jobs.related.start_list(kind);
        }
    }

    /// Completes a list of a kind. Returns the known objects that were not in it.
    pub(crate) fn finish_list(&mut self, kind: Kind) -> Vec<ObjectKey> {
        if let Kind::Related(kind) = kind {
            self.jobs.related.finish_list(kind);
        }
        let Some(seen) = self.shared.relisted_keys.remove(&kind) else { return Vec::new() };
        self.keys(kind).into_iter().filter(|key| !seen.contains(key)).collect()
    }

    /// Returns the objects whose newest version cannot be decoded.
    pub(crate) const fn unreadable(&self) -> &UnreadableObjects {
        &self.shared.unreadable
    }

    /// Returns the objects whose newest version cannot be decoded, to be changed.
    pub(crate) const fn unreadable_mut(&mut self) -> &mut UnreadableObjects {
        &mut self.shared.unreadable
    }

    /// Returns the raw object if it is in the deltas being handled.
    pub(crate) fn raw_object(&self, kind: Kind, key: &ObjectKey) -> Option<&Value> {
        self.shared.raw_objects.get(&(kind, key.clone()))
    }

    /// Drops the raw objects: the deltas have been handled.
    pub(crate) fn clear_raw_objects(&mut self) {
        self.shared.raw_objects.clear();
    }
}

/// Removes a key from an index, and the entry if it has no other keys.
fn remove_from_index<K: Ord, V: Ord>(index: &mut BTreeMap<K, BTreeSet<V>>, entry: &K, key: &V) {
    if let Some(keys) = index.get_mut(entry) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(entry);
        }
    }
}

//! Storing configuration objects and queues: each replaces its previous record, and the result contains the changes.

use super::records::{
    CheckRecord, ClusterQueueRecord, CohortRecord, FlavorRecord, LocalQueueRecord, Meta,
    MultiKueueClusterRecord, TopologyRecord, WorkloadRecord,
};
use super::{Cache, Kind};
use crate::api::ObjectKey;
use crate::api::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, MultiKueueCluster, ResourceFlavor, Topology,
};
use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Identity and state of a received object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectIdentity<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) version: &'a str,
    pub(crate) deleting: bool,
    pub(crate) has_no_finalizers: bool,
}

impl<'a> ObjectIdentity<'a> {
    /// Reads the identity from the metadata of a raw object.
    pub(crate) fn of_value(object: &'a Value) -> Self {
        let metadata = object.get("metadata");
        let text = |field: &str| metadata.and_then(|m| m.get(field)?.as_str()).unwrap_or_default();
        let finalizers = metadata.and_then(|metadata| metadata.get("finalizers")?.as_array());
        Self {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            version: text("resourceVersion"),
            deleting: metadata.is_some_and(|metadata| metadata.get("deletionTimestamp").is_some()),
            has_no_finalizers: finalizers.is_none_or(Vec::is_empty),
        }
    }

    pub(crate) fn of_metadata(metadata: &'a ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            name: metadata.name.as_deref().unwrap_or_default(),
            uid: metadata.uid.as_deref().unwrap_or_default(),
            version: metadata.resource_version.as_deref().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            has_no_finalizers: metadata.finalizers.as_ref().is_none_or(Vec::is_empty),
        }
    }
}

/// How to handle a received object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The object is known in this or a later version, or it was deleted.
    Stale,
    /// The last finalizer of a deleted object was removed, and with it the object.
    Deleted(ObjectKey),
    /// The object must be stored.
    New(ObjectKey),
}

/// An object that was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ingested<K> {
    pub(crate) key: K,
    /// Whether the object is new, or its spec (for queues: or its deletion) differs from the previous record.
    pub(crate) changed: bool,
}

/// Returns whether version `new` is older than version `known` of the same object: an echo that a write has overtaken.
fn is_older(new: &str, known: &str) -> bool {
    matches!((new.parse::<u64>(), known.parse::<u64>()), (Ok(new), Ok(known)) if new < known)
}

impl Cache {
    /// Decides how to handle a received object.
    pub(crate) fn check_arrival(&mut self, kind: Kind, identity: &ObjectIdentity<'_>) -> Arrival {
        let ObjectIdentity { uid, version, .. } = *identity;
        let key = ObjectKey {
            namespace: self.shared.interned.intern_name(identity.namespace),
            name: Arc::from(identity.name),
        };
        if let Some(seen) = self.shared.relisted_keys.get_mut(&kind) {
            seen.insert(key.clone());
        }
        let same = |(known_uid, known): (&str, &str)| {
            *known_uid == *uid
                && (is_older(version, known)
                    || self.is_echo(kind, &key, known == version && !known.is_empty()))
        };
        let stale = self.known_version(kind, &key).is_some_and(same);
        if stale || self.shared.tombstones.contains(uid) {
            Arrival::Stale
        } else if kind == Kind::Workload && identity.deleting && identity.has_no_finalizers {
            Arrival::Deleted(key)
        } else {
            Arrival::New(key)
        }
    }

    /// Returns whether a received object is an echo: the watch repeats the response to a write. A Workload with
    /// admission checks is stored again, because pod templates are made from the raw object.
    fn is_echo(&self, kind: Kind, key: &ObjectKey, same_version: bool) -> bool {
        let has_no_checks = |record: &Arc<WorkloadRecord>| record.status.admission_checks.is_empty();
        same_version
            && match kind {
                Kind::Workload => self.workloads.get(key).is_some_and(has_no_checks),
                Kind::ClusterQueue | Kind::LocalQueue => true,
                _ => false,
            }
    }

    /// Returns the name if the namespace is new, or its labels changed, or it takes new objects now or no longer.
    pub(crate) fn ingest_namespace(&mut self, meta: &ObjectMeta) -> Option<Arc<str>> {
        let name: Arc<str> = Arc::from(meta.name.as_deref().unwrap_or_default());
        let labels = meta.labels.clone().unwrap_or_default();
        let deleting_changed = if meta.deletion_timestamp.is_some() {
            self.namespaces.deleting.insert(name.clone())
        } else {
            self.namespaces.deleting.remove(&name)
        };
        if !deleting_changed && self.namespaces.labels.get(&name).is_some_and(|known| **known == labels) {
            return None;
        }
        self.namespaces.labels.insert(name.clone(), Arc::new(labels));
        Some(name)
    }

    /// Returns the Workloads whose requests were computed again.
    pub(crate) fn ingest_limit_range(&mut self, key: &ObjectKey, range: LimitRange) -> Vec<ObjectKey> {
        self.pod_defaults.set_limit_range(key, Some(range));
        self.recompute_requests(Some(&key.namespace))
    }

    /// Returns the Workloads whose requests were computed again: those of a class that was missing. The overhead of a
    /// class is immutable.
    pub(crate) fn ingest_runtime_class(
        &mut self,
        name: &Arc<str>,
        overhead: BTreeMap<String, Quantity>,
    ) -> Vec<ObjectKey> {
        if self.pod_defaults.set_overhead(name, Some(overhead)) {
            self.recompute_requests(None)
        } else {
            Vec::new()
        }
    }

    pub(crate) fn ingest_priority_class(&mut self, name: &Arc<str>, value: i32, global_default: bool) {
        self.priority_classes.set_pod_class(name, value, global_default);
    }

    /// Returns whether the value of the class changed.
    pub(crate) fn ingest_workload_priority_class(&mut self, name: &Arc<str>, value: i32) -> bool {
        self.priority_classes.set_workload_class(name, value)
    }

    pub(crate) fn ingest_flavor(&mut self, object: ResourceFlavor) -> Ingested<Arc<str>> {
        let meta = Meta::from_object_meta(&object.metadata);
        let key = meta.key.name.clone();
        let changed = self.flavors.get(&key).is_none_or(|known| known.object.spec != object.spec);
        self.flavors.insert(key.clone(), FlavorRecord { meta, object });
        Ingested { key, changed }
    }

    pub(crate) fn ingest_topology(&mut self, name: &Arc<str>, object: &Topology) {
        let levels = object.spec.levels.iter().map(|level| Arc::from(level.node_label.as_str()));
        let record =
            TopologyRecord { meta: Meta::from_object_meta(&object.metadata), levels: levels.collect() };
        self.topologies.insert(name.clone(), record);
    }

    pub(crate) fn ingest_check(&mut self, object: AdmissionCheck) -> Arc<str> {
        let meta = Meta::from_object_meta(&object.metadata);
        let name = meta.key.name.clone();
        self.checks.insert(name.clone(), CheckRecord { meta, object });
        name
    }

    pub(crate) fn ingest_multikueue_cluster(&mut self, object: MultiKueueCluster) -> Arc<str> {
        let meta = Meta::from_object_meta(&object.metadata);
        let name = meta.key.name.clone();
        let record = MultiKueueClusterRecord { meta, conditions: object.status.conditions };
        self.multikueue_clusters.insert(name.clone(), record);
        name
    }

    pub(crate) fn ingest_cohort(&mut self, object: Cohort) -> Ingested<Arc<str>> {
        let meta = Meta::from_object_meta(&object.metadata);
        let key = meta.key.name.clone();
        let changed = self.queues.cohort(&key).is_none_or(|known| known.object.spec != object.spec);
        self.queues.set_cohort(CohortRecord { meta, object });
        Ingested { key, changed }
    }

    pub(crate) fn ingest_cluster_queue(&mut self, object: ClusterQueue) -> Ingested<Arc<str>> {
        let meta = Meta::from_object_meta(&object.metadata);
        let key = meta.key.name.clone();
        let changed = self.queues.cluster_queue(&key).is_none_or(|known| {
            known.object.spec != object.spec || known.meta.is_deleting() != meta.is_deleting()
        });
        self.queues.set_cluster_queue(ClusterQueueRecord { meta, object });
        Ingested { key, changed }
    }

    pub(crate) fn ingest_local_queue(&mut self, object: LocalQueue) -> Ingested<ObjectKey> {
        let meta = Meta::from_object_meta(&object.metadata);
        let key = meta.key.clone();
        let changed = self.queues.local_queue(&key).is_none_or(|known| {
            known.object.spec != object.spec || known.meta.is_deleting() != meta.is_deleting()
        });
        self.queues.set_local_queue(LocalQueueRecord { meta, object });
        Ingested { key, changed }
    }
}

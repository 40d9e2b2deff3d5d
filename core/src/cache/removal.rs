//! Removing objects.

use super::{Cache, Kind};
use crate::api::ObjectKey;
use std::sync::Arc;

impl Cache {
    /// Remembers that an object was deleted: a read that was in flight must not bring it back. Without a UID, the known
    /// object of that key is meant.
    pub(crate) fn bury(&mut self, kind: Kind, key: &ObjectKey, uid: Option<&str>) {
        let known = self.known_version(kind, key).map(|(uid, _)| uid.to_owned());
        let uid = uid.filter(|uid| !uid.is_empty()).map(str::to_owned).or(known);
        self.shared.tombstones.insert(&uid.unwrap_or_default());
    }

    pub(crate) fn remove_namespace(&mut self, name: &str) {
        self.namespaces.labels.remove(name);
        self.namespaces.deleting.remove(name);
    }

    /// Returns the Workloads whose requests were computed again; none if the LimitRange was not known.
    pub(crate) fn remove_limit_range(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        if self.pod_defaults.set_limit_range(key, None) {
            self.recompute_requests(Some(&key.namespace))
        } else {
            Vec::new()
        }
    }

    /// Returns the Workloads whose requests were computed again; none if the class was not known.
    pub(crate) fn remove_runtime_class(&mut self, name: &Arc<str>) -> Vec<ObjectKey> {
        if self.pod_defaults.set_overhead(name, None) { self.recompute_requests(None) } else { Vec::new() }
    }

    pub(crate) fn remove_priority_class(&mut self, name: &str) {
        self.priority_classes.remove_pod_class(name);
    }

    pub(crate) fn remove_workload_priority_class(&mut self, name: &str) {
        self.priority_classes.remove_workload_class(name);
    }

    /// Returns whether the flavor was known.
    pub(crate) fn remove_flavor(&mut self, name: &str) -> bool {
        self.flavors.remove(name).is_some()
    }

    pub(crate) fn remove_topology(&mut self, name: &str) {
        self.topologies.remove(name);
    }

    pub(crate) fn remove_check(&mut self, name: &str) {
        self.checks.remove(name);
    }

    pub(crate) fn remove_multikueue_cluster(&mut self, name: &str) {
        self.multikueue_clusters.remove(name);
    }

    /// Returns whether the Cohort was known.
    pub(crate) fn remove_cohort(&mut self, name: &str) -> bool {
        self.queues.remove_cohort(name)
    }

    /// Returns whether the ClusterQueue was known.
    pub(crate) fn remove_cluster_queue(&mut self, name: &str) -> bool {
        self.queues.remove_cluster_queue(name)
    }

    /// Returns whether the LocalQueue was known.
    pub(crate) fn remove_local_queue(&mut self, key: &ObjectKey) -> bool {
        self.queues.remove_local_queue(key)
    }

    pub(crate) fn remove_pod_template(&mut self, key: &ObjectKey) {
        self.provisioning.remove_template(key);
    }
}

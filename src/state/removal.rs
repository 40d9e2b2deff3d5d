//! Taking objects out: what was known of each goes, and what may need a step because of it is marked.

use super::State;
use super::ingest::take_from;
use super::interface::Kind;
use crate::api::ObjectKey;
use std::sync::Arc;

impl State {
    /// An object is gone for good. With a UID, only the object with that UID.
    pub(super) fn bury(&mut self, kind: Kind, key: &ObjectKey, uid: Option<&str>) {
        let known = self.known(kind, key).map(|(uid, _)| uid.to_owned());
        let gone = uid.filter(|uid| !uid.is_empty()).map(str::to_owned).or(known);
        self.tombstones.bury(&gone.unwrap_or_default());
        self.told.remove(&(kind, key.clone()));
        self.unreadable.remove(&(kind, key.clone()));
        self.remove(kind, key, uid);
    }

    /// Forgets an object. With a UID, only the object with that UID.
    pub(super) fn remove(&mut self, kind: Kind, key: &ObjectKey, uid: Option<&str>) {
        let other = |uid: &str| self.known(kind, key).is_some_and(|(known, _)| known != uid);
        if uid.is_some_and(|uid| !uid.is_empty() && other(uid)) {
            return;
        }
        let name = &key.name;
        let never_made = kind == Kind::Workload && !self.workloads.contains_key(key);
        match kind {
            Kind::Namespace => {
                self.namespaces.remove(name);
                self.engine.set_namespace(name, None);
                self.published.config_changed();
            }
            Kind::LimitRange => {
                if self.limit_ranges.remove(key).is_some() {
                    self.limits_changed(&key.namespace);
                }
            }
            Kind::RuntimeClass => {
                if self.runtime_classes.remove(name).is_some() {
                    self.requests_changed(None);
                }
            }
            Kind::PriorityClass => {
                self.priority_classes.remove(name);
            }
            Kind::WorkloadPriorityClass => {
                self.workload_priority_classes.remove(name);
                self.published.config_changed();
            }
            Kind::ResourceFlavor => {
                if self.flavors.remove(name).is_some() {
                    self.engine.set_flavor(name, None);
                    self.all_cluster_queues_changed();
                }
            }
            Kind::Topology => {
                self.topologies.remove(name);
                self.engine.set_topology(name, None);
                self.all_cluster_queues_changed();
            }
            Kind::AdmissionCheck => {
                self.checks.remove(name);
                self.all_cluster_queues_changed();
            }
            Kind::MultiKueueCluster => {
                self.workers.remove(name);
            }
            Kind::Cohort => {
                if self.cohorts.remove(name).is_some() {
                    self.engine.set_cohort(name, None);
                    self.all_cluster_queues_changed();
                }
            }
            Kind::ClusterQueue => self.remove_cluster_queue(name),
            Kind::LocalQueue => self.remove_local_queue(key),
            Kind::Workload => self.remove_workload(key),
            Kind::ProvisioningRequestConfig => self.remove_provisioning_config(name),
            Kind::ProvisioningRequest => self.remove_provisioning_request(key),
            Kind::PodTemplate => self.remove_pod_template(key),
            Kind::Node => self.remove_node(name),
            Kind::Pod => self.remove_pod(key),
            Kind::Job(index) => self.remove_job(index, key),
        }
        // One that was to be made and does not exist goes on waiting for its next try.
        if !never_made {
            self.writes.succeed(kind, key);
        }
    }

    fn remove_cluster_queue(&mut self, name: &Arc<str>) {
        if self.cluster_queues.remove(name).is_some() {
            self.engine.set_cluster_queue(name, None);
            self.cluster_queue_changed(name);
            self.references_changed();
            self.published.config_changed();
        }
    }

    fn remove_local_queue(&mut self, key: &ObjectKey) {
        if let Some(record) = self.local_queues.remove(key) {
            let target: Arc<str> = Arc::from(record.object.spec.cluster_queue.as_deref().unwrap_or_default());
            take_from(&mut self.queues_by_cluster_queue, &target, key);
            self.engine.set_local_queue(key, None);
            self.local_queue_changed(key);
            self.published.config_changed();
        }
    }

    fn remove_workload(&mut self, key: &ObjectKey) {
        self.told_checks.remove(key);
        self.touch_queues_of(key);
        self.unindex_workload(key);
        let record = self.workloads.swap_remove(key);
        if let Some(record) = &record {
            self.passes.forget(key, &record.meta.uid);
        }
        self.assumed.remove(key);
        self.engine.release(key);
        self.engine.forget(key);
        self.footing_changed(key);
        let owner = record.and_then(|record| record.owner.clone());
        self.external_owner_changed(&key.namespace, owner.as_deref());
        self.workload_changed(key, owner.as_ref().map(|owner| &owner.uid));
    }

    fn remove_job(&mut self, kind: usize, key: &ObjectKey) {
        if let Some(view) = self.jobs.remove(&(kind, key.clone())) {
            self.job_by_uid.remove(&view.uid);
            self.published.forget_job(kind, key);
            self.owner_changed(&view.uid);
        }
    }
}

//! Taking objects out: what was known of each goes, and what may need a step because of it is marked.

use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::reconciler::Reconciler;
use crate::reconciler::ingest::remove_from_index;
use std::sync::Arc;

impl Reconciler {
    /// An object is gone for good. With a UID, only the object with that UID.
    pub(in crate::reconciler) fn record_deletion(&mut self, kind: Kind, key: &ObjectKey, uid: Option<&str>) {
        let known = self.known_version(kind, key).map(|(uid, _)| uid.to_owned());
        let gone = uid.filter(|uid| !uid.is_empty()).map(str::to_owned).or(known);
        self.tombstones.insert(&gone.unwrap_or_default());
        self.reported_warnings.remove(&(kind, key.clone()));
        self.unreadable.remove(&(kind, key.clone()));
        self.remove(kind, key, uid);
    }

    /// Forgets an object. With a UID, only the object with that UID.
    pub(in crate::reconciler) fn remove(&mut self, kind: Kind, key: &ObjectKey, uid: Option<&str>) {
        let other = |uid: &str| self.known_version(kind, key).is_some_and(|(known, _)| known != uid);
        if uid.is_some_and(|uid| !uid.is_empty() && other(uid)) {
            return;
        }
        let name = &key.name;
        let never_made = kind == Kind::Workload && !self.workloads.contains_key(key);
        match kind {
            Kind::Namespace => {
                self.namespaces.remove(name);
                self.engine.set_namespace(name, None);
                self.snapshot_builder.mark_references_stale();
            }
            Kind::LimitRange => {
                if self.limit_ranges.remove(key).is_some() {
                    self.update_limit_range_summary(&key.namespace);
                }
            }
            Kind::RuntimeClass => {
                if self.runtime_classes.remove(name).is_some() {
                    self.recompute_requests(None);
                }
            }
            Kind::PriorityClass => {
                self.priority_classes.remove(name);
            }
            Kind::WorkloadPriorityClass => {
                self.workload_priority_classes.remove(name);
                self.snapshot_builder.mark_references_stale();
            }
            Kind::ResourceFlavor => {
                if self.flavors.remove(name).is_some() {
                    self.engine.set_flavor(name, None);
                    self.reconfigure_cluster_queues();
                }
            }
            Kind::Topology => {
                self.topologies.remove(name);
                self.engine.set_topology(name, None);
                self.reconfigure_cluster_queues();
            }
            Kind::AdmissionCheck => {
                self.admission_checks.remove(name);
                self.reconfigure_cluster_queues();
            }
            Kind::MultiKueueCluster => {
                self.multikueue_clusters.remove(name);
            }
            Kind::Cohort => {
                if self.cohorts.remove(name).is_some() {
                    self.engine.set_cohort(name, None);
                    self.reconfigure_cluster_queues();
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
            self.in_flight_writes.clear_failures(kind, key);
        }
    }

    fn remove_cluster_queue(&mut self, name: &Arc<str>) {
        if self.cluster_queues.remove(name).is_some() {
            self.engine.set_cluster_queue(name, None);
            self.mark_cluster_queue_and_workloads(name);
            self.mark_deleting_references();
            self.snapshot_builder.mark_references_stale();
        }
    }

    fn remove_local_queue(&mut self, key: &ObjectKey) {
        if let Some(record) = self.local_queues.remove(key) {
            let target: Arc<str> = Arc::from(record.object.spec.cluster_queue.as_deref().unwrap_or_default());
            remove_from_index(&mut self.queues_by_cluster_queue, &target, key);
            self.engine.set_local_queue(key, None);
            self.mark_local_queue_and_workloads(key);
            self.snapshot_builder.mark_references_stale();
        }
    }

    fn remove_workload(&mut self, key: &ObjectKey) {
        self.reported_check_messages.remove(key);
        self.mark_queues_of(key);
        self.unindex_workload(key);
        let record = self.workloads.swap_remove(key);
        if let Some(record) = &record {
            self.second_passes.forget(key, &record.meta.uid);
        }
        self.assumed.remove(key);
        self.engine.release(key);
        self.engine.remove_pending(key);
        self.sync_assigned_hosts(key);
        let owner = record.and_then(|record| record.owner.clone());
        self.sync_external_owner(&key.namespace, owner.as_deref());
        self.mark_workload_and_dependents(key, owner.as_ref().map(|owner| &owner.uid));
    }

    fn remove_job(&mut self, kind: usize, key: &ObjectKey) {
        if let Some(view) = self.jobs.remove(&(kind, key.clone())) {
            self.job_by_uid.remove(&view.uid);
            self.snapshot_builder.remove_job(kind, key);
            self.mark_owner_and_workloads(&view.uid);
        }
    }
}

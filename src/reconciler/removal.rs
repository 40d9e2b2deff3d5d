//! Removed objects: the cache drops each, and the consequences are configured in the scheduler or added to the work
//! queue.

use super::Reconciler;
use crate::api::ObjectKey;
use crate::cache::Kind;
use std::sync::Arc;

impl Reconciler {
    /// Handles the deletion of an object. If a UID is given, only the object with that UID is removed.
    pub(super) fn record_deletion(&mut self, kind: Kind, key: &ObjectKey, uid: Option<&str>) {
        self.cache.bury(kind, key, uid);
        self.warnings.forget(kind, key);
        self.remove(kind, key, uid);
    }

    /// Removes an object. If a UID is given, only the object with that UID.
    pub(super) fn remove(&mut self, kind: Kind, key: &ObjectKey, uid: Option<&str>) {
        let other = |uid: &str| self.cache.known_version(kind, key).is_some_and(|(known, _)| known != uid);
        if uid.is_some_and(|uid| !uid.is_empty() && other(uid)) {
            return;
        }
        let never_created = kind == Kind::Workload && self.cache.workload(key).is_none();
        match kind {
            Kind::LimitRange => {
                let workloads = self.cache.remove_limit_range(key);
                self.mark_workloads_and_jobs(workloads);
            }
            Kind::RuntimeClass => {
                let workloads = self.cache.remove_runtime_class(&key.name);
                self.mark_workloads_and_jobs(workloads);
            }
            Kind::LocalQueue => {
                if self.cache.remove_local_queue(key) {
                    self.engine.set_local_queue(key, None);
                    self.mark_local_queue_and_workloads(key);
                    self.snapshot_builder.mark_references_stale();
                }
            }
            Kind::Workload => self.remove_workload(key),
            Kind::ProvisioningRequest => {
                let workload = self.cache.remove_provisioning_request(key);
                self.mark_workloads(workload);
            }
            Kind::PodTemplate => self.cache.remove_pod_template(key),
            Kind::Pod => {
                self.mark_unit_of_pod(key);
                self.cache.remove_unit_pod(key);
                let change = self.cache.remove_pod(key);
                self.follow_pod_change(key, change);
            }
            Kind::Job(kind) => {
                if let Some((view, pods)) = self.cache.remove_job(kind, key) {
                    self.follow_rechecked_pods(pods);
                    self.snapshot_builder.remove_job(kind, key);
                    self.mark_workloads_of_job(kind, &view);
                }
            }
            _ => self.remove_cluster_scoped(kind, &key.name),
        }
        // A Workload whose creation failed does not exist: its backoff continues until the next attempt.
        if !never_created {
            self.writes.forget(kind, key);
        }
    }

    fn remove_cluster_scoped(&mut self, kind: Kind, name: &Arc<str>) {
        match kind {
            Kind::Namespace => {
                self.cache.remove_namespace(name);
                self.engine.set_namespace(name, None);
                self.snapshot_builder.mark_references_stale();
            }
            Kind::PriorityClass => self.cache.remove_priority_class(name),
            Kind::WorkloadPriorityClass => {
                self.cache.remove_workload_priority_class(name);
                self.snapshot_builder.mark_references_stale();
            }
            Kind::ResourceFlavor => {
                if self.cache.remove_flavor(name) {
                    self.engine.set_flavor(name, None);
                    self.reconfigure_cluster_queues();
                }
            }
            Kind::Topology => {
                self.cache.remove_topology(name);
                self.engine.set_topology(name, None);
                self.reconfigure_cluster_queues();
            }
            Kind::AdmissionCheck => {
                self.cache.remove_check(name);
                self.reconfigure_cluster_queues();
            }
            Kind::MultiKueueCluster => self.cache.remove_multikueue_cluster(name),
            Kind::Cohort => {
                if self.cache.remove_cohort(name) {
                    self.engine.set_cohort(name, None);
                    self.reconfigure_cluster_queues();
                }
            }
            Kind::ClusterQueue => {
                if self.cache.remove_cluster_queue(name) {
                    self.engine.set_cluster_queue(name, None);
                    self.mark_cluster_queue_and_workloads(name);
                    self.mark_deleting_references();
                    self.snapshot_builder.mark_references_stale();
                }
            }
            Kind::ProvisioningRequestConfig => {
                if self.cache.set_provisioning_config(name, None) {
                    self.mark_provisioning_users();
                }
            }
            Kind::Node => {
                let workloads = self.cache.remove_node(name);
                self.engine.set_node(name, None);
                self.mark_workloads_and_pods(workloads);
            }
            Kind::LimitRange
            | Kind::RuntimeClass
            | Kind::LocalQueue
            | Kind::Workload
            | Kind::ProvisioningRequest
            | Kind::PodTemplate
            | Kind::Pod
            | Kind::Job(_) => {}
        }
    }

    fn remove_workload(&mut self, key: &ObjectKey) {
        self.warnings.record_check_messages(key, None);
        self.warnings.record_gated_pods(key, None);
        self.queue_updates().mark_queues_of(key);
        let (record, change) = self.cache.remove_workload(key);
        if let Some(record) = &record {
            self.second_passes.forget(key, &record.meta.uid);
        }
        self.membership.assumed.remove(key);
        self.engine.release(key);
        self.engine.remove_pending(key);
        self.follow_workload_change(key, change);
    }
}

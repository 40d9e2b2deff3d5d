//! Which objects need a step because another object changed.

use super::kinds::rules;
use super::queues::admission_checks::AdmissionChecks;
use super::{ReconcileKey, Reconciler};
use crate::api::{ObjectKey, OwnerRecord};
use crate::cache::pod_owners::RecheckedPods;
use crate::cache::{Kind, PodChange, UsageUpdate, WorkloadChange};
use crate::frameworks::{JobKind, JobView, RelatedKey, RelatedKind, UnitKey};
use crate::lifecycle::reservation;
use std::sync::Arc;

impl Reconciler {
    /// Handles the effects of storing or removing a Workload.
    pub(super) fn follow_workload_change(&mut self, key: &ObjectKey, change: WorkloadChange) {
        for (pod, usage) in change.pod_usage {
            self.engine.set_pod(&pod, usage);
        }
        if change.ungates_pods {
            self.work_queue.add(ReconcileKey::Pods(key.clone()));
        }
        self.sync_external_owner(&key.namespace, change.owner.as_deref());
        self.mark_workloads(change.slices);
        self.mark_workload_and_job(key, change.owner.as_deref());
        if let Some(previous) = change.previous_owner {
            // Its job no longer has a Workload and must stop.
            self.sync_external_owner(&key.namespace, Some(&previous));
            self.mark_workload_and_job(key, Some(&previous));
        }
    }

    /// Updates the snapshot for an object of an external framework: it is included while it owns a Workload.
    fn sync_external_owner(&mut self, namespace: &Arc<str>, owner: Option<&OwnerRecord>) {
        let Some(owner) = owner.filter(|o| self.settings.is_external(o.group(), &o.kind)) else {
            return;
        };
        let place = self.units().place_of_external(namespace, owner);
        self.snapshot_builder.set_external_owner(namespace, owner, place);
    }

    /// Handles the effects of storing or removing a pod.
    pub(super) fn follow_pod_change(&mut self, key: &ObjectKey, change: PodChange) {
        if let UsageUpdate::Set(usage) = change.usage {
            self.engine.set_pod(key, usage);
        }
        self.mark_workloads_and_pods(change.workloads);
        let steps = self.units().steps_at_end_of_pods(change.held_up);
        self.work_queue.add_all(steps);
        self.follow_rechecked_pods(change.below);
    }

    /// Handles that the controllers above pods changed.
    pub(super) fn follow_rechecked_pods(&mut self, pods: RecheckedPods) {
        for (pod, usage) in pods.usage {
            self.engine.set_pod(&pod, usage);
        }
        self.mark_workloads_and_pods(pods.workloads);
        let steps = self.units().steps_at_end_of_pods(pods.held_up);
        self.work_queue.add_all(steps);
    }

    /// Marks the unit of a pod, its Workload, and the object that determines its group.
    pub(super) fn mark_unit_of_pod(&mut self, pod: &ObjectKey) {
        if let Some(owner) = self.cache.owner_of_pod(pod) {
            self.work_queue.add(ReconcileKey::Unit(owner.clone()));
        }
        let Some(unit) = self.cache.unit_of_pod(pod).cloned() else { return };
        let uid = self.cache.known_version(Kind::Pod, pod).map(|(uid, _)| uid);
        let vanished = uid.into_iter().flat_map(|uid| self.cache.vanished_of(uid));
        let vanished: Vec<ObjectKey> =
            vanished.chain(self.cache.vanished(&unit.key).map(|record| &record.meta.key)).cloned().collect();
        self.mark_workloads(vanished);
        self.mark_workloads(self.cache.workloads_of_unit(&unit));
        self.work_queue.add(ReconcileKey::Unit(unit));
    }

    pub(super) fn mark_workloads(&mut self, workloads: impl IntoIterator<Item = ObjectKey>) {
        self.work_queue.add_all(workloads.into_iter().map(ReconcileKey::workload));
    }

    /// Marks Workloads whose requests were computed again, and their jobs: a start may request more than was charged.
    pub(super) fn mark_workloads_and_jobs(&mut self, workloads: Vec<ObjectKey>) {
        for key in workloads {
            let owner = self.cache.workload(&key).and_then(|record| record.owner.clone());
            self.mark_workload_and_job(&key, owner.as_deref());
        }
    }

    pub(super) fn mark_workloads_and_pods(&mut self, workloads: Vec<ObjectKey>) {
        for key in workloads {
            if let Some(record) = self.cache.workload(&key).filter(|record| record.annotations.is_slice) {
                // A slice shrinks after its surplus pods have ended.
                let owner = record.owner.clone();
                self.mark_workload_and_job(&key, owner.as_deref());
            }
            self.work_queue.add(ReconcileKey::workload(key.clone()));
            self.work_queue.add(ReconcileKey::Pods(key));
        }
    }

    /// Marks a Workload, its job, and the jobs that wait for it with its job.
    pub(super) fn mark_workload_and_job(&mut self, key: &ObjectKey, owner: Option<&OwnerRecord>) {
        self.work_queue.add(ReconcileKey::workload(key.clone()));
        // Of an object with replicas, the one of the Workload gets a step: it has the name of the Workload.
        let has_replicas =
            |owner: &OwnerRecord| self.cache.job_id(&owner.uid).is_some_and(|(kind, _)| kind.has_replicas());
        if let Some(owner) = owner {
            let job = self.cache.job_id(&owner.uid).filter(|_| !has_replicas(owner)).cloned();
            let unit = job.map(|(kind, job)| ReconcileKey::Unit(UnitKey::of_object(kind, job)));
            self.work_queue.add_all(unit);
            let below = self.units().steps_below(&owner.uid);
            self.work_queue.add_all(below);
        }
        // The pods of a group are equal owners.
        let record = self.cache.workload(key).filter(|record| record.annotations.is_pod_group);
        let owners: Vec<Arc<str>> = record.iter().flat_map(|record| record.owner_uids()).cloned().collect();
        for uid in owners {
            let below = self.units().steps_below(&uid);
            self.work_queue.add_all(below);
        }
        self.mark_workloads(self.cache.slices_beside(key));
        self.mark_workloads(self.cache.workloads_before(key));
        let mut units = self.units().named_like_workload(key);
        units.extend(self.cache.units_near_workload(key, owner));
        self.work_queue.add_all(units.into_iter().map(ReconcileKey::Unit));
    }

    /// Reads the jobs again whose pod sets an object determines: only a job itself has its pod sets. Publishes the object if
    /// webhooks read it.
    pub(super) fn read_jobs_reading(&mut self, object: &RelatedKey) {
        if object.kind.in_reviews {
            self.snapshot_builder.mark_references_stale();
        }
        self.writes.read_again(self.cache.jobs_reading(object).cloned());
    }

    /// Reads the jobs again that await an object of a kind, whose list is complete now.
    pub(super) fn read_jobs_awaiting(&mut self, kind: RelatedKind) {
        if kind.in_reviews {
            self.snapshot_builder.mark_references_stale();
        }
        self.writes.read_again(self.cache.jobs_awaiting(kind).cloned());
    }

    /// Marks the Workloads that a job owns, that was made for it, and that it names.
    pub(super) fn mark_workloads_of_job(&mut self, kind: JobKind, job: &JobView) {
        self.mark_workloads_owned_by(&job.uid);
        self.mark_workloads(self.units().workloads_named_by(kind, job));
    }

    pub(super) fn mark_workloads_owned_by(&mut self, uid: &str) {
        let workloads = self.cache.workloads_owned_by(uid).iter().chain(self.cache.vanished_of(uid));
        self.work_queue.add_all(workloads.cloned().map(ReconcileKey::workload));
    }

    pub(super) fn mark_local_queue_and_workloads(&mut self, key: &ObjectKey) {
        self.work_queue.add(ReconcileKey::Object(Kind::LocalQueue, key.clone()));
        self.work_queue.add_all(self.cache.workloads_in(key).cloned().map(ReconcileKey::workload));
    }

    pub(super) fn mark_cluster_queue_and_workloads(&mut self, name: &Arc<str>) {
        self.work_queue.add(ReconcileKey::named(Kind::ClusterQueue, name));
        let local_queues: Vec<ObjectKey> = self.cache.local_queues_of(name).cloned().collect();
        for key in local_queues {
            self.mark_local_queue_and_workloads(&key);
        }
    }

    /// Marks flavors, checks and topologies that are being deleted: a ClusterQueue or a flavor may have stopped referring to
    /// them.
    pub(super) fn mark_deleting_references(&mut self) {
        let flavors = self.cache.flavors().filter(|(_, record)| record.meta.is_deleting());
        self.work_queue.add_all(flavors.map(|(name, _)| ReconcileKey::named(Kind::ResourceFlavor, name)));
        let checks = self.cache.checks().filter(|(_, record)| record.meta.is_deleting());
        self.work_queue.add_all(checks.map(|(name, _)| ReconcileKey::named(Kind::AdmissionCheck, name)));
        let topologies = self.cache.topologies().filter(|(_, record)| record.meta.is_deleting());
        self.work_queue.add_all(topologies.map(|(name, _)| ReconcileKey::named(Kind::Topology, name)));
    }

    /// Configures a ClusterQueue in the scheduler as it is now. Returns whether the configuration changed.
    pub(super) fn configure_cluster_queue(&mut self, name: &Arc<str>) -> bool {
        let checks = AdmissionChecks { cache: &self.cache, gates: &self.settings.gates };
        self.queues.configure(name, checks, &mut self.engine)
    }

    /// Configures all ClusterQueues again: an object that determines whether they are active has changed. Only
    /// ClusterQueues whose configuration changes wake their workloads.
    pub(super) fn reconfigure_cluster_queues(&mut self) {
        let names: Vec<Arc<str>> = self.cache.cluster_queues().map(|(name, _)| name.clone()).collect();
        for name in names {
            if self.configure_cluster_queue(&name) {
                self.mark_cluster_queue_and_workloads(&name);
            }
        }
        self.mark_deleting_references();
    }

    pub(super) fn mark_users_of_priority_class(&mut self, class: &str) {
        let jobs =
            self.cache.jobs().filter(|(_, view)| view.options.priority_class.as_deref() == Some(class));
        let steps = self.units().steps_of_jobs(jobs.map(|(id, _)| id));
        self.work_queue.add_all(steps);
        let units = self.cache.units_naming_class(class).cloned();
        self.work_queue.add_all(units.map(ReconcileKey::Unit));
        let workloads = self.cache.workloads().filter(|(_, record)| {
            let reference = record.priority_class.as_ref();
            reference.is_some_and(|c| c.kind == "WorkloadPriorityClass" && c.name == class)
        });
        self.work_queue.add_all(workloads.map(|(key, _)| ReconcileKey::workload(key.clone())));
    }

    /// Marks all checks, and Workloads with quota: a ProvisioningRequestConfig changed.
    pub(super) fn mark_provisioning_users(&mut self) {
        let checks = self.cache.checks().map(|(name, _)| ReconcileKey::named(Kind::AdmissionCheck, name));
        self.work_queue.add_all(checks);
        let reserving = self.cache.workloads().filter(|(_, record)| reservation::holds_quota(&record.status));
        self.work_queue.add_all(reserving.map(|(key, _)| ReconcileKey::workload(key.clone())));
    }

    /// Adds an object and the objects that depend on it to the work queue, after a write of the object ended.
    pub(super) fn mark_written(&mut self, kind: Kind, key: &ObjectKey) {
        rules(&kind).follow_write(self, key);
    }
}

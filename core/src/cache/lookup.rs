//! Lookup of objects by name, and by references from other objects.

use super::records::{
    CheckRecord, ClusterQueueRecord, CohortRecord, FlavorRecord, LocalQueueRecord, MultiKueueClusterRecord,
    TopologyRecord, WorkloadRecord,
};
use super::{Cache, JobId, WorkloadIndex};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::frameworks::{
    JobKind, JobView, PriorityLookup, Role, UnitKey, frameworks, job_name_in_workload_name,
};
use crate::lifecycle::{conditions, reservation};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Cache {
    /// Returns the labels of all namespaces.
    pub(crate) fn namespaces(&self) -> &BTreeMap<Arc<str>, Arc<BTreeMap<String, String>>> {
        &self.namespaces.labels
    }

    pub(crate) fn namespace_labels(&self, namespace: &str) -> Option<&BTreeMap<String, String>> {
        self.namespaces.labels.get(namespace).map(AsRef::as_ref)
    }

    /// Whether a server refuses new objects in a namespace because it is being deleted.
    pub(crate) fn is_namespace_deleting(&self, namespace: &str) -> bool {
        self.namespaces.deleting.contains(namespace)
    }

    pub(crate) fn priority_classes(&self) -> &impl PriorityLookup {
        &self.priority_classes
    }

    /// Returns the names of the WorkloadPriorityClasses.
    pub(crate) fn workload_class_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.priority_classes.workload_class_names()
    }

    pub(crate) fn workload_priority(&self, class: &str) -> Option<i32> {
        self.priority_classes.workload_class(class)
    }

    pub(crate) fn flavor(&self, name: &str) -> Option<&FlavorRecord> {
        self.flavors.get(name)
    }

    pub(crate) fn flavors(&self) -> impl Iterator<Item = (&Arc<str>, &FlavorRecord)> {
        self.flavors.iter()
    }

    pub(crate) fn topology(&self, name: &str) -> Option<&TopologyRecord> {
        self.topologies.get(name)
    }

    pub(crate) fn topologies(&self) -> impl Iterator<Item = (&Arc<str>, &TopologyRecord)> {
        self.topologies.iter()
    }

    pub(crate) fn check(&self, name: &str) -> Option<&CheckRecord> {
        self.checks.get(name)
    }

    pub(crate) fn checks(&self) -> impl Iterator<Item = (&Arc<str>, &CheckRecord)> {
        self.checks.iter()
    }

    pub(crate) fn multikueue_cluster(&self, name: &str) -> Option<&MultiKueueClusterRecord> {
        self.multikueue_clusters.get(name)
    }

    pub(crate) fn cohort(&self, name: &str) -> Option<&CohortRecord> {
        self.queues.cohort(name)
    }

    pub(crate) fn cohorts(&self) -> impl Iterator<Item = (&Arc<str>, &CohortRecord)> {
        self.queues.cohorts()
    }

    pub(crate) fn cluster_queue(&self, name: &str) -> Option<&ClusterQueueRecord> {
        self.queues.cluster_queue(name)
    }

    pub(crate) fn cluster_queues(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &ClusterQueueRecord)> {
        self.queues.cluster_queues()
    }

    /// Returns the stored name if the ClusterQueue is known, so that callers share it.
    pub(crate) fn interned_cluster_queue_name(&self, name: &str) -> Arc<str> {
        self.queues.interned_name(name).map_or_else(|| Arc::from(name), Arc::clone)
    }

    pub(crate) fn local_queue(&self, key: &ObjectKey) -> Option<&LocalQueueRecord> {
        self.queues.local_queue(key)
    }

    pub(crate) fn local_queues(&self) -> impl ExactSizeIterator<Item = (&ObjectKey, &LocalQueueRecord)> {
        self.queues.local_queues()
    }

    /// Returns the LocalQueues of a ClusterQueue.
    pub(crate) fn local_queues_of(&self, cluster_queue: &str) -> impl Iterator<Item = &ObjectKey> {
        self.queues.local_queues_of(cluster_queue)
    }

    pub(crate) fn workload(&self, key: &ObjectKey) -> Option<&Arc<WorkloadRecord>> {
        self.workloads.get(key)
    }

    pub(crate) fn workloads(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<WorkloadRecord>)> {
        self.workloads.iter()
    }

    /// Returns all Workloads in order, for readers outside the core.
    pub(crate) const fn workload_index(&self) -> &WorkloadIndex {
        self.workloads.index()
    }

    /// Returns the Workloads whose owner has this UID, ordered by key.
    pub(crate) fn workloads_owned_by(&self, uid: &str) -> &[ObjectKey] {
        self.workloads.owned_by(uid)
    }

    /// Returns the Workloads that say that they replace this slice.
    pub(crate) fn replacing(&self, slice: &ObjectKey) -> impl Iterator<Item = &Arc<WorkloadRecord>> {
        self.workloads.replacing(slice)
    }

    /// Returns the Workloads of a LocalQueue that have not finished.
    pub(crate) fn workloads_in(&self, local_queue: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.workloads.in_local_queue(local_queue)
    }

    /// Returns whether a Workload holds quota according to its object.
    pub(crate) fn holds_quota(&self, workload: &ObjectKey) -> bool {
        self.workload(workload).is_some_and(|record| reservation::holds_quota(&record.status))
    }

    pub(crate) fn job(&self, id: &JobId) -> Option<&Arc<JobView>> {
        self.jobs.get(id)
    }

    pub(crate) fn jobs(&self) -> impl Iterator<Item = (&JobId, &Arc<JobView>)> {
        self.jobs.iter()
    }

    pub(crate) fn job_id(&self, uid: &str) -> Option<&JobId> {
        self.jobs.id_of(uid)
    }

    /// Returns the job that a Workload with this key was made for, whatever owns the Workload.
    pub(crate) fn job_of_own_workload(&self, workload: &ObjectKey) -> Option<(&JobId, &Arc<JobView>)> {
        let of_replica = || self.jobs.of_replica_workload(workload).map(|(id, view, _)| (id, view));
        self.jobs.of_own_workload(workload).or_else(of_replica)
    }

    /// Returns the Workload from which this one takes over what was counted about their job.
    pub(crate) fn workloads_before(&self, key: &ObjectKey) -> Vec<ObjectKey> {
        let Some(record) = self.workload(key).filter(|record| record.annotations.carried_from.is_some())
        else {
            return Vec::new();
        };
        let beside = record.owner.iter().flat_map(|owner| self.workloads_owned_by(&owner.uid));
        let is_former = |other: &&ObjectKey| {
            self.workload(other).is_some_and(|other| record.carries_from(&other.meta.uid))
        };
        beside.filter(is_former).cloned().collect()
    }

    /// Returns the unit that a Workload with this key was made for: a job or one of its replicas. Of a Workload that an object with a
    /// Workload for its pods has taken over from an earlier object of its name, it is that object.
    pub(crate) fn unit_of_own_workload(&self, workload: &ObjectKey) -> Option<(UnitKey, &Arc<JobView>)> {
        let of_replica = || {
            let ((kind, key), view, index) = self.jobs.of_replica_workload(workload)?;
            Some((UnitKey::of_replica(*kind, key.clone(), index), view))
        };
        let own = self.jobs.of_own_workload(workload);
        own.map(|((kind, key), view)| (UnitKey::of_object(*kind, key.clone()), view))
            .or_else(of_replica)
            .or_else(|| self.unit_of_inherited_workload(workload))
    }

    /// Returns the object with a Workload for its pods, or its replica, whose name and number the name of a Workload has, whichever
    /// object of the name it was made for.
    pub(crate) fn set_in_workload_name(&self, workload: &ObjectKey) -> Option<UnitKey> {
        let of_replica = self.jobs.replica_named(workload);
        let of_replica =
            of_replica.map(|((kind, key), _, index)| UnitKey::of_replica(*kind, key.clone(), index));
        of_replica.or_else(|| {
            let kinds = frameworks().map(JobKind::new);
            let mut sets = kinds.filter(|kind| kind.role == Role::PodsOfOwner && !kind.has_replicas());
            sets.find_map(|kind| {
                let name = job_name_in_workload_name(&kind, &workload.name)?;
                let key = ObjectKey::new(&workload.namespace, name);
                self.jobs.get(&(kind, key.clone())).map(|_| UnitKey::of_object(kind, key))
            })
        })
    }

    /// Returns the unit that owns the Workload of a group, if the Workload has the name of one that was made for an object of the same
    /// kind and name.
    fn unit_of_inherited_workload(&self, workload: &ObjectKey) -> Option<(UnitKey, &Arc<JobView>)> {
        let record = self.workload(workload).filter(|record| record.annotations.is_pod_group)?;
        // A client may have removed the owner, which the object writes again.
        let ((kind, key), view) = self.job_of(record).or_else(|| self.former_job_of(record))?;
        let unit = self.set_in_workload_name(workload)?;
        (unit.kind == *kind && unit.key == *key).then_some((unit, view))
    }

    /// Returns the jobs that name this prebuilt Workload, in order.
    pub(crate) fn jobs_naming(&self, workload: &ObjectKey) -> impl Iterator<Item = (&JobId, &Arc<JobView>)> {
        self.jobs.naming(workload)
    }

    /// Returns the job that owns a Workload.
    pub(crate) fn job_of(&self, record: &WorkloadRecord) -> Option<(&JobId, &Arc<JobView>)> {
        let id = self.jobs.id_of(&record.owner.as_ref()?.uid)?;
        Some((id, self.jobs.get(id)?))
    }

    /// Returns the job that a Workload was made for by its label, whatever owns the Workload.
    pub(crate) fn former_job_of(&self, record: &WorkloadRecord) -> Option<(&JobId, &Arc<JobView>)> {
        let id = self.jobs.id_of(record.job_uid.as_ref()?)?;
        Some((id, self.jobs.get(id)?))
    }

    /// Returns the ClusterQueue in which a Workload holds quota, or else the ClusterQueue of its LocalQueue.
    pub(crate) fn cluster_queue_name<'a>(&'a self, record: &'a WorkloadRecord) -> Option<&'a str> {
        match &record.status.admission {
            Some(admission) if conditions::is_true(&record.status, ConditionType::QuotaReserved) => {
                Some(&admission.cluster_queue)
            }
            _ => self.local_queue(&record.local_queue()?)?.object.spec.cluster_queue.as_deref(),
        }
    }

    /// Returns the cohorts above a ClusterQueue, the nearest first. Stops at a cycle.
    pub(crate) fn cohorts_above(&self, cluster_queue: &str) -> Vec<String> {
        let mut above: Vec<String> = Vec::new();
        let mut next =
            self.cluster_queue(cluster_queue).and_then(|queue| queue.object.spec.cohort_name.as_deref());
        while let Some(name) = next.filter(|name| above.iter().all(|known| known != name)) {
            above.push(name.to_owned());
            next = self.cohort(name).and_then(|cohort| cohort.object.spec.parent_name.as_deref());
        }
        above
    }

    /// Returns whether a flavor has a topology.
    pub(crate) fn has_topology(&self, flavor: &str) -> bool {
        self.flavor(flavor).is_some_and(|known| known.object.spec.topology_name.is_some())
    }
}

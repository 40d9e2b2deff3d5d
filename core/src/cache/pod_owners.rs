//! Which pods belong to the workload that they name.
//!
//! Invariants: a pod belongs to its workload if the pod itself, or one of its controllers up to `DEPTH_LIMIT` above each
//! other, is an owner of the workload, or the workload itself, by UID. The annotation alone is not enough: the author of a pod writes it, and a pod
//! that merely names a workload must not be ungated onto its nodes, ended with it, or left out of the usage of its own
//! node (I21). A pod whose membership depends on the controller of a job
//! is checked again when that job appears, disappears, or gets another controller. Pods may be controllers as well: the driver of a
//! SparkApplication makes the executors.
//!
//! The objects between a job and its pods may be of kinds that are not watched, as the ReplicaSet of a Deployment in an
//! AppWrapper. If the controllers of a pod end in an unknown object, the pod belongs to the workload that it names if the owner of
//! that workload is of such a kind (`Cache::open_kinds`).
//!
//! Whether a pod holds the quota of its workload is asked of what is left of these objects: a controller may be gone before the
//! pods below it have ended, or be of a kind that is not watched. So an unknown controller counts as one of the owner's.

use super::pods::{PodRecord, PodUsage, WorkloadPod};
use super::records::WorkloadRecord;
use super::{Cache, remove_from_index};
use crate::api::ObjectKey;
use crate::frameworks::JobHold;
use crate::lifecycle::reservation;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;

/// Maximum number of controllers above an object that are considered. Ends the search if owner references form a cycle.
pub(super) const DEPTH_LIMIT: usize = 10;

/// Pods by the UID of each object whose controller decides whether the pod belongs to its workload.
#[derive(Clone, Debug, Default)]
pub(super) struct PodsByController {
    pods: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    uids: BTreeMap<ObjectKey, Vec<Arc<str>>>,
}

impl PodsByController {
    /// Replaces the UIDs that a pod depends on.
    fn set(&mut self, pod: &ObjectKey, uids: Vec<Arc<str>>) {
        for uid in self.uids.remove(pod).into_iter().flatten() {
            remove_from_index(&mut self.pods, &uid, pod);
        }
        for uid in &uids {
            self.pods.entry(Arc::clone(uid)).or_default().insert(pod.clone());
        }
        if !uids.is_empty() {
            self.uids.insert(pod.clone(), uids);
        }
    }

    pub(super) fn remove(&mut self, pod: &ObjectKey) {
        self.set(pod, Vec::new());
    }
}

/// Pods that were checked again because a controller above them changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecheckedPods {
    /// The non-TAS usage of each pod.
    pub(crate) usage: Vec<(ObjectKey, Option<PodUsage>)>,
    /// The workloads with assigned hosts that the pods name.
    pub(crate) workloads: Vec<ObjectKey>,
    /// The workloads whose jobs may wait for the end of the pods.
    pub(crate) held_up: Vec<ObjectKey>,
}

impl Cache {
    /// Returns the workload that a pod belongs to: the one that it names, or of the slices that took over from it the one on
    /// whose quota the pod may run.
    pub(super) fn slice_of_pod<'a>(&'a self, pod: &PodRecord) -> Option<&'a Arc<WorkloadRecord>> {
        let workload_pod = pod.workload_pod.as_deref()?;
        let slices = self.workloads.in_chain(&workload_pod.workload);
        let own = slices.filter(|record| {
            is_owner(record, &pod.uid)
                || self.controllers_of(workload_pod).any(|uid| is_owner(record, uid))
                || self.may_be_made_for(workload_pod, record)
        });
        own.max_by_key(|record| self.precedence(record))
    }

    /// Returns the slice on whose quota the pods of a slice may run, or the Workload itself if it is none.
    pub(crate) fn slice_in_use<'a>(&'a self, workload: &ObjectKey) -> Option<&'a Arc<WorkloadRecord>> {
        let record = self.workloads.get(workload)?;
        if record.annotations.chain.is_none() {
            return Some(record);
        }
        let first = record.chain_key();
        let slices = self.workloads.in_chain(&first);
        let own = slices.filter(|other| other.owner_uids().next() == record.owner_uids().next());
        own.max_by_key(|record| self.precedence(record))
    }

    /// Returns what puts one slice before another: the newest with quota is in use. Of slices that were created in the same
    /// second, the newest is the one that none of the others replaces.
    fn precedence(&self, record: &WorkloadRecord) -> impl Ord + use<> {
        let holds = |record: &WorkloadRecord| reservation::holds_quota(&record.status);
        let is_replaced = self.workloads.replacing(&record.meta.key).any(|other| holds(other));
        (holds(record), record.meta.created, !is_replaced, record.meta.uid.clone())
    }

    /// Returns whether a pod belongs to a workload.
    pub(crate) fn belongs_to(&self, pod: &PodRecord, workload: &ObjectKey) -> bool {
        self.slice_of_pod(pod).is_some_and(|record| record.meta.key == *workload)
    }

    /// Returns whether a pod belongs to the workload that it names, or to a slice of the same job.
    pub(crate) fn is_charged(&self, pod: &PodRecord) -> bool {
        self.slice_of_pod(pod).is_some()
    }

    /// Returns whether pods that name a workload, or the first of the slices before it, run below its owner. Pods that wait for a
    /// gate do not.
    pub(crate) fn has_running_pods(&self, workload: &ObjectKey, owner: &str) -> bool {
        self.pods_of(workload).any(|(_, _, pod)| pod.gates.is_empty() && self.may_be_below(pod, owner))
    }

    /// Returns whether the owner of a workload is of a kind that makes objects which are not watched, and the controllers of a pod
    /// end in such an object.
    fn may_be_made_for(&self, pod: &WorkloadPod, record: &WorkloadRecord) -> bool {
        let is_open = record.owner.as_ref().is_some_and(|owner| {
            self.open_kinds().any(|kind| (kind.gvk.group, kind.gvk.kind) == (owner.group(), &*owner.kind))
        });
        is_open && self.controllers_of(pod).last().is_some_and(|uid| !self.is_known(uid))
    }

    /// Returns whether an object is a stored job or a pod that names a workload.
    fn is_known(&self, uid: &str) -> bool {
        self.jobs.id_of(uid).is_some() || self.pods.with_uid(uid).is_some()
    }

    /// Returns whether an object is above a pod, or may be: the last known controller is not stored itself.
    fn may_be_below(&self, pod: &WorkloadPod, owner: &str) -> bool {
        let is_above = |uid: &str| *uid == *owner || !self.is_known(uid);
        self.controllers_of(pod).any(is_above)
    }

    /// Returns the workload that a pod names if it or its job may wait for the end of the pod: the job is to stop, its present
    /// objects do not say whether it is, it is gone, or another object below it waits for the room of the pod.
    pub(super) fn workload_held_up(&self, key: &ObjectKey) -> Option<ObjectKey> {
        let workload = &self.pods.get(key)?.workload_pod.as_deref()?.workload;
        let mut records = self.workloads.in_chain(workload).peekable();
        let exists = records.peek().is_some() || self.vanished(workload).is_some();
        let job = records.find_map(|record| self.job_of(record).or_else(|| self.former_job_of(record)));
        let job = job.or_else(|| self.job_of_own_workload(workload));
        let waits = job.map_or(exists, |(_, job)| {
            let may_stop = job.suspended || job.deleting || job.status.hold == JobHold::Held;
            may_stop || self.jobs.waiting_for_room(&job.uid).next().is_some()
        });
        waits.then(|| workload.clone())
    }

    /// Returns the UIDs of the controllers above a pod, the nearest first.
    fn controllers_of<'a>(&'a self, pod: &'a WorkloadPod) -> impl Iterator<Item = &'a str> {
        let above = |uid: &&'a str| {
            let job = self.jobs.id_of(uid).and_then(|id| self.jobs.get(id));
            let of_job = job.map(|job| job.controller.as_ref().map(|owner| owner.uid.as_str()));
            of_job.unwrap_or_else(|| self.pods.with_uid(uid)?.controller.as_deref())
        };
        iter::successors(pod.controller.as_deref(), above).take(DEPTH_LIMIT)
    }

    /// Records which objects decide whether a pod belongs to its workload.
    pub(super) fn index_controllers(&mut self, key: &ObjectKey) {
        let uids = self.pods.get(key).map_or_else(Vec::new, |pod| self.deciding_controllers(pod));
        self.pods.by_controller.set(key, uids);
    }

    /// Returns the UIDs of the objects below the owner of the workload, or all if the owner is not found. Pods that the
    /// owner controls itself depend on no other object.
    fn deciding_controllers(&self, pod: &PodRecord) -> Vec<Arc<str>> {
        let Some(workload_pod) = pod.workload_pod.as_deref() else { return Vec::new() };
        let is_owner =
            |uid: &str| self.workloads.in_chain(&workload_pod.workload).any(|record| is_owner(record, uid));
        if is_owner(&pod.uid) {
            return Vec::new();
        }
        self.controllers_of(workload_pod).take_while(|uid| !is_owner(uid)).map(Arc::from).collect()
    }

    /// Checks the pods again whose membership depends on the controllers of the objects with these UIDs.
    pub(super) fn recheck_pods_below(&mut self, uids: impl IntoIterator<Item = Arc<str>>) -> RecheckedPods {
        let below = |uid: Arc<str>| self.pods.by_controller.pods.get(&uid).into_iter().flatten().cloned();
        let keys: BTreeSet<ObjectKey> = uids.into_iter().flat_map(below).collect();
        let (mut workloads, mut held_up) = (BTreeSet::new(), BTreeSet::new());
        let mut usage = Vec::with_capacity(keys.len());
        for key in keys {
            self.index_controllers(&key);
            workloads.extend(self.placed_workload_of_pod(&key));
            held_up.extend(self.workload_held_up(&key));
            let pod_usage = self.non_tas_usage_of_pod(&key);
            usage.push((key, pod_usage));
        }
        RecheckedPods {
            usage,
            workloads: workloads.into_iter().collect(),
            held_up: held_up.into_iter().collect(),
        }
    }

    /// Checks the pods of a workload again whose owners changed.
    pub(super) fn recheck_pods_of(&mut self, workload: &ObjectKey) -> Vec<(ObjectKey, Option<PodUsage>)> {
        let keys: Vec<ObjectKey> = self.pods_of(workload).map(|(key, ..)| key.clone()).collect();
        for key in &keys {
            self.index_controllers(key);
        }
        self.non_tas_usage_of(workload)
    }
}

fn is_owner(record: &WorkloadRecord, uid: &str) -> bool {
    (*record.meta.uid == *uid && !uid.is_empty()) || record.owner_uids().any(|owner| **owner == *uid)
}

//! Objects that may stand between a queued object and what is below it, and that are not stored as jobs: pods, ReplicaSets, objects of
//! kinds that are not enabled, and jobs that cannot be decoded. Of each only its place is known: its UID, controller and queue.
//!
//! Invariant: an object is stored here or as a job, never as both.

use super::jobs::JobRecords;
use super::pod_owners::DEPTH_LIMIT;
use super::{Cache, JobId, Kind, remove_from_index};
use crate::api::{ObjectKey, names};
use crate::frameworks::{JobKind, JobView, OwnPlace, OwnerRef, PodIdentity, PodSetRequests, PodSetSize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Kind and key of an object.
pub(crate) type ObjectId = (Kind, ObjectKey);

/// An object as a possible owner of others.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerEntry {
    /// UID of the object.
    pub uid: Arc<str>,
    /// Name of the LocalQueue.
    pub queue_name: Option<Arc<str>>,
    /// Its place in a queue, if that does not follow from its queue and its kind.
    pub place: OwnPlace,
    /// The controller of the object itself.
    pub controller: Option<OwnerRef>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What its Workload is charged for, where objects below it could be made larger than it.
    pub pod_sets: Option<Arc<[PodSetSize]>>,
    /// What one pod of each of these requests by its template.
    pub pod_requests: Option<Arc<[PodSetRequests]>>,
    /// What tells pods that it controls from those that only name it.
    pub pod_identity: PodIdentity,
    /// The account that webhooks have recorded in it, if submitters are read and its pods have Workloads of their own.
    pub submitter: Option<Arc<str>>,
}

impl OwnerEntry {
    /// Reads an object of which nothing is known but its metadata. Malformed fields equal absent ones.
    pub(crate) fn of_metadata(object: &Value) -> Self {
        let metadata = object.get("metadata");
        let uid = metadata.and_then(|metadata| metadata.get("uid")?.as_str());
        let label =
            metadata.and_then(|metadata| metadata.get("labels")?.get(names::QUEUE_NAME_LABEL)?.as_str());
        Self {
            uid: Arc::from(uid.unwrap_or_default()),
            queue_name: label.filter(|name| !name.is_empty()).map(Arc::from),
            place: OwnPlace::Nowhere,
            controller: OwnerRef::controller_of(object),
            deleting: metadata.is_some_and(|metadata| metadata.get("deletionTimestamp").is_some()),
            pod_sets: None,
            pod_requests: None,
            pod_identity: PodIdentity::Unknown,
            submitter: None,
        }
    }
}

/// These objects, by key, by UID and by the UID of their controller.
#[derive(Debug, Default)]
pub(super) struct Links {
    entries: BTreeMap<ObjectId, Arc<OwnerEntry>>,
    by_uid: BTreeMap<Arc<str>, ObjectId>,
    by_controller: BTreeMap<String, BTreeSet<ObjectId>>,
    /// Kinds whose objects cannot be read.
    unread_kinds: BTreeSet<Kind>,
}

impl Links {
    fn get(&self, id: &ObjectId) -> Option<&Arc<OwnerEntry>> {
        self.entries.get(id)
    }

    pub(super) fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        let first = (kind, ObjectKey::new("", ""));
        let of_kind = self.entries.range(first..).take_while(|((other, _), _)| *other == kind);
        of_kind.map(|((_, key), _)| key.clone()).collect()
    }

    fn with_uid(&self, uid: &str) -> Option<&Arc<OwnerEntry>> {
        self.entries.get(self.by_uid.get(uid)?)
    }

    fn remove(&mut self, id: &ObjectId) -> Option<Arc<OwnerEntry>> {
        let entry = self.entries.remove(id)?;
        self.by_uid.remove(&entry.uid);
        if let Some(controller) = &entry.controller {
            remove_from_index(&mut self.by_controller, &controller.uid, id);
        }
        Some(entry)
    }

    fn insert(&mut self, id: ObjectId, entry: Arc<OwnerEntry>) {
        if let Some(controller) = &entry.controller {
            self.by_controller.entry(controller.uid.clone()).or_default().insert(id.clone());
        }
        self.by_uid.insert(Arc::clone(&entry.uid), id.clone());
        self.entries.insert(id, entry);
    }
}

/// What is below an object, at any depth.
#[derive(Debug, Default)]
pub(crate) struct Below<'a> {
    /// Jobs.
    pub(crate) jobs: BTreeSet<&'a JobId>,
    /// Pods and other objects that are not stored as jobs.
    pub(crate) links: BTreeSet<&'a ObjectId>,
    /// UIDs of all these, and of the object itself.
    pub(crate) uids: BTreeSet<&'a str>,
}

impl Cache {
    /// Returns an object that is not stored as a job.
    pub(crate) fn link(&self, id: &ObjectId) -> Option<&Arc<OwnerEntry>> {
        self.jobs.links.get(id)
    }

    /// Returns the kinds whose objects cannot be read: an object of them that is not known may exist.
    pub(crate) fn unread_kinds(&self) -> &BTreeSet<Kind> {
        &self.jobs.links.unread_kinds
    }

    /// Sets whether the objects of a kind can be read. Returns whether that has changed.
    pub(crate) fn set_read(&mut self, kind: Kind, read: bool) -> bool {
        let unread = &mut self.jobs.links.unread_kinds;
        if read { unread.remove(&kind) } else { unread.insert(kind) }
    }

    /// Stores or removes an object that is not stored as a job. Returns the UIDs of the objects that have appeared, are gone, or have
    /// another place; none if nothing has changed.
    pub(crate) fn set_link(&mut self, id: &ObjectId, entry: Option<Arc<OwnerEntry>>) -> BTreeSet<Arc<str>> {
        if self.jobs.links.get(id) == entry.as_ref() {
            return BTreeSet::new();
        }
        let before = self.jobs.links.remove(id);
        let uids = before.iter().chain(&entry).map(|entry| Arc::clone(&entry.uid)).collect();
        if let Some(entry) = entry {
            self.jobs.links.insert(id.clone(), entry);
        }
        uids
    }

    /// Returns what is below the object with a UID, at any depth. Owner references are written by clients: they may form cycles.
    pub(crate) fn below<'a>(&'a self, uid: &'a str) -> Below<'a> {
        let mut below = Below::default();
        let mut owners = vec![uid];
        while let Some(uid) = owners.pop() {
            below.uids.insert(uid);
            let jobs = self.jobs.controlled_by(uid).filter(|id| below.jobs.insert(*id));
            owners.extend(jobs.filter_map(|id| self.jobs.get(id)).map(|view| &*view.uid));
            let links = self.jobs.links.by_controller.get(uid).into_iter().flatten();
            let links = links.filter(|id| below.links.insert(*id));
            owners.extend(links.filter_map(|id| self.jobs.links.get(id)).map(|entry| &*entry.uid));
        }
        below
    }

    /// Returns the jobs below one with this UID, in any depth, in order.
    pub(crate) fn jobs_below<'a>(&'a self, uid: &'a str) -> BTreeSet<&'a JobId> {
        self.below(uid).jobs
    }

    /// Returns the jobs whose controller has a UID, in order.
    pub(crate) fn jobs_controlled_by(&self, uid: &str) -> impl Iterator<Item = &JobId> {
        self.jobs.controlled_by(uid)
    }

    /// Returns those of them that wait for room beside others.
    pub(crate) fn jobs_waiting_for_room(&self, controller: &str) -> impl Iterator<Item = &JobId> {
        self.jobs.waiting_for_room(controller)
    }

    /// Returns the known jobs above a job, the nearest first.
    pub(crate) fn controllers_of_job(&self, job: &JobView) -> Vec<(JobKind, Arc<JobView>)> {
        let mut above = Vec::new();
        let mut next = job.controller.as_ref();
        for _ in 0..DEPTH_LIMIT {
            let Some(controller) = next else { break };
            let job = self.jobs.id_of(&controller.uid).and_then(|id| Some((id.0, self.jobs.get(id)?)));
            next = if let Some((kind, view)) = job {
                above.push((kind, Arc::clone(view)));
                view.controller.as_ref()
            } else {
                self.jobs.links.with_uid(&controller.uid).and_then(|entry| entry.controller.as_ref())
            };
        }
        above
    }
}

impl JobRecords {
    /// Returns the jobs whose controller has a UID.
    fn controlled_by(&self, uid: &str) -> impl Iterator<Item = &JobId> {
        self.by_controller.get(uid).into_iter().flatten()
    }
}

//! Jobs of all kinds, by key, by UID, and by the name of the Workload that is made for them or that they name.

use super::links::Links;
use super::pod_owners::RecheckedPods;
use super::related::RelatedObjects;
use super::{Cache, Kind, OwnerEntry, remove_from_index};
use crate::api::decoding::DecodeError;
use crate::api::{ObjectKey, names};
use crate::frameworks::{
    Beside, JobKind, JobView, RelatedKey, RelatedKind, Role, frameworks, is_longest_workload_name,
    job_name_in_workload_name, own_workload_keys, replica_workload_key, submitter_of,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Kind and key of a job.
pub(crate) type JobId = (JobKind, ObjectKey);

/// Effects of storing a job.
#[derive(Clone, Debug)]
pub(crate) struct JobChange {
    /// UID of another job that had the same kind and key.
    pub(crate) replaced: Option<Arc<str>>,
    /// Pods below the job whose membership of a workload was checked again.
    pub(crate) pods: RecheckedPods,
    /// UID of the job if it is new, or its place between its controller and its queue has changed.
    pub(crate) moved: Option<Arc<str>>,
}

/// A job that cannot be decoded.
#[derive(Clone, Debug)]
pub(crate) struct UnreadJob {
    pub(crate) problem: DecodeError,
    /// Its place among owners.
    pub(crate) place: OwnerEntry,
}

/// Jobs by kind and key.
#[derive(Debug, Default)]
pub(super) struct JobRecords {
    views: BTreeMap<JobId, Arc<JobView>>,
    by_uid: BTreeMap<Arc<str>, JobId>,
    /// Jobs by the prebuilt Workload that they name.
    by_prebuilt: BTreeMap<ObjectKey, BTreeSet<JobId>>,
    /// Jobs by the UID of the controller that owns them.
    pub(super) by_controller: BTreeMap<String, BTreeSet<JobId>>,
    /// Those of them that wait for room beside others, likewise.
    by_crowded: BTreeMap<String, BTreeSet<JobId>>,
    /// Jobs by the other objects that they read.
    by_related: BTreeMap<RelatedKey, BTreeSet<JobId>>,
    /// These objects.
    pub(super) related: RelatedObjects,
    /// Objects that may stand between jobs.
    pub(super) links: Links,
    /// Managed kinds that make, directly or by objects that they make, objects besides pods that are not watched.
    open_kinds: BTreeSet<JobKind>,
}

impl JobRecords {
    pub(super) fn get(&self, id: &JobId) -> Option<&Arc<JobView>> {
        self.views.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&JobId, &Arc<JobView>)> {
        self.views.iter()
    }

    pub(super) fn id_of(&self, uid: &str) -> Option<&JobId> {
        self.by_uid.get(uid)
    }

    pub(super) fn keys_of_kind(&self, kind: JobKind) -> Vec<ObjectKey> {
        self.views.keys().filter(|(known, _)| *known == kind).map(|(_, key)| key.clone()).collect()
    }

    /// Returns the UID of another job that had the same kind and key.
    fn insert(&mut self, kind: JobKind, view: JobView) -> Option<Arc<str>> {
        let id = (kind, view.key.clone());
        self.forget_references(&id);
        for object in &view.related.reads {
            self.by_related.entry(object.clone()).or_default().insert(id.clone());
        }
        if let Some(workload) = view.prebuilt_workload_key() {
            self.by_prebuilt.entry(workload).or_default().insert(id.clone());
        }
        if let Some(controller) = &view.controller {
            self.by_controller.entry(controller.uid.clone()).or_default().insert(id.clone());
            if view.options.child.waits_for_room {
                self.by_crowded.entry(controller.uid.clone()).or_default().insert(id.clone());
            }
        }
        let replaced = self.views.get(&id).filter(|before| before.uid != view.uid);
        let replaced = replaced.map(|before| before.uid.clone());
        if let Some(uid) = &replaced {
            self.by_uid.remove(uid);
        }
        self.by_uid.insert(view.uid.clone(), id.clone());
        self.views.insert(id, Arc::new(view));
        replaced
    }

    pub(super) fn remove(&mut self, id: &JobId) -> Option<Arc<JobView>> {
        self.forget_references(id);
        let view = self.views.remove(id)?;
        self.by_uid.remove(&view.uid);
        Some(view)
    }

    fn forget_references(&mut self, id: &JobId) {
        let Some(view) = self.views.get(id) else { return };
        if let Some(workload) = view.prebuilt_workload_key() {
            remove_from_index(&mut self.by_prebuilt, &workload, id);
        }
        if let Some(controller) = &view.controller {
            remove_from_index(&mut self.by_controller, &controller.uid, id);
            remove_from_index(&mut self.by_crowded, &controller.uid, id);
        }
        for object in &view.related.reads {
            remove_from_index(&mut self.by_related, object, id);
        }
    }

    /// Returns the jobs whose controller has a UID and that wait for room beside others, in order.
    pub(super) fn waiting_for_room(&self, controller: &str) -> impl Iterator<Item = &JobId> {
        self.by_crowded.get(controller).into_iter().flatten()
    }

    /// Returns the jobs that read an object, in order.
    fn reading(&self, object: &RelatedKey) -> impl Iterator<Item = &JobId> {
        self.by_related.get(object).into_iter().flatten()
    }

    /// Returns the job that a Workload with this key was made for, if the job exists. The name has a hash of its UID.
    pub(super) fn of_own_workload(&self, workload: &ObjectKey) -> Option<(&JobId, &Arc<JobView>)> {
        frameworks().map(JobKind::new).filter(|kind| !kind.has_replicas()).find_map(|kind| {
            let name = job_name_in_workload_name(&kind, &workload.name)?;
            let first = (kind, ObjectKey { namespace: workload.namespace.clone(), name: Arc::from(name) });
            let longer = is_longest_workload_name(&workload.name);
            let fits = |key: &ObjectKey| {
                key.namespace == workload.namespace
                    && (*key.name == *name || (longer && key.name.starts_with(name)))
            };
            let mut candidates =
                self.views.range(first..).take_while(|((other, key), _)| *other == kind && fits(key));
            candidates.find(|(_, view)| own_workload_keys(&kind, view).contains(workload))
        })
    }

    /// Returns the job for one of whose replicas a Workload with this key was made, and the index of the replica. Names of jobs
    /// with replicas are values of labels, and short enough to be whole in the name of a Workload.
    pub(super) fn of_replica_workload(&self, workload: &ObjectKey) -> Option<(&JobId, &Arc<JobView>, u32)> {
        let named = self.replica_named(workload);
        named.filter(|((kind, _), view, index)| replica_workload_key(kind, view, *index) == *workload)
    }

    /// Returns the job with replicas whose name and index the name of a Workload has, whatever its hash, and the index: the Workload may
    /// have been made for an earlier job of the name.
    pub(super) fn replica_named(&self, workload: &ObjectKey) -> Option<(&JobId, &Arc<JobView>, u32)> {
        frameworks().map(JobKind::new).filter(|kind| kind.has_replicas()).find_map(|kind| {
            let (name, index) = job_name_in_workload_name(&kind, &workload.name)?.rsplit_once('-')?;
            let index = index.parse().ok()?;
            let key = ObjectKey { namespace: workload.namespace.clone(), name: Arc::from(name) };
            let (id, view) = self.views.get_key_value(&(kind, key))?;
            Some((id, view, index))
        })
    }

    /// Returns the jobs that name this prebuilt Workload, in order.
    pub(super) fn naming(&self, workload: &ObjectKey) -> impl Iterator<Item = (&JobId, &Arc<JobView>)> {
        let ids = self.by_prebuilt.get(workload).into_iter().flatten();
        ids.filter_map(|id| self.views.get_key_value(id))
    }
}

/// Returns whether both are the same job in the same place between its controller and its queue.
fn has_same_place(before: &JobView, now: &JobView) -> bool {
    let place = |view: &JobView| (view.queue_name.clone(), view.managed_by.clone(), view.options.skipped);
    before.uid == now.uid && before.controller == now.controller && place(before) == place(now)
}

impl Cache {
    /// Returns the jobs that read an object, in order.
    pub(crate) fn jobs_reading(&self, object: &RelatedKey) -> impl Iterator<Item = &JobId> {
        self.jobs.reading(object)
    }

    /// Returns the jobs that await an object of a kind, in order.
    pub(crate) fn jobs_awaiting(&self, kind: RelatedKind) -> impl Iterator<Item = &JobId> {
        let awaits = move |view: &JobView| {
            view.related.waits_for.as_ref().is_some_and(|awaited| awaited.object.kind == kind)
        };
        self.jobs.iter().filter(move |(_, view)| awaits(view)).map(|(id, _)| id)
    }

    /// Returns the objects that jobs read.
    pub(crate) const fn related(&self) -> &RelatedObjects {
        &self.jobs.related
    }

    /// Returns what the pod sets of jobs are made of beside the jobs.
    pub(crate) const fn beside_jobs(&self) -> Beside<'_> {
        Beside { related: &self.jobs.related, elastic_jobs: self.gates.elastic_jobs }
    }

    /// Returns the objects that jobs read, to be changed.
    pub(crate) const fn related_mut(&mut self) -> &mut RelatedObjects {
        &mut self.jobs.related
    }

    /// Stores a job; `at_start` says whether the first lists are not complete yet.
    ///
    /// # Errors
    /// If the job cannot be decoded: why, and what its metadata says.
    pub(crate) fn ingest_job(
        &mut self,
        kind: JobKind,
        key: &ObjectKey,
        (raw, at_start): (Value, bool),
    ) -> Result<JobChange, Box<UnreadJob>> {
        let known = self.jobs.get(&(kind, key.clone())).cloned();
        let before = known.as_deref();
        let decoded = kind.decode_after(&raw, before, self.beside_jobs());
        let unread = |problem: DecodeError| UnreadJob { problem, place: OwnerEntry::of_metadata(&raw) };
        let mut view = decoded.map_err(|error| Box::new(unread(error.into())))?;
        if at_start && before.is_none() {
            view.related.since_start.found_at_start = !view.suspended;
        }
        self.apply_decode_gates(kind, &mut view, &raw);
        self.shared.interned.intern_pod_set_views(&mut view.pod_sets);
        self.shared.raw_objects.insert((Kind::Job(kind), key.clone()), raw);
        let has_same_controller =
            before.is_some_and(|before| before.uid == view.uid && before.controller == view.controller);
        let uid = Arc::clone(&view.uid);
        let keeps_place = before.is_some_and(|before| has_same_place(before, &view));
        let moved = (!keeps_place).then(|| Arc::clone(&uid));
        let replaced = self.jobs.insert(kind, view);
        let pods =
            if has_same_controller { RecheckedPods::default() } else { self.recheck_pods_below([uid]) };
        Ok(JobChange { replaced, pods, moved })
    }

    /// Returns the account that webhooks have recorded in a job of the deltas being handled, if submitters are read and the pods of the job
    /// have Workloads of their own: they count as submitted by it.
    pub(crate) fn submitter_for_pods(&self, kind: JobKind, key: &ObjectKey) -> Option<Arc<str>> {
        if self.shared.submitter_key.is_none() || kind.role != Role::PassThrough {
            return None;
        }
        let object = self.raw_object(Kind::Job(kind), key)?;
        submitter_of(object, names::SUBMITTER_ANNOTATION).map(Arc::from)
    }

    pub(crate) fn remove_job(
        &mut self,
        kind: JobKind,
        key: &ObjectKey,
    ) -> Option<(Arc<JobView>, RecheckedPods)> {
        let view = self.jobs.remove(&(kind, key.clone()))?;
        let pods = self.recheck_pods_below([Arc::clone(&view.uid)]);
        Some((view, pods))
    }

    /// Sets the managed kinds between which and their pods may be objects that are not watched.
    pub(crate) fn set_open_kinds(&mut self, kinds: BTreeSet<JobKind>) {
        self.jobs.open_kinds = kinds;
    }

    /// Returns these kinds.
    pub(super) fn open_kinds(&self) -> impl Iterator<Item = &JobKind> {
        self.jobs.open_kinds.iter()
    }

    /// Clears the fields that belong to disabled features.
    fn apply_decode_gates(&self, kind: JobKind, view: &mut JobView, object: &Value) {
        if !self.gates.admission_gated_by {
            view.options.gated_by = None;
        }
        if !self.gates.elastic_jobs {
            view.options.slice = None;
            view.options.lacks_elastic_gate = false;
        }
        if !self.gates.partial_admission {
            for set in &mut view.pod_sets {
                set.min_count = None;
            }
        }
        if !self.gates.identifier_annotations && kind.flags.prebuilt {
            let labels = object.pointer("/metadata/labels");
            let label = labels.and_then(|labels| labels.get(names::PREBUILT_WORKLOAD)?.as_str());
            view.options.prebuilt_workload = label.filter(|name| !name.is_empty()).map(Arc::from);
        }
    }
}

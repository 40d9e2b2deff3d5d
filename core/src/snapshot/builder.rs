//! Builds the next snapshot from the parts of the last one.
//!
//! Invariant: a part is rebuilt only if it is out of date. Publishing copies nothing while nothing changes.

use super::{QueueFacts, QueueView, References, Snapshot};
use crate::api::{ObjectKey, OwnerRecord};
use crate::cache::{Kind, OwnerEntry};
use crate::frameworks::{
    Claim, Framework, JobKind, JobView, OwnPlace, OwnerRef, PodIdentity, PodSetRequests, PodSetSize,
    PodSetView, SizedChild, framework, groups_of,
};
use crate::history::HistoryStats;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The last snapshot, with marks on the parts that are out of date.
#[derive(Clone, Debug, Default)]
pub(crate) struct SnapshotBuilder {
    current: Snapshot,
    references_stale: bool,
    queues_updated_at: Option<Timestamp>,
    /// When the stale view of the queues may be rebuilt; `None` if it is current.
    queues_due: Option<Timestamp>,
    drift_checked_at: Option<Timestamp>,
}

impl SnapshotBuilder {
    /// Returns the snapshot as of the last update.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.current.clone()
    }

    /// Sets whether this replica leads, and which lists are complete.
    pub(crate) fn set_readiness(&mut self, leading: bool, synced: bool, reviews_synced: bool) {
        self.current.leading = leading;
        self.current.synced = synced;
        self.current.reviews_synced = reviews_synced;
    }

    pub(crate) fn mark_references_stale(&mut self) {
        self.references_stale = true;
    }

    pub(crate) fn are_references_stale(&self) -> bool {
        self.references_stale
    }

    /// Sets the objects that reviews look up, and the facts about the objects of queues.
    pub(crate) fn set_references(&mut self, references: References, facts: QueueFacts) {
        self.references_stale = false;
        self.current.references = Arc::new(references);
        self.current.facts = Arc::new(facts);
    }

    /// Returns whether the view of the queues was set at least `interval` ago, or never.
    pub(crate) fn are_queues_due(&self, interval: SignedDuration, now: Timestamp) -> bool {
        is_due(self.queues_updated_at, interval, now)
    }

    /// Records that something has changed since the view of the queues was set. It may be set again after `interval`.
    pub(crate) fn postpone_queues(&mut self, interval: SignedDuration) {
        self.queues_due = self.queues_updated_at.and_then(|at| at.checked_add(interval).ok());
    }

    /// Returns when the view of the queues is to be set again; `None` if it is current.
    pub(crate) const fn queues_due(&self) -> Option<Timestamp> {
        self.queues_due
    }

    pub(crate) fn set_queues(&mut self, queues: QueueView, now: Timestamp) {
        self.queues_updated_at = Some(now);
        self.queues_due = None;
        self.current.queues = Arc::new(queues);
    }

    pub(crate) fn set_unread_kinds(&mut self, kinds: &BTreeSet<Kind>) {
        self.current.unread_kinds = Arc::new(kinds.clone());
    }

    pub(crate) fn set_history(&mut self, stats: HistoryStats) {
        if *self.current.history != stats {
            self.current.history = Arc::new(stats);
        }
    }

    /// Returns whether ledger drift was counted at least `interval` ago, or never.
    pub(crate) fn is_drift_check_due(&self, interval: SignedDuration, now: Timestamp) -> bool {
        is_due(self.drift_checked_at, interval, now)
    }

    pub(crate) fn set_ledger_drift(&mut self, drift: usize, now: Timestamp) {
        self.drift_checked_at = Some(now);
        self.current.ledger_drift = drift;
    }

    /// Adds or updates a job as a possible owner of other jobs. `submitter` is the account that is recorded in it for its pods.
    pub(crate) fn set_job(&mut self, kind: JobKind, view: &JobView, submitter: Option<Arc<str>>) {
        let charged = charges_for_children(kind, view).then_some(&view.pod_sets);
        let size = |set: &PodSetView| -> PodSetSize { (Arc::clone(&set.name), set.count) };
        let requests = |set: &PodSetView| -> PodSetRequests { (Arc::clone(&set.name), set.requests.clone()) };
        let entry = OwnerEntry {
            uid: view.uid.clone(),
            queue_name: view.queue_name.clone(),
            place: OwnPlace::Nowhere,
            controller: view.controller.clone(),
            deleting: view.deleting,
            pod_sets: charged.map(|sets| sets.iter().map(size).collect()),
            pod_requests: charged.map(|sets| sets.iter().map(requests).collect()),
            pod_identity: view.options.pod_identity.clone(),
            submitter,
        };
        let id = (Kind::of_job(kind), view.key.clone());
        self.set_child(&id, kind, Some(view));
        let shares =
            view.controller.as_ref().filter(|above| kind.shares_pods_of_owner(view) && makes_jobs(above));
        let groups = shares.map(|controller| (controller, groups_of(view)));
        self.current.families.shared_pods.set(&id, groups);
        self.set_owner(&id, Some(&Arc::new(entry)));
    }

    /// Removes a job that was deleted.
    pub(crate) fn remove_job(&mut self, kind: JobKind, view: &JobView) {
        let id = (Kind::of_job(kind), view.key.clone());
        self.set_child(&id, kind, None);
        self.current.families.shared_pods.set(&id, None);
        self.set_owner(&id, None);
    }

    /// Adds, updates or removes a job as one of several below a controller. Its entry among the owners names its former
    /// controller.
    fn set_child(&mut self, (stored, key): &(Kind, ObjectKey), kind: JobKind, view: Option<&JobView>) {
        if !kind.hooks.is_sized_apart_from_owner() {
            return;
        }
        let id = |controller: &OwnerRef| (controller.uid.clone(), key.clone(), *stored);
        let former = self.current.owners.get(&(*stored, key.clone()));
        if let Some(former) = former.and_then(|entry| entry.controller.as_ref()).map(id) {
            self.current.families.children.remove_mut(&former);
        }
        let claim = |view: &JobView| {
            let marks = view.options.child;
            match (marks.waits_for_room, view.suspended) {
                (true, _) => Some(Claim::Waits),
                (false, false) => Some(Claim::Runs),
                // Its pods may still run, and the manager will resume it.
                (false, true) => marks.stopped_below.then_some(Claim::Resumes),
            }
        };
        let Some(view) = view else { return };
        if let Some((controller, claim)) = view.controller.as_ref().zip(claim(view)) {
            self.current.families.children.insert_mut(id(controller), Arc::new(SizedChild::of(view, claim)));
        }
    }

    /// Adds, updates or removes an object as a possible owner of others.
    pub(crate) fn set_owner(&mut self, id: &(Kind, ObjectKey), entry: Option<&Arc<OwnerEntry>>) {
        let known = self.current.owners.get(id);
        match entry {
            Some(entry) if known.is_none_or(|known| known != entry) => {
                self.current.owners.insert_mut(id.clone(), Arc::clone(entry));
            }
            None if known.is_some() => drop(self.current.owners.remove_mut(id)),
            _ => {}
        }
    }

    /// Adds or removes an object of an external framework: it is included while it owns a Workload.
    pub(crate) fn set_external_owner(&mut self, namespace: &Arc<str>, owner: &OwnerRecord, place: OwnPlace) {
        let key = ObjectKey { namespace: namespace.clone(), name: owner.name.clone() };
        let id = (owner.group().to_owned(), owner.kind.to_string(), key);
        if place != OwnPlace::Nowhere {
            let uid = owner.uid.clone();
            let entry = OwnerEntry {
                uid,
                queue_name: None,
                place,
                controller: None,
                deleting: false,
                pod_sets: None,
                pod_requests: None,
                pod_identity: PodIdentity::Unknown,
                submitter: None,
            };
            self.current.families.external_owners.insert_mut(id, Arc::new(entry));
        } else if self.current.families.external_owners.get(&id).is_some_and(|known| known.uid == owner.uid) {
            self.current.families.external_owners.remove_mut(&id);
        }
    }
}

fn makes_jobs(controller: &OwnerRef) -> bool {
    framework(controller.group(), &controller.kind).is_some_and(Framework::makes_jobs)
}

/// Returns whether the pod sets of a job bound the size of the jobs below it, which may be made larger: it makes jobs, does not
/// grow with them, and its pod sets are known.
fn charges_for_children(kind: JobKind, view: &JobView) -> bool {
    let built_in = kind.fields.managed_by.map(|field| field.built_in);
    let ours = view.managed_by.as_deref().is_none_or(|by| Some(by) == built_in) && !view.options.skipped;
    let known = view.options.slice.is_none() && view.related.waits_for.is_none();
    ours && known && kind.makes_jobs()
}

fn is_due(last: Option<Timestamp>, interval: SignedDuration, now: Timestamp) -> bool {
    last.is_none_or(|at| now.duration_since(at) >= interval)
}

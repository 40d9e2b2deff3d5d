//! Units whose owner is queued in their place.
//!
//! Invariant: owner references are checked here as well as in the webhook, because a Job may be created while no
//! webhook answers. With an invalid reference the Job is queued by itself.

use super::comparison::grants_match_job;
use super::kept_children::is_kept;
use super::siblings::{change_of, charged_sets};
use super::units::{Units, is_managed_by_other_controller};
use super::{LoadedUnit, UnitStep};
use crate::api::reason::ConditionType;
use crate::api::{ObjectKey, OwnerRecord};
use crate::cache::records::{PodSetRecord, WorkloadRecord};
use crate::cache::{Kind, OwnerEntry};
use crate::frameworks::{
    Above, ActionWrite, AncestryError, Change, End, FoundOwner, Framework, JobKind, JobView, OwnPlace,
    OwnerLookup, OwnerRef, PodSetRequests, PodSetView, REPLICA_SET, Role, Searched, Stop, StopScope, UnitKey,
    excess_of_pod, framework, groups_of, search_above, spec_requests,
};
use crate::lifecycle::conditions;
use crate::reconciler::work_queue::ReconcileKey;
use crate::resources::format_quantity;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

impl<'a> Units<'a> {
    /// Returns the ancestor of a job that is queued in place of the job, at any depth.
    pub(crate) fn ancestor_of(self, kind: JobKind, view: &JobView) -> Option<OwnerRef> {
        self.highest_above(kind, view).filter(|ancestor| !self.lacks_room(kind, view, ancestor))
    }

    /// Returns the ancestor of a job that is queued in place of the job, even if it has no capacity for the job.
    pub(super) fn highest_above(self, kind: JobKind, view: &JobView) -> Option<OwnerRef> {
        self.above(kind, view).ok()?.queued()
    }

    /// Returns the Workload on which the children of an ancestor run; `None` if it does not exist, or the children wait for quota
    /// pod by pod.
    pub(super) fn shared_workload(
        self,
        namespace: &str,
        ancestor: &OwnerRef,
    ) -> Option<&'a Arc<WorkloadRecord>> {
        let workload = self.workload_of_ancestor(namespace, ancestor)?;
        workload.record.filter(|_| !workload.elastic)
    }

    /// Returns why no ancestor of a job can be found: its owner references form a cycle or are too deep. It is then queued by itself.
    pub(super) fn ancestry_fault(self, kind: JobKind, view: &JobView) -> Option<AncestryError> {
        self.above(kind, view).err()
    }

    /// Returns the steps of the objects below an object that has appeared, was deleted, or has another controller or queue:
    /// another object may now be queued in their place.
    pub(crate) fn steps_below(self, uid: &str) -> Vec<ReconcileKey> {
        let below = self.cache.below(uid);
        let pods: BTreeSet<&UnitKey> =
            below.uids.iter().flat_map(|uid| self.cache.units_controlled_by(uid)).collect();
        let pods = pods.into_iter().cloned().map(ReconcileKey::Unit);
        self.steps_of_jobs(below.jobs).into_iter().chain(pods).collect()
    }

    fn above(self, kind: JobKind, view: &JobView) -> Result<Above, AncestryError> {
        if is_managed_by_other_controller(kind, view) {
            return Ok(Above::Nothing(End::Top));
        }
        let object = Searched {
            kind: (kind.gvk.group, kind.gvk.kind),
            uid: &view.uid,
            names_queue: view.queue_name.is_some(),
            controller: view.controller.as_ref(),
        };
        self.above_object(&view.key.namespace, object)
    }

    /// Returns the queued ancestors of an object in a namespace.
    ///
    /// # Errors
    /// The owner references are cyclic or too deep.
    pub(crate) fn above_object(self, namespace: &str, object: Searched<'_>) -> Result<Above, AncestryError> {
        search_above(object, &self.settings.managed(), |owner| self.look_up(namespace, owner))
    }

    fn look_up(self, namespace: &str, owner: &OwnerRef) -> OwnerLookup {
        if self.settings.is_external(owner.group(), &owner.kind) {
            return self.look_up_external(namespace, owner);
        }
        let id = (owner.group(), owner.kind.as_str());
        let row = framework(id.0, id.1).map(JobKind::new);
        let replica_set = (id == REPLICA_SET).then_some(Kind::ReplicaSet);
        let Some(kind) = row.map(Kind::of_job).or(replica_set) else { return OwnerLookup::Unread };
        let key = ObjectKey::new(namespace, &owner.name);
        if let Some((row, job)) = row.and_then(|row| Some((row, self.cache.job(&(row, key.clone()))?))) {
            return OwnerLookup::Found(FoundOwner {
                uid: job.uid.to_string(),
                names_queue: job.queue_name.is_some(),
                place: self.place_of_job(row, job),
                controller: job.controller.clone(),
            });
        }
        let Some(entry) = self.cache.link(&(kind, key)) else {
            let unread = self.cache.unread_kinds().contains(&kind);
            return if unread { OwnerLookup::Unread } else { OwnerLookup::Missing };
        };
        OwnerLookup::Found(FoundOwner {
            uid: entry.uid.to_string(),
            names_queue: entry.queue_name.is_some(),
            place: self.place_of_link(kind, namespace, entry),
            controller: entry.controller.clone(),
        })
    }

    /// Returns the place in a queue of an object that is not stored as a job: a pod, or a job that cannot be decoded.
    fn place_of_link(self, kind: Kind, namespace: &str, entry: &OwnerEntry) -> OwnPlace {
        let asks = |unnamed: bool| {
            let named = entry.queue_name.is_some();
            (named || (unnamed && self.settings.manage_jobs_without_queue_name))
                && self.manages_namespace(namespace)
        };
        let queued = match kind {
            Kind::Pod => entry.place == OwnPlace::Queued || asks(false),
            Kind::Job(row) => self.settings.manages_kind(row) && row.role != Role::PassThrough && asks(true),
            _ => false,
        };
        if queued { OwnPlace::Queued } else { OwnPlace::Nowhere }
    }

    /// Returns whether a job that cannot be decoded is in a queue, or below an object that is.
    pub(crate) fn is_queued_unread(self, kind: JobKind, namespace: &str, entry: &OwnerEntry) -> bool {
        let object = Searched {
            kind: (kind.gvk.group, kind.gvk.kind),
            uid: &entry.uid,
            names_queue: entry.queue_name.is_some(),
            controller: entry.controller.as_ref(),
        };
        let above = || self.above_object(namespace, object).map(Above::queued);
        self.place_of_link(Kind::of_job(kind), namespace, entry) != OwnPlace::Nowhere
            || entry.queue_name.is_some()
            || above().is_ok_and(|owner| owner.is_some())
    }

    /// Returns the place of a job in a queue. A job whose queue label was removed keeps its place until its Workload has ended.
    fn place_of_job(self, kind: JobKind, job: &JobView) -> OwnPlace {
        let has_open_workload = || {
            let workload = self.latest_workload_of(&job.key.namespace, &job.uid);
            workload.is_some_and(|record| !has_finished(record))
        };
        let managed = || {
            self.manages_job(kind, job) || (!is_managed_by_other_controller(kind, job) && has_open_workload())
        };
        if kind.role != Role::PassThrough && managed() { OwnPlace::Queued } else { OwnPlace::Nowhere }
    }

    /// Looks up an external owner by the Workloads that it owns in the same namespace.
    fn look_up_external(self, namespace: &str, owner: &OwnerRef) -> OwnerLookup {
        let workload = self.latest_workload_of(namespace, &owner.uid).filter(|record| {
            record.owner.as_ref().is_some_and(|actual| {
                (actual.group(), &*actual.kind, &*actual.name)
                    == (owner.group(), owner.kind.as_str(), owner.name.as_str())
            })
        });
        let Some(record) = workload else { return OwnerLookup::Unread };
        OwnerLookup::Found(FoundOwner {
            uid: owner.uid.clone(),
            names_queue: false,
            place: place_by_workload(record),
            controller: None,
        })
    }

    /// Returns the place of an external object in a queue, by the Workloads that it owns.
    pub(crate) fn place_of_external(self, namespace: &str, owner: &OwnerRecord) -> OwnPlace {
        let workload = self.latest_workload_of(namespace, &owner.uid);
        workload.map_or(OwnPlace::Nowhere, |record| place_by_workload(record))
    }

    /// Returns the Workload of an object that counts among several: the latest that has not finished, or else the latest.
    fn latest_workload_of(self, namespace: &str, uid: &str) -> Option<&'a Arc<WorkloadRecord>> {
        let records = self.cache.workloads_owned_by(uid).iter().filter_map(|key| self.cache.workload(key));
        let own = records.filter(|record| *record.meta.key.namespace == *namespace);
        own.max_by_key(|record| (!has_finished(record), record.meta.created, &record.meta.key))
    }

    /// Returns whether an object below an ancestor may run: the Workload of the ancestor is admitted.
    pub(super) fn may_run_below(self, child: &JobView, ancestor: &OwnerRef) -> bool {
        let workload = self.workload_of_ancestor(&child.key.namespace, ancestor);
        workload.is_some_and(|workload| workload.lets_run(child))
    }

    /// Returns the same for an object below a unit that is queued in its place.
    pub(super) fn lets_run(self, parent: &LoadedUnit<'_>, child: &JobView) -> bool {
        self.workload_for_children(parent).lets_run(child)
    }

    /// Returns the Workload on which the children of an owner run: the Workload itself if it exists, or the key under which
    /// it is expected.
    fn workload_of_ancestor(self, namespace: &str, ancestor: &OwnerRef) -> Option<ExpectedWorkload<'a>> {
        let uid = ancestor.uid.as_str();
        let job = self.cache.job_id(uid).filter(|(kind, _)| !kind.has_replicas());
        let unit = job.map(|(kind, key)| UnitKey::of_object(*kind, key.clone()));
        let is_pod = framework(ancestor.group(), &ancestor.kind).is_some_and(Framework::is_pod);
        let of_pod = || self.cache.unit_of_pod(&ObjectKey::new(namespace, &ancestor.name)).cloned();
        let unit = unit.or_else(|| is_pod.then(of_pod).flatten());
        let Some(parent) = unit.and_then(|unit| self.load(&unit)) else {
            let record = self.latest_workload_of(namespace, uid)?;
            let key = record.meta.key.clone();
            return Some(ExpectedWorkload { key, record: Some(record), elastic: false, fits: true });
        };
        Some(self.workload_for_children(&parent))
    }

    /// Returns the Workload of a unit as that on which its children run.
    fn workload_for_children(self, parent: &LoadedUnit<'_>) -> ExpectedWorkload<'a> {
        let record = self.workload_of(parent);
        let elastic = parent.view.options.slice.is_some();
        let key = record.map_or_else(|| parent.workload.clone(), |record| record.meta.key.clone());
        let fits = record.is_some_and(|record| self.runs_on(parent, record));
        ExpectedWorkload { key, record, elastic, fits }
    }

    /// Returns whether a job is started, by no other Workload than this one, and requests what it grants. Any other job must be
    /// stopped, or is not started yet.
    fn runs_on(self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> bool {
        unit.owner.is_none_or(|owner| {
            !owner.suspended
                && grants_match_job(record, owner)
                && self.former_workload(unit, Some(&record.meta.key)).is_none()
        })
    }
}

/// Returns the place in a queue of an object without a queue label, by its Workload that counts.
fn place_by_workload(record: &WorkloadRecord) -> OwnPlace {
    if has_finished(record) { OwnPlace::Over } else { OwnPlace::Queued }
}

pub(super) fn has_finished(record: &WorkloadRecord) -> bool {
    conditions::is_true(&record.status, ConditionType::Finished)
}

/// Returns by which requests the pods of a child exceed its pod sets in a Workload, for messages.
pub(super) fn larger_pods_of(kind: JobKind, view: &JobView, record: &WorkloadRecord) -> Option<String> {
    let groups = groups_of(view);
    let mut sets = view.pod_sets.iter().zip(&groups).filter(|(set, _)| set.count > 0);
    sets.find_map(|(set, group)| larger_pods(set, kind.pod_set_above(group), record))
}

/// Returns by which requests a pod of a child exceeds the pods of a Workload, for messages: the pods of the pod set with this
/// name, or of any pod set if there is none.
fn larger_pods(set: &PodSetView, pod_set: Option<&str>, record: &WorkloadRecord) -> Option<String> {
    let is_named = |asked: &PodSetRecord| pod_set.is_none_or(|name| *name == *asked.name);
    let same = |asked: &PodSetRecord| asked.template_fingerprint.same_requests(&set.fingerprint);
    if record.pod_sets().iter().any(|asked| is_named(asked) && same(asked)) {
        return None;
    }
    let charged = |asked: &PodSetRecord| -> PodSetRequests {
        (Arc::clone(&asked.name), Some(Arc::new(spec_requests(&asked.spec))))
    };
    let charged: Vec<PodSetRequests> = record.pod_sets().iter().map(charged).collect();
    let (resource, has, asked) = excess_of_pod(pod_set, set.requests.as_deref()?, &charged)?;
    let text = |amount| format_quantity(resource, amount);
    Some(format!(
        "Each pod of {} requests {} of {resource}, and Workload {} is charged for {}: suspend it, and change that back",
        set.name,
        text(has),
        record.meta.key,
        text(asked)
    ))
}

/// A Workload that exists or is expected.
struct ExpectedWorkload<'a> {
    key: ObjectKey,
    record: Option<&'a Arc<WorkloadRecord>>,
    /// Whether its job is elastic.
    elastic: bool,
    /// Whether its job runs, as the Workload grants it.
    fits: bool,
}

impl ExpectedWorkload<'_> {
    fn is_elastic(&self, child: &JobView) -> bool {
        child.options.slice.is_some() || self.elastic
    }

    /// Returns whether a child may run. If its operator does not stop it with the job above it, it must not outlast that job.
    fn lets_run(&self, child: &JobView) -> bool {
        // The gates hold the pods of an elastic job until they have quota.
        let gated = self.is_elastic(child);
        let runs = |record: &WorkloadRecord| record.may_run() && (gated || self.fits || !is_kept(child));
        self.record.is_some_and(|record| runs(record) || (gated && record.may_wait_gated()))
    }
}

impl UnitStep<'_> {
    /// Suspends a child that runs while the Workload of its ancestor is not admitted, unless the operator above it is about to
    /// suspend it.
    pub(super) fn suspend_child_unless_admitted(&mut self, unit: &LoadedUnit<'_>, ancestor: &OwnerRef) {
        let workload = self.units.workload_of_ancestor(&unit.view.key.namespace, ancestor);
        let elastic = workload.as_ref().is_some_and(|workload| workload.is_elastic(&unit.view));
        let admitted = workload.as_ref().is_some_and(|workload| workload.lets_run(&unit.view));
        if admitted && unit.view.options.child.waits_for_room {
            return self.let_run_with_siblings(unit);
        }
        if admitted || unit.view.suspended {
            if admitted {
                self.resume_kept_child(unit);
                self.report_uncharged_child(unit, ancestor);
            }
            if let Some(record) = workload.and_then(|w| w.record).filter(|_| !elastic) {
                self.report_larger_child(unit, record);
            }
            return self.writes.running_children.remove(&unit.view.uid);
        }
        if let Some(until) = self.left_to_operator_until(unit) {
            return self.work_queue.add_at(unit.reconcile_key(), until);
        }
        if workload.is_some_and(|workload| !self.is_confirmed(unit, &workload.key)) {
            return;
        }
        let stop = Stop { reason: "", message: "", scope: StopScope::Running, originals: &[], now: "" };
        let actions = if is_kept(&unit.view) {
            vec![change_of(Change::Stop, ActionWrite::Patch(unit.key.kind.stop_below_patch()))]
        } else {
            unit.rules.stop(&unit.objects(), &stop)
        };
        self.perform(unit, actions, "Suspended", "Kueue managed child job suspended");
        self.writes.running_children.remove(&unit.view.uid);
    }

    /// Warns that a child has more or larger pods than the Workload that it runs on is charged for: it was changed while no
    /// webhook answered.
    fn report_larger_child(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        if unit.view.suspended || unit.view.status.finished.is_some() {
            return;
        }
        let (kind, groups) = (unit.key.kind, groups_of(&unit.view));
        let charged = charged_sets(record);
        let alone = kind.excess_group(&groups, &charged).map(|excess| (excess, ""));
        let excess = alone.or_else(|| {
            let others = self.units.groups_beside(&unit.view);
            let excess = kind.excess_group_beside(&groups, &others, &charged)?;
            Some((excess, " beside those of the others below its controller"))
        });
        let excess = excess.and_then(|(excess, beside)| {
            Some((unit.view.pod_sets.get(excess.index)?, excess.allowed, beside))
        });
        if let Some((set, allowed, beside)) = excess {
            let note = format!(
                "It has {} pods of {}, and Workload {} is charged for {allowed}{beside}: scale it back",
                set.count, set.name, record.meta.key
            );
            return self.report(unit, "PodExceedsWorkload", &note);
        }
        if let Some(note) = larger_pods_of(kind, &unit.view, record) {
            self.report(unit, "PodExceedsWorkload", &note);
        }
    }

    /// Returns how long a child that must stop is left to the operator that made it, because an object above it was suspended or
    /// is about to be.
    fn left_to_operator_until(&mut self, unit: &LoadedUnit<'_>) -> Option<Timestamp> {
        let controller = unit.view.controller.as_ref()?;
        framework(controller.group(), &controller.kind).filter(|row| row.flags.resumes_children)?;
        let above = self.units.cache.controllers_of_job(&unit.view);
        let above_runs = above.iter().any(|(_, view)| !view.suspended);
        self.writes.running_children.left_until(&unit.view.uid, above_runs, self.now)
    }
}

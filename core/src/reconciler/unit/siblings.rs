//! Objects below one controller that together have more pods than the job above them is charged for, such as the second cluster
//! of a RayService during an upgrade.
//!
//! Invariants: objects that run on the quota of the job keep running; an object without capacity beside them is held back, is
//! queued by itself, and reports its requests on its controller. Once there is capacity for it, it releases its own quota and
//! runs on the quota of the job. An annotation distinguishes it from an object that its controller or its user has suspended.

use super::ancestors::{has_finished, larger_pods_of};
use super::kept_children::is_kept;
use super::units::Units;
use super::{LoadedUnit, UnitStep, event};
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{
    Action, ActionWrite, Change, ChildGroup, Claim, Found, Framework, JobKind, JobView, OwnerRef, PodSetSize,
    RelatedKey, SizedChild, Target, UnitKey, framework, groups_of, has_room,
};
use crate::lifecycle::conditions;
use crate::reconciler::messages::EventType;
use crate::reconciler::work_queue::ReconcileKey;
use std::sync::Arc;

/// Maximum number of objects below a controller whose pods are added up after a change of one of them, so that the cost of
/// changes does not grow with the square of their number. If the sum of some is too large, the sum of all is.
const MOST_ADDED: usize = 100;

/// Returns the pod sets for which a Workload is charged.
pub(super) fn charged_sets(record: &WorkloadRecord) -> Vec<PodSetSize> {
    record.pod_sets().iter().map(|set| (Arc::clone(&set.name), set.count)).collect()
}

impl<'a> Units<'a> {
    /// Returns the objects of a kind below the controller of one of them, with itself.
    fn siblings(self, kind: JobKind, view: &JobView) -> impl Iterator<Item = &'a Arc<JobView>> {
        let controller = view.controller.as_ref().filter(|_| kind.hooks.is_sized_apart_from_owner());
        let ids =
            controller.into_iter().flat_map(|controller| self.cache.jobs_controlled_by(&controller.uid));
        let namespace = view.key.namespace.clone();
        let same = ids.filter(move |(other, key)| *other == kind && key.namespace == namespace);
        same.filter_map(|id| self.cache.job(id))
    }

    /// Returns whether a job has a Workload of its own that has not finished.
    fn has_own_workload(self, view: &JobView) -> bool {
        let owned = self.cache.workloads_owned_by(&view.uid).iter();
        owned.filter_map(|key| self.cache.workload(key)).any(|record| !has_finished(record))
    }

    /// Returns the pods of the objects beside this one that share the size of the job above them; of many objects, only of some.
    pub(super) fn groups_beside(self, view: &JobView) -> Vec<ChildGroup> {
        let controller = view.controller.iter();
        let ids = controller.flat_map(|controller| self.cache.jobs_controlled_by(&controller.uid));
        let others = ids.take(MOST_ADDED).filter_map(|id| Some((id.0, self.cache.job(id)?)));
        let shares = |(kind, other): &(JobKind, &Arc<JobView>)| {
            other.uid != view.uid
                && other.key.namespace == view.key.namespace
                && kind.shares_pods_of_owner(other)
                && !self.has_own_workload(other)
        };
        others.filter(shares).flat_map(|(_, other)| groups_of(other)).collect()
    }

    /// Returns the request of an object for the quota of the job above it; `None` if its controller or its user has suspended it.
    fn claim(self, kind: JobKind, view: &JobView) -> Option<Claim> {
        if view.options.child.waits_for_room || self.has_own_workload(view) {
            return Some(Claim::Waits);
        }
        if view.suspended {
            self.is_to_resume(kind, view).then_some(Claim::Resumes)
        } else {
            Some(Claim::Runs)
        }
    }

    /// Returns whether an object has no capacity on the quota of the job that is queued in its place. An object that ran when the
    /// manager started keeps running.
    pub(super) fn lacks_room(self, kind: JobKind, view: &JobView, ancestor: &OwnerRef) -> bool {
        self.exceeds_with_siblings(kind, view, ancestor) && !self.was_found_running(kind, view)
    }

    fn was_found_running(self, kind: JobKind, view: &JobView) -> bool {
        view.related.since_start.found_at_start && self.claim(kind, view) == Some(Claim::Runs)
    }

    fn exceeds_with_siblings(self, kind: JobKind, view: &JobView, ancestor: &OwnerRef) -> bool {
        let (id, sized) = ((kind.gvk.group, kind.gvk.kind), kind.hooks.is_sized_apart_from_owner());
        let makes = |owner: &&OwnerRef| self.settings.managed().creates(owner, id);
        let controller = view.controller.as_ref().filter(|owner| sized && !view.deleting && makes(owner));
        let Some((controller, claim)) = controller.zip(self.claim(kind, view)) else { return false };
        let Some(record) = self.shared_workload(&view.key.namespace, ancestor) else { return false };
        if is_kept(view) && !self.may_run_below(view, ancestor) {
            // Each of them is stopped then: an object with quota of its own would keep running, or resume before the one that
            // serves.
            return false;
        }
        let charged = charged_sets(record);
        let is_larger = |view: &JobView| {
            kind.excess_group(&groups_of(view), &charged).is_some()
                || larger_pods_of(kind, view, record).is_some()
        };
        let outgrows = |view: &JobView| {
            let is_fixed = if view.suspended {
                self.stays_as_it_is(kind, view)
            } else {
                is_kept(view) && view.options.child.waits_for_room
            };
            is_fixed && is_larger(view)
        };
        if outgrows(view) {
            // It is queued with its own size; another one may run on the quota of the job.
            return true;
        }
        let own = SizedChild::of(view, claim);
        let others = self.siblings(kind, view).filter(|other| !outgrows(other));
        let others = others.filter_map(|other| Some((other, self.claim(kind, other)?)));
        let mut before: Vec<SizedChild> = others.map(|(other, claim)| SizedChild::of(other, claim)).collect();
        before.retain(|other| other.uid != own.uid && *other < own);
        before.sort();
        // The pods of a deleted object keep its place until they have ended.
        let is_left = || self.cache.has_running_pods(&record.meta.key, &controller.uid);
        if before.is_empty() && self.has_own_workload(view) && is_left() {
            return true;
        }
        !has_room(&groups_of(view), &before, &charged)
    }

    /// Returns the steps of the siblings of an object that has appeared, changed or was deleted: their capacity depends on it.
    pub(crate) fn steps_of_siblings(self, kind: JobKind, view: &JobView) -> Vec<ReconcileKey> {
        let others = self.siblings(kind, view).filter(|other| other.uid != view.uid);
        others.map(|other| ReconcileKey::Unit(UnitKey::of_object(kind, other.key.clone()))).collect()
    }

    /// Returns the units below a job that wait for the end of pods on its quota.
    pub(super) fn children_that_wait(self, unit: &UnitKey) -> Vec<UnitKey> {
        let job = self.cache.job(&(unit.kind, unit.key.clone()));
        let below = job.into_iter().flat_map(|job| self.cache.jobs_waiting_for_room(&job.uid));
        below.map(|(kind, key)| UnitKey::of_object(*kind, key.clone())).collect()
    }
}

impl UnitStep<'_> {
    /// Holds back an object without capacity beside its siblings, until it has quota of its own. Returns whether nothing else
    /// must be done for it.
    pub(super) fn wait_beside_siblings(&mut self, unit: &LoadedUnit<'_>) -> bool {
        let kind = unit.key.kind;
        let Some(owner) = unit.owner.filter(|_| kind.hooks.is_sized_apart_from_owner()) else { return false };
        let Some(above) = self.units.highest_above(kind, owner) else { return false };
        if !self.units.lacks_room(kind, owner, &above) {
            return false;
        }
        let is_managed = self.units.manages_job(kind, owner);
        let record = self.units.workload_of(unit).filter(|_| is_managed);
        let may_run = record.is_some_and(|record| record.may_run());
        if !owner.options.child.waits_for_room || (!is_managed && !owner.suspended) {
            let patch = kind.room_patch(true, owner.suspended || !may_run);
            let change = if owner.suspended || may_run { Change::None } else { Change::Stop };
            let note =
                format!("It has no room beside what runs on the quota of {} {}", above.kind, above.name);
            self.perform(unit, vec![change_of(change, ActionWrite::Patch(patch))], "Suspended", &note);
            return true;
        }
        // Its queue may admit it immediately.
        let is_refused =
            record.is_some_and(|record| conditions::is_false(&record.status, ConditionType::QuotaReserved));
        if is_refused || !is_managed {
            self.report_on_controller(unit, "ChildWaits", "waits for quota beside what runs; it requests");
        }
        !is_managed
    }

    /// Resumes an object that had no capacity beside its siblings, and has it now.
    pub(super) fn let_run_with_siblings(&mut self, unit: &LoadedUnit<'_>) {
        let (kind, view) = (unit.key.kind, &unit.view);
        // A copy from the time when the job waited lacks the additions of the job's start.
        let is_outdated = view.suspended && is_kept(view) && view.lacks_marks(&kind);
        let patch = if is_outdated { kind.copy_again_patch() } else { kind.room_patch(false, false) };
        let write = ActionWrite::Patch(patch);
        let change = if view.suspended { Change::Start } else { Change::None };
        self.perform(
            unit,
            vec![change_of(change, write)],
            "Started",
            "It runs on the quota of the job above it",
        );
    }

    /// Reports on the controller of a child that was found running that it runs without quota.
    pub(super) fn report_uncharged_child(&mut self, unit: &LoadedUnit<'_>, ancestor: &OwnerRef) {
        let units = self.units;
        if units.was_found_running(unit.key.kind, &unit.view)
            && units.exceeds_with_siblings(unit.key.kind, &unit.view, ancestor)
        {
            let what = "was found running beside what its quota is for, and runs on; not charged";
            self.report_on_controller(unit, "ChargedTooLittle", what);
        }
    }

    /// Reports on an elastic job that its second child waits for the quota with which the job must grow.
    pub(super) fn report_next_child(&mut self, unit: &LoadedUnit<'_>) {
        let beside = self.units.cache.beside_jobs();
        let Some((next, row)) = next_child(&unit.view) else { return };
        let Found::Object(child) = beside.related.find(next) else { return };
        let (kind, requests) = (row.gvk, row.requested_text(child, beside));
        let text = format!(
            "{} {} waits for quota beside what runs; it requests: {requests}",
            kind.kind, next.key.name
        );
        self.report(unit, "ChildWaits", &text);
    }

    /// Reports on a job that its second child runs without quota, because its kind is not managed: it has no step that could hold
    /// it back.
    pub(super) fn report_unmanaged_child(&mut self, unit: &LoadedUnit<'_>) {
        let units = self.units;
        let next = next_child(&unit.view);
        let Some((next, row)) = next.filter(|(_, row)| !units.settings.manages_kind(JobKind::new(row)))
        else {
            return;
        };
        let beside = units.cache.beside_jobs();
        let Found::Object(child) = beside.related.find(next) else { return };
        let is_suspended = row
            .fields
            .suspend
            .and_then(|field| child.pointer(field))
            .is_some_and(|suspend| suspend.as_bool() == Some(true));
        let is_deleting = child.pointer("/metadata/deletionTimestamp").is_some();
        if is_suspended || is_deleting {
            return;
        }
        let note = format!(
            "{} {} runs beside the first one and is not charged: with {} in integrations.frameworks it would wait for quota; it requests: \
             {}",
            row.gvk.kind,
            next.key.name,
            row.name,
            row.requested_text(child, beside),
        );
        self.report(unit, "ChargedTooLittle", &note);
    }

    /// Emits a warning on the controller of a unit, with the problem of the unit and the requests of its pods. It is made once
    /// for each unit: the requests may have to be read.
    fn report_on_controller(&mut self, unit: &LoadedUnit<'_>, reason: &str, what: &str) {
        let Some((kind, above)) = self.units.cache.controllers_of_job(&unit.view).into_iter().next() else {
            return;
        };
        let subject = (Kind::of_job(unit.key.kind), &unit.view.key);
        let text = format!("{} {} {what}", unit.key.kind.gvk.kind, unit.view.key.name);
        if self.warnings.is_last(subject.0, subject.1, &text) {
            return;
        }
        let Some(sources) = self.sources(unit) else { return };
        let Some(job) = sources.owner else { return };
        let requests = unit.key.kind.requested_text(job, sources.beside);
        self.warnings.record(subject.0, subject.1, &text);
        let (kind, note) = (Kind::of_job(kind), format!("{text}: {requests}"));
        self.writes.emit(event((kind, &above.key, &above.uid), EventType::Warning, reason, &note));
    }
}

pub(super) fn change_of(change: Change, write: ActionWrite) -> Action {
    Action { target: Target::Owner, write, change }
}

/// Returns the child of a job that is made to replace the one that serves, with the row of its kind.
fn next_child(view: &JobView) -> Option<(&RelatedKey, &'static Framework)> {
    let next = view.related.next_child()?;
    Some((next, framework(next.kind.gvk.group, next.kind.gvk.kind)?))
}

//! Objects below a job whose operator neither suspends them with the job nor resumes them, such as the RayClusters of a RayService.
//!
//! Invariants: one that its user has suspended stays so. An annotation tells one that the manager has suspended; one that was copied
//! from a suspended job lacks what the start of the job has added to its pod templates. The operator compares what it has made with the
//! job, and would make another one in place of one that differs: while pods run below a job, the job itself is left as it is, and what
//! is to run again is copied again in place. It starts only then, so that its pods run where the job has quota.

use super::siblings::change_of;
use super::units::Units;
use super::{LoadedUnit, UnitStep};
use crate::cache::Kind;
use crate::frameworks::{ActionWrite, Change, JobView, OwnerRef, framework};

/// Returns whether an object is a copy of its controller by an operator that leaves it suspended when the controller runs again.
pub(super) fn is_kept(view: &JobView) -> bool {
    let controller = view.controller.as_ref().filter(|_| view.options.child.is_copy);
    let row = controller.and_then(|controller| framework(controller.group(), &controller.kind));
    row.is_some_and(|row| row.hooks.keeps_suspended_children())
}

impl Units<'_> {
    /// Returns whether a job that must stop has to wait for the end of pods below it, whose objects are being suspended.
    pub(super) fn waits_for_kept_children(self, unit: &LoadedUnit<'_>) -> bool {
        let keeps = unit.key.kind.hooks.keeps_suspended_children();
        let Some(owner) = unit.owner.filter(|_| keeps) else { return false };
        let record = self.workload_of(unit);
        // Those of an elastic job run on, and their pods wait for quota one by one.
        let runs_on = |view: &JobView| {
            let elastic = owner.options.slice.is_some() || view.options.slice.is_some();
            record.is_some_and(|record| record.may_run() || (elastic && record.may_wait_gated()))
        };
        let ends = |view: &JobView| {
            view.status.active_pods > 0
                && view.key.namespace == owner.key.namespace
                && !self.has_own_workload(view)
                && !runs_on(view)
        };
        let mut below = self.cache.jobs_controlled_by(&owner.uid).filter_map(|id| self.cache.job(id));
        below.any(|view| is_kept(view) && ends(view))
    }
}

impl UnitStep<'_> {
    /// Lets a suspended object run again that is below a job which runs. An upgrade goes on with the object that serves as it is: its
    /// operator does not change that meanwhile.
    pub(super) fn resume_kept_child(&mut self, unit: &LoadedUnit<'_>, ancestor: &OwnerRef) {
        let (kind, units) = (unit.key.kind, self.units);
        let Some(owner) = unit.owner.filter(|owner| owner.suspended && !owner.deleting && is_kept(owner))
        else {
            return;
        };
        let was_copied_suspended = owner.lacks_marks(&kind);
        if !owner.options.child.stopped_below && !was_copied_suspended {
            return;
        }
        // Before the job itself runs, the operator would copy that it is suspended.
        let above = units.cache.controllers_of_job(owner).into_iter().next();
        let Some((_, above)) = above.filter(|(_, above)| !above.suspended && !above.deleting) else { return };
        let named = &above.related.reads;
        let Some(place) = named.iter().position(|named| named.key == owner.key) else { return };
        let first = named.first().filter(|_| place > 0).map(|first| (kind, first.key.clone()));
        let first = first.and_then(|first| units.cache.job(&first));
        if first.is_some_and(|first| first.suspended && first.options.child.stopped_below) {
            // The one that serves comes first; that it runs gives this one a step.
            return;
        }
        if units.would_exceed(kind, owner, ancestor) {
            return self.report_on_controller(
                unit,
                "ChildWaits",
                "waits for quota beside what runs; it requests",
            );
        }
        let (id, item) = ((Kind::of_job(kind), owner.key.clone()), unit.reconcile_key());
        if !self.writes.may_write(id.0, &id.1, self.now) {
            return self.writes.retry_after_backoff((id.0, &id.1), item, self.work_queue, self.now);
        }
        if let Some(until) = self.writes.restored_marks.waits_until(&id, 0, self.now) {
            return self.work_queue.add_at(item, until);
        }
        self.writes.restored_marks.record(&id, None, self.now);
        let is_upgraded = place == 0 && named.len() > 1;
        let patch = kind.resume_below_patch(is_upgraded && !was_copied_suspended);
        let actions = vec![change_of(Change::Start, ActionWrite::Patch(patch))];
        self.perform(unit, actions, "Started", "It runs on the quota of the job above it");
    }
}

//! Objects below a job whose operator neither suspends them with the job nor resumes them, such as the RayClusters of a RayService.
//!
//! Handling of such an object (a child) by the state of the job above it and of that job's Workload. An elastic job is an
//! exception: its children run as soon as its Workload may get quota, and their pods wait one by one.
//!
//! | the job | its Workload | a child that runs | a child that is suspended |
//! |---|---|---|---|
//! | runs | admitted, for the job as it is | runs | is resumed, or waits for capacity beside the children before it |
//! | runs | admitted, for something else, or of an earlier start | is stopped, and the job after it | stays |
//! | runs | none, waits, evicted, has finished or ends | is stopped, and the job after it | stays |
//! | suspended | admitted | is stopped; then the job is started | stays until the job runs |
//! | suspended | any other | is stopped | stays |
//!
//! A child with quota of its own, or one that waits for quota, gives that up where the table says that it is stopped or stays: it
//! waits for capacity again when the job runs.
//!
//! Invariants: the operator compares its objects with the job, and would make another object in place of one that differs: while
//! pods run below a job, the manager does not suspend the job. Children stop and resume by the same test (`may_run_below`), so
//! that a job never waits for a child that nothing stops. An annotation marks a child that the manager has suspended, or that was
//! made suspended below a suspended job; a child without it counts as such a copy if it lacks the additions of the job's start to
//! its pod templates. Any other suspended child was suspended by its user, and stays so. Running children keep running; of the
//! others the one that was created first is resumed first, because it serves. A child that serves, is no longer changed, and is
//! larger than the job by now is queued with its own size. A child that must run again is first copied again in place, and starts
//! only then, so that its pods run where the job has quota.

use super::siblings::change_of;
use super::units::Units;
use super::{LoadedUnit, UnitStep};
use crate::cache::{JobId, Kind};
use crate::frameworks::{ActionWrite, Change, JobKind, JobView, UnitKey, framework};
use std::sync::Arc;

/// Returns whether an object is a copy of its controller by an operator that leaves it suspended when the controller runs again.
pub(super) fn is_kept(view: &JobView) -> bool {
    view.options.child.is_copy && is_below_keeper(view)
}

fn is_below_keeper(view: &JobView) -> bool {
    let controller = view.controller.as_ref();
    let row = controller.and_then(|controller| framework(controller.group(), &controller.kind));
    row.is_some_and(|row| row.hooks.keeps_suspended_children())
}

impl Units<'_> {
    /// Returns the units below a job that must stop whose pods end before the job is suspended.
    pub(super) fn kept_children_that_end(self, unit: &LoadedUnit<'_>) -> Vec<UnitKey> {
        let keeps = unit.key.kind.hooks.keeps_suspended_children();
        let Some(owner) = unit.owner.filter(|_| keeps) else { return Vec::new() };
        // A child that runs without its Workload ends, too; nothing stops an object that is not known to be below the job.
        let ends = |kind: JobKind, view: &JobView| {
            let runs = (!view.suspended && !view.deleting) || view.status.active_pods > 0;
            runs && is_kept(view)
                && view.key.namespace == owner.key.namespace
                && !self.lets_run(unit, view)
                && self.highest_above(kind, view).is_some()
        };
        let has_pods = |id: &&JobId| self.cache.job(id).is_some_and(|view| ends(id.0, view));
        let below = self.cache.jobs_controlled_by(&owner.uid).filter(has_pods);
        below.map(|(kind, key)| UnitKey::of_object(*kind, key.clone())).collect()
    }

    /// Returns whether a suspended object must run again with the job above it: the manager has suspended it, it was copied from
    /// the suspended job, or it waits to be copied again.
    pub(super) fn is_to_resume(self, kind: JobKind, view: &JobView) -> bool {
        let marks = view.options.child;
        let was_stopped = marks.stopped_below || !marks.is_copy || view.lacks_marks(&kind);
        view.suspended && !view.deleting && was_stopped && self.place_below(view).is_some()
    }

    /// Returns whether an object would run again unchanged: it serves while another one is made to replace it, and its operator
    /// does not change it meanwhile.
    pub(super) fn stays_as_it_is(self, kind: JobKind, view: &JobView) -> bool {
        let serves =
            || self.place_below(view).filter(|(above, place)| *place == 0 && above.related.reads.len() > 1);
        is_kept(view) && !view.lacks_marks(&kind) && serves().is_some()
    }

    /// Returns the job above an object that the job's operator leaves as it is, and the place of the object among the objects in
    /// the status of the job; `None` if the status does not name it.
    fn place_below(self, view: &JobView) -> Option<(Arc<JobView>, usize)> {
        let above = self.cache.controllers_of_job(view).into_iter().next().filter(|_| is_below_keeper(view));
        let (_, above) = above?;
        let place = above.related.reads.iter().position(|named| named.key == view.key)?;
        Some((above, place))
    }
}

impl UnitStep<'_> {
    /// Resumes a suspended object below a running job, if there is capacity for it. An upgrade continues with the unchanged
    /// object that serves: its operator does not change it meanwhile.
    pub(super) fn resume_kept_child(&mut self, unit: &LoadedUnit<'_>) {
        let (kind, units) = (unit.key.kind, self.units);
        let Some(owner) = unit.owner.filter(|owner| is_kept(owner) && units.is_to_resume(kind, owner)) else {
            return;
        };
        // Before the job itself runs, the operator would copy its suspended state.
        let above = units.place_below(owner).filter(|(above, _)| !above.suspended && !above.deleting);
        let Some((above, place)) = above else { return };
        let named = &above.related.reads;
        let first = named.first().filter(|_| place > 0).map(|first| (kind, first.key.clone()));
        let first = first.and_then(|first| units.cache.job(&first)).filter(|first| first.suspended);
        if first.is_some_and(|first| first.options.child.stopped_below && !first.options.child.waits_for_room)
        {
            // The child that serves comes first; its start gives this one a step.
            return;
        }
        let (id, item) = ((Kind::of_job(kind), owner.key.clone()), unit.reconcile_key());
        if !self.writes.may_write(id.0, &id.1, self.now) {
            return self.writes.retry_after_backoff((id.0, &id.1), item, self.work_queue, self.now);
        }
        if let Some(until) = self.writes.restored_marks.waits_until(&id, 0, self.now) {
            return self.work_queue.add_at(item, until);
        }
        self.writes.restored_marks.record(&id, None, self.now);
        let as_it_is = units.stays_as_it_is(kind, owner);
        let patch = if as_it_is { kind.room_patch(false, false) } else { kind.copy_again_patch() };
        let actions = vec![change_of(Change::Start, ActionWrite::Patch(patch))];
        self.perform(unit, actions, "Started", "It runs on the quota of the job above it");
    }
}

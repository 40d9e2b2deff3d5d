//! The step of a unit: the next writes of its objects and of its Workload's spec.

use super::comparison::{grants_match_job, is_charged_as_before};
use super::run::{StopCause, awaits_admission};
use super::units::{ended_with_its_job, owns, starting_workload};
use super::{LoadedUnit, UnitStep};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{Awaited, ComposeError, JobHold, JobView, Role, UnitStatus, next_workload_key};
use crate::lifecycle::{backoff, conditions, reservation};
use crate::reconciler::nodes::blocked_pods;
use jiff::SignedDuration;
use std::sync::Arc;

/// Delay before the next step of a unit whose Workload cannot be decoded: its deletion gives the unit no step.
const UNREADABLE_RECHECK: SignedDuration = SignedDuration::from_secs(10);

impl UnitStep<'_> {
    /// Sends the next writes of the unit and of its Workload's spec.
    pub(super) fn take(&mut self, unit: &LoadedUnit<'_>) {
        let above = self.units.above_unit(unit);
        if unit.owner.is_none() && above.is_none() && !self.units.manages_pods(unit) {
            return;
        }
        if self.has_unreadable_workload(unit) || (above.is_none() && self.wait_beside_siblings(unit)) {
            return;
        }
        if let Some(above) = above.filter(|_| unit.key.kind.role != Role::PodsOfOwner)
            && (self.give_up_workload(unit, &above) || self.follow_with_pods(unit, &above))
        {
            return;
        }
        self.wake_after_grace(unit);
        self.release_in_deleted_namespace(unit);
        if let Some(awaited) = &unit.view.related.waits_for {
            return self.step_awaiting(unit, awaited);
        }
        if unit.key.kind.role == Role::PodsOfOwner {
            return self.step_set(unit);
        }
        if let Some((owner, slices)) = unit.owner.zip(self.units.slices_of(unit)) {
            return self.step_slices(unit, owner, &slices);
        }
        match self.units.workload_of(unit) {
            Some(record) => self.step_with_workload(unit, record),
            None => self.step_without_workload(unit),
        }
    }

    /// Returns whether the Workload of a unit, or the one that started it, exists and cannot be decoded: it may be admitted, so
    /// the unit is neither stopped nor started, and gets a step later.
    fn has_unreadable_workload(&mut self, unit: &LoadedUnit<'_>) -> bool {
        let namespace = &unit.workload.namespace;
        let key = |name: &str| ObjectKey { namespace: namespace.clone(), name: Arc::from(name) };
        let started_by = unit.owner.and_then(starting_workload).map(key);
        let next = unit.owner.map(|owner| next_workload_key(&unit.key.kind, owner, ""));
        let mut keys = started_by.iter().chain(&next).chain([&unit.workload]);
        let unreadable = keys.any(|key| self.units.cache.unreadable().problem(Kind::Workload, key).is_some());
        if unreadable {
            self.work_queue.add_at(unit.reconcile_key(), backoff::after(self.now, UNREADABLE_RECHECK));
        }
        unreadable
    }

    /// Takes the step of a unit whose pod sets are not known yet: it does not run without an admitted Workload, and is otherwise
    /// left as it is.
    fn step_awaiting(&mut self, unit: &LoadedUnit<'_>, awaited: &Awaited) {
        let record = self.units.workload_of(unit);
        if unit.view.deleting || unit.status(self.now).finished.is_some() {
            return;
        }
        let (suspended, patches) = (unit.view.suspended, unit.view.options.patches.as_ref());
        if record.is_none_or(|record| record.meta.is_deleting())
            || (suspended && patches.is_some() && awaited.problem.is_some())
        {
            let error = ComposeError::Awaits(Box::new(awaited.clone()));
            self.report(unit, "ErrWorkloadCompose", &error.to_string());
        }
        if record.is_some_and(|record| record.may_run()) {
            return;
        }
        let started = patches.is_some_and(|patches| patches.are_written());
        if (!suspended || started) && self.units.manages_job(unit.key.kind, &unit.view) {
            let cause = record.map_or_else(
                || StopCause::missing_workload(unit),
                |record| StopCause::of_workload(unit, record),
            );
            self.stop_with(unit, &unit.workload, &[], &cause);
        }
    }

    fn step_with_workload(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        if unit.owner.is_none() {
            self.report_blocked_pods(unit, record);
        }
        let owned = unit.key.is_pod_group() || owns(unit, record);
        // The garbage collector removes the references to an owner that is deleted without its dependents. The label then names
        // the owner whose Workload ends; without it, the quota would not be released.
        let left = |owner: &JobView| owner.deleting && record.job_uid.as_ref() == Some(&owner.uid);
        let takes = |owner: &&JobView| !owned && !record.meta.is_deleting() && !left(owner);
        if let Some(owner) = unit.owner.filter(takes) {
            self.own(unit, owner, record);
        }
        if unit.owner.is_some() && unit.view.deleting || self.delete_expired_owner(unit, record) {
            return;
        }
        if !unit.members.is_empty() && self.release_ended_members(unit, record) {
            return;
        }
        let status = unit.status(self.now);
        if status.finished.is_some() || self.leave_former_workload(unit, Some(&record.meta.key)) {
            // The Workload is about to finish, or waits for the pods of another one.
            return;
        }
        self.delete_followed_workload(unit, record);
        let membership = self.units.membership(unit, record);
        self.apply_membership(unit, record, &membership);
        if unit.view.deleting {
            return;
        }
        if is_on_hold(unit, record) {
            return;
        }
        if !membership.matches {
            let stops = self.stop(unit, record, &StopCause::no_matching_workload(unit));
            if !stops && !self.has_pods(unit, &record.meta.key) && !self.rewrite_pod_sets(unit, record) {
                self.replace_workload(unit, record);
            }
            return;
        }
        if record.may_run() && unit.owner.is_none_or(|owner| grants_match_job(record, owner)) {
            let restarted = unit.owner.is_none() && takes_back(record, &status);
            if status.suspended && owned && !restarted {
                self.start(unit, record, &membership.waiting);
            }
            if unit.owner.is_none() || !status.suspended {
                // One of the two reports is enough: each would repeat the other.
                if !self.report_low_charge(unit, record) {
                    self.report_unmanaged_child(unit);
                }
                self.restore_marks(unit, record);
                self.sync_priority_of_running_unit(unit, record);
            }
            return;
        }
        self.hold(unit, record, owned);
    }

    /// Reports what keeps pods of an admitted unit from running. The pods of a job are no members of it.
    fn report_blocked_pods(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        let members = unit.members().filter(|_| unit.summary.blocked > 0);
        let blocked = members.filter_map(|member| Some((&*member.key.name, member.blocker.as_ref()?)));
        blocked_pods::report(record, blocked, self.warnings, self.writes);
    }

    /// Reports that a job runs with more than the charge of its Workload, which an earlier version of the manager made. Returns
    /// whether it does.
    fn report_low_charge(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> bool {
        let Some(found) =
            unit.view.related.since_start.found.as_ref().filter(|found| !found.uncharged.is_empty())
        else {
            return false;
        };
        let is_low = is_charged_as_before(record, &unit.view);
        if is_low {
            let note = format!(
                "Workload {}, which an earlier version made, is charged too little for it; not charged: {}. The queue may be \
                 above its quota by as much until the {} is started again or changes its size",
                record.meta.key,
                found.uncharged_text(),
                unit.key.kind.gvk.kind,
            );
            self.report(unit, "ChargedTooLittle", &note);
        }
        is_low
    }

    /// Ends pods whose Workload has finished or is being deleted, and releases their finalizers. Returns whether it has or is.
    fn release_ended_members(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> bool {
        if record.meta.is_deleting() {
            let scope = self.units.scope_of_stop(unit, record);
            self.stop(unit, record, &StopCause::deleted_workload(scope));
            self.release_members(unit, |member| member.state.deleting);
            return true;
        }
        let finished = conditions::is_true(&record.status, ConditionType::Finished);
        if finished {
            // Another client may have written the status: pods must not keep running without quota.
            self.stop(unit, record, &StopCause::of_workload(unit, record));
            self.release_members(unit, |member| !member.may_run());
        }
        finished
    }

    /// Stops a unit that may not run, or not in its present form, and keeps its Workload in agreement with it.
    fn hold(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord, owned: bool) {
        let status = unit.status(self.now);
        let reserved = reservation::holds_quota(&record.status);
        let finished = conditions::is_true(&record.status, ConditionType::Finished);
        let released = record.meta.is_deleting() && !reserved && !finished;
        if unit.owner.is_some() && status.suspended && released && !self.has_pods(unit, &record.meta.key) {
            return self.follow(unit, record);
        }
        let returned = unit.owner.is_some() && ended_with_its_job(record);
        let stops =
            unit.owner.is_none() || !status.suspended || (reserved && !awaits_admission(record)) || returned;
        if stops {
            let cause = if returned { StopCause::returned() } else { StopCause::of_workload(unit, record) };
            let any = self.stop(unit, record, &cause);
            if unit.owner.is_some() {
                let replaced = record.may_run() || returned;
                if !any && replaced && !self.has_pods(unit, &record.meta.key) {
                    // It is admitted, but not for the job as it is now, or for an ended run. The quota is needed as long as there
                    // are pods.
                    self.replace_workload(unit, record);
                }
                return;
            }
        }
        if !finished && !record.meta.is_deleting() && owned {
            self.report_check_messages(unit, record);
            self.sync_workload(unit, record);
        }
    }
}

/// Returns whether members take the places of members that had succeeded and are no longer charged.
fn takes_back(record: &WorkloadRecord, status: &UnitStatus) -> bool {
    let ended = |name: &str| status.reclaimable_pods.iter().find(|(known, _)| **known == *name);
    let mut reported = record.status.reclaimable_pods.iter();
    reported.any(|pods| ended(&pods.name).map_or(0, |(_, count)| *count) < pods.count)
}

/// Returns whether a unit stays as it is because its controller keeps it from running. It stops with its Workload all the same.
pub(super) fn is_on_hold(unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> bool {
    unit.view.status.hold == JobHold::Held && !record.meta.is_deleting()
}

//! Starts and stops the objects that a unit holds back.

use super::comparison::pod_sets_to_restore;
use super::{LoadedUnit, UnitStep};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{Change, OUT_OF_SYNC, OwnerRef, PodMember, PodSetInfo, Role, Stop, StopScope, Unit};
use crate::lifecycle::{conditions, reservation};
use crate::reconciler::work_queue::ReconcileKey;
use crate::reconciler::writes::in_flight::Writes;
use crate::reconciler::writes::request::WriteRequest;
use std::sync::Arc;

/// Why a unit without an admitted Workload stops.
pub(super) struct StopCause {
    /// Reason of the condition of pods that are deleted.
    reason: String,
    /// Text of the condition, and of the event.
    message: String,
    scope: StopScope,
}

impl StopCause {
    fn new(reason: &str, message: &str) -> Self {
        Self { reason: reason.to_owned(), message: message.to_owned(), scope: StopScope::Running }
    }

    /// There is no Workload.
    pub(super) fn missing_workload(unit: &LoadedUnit<'_>) -> Self {
        let restores = unit.owner.is_some();
        let message =
            if restores { "Missing Workload; unable to restore pod templates" } else { "Missing Workload" };
        Self::new("NoMatchingWorkload", message)
    }

    /// The unit requests something else than its Workload. The pods of a group keep the reason until a Workload that is not
    /// replaced has finished: after they have ended, the remaining ones could seem to fit.
    pub(super) fn no_matching_workload(unit: &LoadedUnit<'_>) -> Self {
        let prebuilt = unit.key.is_pod_group() && unit.view.options.prebuilt_workload.is_some();
        if prebuilt && unit.members().all(|member| !member.serves()) {
            return Self::new(OUT_OF_SYNC, "The pods of the group do not match the Workload that they name");
        }
        let restores = unit.owner.is_some();
        let message = if restores {
            "No matching Workload; restoring pod templates according to existent Workload"
        } else {
            "No matching Workload"
        };
        Self::new("NoMatchingWorkload", message)
    }

    /// The Workload is being deleted.
    pub(super) fn deleted_workload(scope: StopScope) -> Self {
        Self { scope, ..Self::new("WorkloadDeleted", "The workload is deleted") }
    }

    /// The job runs again after its end, which its Workload has recorded.
    pub(super) fn returned() -> Self {
        Self::new("NotAdmitted", "It runs again after it has finished, and is queued again")
    }

    /// Another Workload than the present one started the unit.
    pub(super) fn former_workload(key: &ObjectKey) -> Self {
        let message = format!("The job has another Workload than {key}, which started it");
        Self::new("NoMatchingWorkload", &message)
    }

    /// Another object is queued in its place, and may not run.
    pub(super) fn taken_over(above: &OwnerRef) -> Self {
        let message = format!("{} {} is queued in its place, and not admitted", above.kind, above.name);
        Self::new("NotAdmitted", &message)
    }

    /// The members name a Workload of other pods as their group.
    pub(super) fn foreign_members(message: &str) -> Self {
        Self::new("NoMatchingWorkload", message)
    }

    /// Returns why a Workload does not let its unit run.
    pub(super) fn of_workload(unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> Self {
        let holds =
            |kind| conditions::find(&record.status, kind).filter(|condition| condition.status == "True");
        if let Some(finished) = holds(ConditionType::Finished) {
            // The unit has not finished: another client wrote it, or the manager did, because the unit cannot be run.
            let message = format!("Workload {} has finished: {}", record.meta.key, finished.message);
            return Self::new("NotAdmitted", &message);
        }
        if let Some(evicted) = holds(ConditionType::Evicted) {
            return Self::new(&format!("WorkloadEvictedDueTo{}", evicted.reason), &evicted.message);
        }
        if record.may_run() {
            return Self::no_matching_workload(unit);
        }
        Self::new("NotAdmitted", "Not admitted by cluster queue")
    }
}

impl UnitStep<'_> {
    /// Starts the held objects with the grant of the admission, without surplus members, which wait.
    pub(super) fn start(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord, waiting: &[ObjectKey]) {
        // While the pods of an earlier start still end, new ones beside them would exceed the grant.
        if unit.key.kind.role == Role::Suspended && self.has_pods(unit, &record.meta.key) {
            return;
        }
        let oversized = self.oversized_members(unit, record);
        let mut idle = idle_members(unit, waiting, self.writes);
        idle.retain(|member| !oversized.contains(&member.key));
        let objects = Unit { members: &idle, ..unit.objects() };
        // A start that contradicts a template finishes the Workload; its lifecycle reports the error.
        let Ok(actions) = self.units.start_actions(unit, &objects, record) else { return };
        if actions.is_empty() || !self.is_confirmed(unit, &record.meta.key) {
            return;
        }
        let queue = record.status.admission.as_ref().map(|a| a.cluster_queue.as_str()).unwrap_or_default();
        let note = format!("Admitted by clusterQueue {queue}");
        self.perform_by(unit, actions, ("Started", &note), Some(record));
    }

    /// Restores the additions of the start to the pod templates of a running job, if another client has removed them: new pods
    /// would run on any node. Repeated removals lead to a back-off.
    pub(super) fn restore_marks(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        let Some((owner, patch)) = unit.owner.zip(self.units.marks_patch(unit, record)) else { return };
        let (kind, item) = (Kind::of_job(unit.key.kind), unit.reconcile_key());
        let id = (kind, owner.key.clone());
        if owner.deleting || !self.is_confirmed(unit, &record.meta.key) {
            return;
        }
        if !self.writes.may_write(kind, &owner.key, self.now) {
            return self.writes.retry_after_backoff((kind, &owner.key), item, self.work_queue, self.now);
        }
        if let Some(until) = self.writes.restored_marks.waits_until(&id, 0, self.now) {
            return self.work_queue.add_at(item, until);
        }
        let mut effects = vec![unit.event(
            "MarksRestored",
            &format!("Put back what the start by Workload {} adds to the pod templates", record.meta.key),
        )];
        if self.writes.restored_marks.record(&id, None, self.now) {
            let note = "What a start adds to the pod templates is removed again and again, such as by a tool that applies the \
                        manifest: it is put back with back-off, and pods that are made meanwhile may run on any node";
            if self.warnings.record(kind, &owner.key, note) {
                effects.push(unit.warning("MarksRemovedRepeatedly", note));
            }
        }
        let request = WriteRequest::of_patch(kind, owner.key.clone(), &patch, &owner.resource_version);
        self.send(unit, request.with_effects(effects));
    }

    /// Returns whether pods of a unit may run; pods outside the counts of its status name this Workload.
    pub(super) fn has_pods(&self, unit: &LoadedUnit<'_>, workload: &ObjectKey) -> bool {
        self.units.has_pods(unit, workload, &unit.status(self.now))
    }

    /// Stops the objects that must not run because of the state of a Workload, and undoes its start. Returns whether there is
    /// anything to do.
    pub(super) fn stop(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord, cause: &StopCause) -> bool {
        let originals = pod_sets_to_restore(record, &unit.view);
        self.stop_with(unit, &record.meta.key, &originals, cause)
    }

    /// Like [`Self::stop`], with the key of the Workload and the pod sets to restore.
    pub(super) fn stop_with(
        &mut self,
        unit: &LoadedUnit<'_>,
        workload: &ObjectKey,
        originals: &[PodSetInfo],
        cause: &StopCause,
    ) -> bool {
        let StopCause { reason, message, scope } = cause;
        let now = self.now.to_string();
        let stop = Stop { reason, message, scope: *scope, originals, now: &now };
        let actions = unit.rules.stop(&unit.objects(), &stop);
        let any = !actions.is_empty();
        let stops = actions.iter().any(|action| action.change == Change::Stop);
        let ending = if stops { self.units.kept_children_that_end(unit) } else { Vec::new() };
        if ending.is_empty() && (!stops || self.is_confirmed(unit, workload)) {
            self.report_ungated(unit, &actions);
            self.perform(unit, actions, "Stopped", message);
        }
        self.work_queue.add_all(ending.into_iter().map(ReconcileKey::Unit));
        any
    }

    /// Stops a unit whose pods run on the quota of another Workload than its present one, and undoes the start by that other
    /// Workload. Returns whether the unit must wait for it.
    pub(super) fn leave_former_workload(&mut self, unit: &LoadedUnit<'_>, used: Option<&ObjectKey>) -> bool {
        let Some(former) = self.units.former_workload(unit, used) else { return false };
        let cause = StopCause::former_workload(&former.meta.key);
        self.stop(unit, former, &cause) || self.has_pods(unit, &former.meta.key)
    }
}

/// Returns the members that may be started and have no write in flight. The others are started or stopped already: their next
/// step follows from the object after the write. A surplus member waits. No member is started while one that became surplus may
/// have been started before.
pub(super) fn idle_members(
    unit: &LoadedUnit<'_>,
    waiting: &[ObjectKey],
    writes: &Writes,
) -> Vec<Arc<PodMember>> {
    if waiting.iter().any(|key| writes.is_in_flight(Kind::Pod, key)) {
        return Vec::new();
    }
    let idle = |member: &&Arc<PodMember>| {
        !writes.is_in_flight(Kind::Pod, &member.key) && !waiting.contains(&member.key)
    };
    unit.members.iter().filter(idle).cloned().collect()
}

/// Returns whether a Workload holds quota and only its admission is missing.
pub(super) fn awaits_admission(record: &WorkloadRecord) -> bool {
    reservation::holds_quota(&record.status)
        && !conditions::is_true(&record.status, ConditionType::Evicted)
        && !conditions::is_true(&record.status, ConditionType::Admitted)
        && !record.meta.is_deleting()
}

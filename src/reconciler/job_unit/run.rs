//! Starting and stopping the pods of a unit.

use super::Unit;
use super::writes::Announce;
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{Action, JobUnit, POD_RULES, PodMember, StopReason};
use crate::lifecycle::conditions;
use crate::reconciler::Reconciler;
use crate::reconciler::writes::in_flight::Writes;
use jiff::Timestamp;
use std::sync::Arc;

/// Returns why running pods stop. Pods that wait or have ended stay.
pub(super) const fn stop_reason<'a>(reason: &'a str, message: &'a str, now: &'a str) -> StopReason<'a> {
    StopReason { reason, message, workload_deleted: false, now }
}

impl Reconciler {
    /// Starts the pods that are held back, with what the admission grants.
    pub(super) fn start_members(&mut self, unit: Unit<'_>, record: &WorkloadRecord, now: Timestamp) {
        // A start that contradicts a pod finishes the Workload; its lifecycle reports the error.
        let Ok(Some(infos)) = self.job_lookup().granted_pod_set_infos(record) else { return };
        let idle = idle_members(&self.writes, &unit.pods);
        let Ok(actions) = POD_RULES.start(&JobUnit { members: &idle, ..unit.pods }, &infos) else { return };
        if actions.is_empty()
            || !self.writes.is_confirmed(&record.meta.key, unit.reconcile_key(), &mut self.work_queue, now)
        {
            return;
        }
        let queue = record.status.admission.as_ref().map(|a| a.cluster_queue.as_str()).unwrap_or_default();
        let note = format!("Admitted by clusterQueue {queue}");
        self.write_members(unit, actions, Announce::Patches("Started", &note), now);
    }

    /// Stops the pods of a Workload that may not run.
    pub(super) fn stop_unit(&mut self, unit: Unit<'_>, record: &WorkloadRecord, now: Timestamp) {
        let evicted = conditions::find(&record.status, ConditionType::Evicted).filter(|c| c.status == "True");
        let time = now.to_string();
        let evicted = evicted.map(|c| (format!("WorkloadEvictedDueTo{}", c.reason), c.message.as_str()));
        let reason = match &evicted {
            Some((reason, message)) => stop_reason(reason, message, &time),
            None => stop_reason("NotAdmitted", "Not admitted by cluster queue", &time),
        };
        self.stop_members(unit, &record.meta.key, &reason, now);
    }

    /// Deletes the pods that must stop because of what a Workload says. Returns whether there are any.
    pub(super) fn stop_members(
        &mut self,
        unit: Unit<'_>,
        workload: &ObjectKey,
        reason: &StopReason<'_>,
        now: Timestamp,
    ) -> bool {
        let actions = POD_RULES.stop(&unit.pods, reason);
        let any = !actions.is_empty();
        if any && !self.writes.is_confirmed(workload, unit.reconcile_key(), &mut self.work_queue, now) {
            return true;
        }
        self.write_members(unit, actions, Announce::Deletions("Stopped", reason.message), now);
        any
    }

    /// Removes pods that are not needed, with an event on each.
    pub(super) fn remove_members(&mut self, unit: Unit<'_>, actions: Vec<Action>, now: Timestamp) {
        self.write_members(unit, actions, Announce::Deletions("ExcessPodDeleted", "Excess pod deleted"), now);
    }

    /// Removes the finalizers of some pods.
    pub(super) fn release_members(
        &mut self,
        unit: Unit<'_>,
        which: impl Fn(&PodMember) -> bool,
        now: Timestamp,
    ) {
        let released = unit.members().filter(|member| which(member));
        let actions = released.filter_map(|member| POD_RULES.release(member)).collect();
        self.write_members(unit, actions, Announce::Nothing, now);
    }
}

/// Returns the members of which no write is in flight. The others are started or stopped already: what they need next
/// follows from the object after the write.
pub(super) fn idle_members(writes: &Writes, pods: &JobUnit<'_>) -> Vec<Arc<PodMember>> {
    let idle = |member: &&Arc<PodMember>| !writes.is_in_flight(Kind::Pod, &member.key);
    pods.members.iter().filter(idle).cloned().collect()
}

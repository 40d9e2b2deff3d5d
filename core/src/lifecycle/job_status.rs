//! What a job says about its pods, copied to the status of its Workload: readiness, pods that are no longer needed, and pods
//! that are missing.

use super::eviction::{self, EvictionCause};
use super::facts::{Facts, Hold, JobFacts, LifecycleSettings, RestartedPods, Transition, WorkloadOwner};
use super::workload::Draft;
use super::{backoff, conditions, pods_ready, reservation};
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::v1beta2::{ReclaimablePod, WorkloadStatus};
use jiff::SignedDuration;

/// How often pods that wait until there is quota for them again ask for it.
const RESTARTED_RECHECK: SignedDuration = SignedDuration::from_secs(5);

impl JobFacts {
    /// Returns whether the job runs pods again that its Workload reports as reclaimable.
    pub fn takes_back(&self, known: &[ReclaimablePod]) -> bool {
        known.iter().any(|pods| self.reclaimable_of(&pods.name) < pods.count)
    }

    /// Returns the number of pods of a pod set that will not run again.
    pub fn reclaimable_of(&self, name: &str) -> i32 {
        self.reclaimable.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
    }

    /// Returns whether a Workload reports exactly the reclaimable pods of its job.
    fn has_reclaimable(&self, known: &[ReclaimablePod]) -> bool {
        known.len() == self.reclaimable.len()
            && known.iter().all(|pods| self.reclaimable.contains(&(pods.name.clone(), pods.count)))
    }
}

impl WorkloadOwner {
    /// Returns whether a Workload without quota reports other reclaimable pods than its job: the job was changed since, or
    /// another client wrote them. Its request is unknown until they are written; admitted before, it would be charged for
    /// fewer pods than run.
    pub fn has_outdated_reclaimable(&self, status: &WorkloadStatus) -> bool {
        matches!(self, Self::Job(job) if !job.has_reclaimable(&status.reclaimable_pods))
    }
}

impl Draft<'_> {
    /// Copies PodsReady and reclaimable pods from the job, so that they are part of the same write as other changes.
    pub(super) fn observe_job(&mut self, facts: &Facts<'_>, settings: &LifecycleSettings) {
        let WorkloadOwner::Job(job) = &facts.owner else { return };
        if !reservation::holds_quota(&self.status) {
            self.observe_reclaimable_of_waiting(job);
            return;
        }
        if !conditions::is_true(&self.status, ConditionType::Admitted)
            || conditions::is_true(&self.status, ConditionType::Evicted)
        {
            return;
        }
        let known = conditions::find(&self.status, ConditionType::PodsReady).is_some();
        if settings.pods_ready.is_some() && (facts.owner.has_pods() || known) {
            let before = conditions::is_true(&self.status, ConditionType::PodsReady);
            let window = pods_ready::completion_window(&self.status, job.readiness, self.now);
            if let Some(end) = window {
                self.wake_at(end);
            }
            let ready = window.is_some() || job.readiness == pods_ready::Readiness::Ready;
            pods_ready::observe(&mut self.status, ready, self.input.generation, self.now);
            let started = conditions::reason(&self.status, ConditionType::PodsReady) == "Started";
            if !before && started {
                self.transitions.push(Transition::PodsReady);
            }
        }
        self.observe_reclaimable(job, facts);
    }

    /// Takes over how many pods of an admitted job will not run again. Their number grows; what the job takes back, because its pods
    /// run again, is charged again if there is quota for it. A job whose number changes to and fro is followed less and less often.
    fn observe_reclaimable(&mut self, job: &JobFacts, facts: &Facts<'_>) {
        if facts.restarted == RestartedPods::Fit {
            return self.observe_reclaimable_of_waiting(job);
        }
        let grows = |known: &[ReclaimablePod]| {
            let known = |name: &str| known.iter().find(|pods| pods.name == name).map_or(0, |pods| pods.count);
            job.reclaimable.iter().any(|(name, count)| *count > known(name))
        };
        if let Some(from) = facts.reclaims_from.filter(|from| *from > self.now) {
            if grows(&self.status.reclaimable_pods) {
                self.wake_at(from);
            }
            return;
        }
        for (name, count) in &job.reclaimable {
            match self.status.reclaimable_pods.iter_mut().find(|r| &r.name == name) {
                Some(entry) => entry.count = entry.count.max(*count),
                None => {
                    self.status.reclaimable_pods.push(ReclaimablePod { name: name.clone(), count: *count });
                }
            }
        }
    }

    /// Evicts a job that runs pods again whose quota others have got: no other workload is preempted for it. Pods that can wait, do.
    /// Returns whether it is evicted.
    pub(super) fn stop_restarted(&mut self, facts: &Facts<'_>) -> bool {
        match &facts.restarted {
            RestartedPods::Exceed(message) => {
                self.evict(EvictionCause::new(eviction::PODS_RESTARTED, message.clone()));
                true
            }
            RestartedPods::Wait => {
                self.wake_at(backoff::after(self.now, RESTARTED_RECHECK));
                false
            }
            RestartedPods::None | RestartedPods::Fit => false,
        }
    }

    /// Copies the reclaimable pods of a job that waits for quota: it asks only for what can still run. Their number may become
    /// smaller, if the job was changed.
    fn observe_reclaimable_of_waiting(&mut self, job: &JobFacts) {
        if !job.has_reclaimable(&self.status.reclaimable_pods) {
            let pods = job.reclaimable.iter();
            self.status.reclaimable_pods =
                pods.map(|(name, count)| ReclaimablePod { name: name.clone(), count: *count }).collect();
        }
    }

    /// Releases the quota of a job that is on hold, when its pods have ended. Returns whether it is on hold: what runs is on its way
    /// out, and is not evicted.
    pub(super) fn apply_hold(&mut self, facts: &Facts<'_>) -> bool {
        let WorkloadOwner::Job(JobFacts { hold: Hold::Held(message), stopped, .. }) = &facts.owner else {
            return false;
        };
        if *stopped {
            let generation = self.input.generation;
            reservation::unreserve(&mut self.status, PendingReason::OnHold, message, generation, self.now);
            self.transitions.push(Transition::Pending(PendingReason::OnHold, message.clone()));
        }
        true
    }

    /// Gives back the reservation of a job that was moved to another queue before it is admitted, and what its checks have said of it:
    /// the job cannot start with it. Returns whether it did. One that was admitted is stopped first, if it runs.
    pub(super) fn apply_move(&mut self, facts: &Facts<'_>) -> bool {
        let WorkloadOwner::Job(JobFacts { moved_to: Some(queue), .. }) = &facts.owner else { return false };
        if conditions::is_true(&self.status, ConditionType::Admitted) {
            return false;
        }
        let message = match queue.as_str() {
            "" => "The job has left its queue".to_owned(),
            queue => format!("The job was moved to LocalQueue {queue}"),
        };
        self.status.admission_checks.clear();
        self.unreserve(PendingReason::PendingEvaluation, &message);
        true
    }

    /// Sets whether the group waits for pods that replace others. As long as it never did, the condition is left out.
    pub(super) fn observe_absent_pods(&mut self, facts: &Facts<'_>) {
        let WorkloadOwner::Job(JobFacts { absent_pods: Some(absent), .. }) = &facts.owner else { return };
        let kind = ConditionType::WaitingForReplacementPods;
        let waiting = conditions::is_true(&self.status, kind);
        let evicted = conditions::find(&self.status, ConditionType::Evicted).filter(|c| c.status == "True");
        match (*absent > 0, evicted) {
            (true, Some(evicted)) => {
                let (reason, message) = (evicted.reason.clone(), evicted.message.clone());
                self.set_condition(kind, true, &reason, &message);
            }
            (true, None) if !waiting => {
                self.set_condition(kind, true, "PodsFailed", "Some Failed pods need replacement");
            }
            (false, _) if waiting => {
                self.set_condition(kind, false, "PodsReady", "No pods need replacement");
            }
            _ => {}
        }
    }
}

//! Writes to Workloads: admission, priority, and the steps of their lifecycle.

use super::WorkloadFacts;
use super::events::{admitted_event, format_seconds, gate_cleared_event, waiting_since};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::records::WorkloadRecord;
use crate::cache::{Cache, Kind};
use crate::lifecycle::reservation::holds_quota;
use crate::lifecycle::workload::{self, Plan, RestartedPods, Transition, WorkloadOwner, WorkloadStep};
use crate::lifecycle::{backoff, conditions};
use crate::reconciler::CoreSettings;
use crate::reconciler::events::workload_event;
use crate::reconciler::messages::{Effect, Observation, Verb, WriteClass};
use crate::reconciler::work_queue::{ReconcileKey, WorkQueue};
use crate::reconciler::writes::in_flight::Writes;
use crate::reconciler::writes::request::{
    WritePurpose, WriteRequest, delete_options, remove_finalizer_patch,
};
use crate::reconciler::writes::status_rate_limit::StatusRateLimiter;
use crate::scheduler::{Assignment, Engine};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::time::Duration;

/// Interval at which a Workload without owner checks whether its former job has stopped.
const FORMER_JOB_POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// Returns the write that sets the priority to the value of its class; `None` if they are equal or the Workload has ended.
pub(crate) fn priority_write(key: &ObjectKey, cache: &Cache) -> Option<WriteRequest> {
    let record = cache.workload(key)?;
    let class = record.priority_class.as_ref().filter(|c| c.kind == "WorkloadPriorityClass")?;
    let value = cache.workload_priority(&class.name)?;
    let ended = record.meta.is_deleting() || conditions::is_true(&record.status, ConditionType::Finished);
    (!ended && value != record.priority).then(|| {
        let metadata = json!({"resourceVersion": record.meta.resource_version});
        let body = json!({"metadata": metadata, "spec": {"priority": value}});
        WriteRequest::new(Kind::Workload, key.clone(), Verb::Merge, body)
    })
}

/// The parts that write the steps of a Workload's life.
pub(crate) struct LifecycleSteps<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) settings: &'a CoreSettings,
    pub(crate) engine: &'a Engine,
    pub(crate) writes: &'a mut Writes,
    pub(crate) work_queue: &'a mut WorkQueue,
    pub(crate) rate_limiter: &'a mut StatusRateLimiter,
}

impl LifecycleSteps<'_> {
    const fn facts(&self) -> WorkloadFacts<'_> {
        WorkloadFacts { cache: self.cache, settings: self.settings, engine: self.engine, writes: self.writes }
    }

    /// Writes the next lifecycle step of a Workload. Returns false if there is nothing to write.
    pub(crate) fn step(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let Some(record) = self.cache.workload(key) else { return true };
        let facts = self.facts().of(record, now);
        let plan = workload::plan(&self.facts().input(record), &facts, &self.settings.lifecycle, now);
        let readiness = match &facts.owner {
            WorkloadOwner::Job(job) => Some(job.readiness),
            WorkloadOwner::None | WorkloadOwner::Missing { .. } | WorkloadOwner::External => None,
        };
        let waits = facts.restarted == RestartedPods::Wait;
        let restarts = matches!(facts.restarted, RestartedPods::Fit | RestartedPods::Exceed(_));
        self.writes.completing.record(key, &record.status, readiness.unwrap_or_default());
        if self.writes.restarts.set_waiting(key, waits) {
            let note =
                "Pods that replace succeeded ones wait until there is quota for them: it was given to others";
            self.writes.emit(workload_event(record, "PodsWaitForQuota", note.to_owned()));
        }
        let former_job = record.owner.is_none() && readiness.is_some();
        if former_job {
            // No index leads from the job to a Workload that it does not own.
            self.work_queue
                .add_at(ReconcileKey::workload(key.clone()), backoff::after(now, FORMER_JOB_POLL_INTERVAL));
        }
        if let Some(due) = plan.due {
            self.work_queue.add_at(ReconcileKey::workload(key.clone()), due);
        }
        let explains = is_explanation(&plan);
        if explains
            && let WorkloadStep::WriteStatus(status) = &plan.step
            && workload::changes_only_pending_reason(&record.status, status)
        {
            if self.rate_limiter.earliest(now) > now
                || self.writes.explanation_budget(&self.settings.writes) == 0
            {
                let slot = self.rate_limiter.reserve_slot(key, now);
                self.work_queue.add_at(ReconcileKey::workload(key.clone()), slot);
                return true;
            }
            self.rate_limiter.consume(now);
        }
        let effects: Vec<Effect> =
            plan.transitions.iter().flat_map(|change| self.facts().effects_of(record, change, now)).collect();
        let meta = &record.meta;
        // Its quota is released with it, or as soon as it is inactive.
        let class = if holds_quota(&record.status) { WriteClass::Quota } else { WriteClass::Other };
        let write =
            |verb, body| WriteRequest { class, ..WriteRequest::new(Kind::Workload, key.clone(), verb, body) };
        let request = match plan.step {
            WorkloadStep::NoWrite => return false,
            WorkloadStep::WriteStatus(status) => {
                let purpose = if explains { WritePurpose::Explain } else { WritePurpose::Other };
                self.facts().status_write(record, status, purpose)
            }
            WorkloadStep::Deactivate => {
                let metadata = json!({"resourceVersion": meta.resource_version});
                write(Verb::Merge, json!({"metadata": metadata, "spec": {"active": false}}))
            }
            WorkloadStep::RemoveFinalizer => write(Verb::Merge, remove_finalizer_patch(meta)),
            WorkloadStep::Delete => write(Verb::Delete, delete_options(meta)),
        };
        if restarts {
            self.writes.restarts.record(key, now);
        }
        self.writes.start(request.with_effects(effects), now);
        true
    }
}

impl WorkloadFacts<'_> {
    /// Returns the write of a decision to admit.
    pub(crate) fn admission_write(
        self,
        record: &WorkloadRecord,
        assignment: &Assignment,
        now: Timestamp,
    ) -> WriteRequest {
        let status = self.admitted_status(record, assignment, now);
        let waited = backoff::elapsed_duration(waiting_since(record, &status), now);
        let queue_name = &assignment.cluster_queue;
        let seconds = format_seconds(waited);
        let note =
            format!("Quota reserved in ClusterQueue {queue_name}, wait time since queued was {seconds}");
        let labels = self.observation_labels(record, queue_name);
        let cleared = workload::admission_gate_cleared(&self.input(record), &record.status);
        let mut effects: Vec<Effect> = cleared.then(|| gate_cleared_event(record)).into_iter().collect();
        effects.push(workload_event(record, "QuotaReserved", note));
        effects.push(Effect::Observe(Observation::QuotaReserved(labels.clone(), waited)));
        if conditions::is_true(&status, ConditionType::Admitted) {
            effects.push(admitted_event(record, queue_name, Duration::ZERO));
            if !status.admission_checks.is_empty() {
                effects.push(Effect::Observe(Observation::ChecksPassed(labels.clone(), Duration::ZERO)));
            }
            effects.push(Effect::Observe(Observation::Admitted(labels, waited)));
        }
        self.status_write(record, Box::new(status), WritePurpose::Admit).with_effects(effects)
    }
}

/// Returns whether a plan reports why a Workload is pending.
fn is_explanation(plan: &Plan) -> bool {
    plan.transitions
        .iter()
        .any(|transition| matches!(transition, Transition::Pending(..) | Transition::AdmissionGated(_)))
}

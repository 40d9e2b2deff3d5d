//! Writes to Workloads: admission, priority, and the steps of their lifecycle.

use super::events::{admitted_event, format_seconds, gate_cleared_event, waiting_since};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::reservation::holds_quota;
use crate::lifecycle::workload::{self, Plan, Transition, WorkloadOwner, WorkloadStep};
use crate::lifecycle::{backoff, conditions};
use crate::reconciler::events::{elapsed_duration, workload_event};
use crate::reconciler::messages::{Effect, Observation, Verb, WriteClass};
use crate::reconciler::writes::bodies::{delete_options, remove_finalizer_patch};
use crate::reconciler::writes::in_flight::{WritePurpose, WriteRequest};
use crate::reconciler::{ReconcileKey, Reconciler};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::time::Duration;

/// How often a Workload without owner asks whether the job that it was made for has stopped.
const FORMER_JOB_POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

impl Reconciler {
    /// Writes the priority if it differs from the value of its class. Returns whether a write was sent.
    pub(crate) fn step_priority(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let patch = self.cache.workload(key).and_then(|record| self.priority_patch(record));
        let Some(body) = patch else { return false };
        self.writes.start(WriteRequest::new(Kind::Workload, key.clone(), Verb::Merge, body), now);
        true
    }

    /// Returns the patch that sets the priority to the value of its class; `None` if they are equal or the Workload has
    /// ended.
    fn priority_patch(&self, record: &WorkloadRecord) -> Option<Value> {
        let class = record.priority_class.as_ref().filter(|c| c.kind == "WorkloadPriorityClass")?;
        let value = self.cache.workload_priority(&class.name)?;
        let ended = record.meta.deleting || conditions::is_true(&record.status, ConditionType::Finished);
        (!ended && value != record.priority).then(|| {
            json!({"metadata": {"resourceVersion": record.meta.resource_version}, "spec": {"priority": value}})
        })
    }

    /// Writes the next lifecycle step of a Workload. Returns false if there is nothing to write.
    pub(crate) fn step_lifecycle(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let Some(record) = self.cache.workload(key) else { return true };
        let facts = self.workload_facts(key, record, now);
        let plan = workload::plan(&self.workload_input(record), &facts, &self.settings.lifecycle, now);
        if record.owner.is_none() && matches!(facts.owner, WorkloadOwner::Job(_)) {
            // No index leads from the job to a Workload that it does not own.
            self.work_queue
                .add_at(ReconcileKey::Workload(key.clone()), backoff::after(now, FORMER_JOB_POLL_INTERVAL));
        }
        if let Some(due) = plan.due {
            self.work_queue.add_at(ReconcileKey::Workload(key.clone()), due);
        }
        let explains = is_explanation(&plan);
        if explains
            && let WorkloadStep::WriteStatus(status) = &plan.step
            && workload::changes_only_pending_reason(&record.status, status)
        {
            if self.status_rate_limiter.earliest(now) > now
                || self.writes.explanation_budget(&self.settings.writes) == 0
            {
                let slot = self.status_rate_limiter.reserve_slot(key, now);
                self.work_queue.add_at(ReconcileKey::Workload(key.clone()), slot);
                return true;
            }
            self.status_rate_limiter.consume(now);
        }
        let effects: Vec<Effect> =
            plan.transitions.iter().flat_map(|transition| self.effects_of(record, transition, now)).collect();
        let meta = &record.meta;
        // Its quota is released with it, or as soon as it is inactive.
        let class = if holds_quota(&record.status) { WriteClass::Quota } else { WriteClass::Other };
        let write =
            |verb, body| WriteRequest { class, ..WriteRequest::new(Kind::Workload, key.clone(), verb, body) };
        let request = match plan.step {
            WorkloadStep::NoWrite => return false,
            WorkloadStep::WriteStatus(status) => {
                let purpose = if explains { WritePurpose::Explain } else { WritePurpose::Other };
                self.status_write(record, status, purpose)
            }
            WorkloadStep::Deactivate => {
                let metadata = json!({"resourceVersion": meta.resource_version});
                write(Verb::Merge, json!({"metadata": metadata, "spec": {"active": false}}))
            }
            WorkloadStep::RemoveFinalizer => write(Verb::Merge, remove_finalizer_patch(meta)),
            WorkloadStep::Delete => write(Verb::Delete, delete_options(meta)),
        };
        self.writes.start(request.with_effects(effects), now);
        true
    }

    /// Writes a decision to admit. It stays assumed until the result of the write is known.
    pub(crate) fn send_admission(&mut self, key: &ObjectKey, now: Timestamp) {
        let (Some(assumed), Some(record)) = (self.membership.assumed.get(key), self.cache.workload(key))
        else {
            return;
        };
        let status = self.admitted_status(record, &assumed.assignment, now);
        let waited = elapsed_duration(waiting_since(record, &status), now);
        let queue_name = &assumed.assignment.cluster_queue;
        let seconds = format_seconds(waited);
        let note =
            format!("Quota reserved in ClusterQueue {queue_name}, wait time since queued was {seconds}");
        let labels = self.observation_labels(record, queue_name);
        let cleared = workload::admission_gate_cleared(&self.workload_input(record), &record.status);
        let mut effects: Vec<Effect> = cleared.then(|| gate_cleared_event(record)).into_iter().collect();
        effects.push(workload_event(record, false, "QuotaReserved", note));
        effects.push(Effect::Observe(Observation::QuotaReserved(labels.clone(), waited)));
        if conditions::is_true(&status, ConditionType::Admitted) {
            effects.push(admitted_event(record, queue_name, Duration::ZERO));
            if !status.admission_checks.is_empty() {
                effects.push(Effect::Observe(Observation::ChecksPassed(labels.clone(), Duration::ZERO)));
            }
            effects.push(Effect::Observe(Observation::Admitted(labels, waited)));
        }
        let request = self.status_write(record, Box::new(status), WritePurpose::Admit);
        self.writes.start(request.with_effects(effects), now);
    }
}

/// Returns whether a plan reports why a Workload is pending.
fn is_explanation(plan: &Plan) -> bool {
    plan.transitions
        .iter()
        .any(|transition| matches!(transition, Transition::Pending(..) | Transition::AdmissionGated(_)))
}

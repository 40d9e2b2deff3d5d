//! Writes on Workloads: the reservation, and whatever its life cycle plans.

use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use crate::api::{GROUP, ObjectKey, names, v1beta2};
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::workload::{Transition, WorkloadStep};
use crate::lifecycle::{conditions, workload};
use crate::reconciler::messages::{Effect, Event, Observation, Verb, WriteOutcome, WriteResult};
use crate::reconciler::second_pass::failpoints::SecondPassGuard;
use crate::reconciler::workload::events::{
    admitted_event, elapsed_duration, format_seconds, gate_cleared_event, waiting_since, workload_event,
};
use crate::reconciler::writes::in_flight::{InFlightWrite, WritePurpose, WriteRequest};
use crate::reconciler::{ReconcileKey, Reconciler};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

impl Reconciler {
    /// Sends the next write of a Workload, if there is one.
    pub(in crate::reconciler) fn step_workload(&mut self, key: &ObjectKey, now: Timestamp) {
        if self.assumed.contains_key(key) {
            if self.engine.preemption_of(key).is_some() {
                // It has to go before it was told that it may come: nobody hears of either.
                self.release_assumed(key);
                self.mark_dirty(Kind::Workload, key);
            } else {
                self.send_admission(key, now);
            }
            return;
        }
        let Some(record) = self.workloads.get(key) else {
            return;
        };
        if let Some(body) = self.priority_patch(record) {
            self.send_write(Kind::Workload, key, Verb::Merge, None, body, Vec::new());
            return;
        }
        if self.write_second_pass_result(key, now) {
            return;
        }
        let Some(record) = self.workloads.get(key) else {
            return;
        };
        let facts = self.workload_facts(key, record, now);
        let plan = workload::plan(&self.workload_input(record), &facts, &self.settings.lifecycle, now);
        if let Some(due) = plan.due {
            self.timers.wake(ReconcileKey::Workload(key.clone()), due);
        }
        let explains = plan
            .transitions
            .iter()
            .any(|n| matches!(n, Transition::Pending(..) | Transition::AdmissionGated(_)));
        if explains
            && let WorkloadStep::WriteStatus(status) = &plan.step
            && workload::changes_only_pending_reason(&record.status, status)
        {
            if self.status_rate_limiter.earliest(now) > now || self.explanation_budget() == 0 {
                let turn = self.status_rate_limiter.reserve_slot(key, now);
                self.timers.wake(ReconcileKey::Workload(key.clone()), turn);
                return;
            }
            self.status_rate_limiter.consume(now);
        }
        let tell: Vec<Effect> =
            plan.transitions.iter().flat_map(|n| self.effects_of(record, n, now)).collect();
        let version = &record.meta.resource_version;
        let (verb, body) = match plan.step {
            WorkloadStep::NoWrite => return self.step_provisioning(key, now),
            WorkloadStep::WriteStatus(status) => {
                let purpose = if explains { WritePurpose::Explain } else { WritePurpose::Other };
                return self.send_status(key, status, purpose, tell);
            }
            WorkloadStep::Deactivate => {
                (Verb::Merge, json!({"metadata": {"resourceVersion": version}, "spec": {"active": false}}))
            }
            WorkloadStep::RemoveFinalizer => (Verb::Merge, remove_finalizer_patch(&record.meta)),
            WorkloadStep::Delete => (Verb::Delete, delete_options(&record.meta)),
        };
        self.send_write(Kind::Workload, key, verb, None, body, tell);
    }

    /// The priority follows the value of its class.
    fn priority_patch(&self, record: &WorkloadRecord) -> Option<Value> {
        let class = record.priority_class.as_ref().filter(|c| c.kind == "WorkloadPriorityClass")?;
        let value = *self.workload_priority_classes.get(class.name.as_str())?;
        let over = record.meta.deleting || conditions::is_true(&record.status, ConditionType::Finished);
        (!over && value != record.priority).then(|| {
            json!({"metadata": {"resourceVersion": record.meta.resource_version}, "spec": {"priority": value}})
        })
    }

    /// Writes a decision to admit. It stays assumed until its end is known.
    fn send_admission(&mut self, key: &ObjectKey, now: Timestamp) {
        let (Some(assumed), Some(record)) = (self.assumed.get(key), self.workloads.get(key)) else {
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
        let mut tell: Vec<Effect> = cleared.then(|| gate_cleared_event(record)).into_iter().collect();
        tell.push(workload_event(record, false, "QuotaReserved", note));
        tell.push(Effect::Observe(Observation::QuotaReserved(labels.clone(), waited)));
        if conditions::is_true(&status, ConditionType::Admitted) {
            tell.push(admitted_event(record, queue_name, Duration::ZERO));
            if !status.admission_checks.is_empty() {
                tell.push(Effect::Observe(Observation::ChecksPassed(labels.clone(), Duration::ZERO)));
            }
            tell.push(Effect::Observe(Observation::Admitted(labels, waited)));
        }
        self.send_status(key, Box::new(status), WritePurpose::Admit, tell);
    }

    /// Applies the status of a Workload, as far as it is ours.
    pub(in crate::reconciler) fn send_status(
        &mut self,
        key: &ObjectKey,
        mut status: Box<WorkloadStatus>,
        purpose: WritePurpose,
        tell: Vec<Effect>,
    ) {
        let Some(record) = self.workloads.get(key) else { return };
        retain_owned_conditions(&mut status);
        let mut body = apply_identity(record);
        if purpose == WritePurpose::SecondPass
            && self.settings.failpoints.lacks(key, SecondPassGuard::Version)
            && let Some(meta) = body.get_mut("metadata").and_then(Value::as_object_mut)
        {
            meta.shift_remove("resourceVersion");
        }
        self.start_write(WriteRequest {
            subresource: Some("status"),
            response_metadata_only: is_complete_apply(&record.status, &status),
            status: Some(Arc::from(status)),
            purpose,
            effects: tell,
            ..WriteRequest::new(Kind::Workload, key.clone(), Verb::Apply, body)
        });
    }

    /// Sends a write that means nothing beyond itself.
    pub(in crate::reconciler) fn send_write(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        verb: Verb,
        subresource: Option<&'static str>,
        body: Value,
        tell: Vec<Effect>,
    ) {
        self.start_write(WriteRequest {
            subresource,
            effects: tell,
            ..WriteRequest::new(kind, key.clone(), verb, body)
        });
    }

    pub(in crate::reconciler) fn start_write(&mut self, request: WriteRequest) {
        let write = self.in_flight_writes.start(request);
        self.effects.push(Effect::Write(write));
    }

    /// Takes in how a write ended. The next step follows from the objects as they are now.
    pub(in crate::reconciler) fn handle_write_result(&mut self, result: WriteResult, now: Timestamp) {
        let WriteResult { id, kind, key, outcome } = result;
        let key = &key;
        let Some(mut pending) = self.in_flight_writes.finish(kind, key, id) else { return };
        let on_behalf_of = pending.on_behalf_of.take();
        self.dirty.extend(on_behalf_of.clone());
        match outcome {
            WriteOutcome::Done(object) => {
                self.in_flight_writes.clear_failures(kind, key);
                if pending.purpose == WritePurpose::SecondPass {
                    self.discard_second_pass_result(key);
                }
                if object.pointer("/metadata/name").is_some() {
                    self.ingest(kind, object, pending.expected_status);
                }
                self.effects.extend(pending.effects);
                self.mark_dirty(kind, key);
            }
            WriteOutcome::Conflict => {
                self.in_flight_writes.record_conflict(kind, key, now);
                self.report_if_landed(kind, key, &mut pending);
                self.handle_failed_write(kind, key, &pending);
            }
            WriteOutcome::NotFound => {
                self.handle_failed_write(kind, key, &pending);
                if matches!(kind, Kind::ProvisioningRequest | Kind::PodTemplate)
                    && self.known_version(kind, key).is_none()
                {
                    // What was to be made has no place: its definition is missing, or the namespace is going.
                    self.in_flight_writes.record_failure(kind, key, now);
                    self.report_not_created(kind, key, on_behalf_of, "not found");
                } else {
                    self.record_deletion(kind, key, None);
                }
            }
            WriteOutcome::Rejected { code, message } => {
                self.in_flight_writes.record_failure(kind, key, now);
                self.handle_failed_write(kind, key, &pending);
                match on_behalf_of {
                    // There may be no Workload to tell it of.
                    Some(ReconcileKey::Job(index, job)) => {
                        self.report_rejected(Kind::Job(index), &job, code, &message);
                    }
                    Some(ReconcileKey::Workload(_)) if self.known_version(kind, key).is_none() => {
                        self.report_not_created(kind, key, on_behalf_of, &message);
                    }
                    _ => self.report_rejected(kind, key, code, &message),
                }
            }
            WriteOutcome::Unavailable { .. } => {
                // A reservation may have landed: it stays assumed, and is decided again on the newest object.
                self.report_if_landed(kind, key, &mut pending);
                self.in_flight_writes.record_failure(kind, key, now);
                self.mark_dirty(kind, key);
            }
        }
        if kind == Kind::Workload {
            self.compact_finished_status(key);
        }
    }

    /// Lets go of what a Workload that has finished was granted, once it does not matter any more whose write that was.
    pub(in crate::reconciler) fn compact_finished_status(&mut self, key: &ObjectKey) {
        let idle = !self.in_flight_writes.is_in_flight(Kind::Workload, key);
        let Some(record) = self.workloads.get_mut(key).filter(|_| idle) else { return };
        let status = &record.status;
        let bulky = status.admission.is_some() || status.conditions.len() > 1;
        if bulky && conditions::is_true(status, ConditionType::Finished) {
            let record = Arc::make_mut(record);
            record.status = self.interned.intern_finished_status(mem::take(&mut record.status));
        }
    }

    /// A write whose answer was lost has landed all the same if the newest object has what it set, times included.
    fn report_if_landed(&mut self, kind: Kind, key: &ObjectKey, pending: &mut InFlightWrite) {
        let Some(record) = self.workloads.get(key).filter(|_| kind == Kind::Workload) else { return };
        let told = pending.expected_status.take().filter(|_| !pending.effects.is_empty());
        let landed = told.is_some_and(|promised| {
            promised.admission == record.status.admission
                && promised.conditions.iter().all(|c| record.status.conditions.contains(c))
        });
        if landed {
            self.effects.append(&mut pending.effects);
        }
    }

    /// A write did not land: an assumed reservation goes back, and the object gets another step.
    fn handle_failed_write(&mut self, kind: Kind, key: &ObjectKey, pending: &InFlightWrite) {
        if pending.purpose == WritePurpose::Admit {
            self.release_assumed(key);
        }
        if pending.purpose == WritePurpose::SecondPass {
            self.discard_second_pass_result(key);
        }
        self.mark_dirty(kind, key);
    }

    /// An assumed reservation is none any more.
    fn release_assumed(&mut self, key: &ObjectKey) {
        if self.assumed.remove(key).is_some() && !self.holds_quota(key) {
            self.engine.release(key);
            self.engine.drop_penalty(key);
        }
    }

    /// Marks an object for another step.
    pub(in crate::reconciler) fn mark_dirty(&mut self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::Workload => {
                let owner = self.workloads.get(key).and_then(|r| r.owner.as_ref()).map(|o| o.uid.clone());
                self.mark_workload_and_dependents(key, owner.as_ref());
            }
            Kind::Job(index) => {
                self.dirty.insert(ReconcileKey::Job(index, key.clone()));
                // Its Workload waits while the job has a write under way, and the watch may have overtaken the answer.
                let owner = self.jobs.get(&(index, key.clone())).map(|job| job.uid.clone());
                if let Some(uid) = owner {
                    self.mark_owner_and_workloads(&uid);
                }
            }
            Kind::ClusterQueue => {
                self.dirty.insert(ReconcileKey::ClusterQueue(key.name.clone()));
                self.status_schedule.mark_dirty(ReconcileKey::ClusterQueue(key.name.clone()));
            }
            Kind::LocalQueue => self.status_schedule.mark_dirty(ReconcileKey::LocalQueue(key.clone())),
            Kind::Cohort => self.status_schedule.mark_dirty(ReconcileKey::Cohort(key.name.clone())),
            Kind::ResourceFlavor => {
                self.dirty.insert(ReconcileKey::Flavor(key.name.clone()));
            }
            Kind::AdmissionCheck => {
                self.dirty.insert(ReconcileKey::Check(key.name.clone()));
            }
            Kind::MultiKueueCluster => {
                self.dirty.insert(ReconcileKey::MultiKueueCluster(key.name.clone()));
            }
            Kind::Topology => {
                self.dirty.insert(ReconcileKey::Topology(key.name.clone()));
            }
            _ => {}
        }
    }

    fn report_rejected(&mut self, kind: Kind, key: &ObjectKey, code: u16, message: &str) {
        let uid = self.uid_of(kind, key);
        let note = format!("the API server refused a write ({code}): {message}");
        if self.reported_warnings.insert((kind, key.clone()), note.clone()).as_deref() != Some(note.as_str())
        {
            let event = Event {
                kind,
                key: key.clone(),
                uid,
                warning: true,
                reason: "WriteRejected".to_owned(),
                note,
            };
            self.effects.push(Effect::Event(event));
        }
    }

    /// An object that a Workload needs could not be made: told of the Workload, once for each answer.
    fn report_not_created(&mut self, kind: Kind, key: &ObjectKey, workload: Option<ReconcileKey>, why: &str) {
        let Some(ReconcileKey::Workload(workload)) = workload else { return };
        let note = format!("Error creating {} \"{}\": {why}", kind.resource().kind, key.name);
        let Some(record) = self.workloads.get(&workload).map(Arc::clone) else { return };
        if self.reported_warnings.insert((Kind::Workload, workload), note.clone()).as_deref()
            != Some(note.as_str())
        {
            self.effects.push(workload_event(&record, true, "FailedCreate", note));
        }
    }

    fn uid_of(&self, kind: Kind, key: &ObjectKey) -> String {
        match kind {
            Kind::Workload => self.workloads.get(key).map(|r| r.meta.uid.to_string()),
            Kind::Job(index) => self.jobs.get(&(index, key.clone())).map(|v| v.uid.to_string()),
            Kind::Pod => self.pods.known_version(key).map(|(uid, _)| uid.to_owned()),
            _ => None,
        }
        .unwrap_or_default()
    }
}

/// Leaves the conditions that our field manager owns.
pub(in crate::reconciler) fn retain_owned_conditions(status: &mut WorkloadStatus) {
    status.conditions.retain(|c| ConditionType::ALL.iter().any(|kind| kind.as_str() == c.type_));
}

/// Whether an apply says all that the status says already: what it leaves out stays if another manager says it as well. Pod
/// templates of one with admission checks are read from the answer.
fn is_complete_apply(known: &WorkloadStatus, new: &WorkloadStatus) -> bool {
    let says = |kind: &str| new.conditions.iter().any(|condition| condition.type_ == kind);
    let left_out = [
        known.conditions.iter().any(|condition| !says(&condition.type_)),
        known.admission.is_some() && known.admission != new.admission,
        known.requeue_state.is_some() && known.requeue_state != new.requeue_state,
        !known.reclaimable_pods.is_empty() && known.reclaimable_pods != new.reclaimable_pods,
        !known.admission_checks.is_empty() || !new.admission_checks.is_empty(),
        !known.resource_requests.is_empty() && known.resource_requests != new.resource_requests,
        known.accumulated_past_execution_time_seconds.is_some()
            && new.accumulated_past_execution_time_seconds.is_none(),
        known.scheduling_stats.is_some() && known.scheduling_stats != new.scheduling_stats,
        !known.nominated_cluster_names.is_empty()
            && known.nominated_cluster_names != new.nominated_cluster_names,
        known.cluster_name.is_some() && new.cluster_name.is_none(),
        !known.unhealthy_nodes.is_empty() && known.unhealthy_nodes != new.unhealthy_nodes,
        !known.preemption_gates.is_empty() && known.preemption_gates != new.preemption_gates,
    ];
    !left_out.contains(&true)
}

/// What our field manager applies a status to: the version that it was decided on. The status has no conditions of others.
pub(in crate::reconciler) fn apply_identity(record: &WorkloadRecord) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{}", v1beta2::VERSION),
        "kind": "Workload",
        "metadata": {
            "name": record.meta.key.name,
            "namespace": record.meta.key.namespace,
            "uid": record.meta.uid,
            "resourceVersion": record.meta.resource_version,
        },
    })
}

/// A patch that takes our finalizer off and leaves the others.
pub(in crate::reconciler) fn remove_finalizer_patch(meta: &crate::cache::records::Meta) -> Value {
    let rest: Vec<&String> =
        meta.finalizers.iter().filter(|f| *f != names::RESOURCE_IN_USE_FINALIZER).collect();
    json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": rest}})
}

/// Options of a delete that touches this version of this object alone.
pub(in crate::reconciler) fn delete_options(meta: &crate::cache::records::Meta) -> Value {
    json!({
        "preconditions": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "propagationPolicy": "Background",
    })
}

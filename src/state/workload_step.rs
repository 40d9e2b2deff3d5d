//! Writes on Workloads: the reservation, and whatever its life cycle plans.

use super::interface::{Effect, Event, Kind, Observation, Verb, WriteOutcome, WriteResult};
use super::moments::Guard;
use super::records::WorkloadRecord;
use super::telling::{admitted_event, event, gate_cleared_event, queued_at, seconds_text, wait};
use super::writes::{Pending, Purpose, Request};
use super::{Item, State};
use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use crate::api::{GROUP, ObjectKey, names, v1beta2};
use crate::lifecycle::workload::{Notice, Step};
use crate::lifecycle::{conditions, workload};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

impl State {
    /// Sends the next write of a Workload, if there is one.
    pub(super) fn step_workload(&mut self, key: &ObjectKey, now: Timestamp) {
        if self.assumed.contains_key(key) {
            if self.engine.preemption_of(key).is_some() {
                // It has to go before it was told that it may come: nobody hears of either.
                self.take_back(key);
                self.mark(Kind::Workload, key);
            } else {
                self.send_admission(key, now);
            }
            return;
        }
        let Some(record) = self.workloads.get(key) else {
            return;
        };
        if let Some(body) = self.priority_update(record) {
            self.send_plain(Kind::Workload, key, Verb::Merge, None, body, Vec::new());
            return;
        }
        if self.send_pass(key, now) {
            return;
        }
        let Some(record) = self.workloads.get(key) else {
            return;
        };
        let facts = self.facts(key, record, now);
        let plan = workload::plan(&self.subject(record), &facts, &self.settings.lifecycle, now);
        if let Some(due) = plan.due {
            self.timers.wake(Item::Workload(key.clone()), due);
        }
        let explains = plan.notices.iter().any(|n| matches!(n, Notice::Pending(..) | Notice::Gated(_)));
        if explains
            && let Step::Status(status) = &plan.step
            && workload::only_explains(&record.status, status)
        {
            if self.allowance.free_at(now) > now || self.explanations_left() == 0 {
                let turn = self.allowance.turn(key, now);
                self.timers.wake(Item::Workload(key.clone()), turn);
                return;
            }
            self.allowance.spend(now);
        }
        let tell: Vec<Effect> = plan.notices.iter().flat_map(|n| self.tell(record, n, now)).collect();
        let version = &record.meta.resource_version;
        let (verb, body) = match plan.step {
            Step::Rest => return self.step_provisioning(key, now),
            Step::Status(status) => {
                let purpose = if explains { Purpose::Explain } else { Purpose::Plain };
                return self.send_status(key, status, purpose, tell);
            }
            Step::Deactivate => {
                (Verb::Merge, json!({"metadata": {"resourceVersion": version}, "spec": {"active": false}}))
            }
            Step::RemoveFinalizer => (Verb::Merge, without_finalizer(&record.meta)),
            Step::Delete => (Verb::Delete, delete_options(&record.meta)),
        };
        self.send_plain(Kind::Workload, key, verb, None, body, tell);
    }

    /// The priority follows the value of its class.
    fn priority_update(&self, record: &WorkloadRecord) -> Option<Value> {
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
        let status = self.admitted(record, &assumed.assignment, now);
        let waited = wait(queued_at(record, &status), now);
        let queue_name = &assumed.assignment.cluster_queue;
        let seconds = seconds_text(waited);
        let note =
            format!("Quota reserved in ClusterQueue {queue_name}, wait time since queued was {seconds}");
        let labels = self.labels_of(record, queue_name);
        let cleared = workload::gate_cleared(&self.subject(record), &record.status);
        let mut tell: Vec<Effect> = cleared.then(|| gate_cleared_event(record)).into_iter().collect();
        tell.push(event(record, false, "QuotaReserved", note));
        tell.push(Effect::Observe(Observation::QuotaReserved(labels.clone(), waited)));
        if conditions::is_true(&status, ConditionType::Admitted) {
            tell.push(admitted_event(record, queue_name, Duration::ZERO));
            if !status.admission_checks.is_empty() {
                tell.push(Effect::Observe(Observation::ChecksPassed(labels.clone(), Duration::ZERO)));
            }
            tell.push(Effect::Observe(Observation::Admitted(labels, waited)));
        }
        self.send_status(key, Box::new(status), Purpose::Admit, tell);
    }

    /// Applies the status of a Workload, as far as it is ours.
    pub(super) fn send_status(
        &mut self,
        key: &ObjectKey,
        mut status: Box<WorkloadStatus>,
        purpose: Purpose,
        tell: Vec<Effect>,
    ) {
        let Some(record) = self.workloads.get(key) else { return };
        keep_ours(&mut status);
        let mut body = identity_of(record);
        if purpose == Purpose::Pass
            && self.settings.moments.lacks(key, Guard::Version)
            && let Some(meta) = body.get_mut("metadata").and_then(Value::as_object_mut)
        {
            meta.shift_remove("resourceVersion");
        }
        self.send(Request {
            subresource: Some("status"),
            foretold: leaves_nothing_out(&record.status, &status),
            status: Some(Arc::from(status)),
            purpose,
            tell,
            ..Request::new(Kind::Workload, key.clone(), Verb::Apply, body)
        });
    }

    /// Sends a write that means nothing beyond itself.
    pub(super) fn send_plain(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        verb: Verb,
        subresource: Option<&'static str>,
        body: Value,
        tell: Vec<Effect>,
    ) {
        self.send(Request { subresource, tell, ..Request::new(kind, key.clone(), verb, body) });
    }

    pub(super) fn send(&mut self, request: Request) {
        let write = self.writes.start(request);
        self.effects.push(Effect::Write(write));
    }

    /// Takes in how a write ended. The next step follows from the objects as they are now.
    pub(super) fn take_result(&mut self, result: WriteResult, now: Timestamp) {
        let WriteResult { id, kind, key, outcome } = result;
        let key = &key;
        let Some(mut pending) = self.writes.end(kind, key, id) else { return };
        let on_behalf_of = pending.on_behalf_of.take();
        self.dirty.extend(on_behalf_of.clone());
        match outcome {
            WriteOutcome::Done(object) => {
                self.writes.succeed(kind, key);
                if pending.purpose == Purpose::Pass {
                    self.drop_pass(key);
                }
                if object.pointer("/metadata/name").is_some() {
                    self.ingest(kind, object, pending.promised);
                }
                self.effects.extend(pending.tell);
                self.mark(kind, key);
            }
            WriteOutcome::Conflict => {
                self.writes.conflict(kind, key, now);
                self.tell_if_landed(kind, key, &mut pending);
                self.undo(kind, key, &pending);
            }
            WriteOutcome::NotFound => {
                self.undo(kind, key, &pending);
                if matches!(kind, Kind::ProvisioningRequest | Kind::PodTemplate)
                    && self.known(kind, key).is_none()
                {
                    // What was to be made has no place: its definition is missing, or the namespace is going.
                    self.writes.fail(kind, key, now);
                    self.tell_not_created(kind, key, on_behalf_of, "not found");
                } else {
                    self.bury(kind, key, None);
                }
            }
            WriteOutcome::Rejected { code, message } => {
                self.writes.fail(kind, key, now);
                self.undo(kind, key, &pending);
                match on_behalf_of {
                    // There may be no Workload to tell it of.
                    Some(Item::Job(index, job)) => self.tell_rejected(Kind::Job(index), &job, code, &message),
                    Some(Item::Workload(_)) if self.known(kind, key).is_none() => {
                        self.tell_not_created(kind, key, on_behalf_of, &message);
                    }
                    _ => self.tell_rejected(kind, key, code, &message),
                }
            }
            WriteOutcome::Unavailable { .. } => {
                // A reservation may have landed: it stays assumed, and is decided again on the newest object.
                self.tell_if_landed(kind, key, &mut pending);
                self.writes.fail(kind, key, now);
                self.mark(kind, key);
            }
        }
        if kind == Kind::Workload {
            self.slim_ended(key);
        }
    }

    /// Lets go of what a Workload that has finished was granted, once it does not matter any more whose write that was.
    pub(super) fn slim_ended(&mut self, key: &ObjectKey) {
        let idle = !self.writes.is_pending(Kind::Workload, key);
        let Some(record) = self.workloads.get_mut(key).filter(|_| idle) else { return };
        let status = &record.status;
        let bulky = status.admission.is_some() || status.conditions.len() > 1;
        if bulky && conditions::is_true(status, ConditionType::Finished) {
            let record = Arc::make_mut(record);
            record.status = self.templates.ended(mem::take(&mut record.status));
        }
    }

    /// A write whose answer was lost has landed all the same if the newest object has what it set, times included.
    fn tell_if_landed(&mut self, kind: Kind, key: &ObjectKey, pending: &mut Pending) {
        let Some(record) = self.workloads.get(key).filter(|_| kind == Kind::Workload) else { return };
        let told = pending.promised.take().filter(|_| !pending.tell.is_empty());
        let landed = told.is_some_and(|promised| {
            promised.admission == record.status.admission
                && promised.conditions.iter().all(|c| record.status.conditions.contains(c))
        });
        if landed {
            self.effects.append(&mut pending.tell);
        }
    }

    /// A write did not land: an assumed reservation goes back, and the object gets another step.
    fn undo(&mut self, kind: Kind, key: &ObjectKey, pending: &Pending) {
        if pending.purpose == Purpose::Admit {
            self.take_back(key);
        }
        if pending.purpose == Purpose::Pass {
            self.drop_pass(key);
        }
        self.mark(kind, key);
    }

    /// An assumed reservation is none any more.
    fn take_back(&mut self, key: &ObjectKey) {
        if self.assumed.remove(key).is_some() && !self.holds_quota(key) {
            self.engine.release(key);
            self.engine.drop_penalty(key);
        }
    }

    /// Marks an object for another step.
    pub(super) fn mark(&mut self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::Workload => {
                let owner = self.workloads.get(key).and_then(|r| r.owner.as_ref()).map(|o| o.uid.clone());
                self.workload_changed(key, owner.as_ref());
            }
            Kind::Job(index) => {
                self.dirty.insert(Item::Job(index, key.clone()));
                // Its Workload waits while the job has a write under way, and the watch may have overtaken the answer.
                let owner = self.jobs.get(&(index, key.clone())).map(|job| job.uid.clone());
                if let Some(uid) = owner {
                    self.owner_changed(&uid);
                }
            }
            Kind::ClusterQueue => {
                self.dirty.insert(Item::ClusterQueue(key.name.clone()));
                self.queue_clock.touch(Item::ClusterQueue(key.name.clone()));
            }
            Kind::LocalQueue => self.queue_clock.touch(Item::LocalQueue(key.clone())),
            Kind::Cohort => self.queue_clock.touch(Item::Cohort(key.name.clone())),
            Kind::ResourceFlavor => {
                self.dirty.insert(Item::Flavor(key.name.clone()));
            }
            Kind::AdmissionCheck => {
                self.dirty.insert(Item::Check(key.name.clone()));
            }
            Kind::MultiKueueCluster => {
                self.dirty.insert(Item::Worker(key.name.clone()));
            }
            Kind::Topology => {
                self.dirty.insert(Item::Topology(key.name.clone()));
            }
            _ => {}
        }
    }

    fn tell_rejected(&mut self, kind: Kind, key: &ObjectKey, code: u16, message: &str) {
        let uid = self.uid_of(kind, key);
        let note = format!("the API server refused a write ({code}): {message}");
        if self.told.insert((kind, key.clone()), note.clone()).as_deref() != Some(note.as_str()) {
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
    fn tell_not_created(&mut self, kind: Kind, key: &ObjectKey, workload: Option<Item>, why: &str) {
        let Some(Item::Workload(workload)) = workload else { return };
        let note = format!("Error creating {} \"{}\": {why}", kind.resource().kind, key.name);
        let Some(record) = self.workloads.get(&workload).map(Arc::clone) else { return };
        if self.told.insert((Kind::Workload, workload), note.clone()).as_deref() != Some(note.as_str()) {
            self.effects.push(event(&record, true, "FailedCreate", note));
        }
    }

    fn uid_of(&self, kind: Kind, key: &ObjectKey) -> String {
        match kind {
            Kind::Workload => self.workloads.get(key).map(|r| r.meta.uid.to_string()),
            Kind::Job(index) => self.jobs.get(&(index, key.clone())).map(|v| v.uid.to_string()),
            Kind::Pod => self.pods.known(key).map(|(uid, _)| uid.to_owned()),
            _ => None,
        }
        .unwrap_or_default()
    }
}

/// Leaves the conditions that our field manager owns.
pub(super) fn keep_ours(status: &mut WorkloadStatus) {
    status.conditions.retain(|c| ConditionType::ALL.iter().any(|kind| kind.as_str() == c.type_));
}

/// Whether an apply says all that the status says already: what it leaves out stays if another manager says it as well. Pod
/// templates of one with admission checks are read from the answer.
fn leaves_nothing_out(known: &WorkloadStatus, new: &WorkloadStatus) -> bool {
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
pub(super) fn identity_of(record: &WorkloadRecord) -> Value {
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
pub(super) fn without_finalizer(meta: &super::records::Meta) -> Value {
    let rest: Vec<&String> =
        meta.finalizers.iter().filter(|f| *f != names::RESOURCE_IN_USE_FINALIZER).collect();
    json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": rest}})
}

/// Options of a delete that touches this version of this object alone.
pub(super) fn delete_options(meta: &super::records::Meta) -> Value {
    json!({
        "preconditions": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "propagationPolicy": "Background",
    })
}

//! Writes on Workloads: the reservation, and whatever its life cycle plans.

use super::interface::{Effect, Event, Kind, Labels, Observation, Verb, WriteOutcome, WriteResult};
use super::records::{LocalQueueRecord, WorkloadRecord};
use super::writes::{Pending, Purpose, Request};
use super::{Item, State};
use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use crate::api::{GROUP, ObjectKey, names, v1beta2};
use crate::lifecycle::workload::{Notice, Step};
use crate::lifecycle::{backoff, conditions, workload};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

impl State {
    /// Sends the next write of a Workload, if there is one.
    pub(super) fn step_workload(&mut self, key: &ObjectKey, now: Timestamp) {
        if self.assumed.contains_key(key) {
            self.send_admission(key, now);
            return;
        }
        let Some(record) = self.workloads.get(key) else {
            return;
        };
        if let Some(body) = self.priority_update(record) {
            self.send_plain(Kind::Workload, key, Verb::Merge, None, body, Vec::new());
            return;
        }
        let facts = self.facts(key, record);
        let plan = workload::plan(&self.subject(record), &facts, &self.settings.lifecycle, now);
        if let Some(due) = plan.due {
            self.timers.wake(Item::Workload(key.clone()), due);
        }
        let tell: Vec<Effect> = plan.notices.iter().flat_map(|n| self.tell(record, n, now)).collect();
        let explains = plan.notices.iter().any(|n| matches!(n, Notice::Pending(..)));
        let version = &record.meta.resource_version;
        let (verb, subresource, body) = match plan.step {
            Step::Rest => return,
            Step::Status(status) => (Verb::Apply, Some("status"), status_body(record, &status)),
            Step::Deactivate => (
                Verb::Merge,
                None,
                json!({"metadata": {"resourceVersion": version}, "spec": {"active": false}}),
            ),
            Step::RemoveFinalizer => (Verb::Merge, None, without_finalizer(&record.meta)),
            Step::Delete => (Verb::Delete, None, delete_options(&record.meta)),
        };
        let purpose = if explains { Purpose::Explain } else { Purpose::Plain };
        let (kind, key, on_behalf_of) = (Kind::Workload, key.clone(), None);
        self.send(Request { kind, key, verb, subresource, body, purpose, tell, on_behalf_of });
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
        let waited = wait(self.queued_since(record), now);
        let queue_name = &assumed.assignment.cluster_queue;
        let seconds = waited.as_secs();
        let note =
            format!("Quota reserved in ClusterQueue {queue_name}, wait time since queued was {seconds}s");
        let labels = self.labels_of(record, queue_name);
        let mut tell = vec![
            event(record, false, "QuotaReserved", note),
            Effect::Observe(Observation::QuotaReserved(labels.clone(), waited)),
        ];
        if conditions::is_true(&status, ConditionType::Admitted) {
            let note = format!("Admitted by ClusterQueue {queue_name}, wait time since reservation was 0s");
            tell.push(event(record, false, "Admitted", note));
            tell.push(Effect::Observe(Observation::Admitted(labels, waited)));
        }
        let body = status_body(record, &status);
        self.send(Request {
            kind: Kind::Workload,
            key: key.clone(),
            verb: Verb::Apply,
            subresource: Some("status"),
            body,
            purpose: Purpose::Admit,
            tell,
            on_behalf_of: None,
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
        self.send(Request {
            kind,
            key: key.clone(),
            verb,
            subresource,
            body,
            purpose: Purpose::Plain,
            tell,
            on_behalf_of: None,
        });
    }

    pub(super) fn send(&mut self, request: Request) {
        let write = self.writes.start(request);
        self.effects.push(Effect::Write(write));
    }

    /// Takes in how a write ended. The next step follows from the objects as they are now.
    pub(super) fn take_result(&mut self, result: &WriteResult, now: Timestamp) {
        let WriteResult { id, kind, key, outcome } = result;
        let Some(mut pending) = self.writes.end(*kind, key, *id) else { return };
        let on_behalf_of = pending.on_behalf_of.take();
        self.dirty.extend(on_behalf_of.clone());
        match outcome {
            WriteOutcome::Done(object) => {
                self.writes.succeed(*kind, key);
                if object.pointer("/metadata/name").is_some() {
                    self.ingest(*kind, object);
                }
                self.effects.extend(pending.tell);
                self.mark(*kind, key);
            }
            WriteOutcome::Conflict => {
                self.tell_if_landed(*kind, key, &mut pending);
                self.undo(*kind, key, &pending);
            }
            WriteOutcome::NotFound => {
                self.undo(*kind, key, &pending);
                self.bury(*kind, key, None);
            }
            WriteOutcome::Rejected { code, message } => {
                self.writes.fail(*kind, key, now);
                self.undo(*kind, key, &pending);
                match on_behalf_of {
                    // There may be no Workload to tell it of.
                    Some(Item::Job(index, job)) => self.tell_rejected(Kind::Job(index), &job, *code, message),
                    _ => self.tell_rejected(*kind, key, *code, message),
                }
            }
            WriteOutcome::Unavailable { .. } => {
                // A reservation may have landed: it stays assumed, and is decided again on the newest object.
                self.tell_if_landed(*kind, key, &mut pending);
                self.writes.fail(*kind, key, now);
                self.mark(*kind, key);
            }
        }
    }

    /// A write whose answer was lost has landed all the same if the newest object has what it set, times included.
    fn tell_if_landed(&mut self, kind: Kind, key: &ObjectKey, pending: &mut Pending) {
        let Some(record) = self.workloads.get(key).filter(|_| kind == Kind::Workload) else { return };
        let promised = pending.promised.take().and_then(|s| serde_json::from_value::<WorkloadStatus>(s).ok());
        let landed = promised.is_some_and(|promised| {
            promised.admission == record.status.admission
                && promised.conditions.iter().all(|c| record.status.conditions.contains(c))
        });
        if landed {
            self.effects.append(&mut pending.tell);
        }
    }

    /// A write did not land: an assumed reservation goes back, and the object gets another step.
    fn undo(&mut self, kind: Kind, key: &ObjectKey, pending: &Pending) {
        if pending.purpose == Purpose::Admit && self.assumed.remove(key).is_some() && !self.holds_quota(key) {
            self.engine.release(key);
        }
        self.mark(kind, key);
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
            Kind::ResourceFlavor => {
                self.dirty.insert(Item::Flavor(key.name.clone()));
            }
            Kind::AdmissionCheck => {
                self.dirty.insert(Item::Check(key.name.clone()));
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

    fn uid_of(&self, kind: Kind, key: &ObjectKey) -> String {
        match kind {
            Kind::Workload => self.workloads.get(key).map(|r| r.meta.uid.to_string()),
            Kind::Job(index) => self.jobs.get(&(index, key.clone())).map(|v| v.uid.to_string()),
            _ => None,
        }
        .unwrap_or_default()
    }

    /// Events and counts that follow from a notice.
    fn tell(&self, record: &WorkloadRecord, notice: &Notice, now: Timestamp) -> Vec<Effect> {
        let queue = self.cluster_queue_name(record).unwrap_or_default();
        let labels = || self.labels_of(record, queue);
        match notice {
            Notice::Evicted(cause, first) => vec![
                event(record, false, &cause.event_reason(), cause.message.clone()),
                Effect::Observe(Observation::Evicted {
                    labels: labels(),
                    reason: cause.reason.to_owned(),
                    underlying_cause: cause.underlying.clone(),
                    first: *first,
                }),
            ],
            Notice::Finished(_, ran) => {
                let mut told = vec![Effect::Observe(Observation::Finished(
                    labels(),
                    Duration::try_from(*ran).unwrap_or_default(),
                ))];
                told.extend(self.job_event(record, "FinishedWorkload", |key| {
                    format!("Workload '{key}' is declared finished")
                }));
                told
            }
            Notice::Admitted => {
                let reserved = conditions::since(&record.status, ConditionType::QuotaReserved).unwrap_or(now);
                let seconds = backoff::elapsed(reserved, now).as_secs();
                let note =
                    format!("Admitted by ClusterQueue {queue}, wait time since reservation was {seconds}s");
                let waited = wait(self.queued_since(record), now);
                vec![
                    event(record, false, "Admitted", note),
                    Effect::Observe(Observation::Admitted(labels(), waited)),
                ]
            }
            Notice::Pending(reason, message) => vec![event(record, true, reason.as_str(), message.clone())],
            Notice::PodsReady => {
                let admitted = conditions::since(&record.status, ConditionType::Admitted).unwrap_or(now);
                let (ready, created) = (wait(admitted, now), wait(record.meta.created, now));
                vec![Effect::Observe(Observation::PodsReady(labels(), ready, created))]
            }
            Notice::CheckRejected(message) => {
                vec![event(record, true, "AdmissionCheckRejected", message.clone())]
            }
            Notice::ExecutionTimeExceeded => vec![event(
                record,
                true,
                "MaximumExecutionTimeExceeded",
                "The maximum execution time is over".to_owned(),
            )],
            Notice::Gated => {
                vec![event(record, false, "AdmissionGated", "Held back by admission gates".to_owned())]
            }
        }
    }

    /// Labels of the counters for a Workload.
    fn labels_of(&self, record: &WorkloadRecord, cluster_queue: &str) -> Labels {
        let local_queue = record.local_queue().and_then(|key| self.local_queues.get(&key));
        Labels {
            cluster_queue: cluster_queue.to_owned(),
            cohorts: self.cohorts_above(cluster_queue),
            local_queue: record.queue_name.as_deref().unwrap_or_default().to_owned(),
            local_queue_shown: local_queue.is_some_and(|queue| self.is_shown(queue)),
            namespace: record.meta.key.namespace.to_string(),
            priority_class: record.priority_class.as_ref().map(|c| c.name.clone()).unwrap_or_default(),
        }
    }

    /// The cohorts above a ClusterQueue, the nearest first, each once.
    fn cohorts_above(&self, cluster_queue: &str) -> Vec<String> {
        let mut above: Vec<String> = Vec::new();
        let mut next =
            self.cluster_queues.get(cluster_queue).and_then(|q| q.object.spec.cohort_name.as_deref());
        while let Some(name) = next.filter(|name| above.iter().all(|known| known != name)) {
            above.push(name.to_owned());
            next = self.cohorts.get(name).and_then(|cohort| cohort.object.spec.parent_name.as_deref());
        }
        above
    }

    /// Whether metrics tell of a LocalQueue.
    pub(super) fn is_shown(&self, queue: &LocalQueueRecord) -> bool {
        let selector = self.settings.shown_local_queues.as_ref();
        let none = BTreeMap::new();
        let labels = queue.object.metadata.labels.as_ref().unwrap_or(&none);
        selector.is_none_or(|selector| crate::api::selector::matches(selector, labels))
    }

    /// An event on the job of a Workload.
    fn job_event(
        &self,
        record: &WorkloadRecord,
        reason: &str,
        note: impl Fn(&ObjectKey) -> String,
    ) -> Option<Effect> {
        let (index, key) = self.job_by_uid.get(&record.owner.as_ref()?.uid)?;
        Some(Effect::Event(Event {
            kind: Kind::Job(*index),
            key: key.clone(),
            uid: record.owner.as_ref()?.uid.to_string(),
            warning: false,
            reason: reason.to_owned(),
            note: note(&record.meta.key),
        }))
    }
}

fn wait(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(backoff::elapsed(since, now)).unwrap_or_default()
}

fn event(record: &WorkloadRecord, warning: bool, reason: &str, note: String) -> Effect {
    Effect::Event(Event {
        kind: Kind::Workload,
        key: record.meta.key.clone(),
        uid: record.meta.uid.to_string(),
        warning,
        reason: reason.to_owned(),
        note,
    })
}

/// The status as our field manager applies it: the conditions that it owns, and the version that it was decided on.
fn status_body(record: &WorkloadRecord, status: &WorkloadStatus) -> Value {
    let mut status = status.clone();
    status.conditions.retain(|c| ConditionType::ALL.iter().any(|kind| kind.as_str() == c.type_));
    json!({
        "apiVersion": format!("{GROUP}/{}", v1beta2::VERSION),
        "kind": "Workload",
        "metadata": {
            "name": record.meta.key.name,
            "namespace": record.meta.key.namespace,
            "uid": record.meta.uid,
            "resourceVersion": record.meta.resource_version,
        },
        "status": status,
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

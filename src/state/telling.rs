//! What is told of Workloads beside their conditions: events and counts, each when the write that it belongs to has landed.

use super::State;
use super::interface::{Effect, Event, Kind, Labels, Observation};
use super::records::{LocalQueueRecord, WorkloadRecord};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::lifecycle::workload::Notice;
use crate::lifecycle::{backoff, conditions};
use crate::scheduler::PreemptionReason;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

impl State {
    /// Events and counts that follow from a notice.
    pub(super) fn tell(&self, record: &WorkloadRecord, notice: &Notice, now: Timestamp) -> Vec<Effect> {
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
            Notice::Preempted(reason, message) => self.tell_preempted(record, *reason, message),
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

    /// A preemption is told to both sides.
    fn tell_preempted(
        &self,
        victim: &WorkloadRecord,
        reason: PreemptionReason,
        message: &str,
    ) -> Vec<Effect> {
        let mut told = vec![event(victim, false, "Preempted", message.to_owned())];
        let preemption = self.engine.preemption_of(&victim.meta.key);
        let Some(preemptor) = preemption.and_then(|found| self.workloads.get(&found.preemptor)) else {
            return told;
        };
        let note = format!("Makes room: {} due to {}", victim.meta.key, reason.text());
        told.push(event(preemptor, false, "PreemptedWorkload", note));
        let preempting = self.cluster_queue_name(preemptor).unwrap_or_default().to_owned();
        told.push(Effect::Observe(Observation::Preempted { preempting, reason: reason.as_str() }));
        told
    }

    /// Labels of the counters for a Workload.
    pub(super) fn labels_of(&self, record: &WorkloadRecord, cluster_queue: &str) -> Labels {
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
    pub(super) fn cohorts_above(&self, cluster_queue: &str) -> Vec<String> {
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

/// Time since, for counters.
pub(super) fn wait(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(backoff::elapsed(since, now)).unwrap_or_default()
}

/// An event on a Workload.
pub(super) fn event(record: &WorkloadRecord, warning: bool, reason: &str, note: String) -> Effect {
    Effect::Event(Event {
        kind: Kind::Workload,
        key: record.meta.key.clone(),
        uid: record.meta.uid.to_string(),
        warning,
        reason: reason.to_owned(),
        note,
    })
}

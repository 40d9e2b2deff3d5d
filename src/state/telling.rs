//! What is told of Workloads beside their conditions: events and counts, each when the write that it belongs to has landed.

use super::State;
use super::interface::{Effect, Event, Kind, Labels, Observation};
use super::records::{LocalQueueRecord, WorkloadRecord};
use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::v1beta2::{Admission, WorkloadStatus};
use crate::lifecycle::workload::Notice;
use crate::lifecycle::{backoff, conditions, eviction};
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
            Notice::Evicted(cause, first) => {
                let ready = conditions::since(&record.status, ConditionType::PodsReady);
                vec![
                    event(record, false, &cause.event_reason(), cause.message.clone()),
                    Effect::Observe(Observation::Evicted {
                        labels: labels(),
                        reason: cause.reason.to_owned(),
                        underlying_cause: cause.underlying.clone(),
                        first: *first,
                        ready: ready.map(|at| wait(at, now)),
                    }),
                ]
            }
            Notice::Released => tell_released(record, now),
            Notice::Preempted(reason, message) => self.tell_preempted(record, *reason, message),
            Notice::Finished(reason, message, ran) => {
                let ran = ran.map(|ran| Duration::try_from(ran).unwrap_or_default());
                let mut told = vec![Effect::Observe(Observation::Finished(labels(), ran))];
                told.extend(self.tell_end(record, reason, message));
                told
            }
            Notice::Expired => {
                let note = "Deleted finished workload due to elapsed retention".to_owned();
                vec![event(record, false, "Deleted", note)]
            }
            Notice::Admitted => {
                let reserved = conditions::since(&record.status, ConditionType::QuotaReserved).unwrap_or(now);
                let reserved = wait(reserved, now);
                let waited = wait(queued_at(record, &record.status), now);
                vec![
                    admitted_event(record, queue, reserved),
                    Effect::Observe(Observation::Admitted(labels(), waited)),
                    Effect::Observe(Observation::ChecksPassed(labels(), reserved)),
                ]
            }
            Notice::Pending(reason, message) => vec![event(record, true, reason.as_str(), message.clone())],
            Notice::PodsReady => {
                let admitted = conditions::since(&record.status, ConditionType::Admitted).unwrap_or(now);
                let queued = wait(queued_at(record, &record.status), now);
                vec![Effect::Observe(Observation::PodsReady(labels(), wait(admitted, now), queued))]
            }
            Notice::CheckUpdated(message) => {
                vec![event(record, false, "AdmissionCheckUpdated", message.clone())]
            }
            Notice::CheckRejected(message) => {
                vec![event(record, true, "AdmissionCheckRejected", format!("Deactivated due to {message}"))]
            }
            Notice::ExecutionTimeExceeded(limit) => {
                let note = format!("The maximum execution time ({limit}s) exceeded");
                vec![event(record, true, "MaximumExecutionTimeExceeded", note)]
            }
            Notice::Gated(gates) => {
                let note = format!("Workload admission is gated by: {gates}");
                vec![event(record, false, PendingReason::AdmissionGated.as_str(), note)]
            }
            Notice::GateCleared => vec![gate_cleared_event(record)],
        }
    }

    /// The end of a slice is told of the slice, any other of the job.
    fn tell_end(&self, record: &WorkloadRecord, reason: &str, message: &str) -> Vec<Effect> {
        if reason == eviction::SLICE_REPLACED {
            let cluster_queue = self.cluster_queue_name(record).unwrap_or_default().to_owned();
            let replaced = Effect::Observe(Observation::SliceReplaced { cluster_queue });
            return vec![event(record, false, reason, message.to_owned()), replaced];
        }
        let note = |key: &ObjectKey| format!("Workload '{key}' is declared finished");
        self.job_event(record, "FinishedWorkload", note).into_iter().collect()
    }

    /// A preemption is told to both sides.
    fn tell_preempted(
        &self,
        victim: &WorkloadRecord,
        reason: PreemptionReason,
        message: &str,
    ) -> Vec<Effect> {
        let preemption = self.engine.preemption_of(&victim.meta.key);
        let Some(preemptor) = preemption.and_then(|found| self.workloads.get(&found.preemptor)) else {
            return vec![event(victim, false, "Preempted", message.to_owned())];
        };
        let priorities = format!(
            "preemptor effective priority: {}; preemptee effective priority: {}",
            priority_text(preemptor),
            priority_text(victim)
        );
        let queue = self.cluster_queue_name(victim).unwrap_or_default();
        let note = format!(
            "Preempted workload {} (UID: {}) in ClusterQueue {queue}; {priorities}",
            victim.meta.key, victim.meta.uid
        );
        let mut told = vec![
            event(victim, false, "Preempted", format!("{message}; {priorities}")),
            event(preemptor, false, "PreemptedWorkload", note),
        ];
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

/// An evicted Workload has given its quota back.
fn tell_released(record: &WorkloadRecord, now: Timestamp) -> Vec<Effect> {
    let evicted = conditions::since(&record.status, ConditionType::Evicted);
    let released = |(admission, evicted): (&Admission, Timestamp)| {
        Effect::Observe(Observation::Released {
            cluster_queue: admission.cluster_queue.clone(),
            reason: conditions::reason(&record.status, ConditionType::Evicted).to_owned(),
            latency: wait(evicted, now),
        })
    };
    record.status.admission.as_ref().zip(evicted).map(released).into_iter().collect()
}

/// Since when a Workload with this status waits for an admission: it was created then, or an eviction of it ended.
pub(super) fn queued_at(record: &WorkloadRecord, status: &WorkloadStatus) -> Timestamp {
    conditions::find(status, ConditionType::Requeued)
        .map_or(record.meta.created, |condition| condition.last_transition_time.0)
}

/// Full seconds in the text of an event.
pub(super) fn seconds_text(time: Duration) -> String {
    format!("{:.0}s", time.as_secs_f64())
}

/// The event of an admission, so long after the reservation.
pub(super) fn admitted_event(record: &WorkloadRecord, queue: &str, reserved: Duration) -> Effect {
    let seconds = seconds_text(reserved);
    let note = format!("Admitted by ClusterQueue {queue}, wait time since reservation was {seconds}");
    event(record, false, "Admitted", note)
}

/// The event of a Workload that no annotation holds back any longer.
pub(super) fn gate_cleared_event(record: &WorkloadRecord) -> Effect {
    let note = "Admission gate cleared, workload is now admissible".to_owned();
    event(record, false, "AdmissionGateCleared", note)
}

/// A priority as events show it; nothing boosts one here.
fn priority_text(record: &WorkloadRecord) -> String {
    format!("{0} (base: {0}, boost: 0)", record.priority)
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

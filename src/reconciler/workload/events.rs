//! What is told of Workloads beside their conditions: events and counts, each when the write that it belongs to has landed.

use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::v1beta2::{Admission, WorkloadStatus};
use crate::cache::Kind;
use crate::cache::records::{LocalQueueRecord, WorkloadRecord};
use crate::lifecycle::workload::Transition;
use crate::lifecycle::{conditions, eviction};
use crate::reconciler::Reconciler;
use crate::reconciler::events::{elapsed_duration, workload_event};
use crate::reconciler::messages::{Effect, Event, Observation, ObservationLabels};
use crate::scheduler::PreemptionReason;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

impl Reconciler {
    /// Events and counts that follow from a notice.
    pub(crate) fn effects_of(
        &self,
        record: &WorkloadRecord,
        notice: &Transition,
        now: Timestamp,
    ) -> Vec<Effect> {
        let queue = self.cache.cluster_queue_name(record).unwrap_or_default();
        let labels = || self.observation_labels(record, queue);
        match notice {
            Transition::Evicted(cause, first) => {
                let ready = conditions::true_since(&record.status, ConditionType::PodsReady);
                vec![
                    workload_event(record, false, &cause.event_reason(), cause.message.clone()),
                    Effect::Observe(Observation::Evicted {
                        labels: labels(),
                        reason: cause.reason.to_owned(),
                        underlying_cause: cause.underlying_cause.clone(),
                        first: *first,
                        ready: ready.map(|at| elapsed_duration(at, now)),
                    }),
                ]
            }
            Transition::QuotaReleased => effects_of_release(record, now),
            Transition::Preempted(reason, message) => self.effects_of_preemption(record, *reason, message),
            Transition::Finished(reason, message, ran) => {
                let ran = ran.map(|ran| Duration::try_from(ran).unwrap_or_default());
                let mut told = vec![Effect::Observe(Observation::Finished(labels(), ran))];
                told.extend(self.effects_of_finish(record, reason, message));
                told
            }
            Transition::RetentionExpired => {
                let note = "Deleted finished workload due to elapsed retention".to_owned();
                vec![workload_event(record, false, "Deleted", note)]
            }
            Transition::Admitted => {
                let reserved =
                    conditions::true_since(&record.status, ConditionType::QuotaReserved).unwrap_or(now);
                let reserved = elapsed_duration(reserved, now);
                let waited = elapsed_duration(waiting_since(record, &record.status), now);
                vec![
                    admitted_event(record, queue, reserved),
                    Effect::Observe(Observation::Admitted(labels(), waited)),
                    Effect::Observe(Observation::ChecksPassed(labels(), reserved)),
                ]
            }
            Transition::Pending(reason, message) => {
                vec![workload_event(record, true, reason.as_str(), message.clone())]
            }
            Transition::PodsReady => {
                let admitted = conditions::true_since(&record.status, ConditionType::Admitted).unwrap_or(now);
                let queued = elapsed_duration(waiting_since(record, &record.status), now);
                vec![Effect::Observe(Observation::PodsReady(
                    labels(),
                    elapsed_duration(admitted, now),
                    queued,
                ))]
            }
            Transition::CheckUpdated(message) => {
                vec![workload_event(record, false, "AdmissionCheckUpdated", message.clone())]
            }
            Transition::CheckRejected(message) => {
                vec![workload_event(
                    record,
                    true,
                    "AdmissionCheckRejected",
                    format!("Deactivated due to {message}"),
                )]
            }
            Transition::ExecutionTimeExceeded(limit) => {
                let note = format!("The maximum execution time ({limit}s) exceeded");
                vec![workload_event(record, true, "MaximumExecutionTimeExceeded", note)]
            }
            Transition::AdmissionGated(gates) => {
                let note = format!("Workload admission is gated by: {gates}");
                vec![workload_event(record, false, PendingReason::AdmissionGated.as_str(), note)]
            }
            Transition::AdmissionGateCleared => vec![gate_cleared_event(record)],
        }
    }

    /// The end of a slice is told of the slice, any other of the job.
    fn effects_of_finish(&self, record: &WorkloadRecord, reason: &str, message: &str) -> Vec<Effect> {
        if reason == eviction::SLICE_REPLACED {
            let cluster_queue = self.cache.cluster_queue_name(record).unwrap_or_default().to_owned();
            let replaced = Effect::Observe(Observation::SliceReplaced { cluster_queue });
            return vec![workload_event(record, false, reason, message.to_owned()), replaced];
        }
        let note = |key: &ObjectKey| format!("Workload '{key}' is declared finished");
        self.event_on_job(record, "FinishedWorkload", note).into_iter().collect()
    }

    /// A preemption is told to both sides.
    fn effects_of_preemption(
        &self,
        victim: &WorkloadRecord,
        reason: PreemptionReason,
        message: &str,
    ) -> Vec<Effect> {
        let preemption = self.engine.preemption_of(&victim.meta.key);
        let Some(preemptor) = preemption.and_then(|found| self.cache.workload(&found.preemptor)) else {
            return vec![workload_event(victim, false, "Preempted", message.to_owned())];
        };
        let priorities = format!(
            "preemptor effective priority: {}; preemptee effective priority: {}",
            format_priority(preemptor),
            format_priority(victim)
        );
        let queue = self.cache.cluster_queue_name(victim).unwrap_or_default();
        let note = format!(
            "Preempted workload {} (UID: {}) in ClusterQueue {queue}; {priorities}",
            victim.meta.key, victim.meta.uid
        );
        let mut told = vec![
            workload_event(victim, false, "Preempted", format!("{message}; {priorities}")),
            workload_event(preemptor, false, "PreemptedWorkload", note),
        ];
        let preempting = self.cache.cluster_queue_name(preemptor).unwrap_or_default().to_owned();
        told.push(Effect::Observe(Observation::Preempted {
            preempting_cluster_queue: preempting,
            reason: reason.as_str(),
        }));
        told
    }

    /// Labels of the counters for a Workload.
    pub(crate) fn observation_labels(
        &self,
        record: &WorkloadRecord,
        cluster_queue: &str,
    ) -> ObservationLabels {
        let local_queue = record.local_queue().and_then(|key| self.cache.local_queue(&key));
        ObservationLabels {
            cluster_queue: cluster_queue.to_owned(),
            cohorts: self.cache.cohorts_above(cluster_queue),
            local_queue: record.queue_name.as_deref().unwrap_or_default().to_owned(),
            local_queue_exported: local_queue.is_some_and(|queue| self.is_local_queue_exported(queue)),
            namespace: record.meta.key.namespace.to_string(),
            priority_class: record.priority_class.as_ref().map(|c| c.name.clone()).unwrap_or_default(),
        }
    }

    /// Whether metrics tell of a LocalQueue.
    pub(crate) fn is_local_queue_exported(&self, queue: &LocalQueueRecord) -> bool {
        let selector = self.settings.local_queue_metrics_selector.as_ref();
        let none = BTreeMap::new();
        let labels = queue.object.metadata.labels.as_ref().unwrap_or(&none);
        selector.is_none_or(|selector| crate::api::selector::matches(selector, labels))
    }

    /// An event on the job of a Workload.
    fn event_on_job(
        &self,
        record: &WorkloadRecord,
        reason: &str,
        note: impl Fn(&ObjectKey) -> String,
    ) -> Option<Effect> {
        let (index, key) = self.cache.job_id(&record.owner.as_ref()?.uid)?;
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
fn effects_of_release(record: &WorkloadRecord, now: Timestamp) -> Vec<Effect> {
    let evicted = conditions::true_since(&record.status, ConditionType::Evicted);
    let released = |(admission, evicted): (&Admission, Timestamp)| {
        Effect::Observe(Observation::QuotaReleased {
            cluster_queue: admission.cluster_queue.clone(),
            reason: conditions::reason(&record.status, ConditionType::Evicted).to_owned(),
            latency: elapsed_duration(evicted, now),
        })
    };
    record.status.admission.as_ref().zip(evicted).map(released).into_iter().collect()
}

/// Since when a Workload with this status waits for an admission: it was created then, or an eviction of it ended.
pub(crate) fn waiting_since(record: &WorkloadRecord, status: &WorkloadStatus) -> Timestamp {
    conditions::find(status, ConditionType::Requeued)
        .map_or(record.meta.created, |condition| condition.last_transition_time.0)
}

/// Full seconds in the text of an event.
pub(crate) fn format_seconds(time: Duration) -> String {
    format!("{:.0}s", time.as_secs_f64())
}

/// The event of an admission, so long after the reservation.
pub(crate) fn admitted_event(record: &WorkloadRecord, queue: &str, reserved: Duration) -> Effect {
    let seconds = format_seconds(reserved);
    let note = format!("Admitted by ClusterQueue {queue}, wait time since reservation was {seconds}");
    workload_event(record, false, "Admitted", note)
}

/// The event of a Workload that no annotation holds back any longer.
pub(crate) fn gate_cleared_event(record: &WorkloadRecord) -> Effect {
    let note = "Admission gate cleared, workload is now admissible".to_owned();
    workload_event(record, false, "AdmissionGateCleared", note)
}

/// A priority as events show it; nothing boosts one here.
fn format_priority(record: &WorkloadRecord) -> String {
    format!("{0} (base: {0}, boost: 0)", record.priority)
}

//! Events and metric observations of Workloads, emitted when the write that they belong to has landed.

use super::WorkloadFacts;
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::v1beta2::{Admission, WorkloadStatus};
use crate::cache::Kind;
use crate::cache::records::{LocalQueueRecord, WorkloadRecord};
use crate::lifecycle::backoff::elapsed_duration;
use crate::lifecycle::workload::{self, Transition};
use crate::lifecycle::{conditions, eviction};
use crate::reconciler::CoreSettings;
use crate::reconciler::events::{event_on, workload_event, workload_warning};
use crate::reconciler::messages::{Effect, EventType, Observation, ObservationLabels};
use crate::scheduler::PreemptionReason;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

impl WorkloadFacts<'_> {
    /// Returns the events and observations of a transition.
    pub(crate) fn effects_of(
        self,
        record: &WorkloadRecord,
        transition: &Transition,
        now: Timestamp,
    ) -> Vec<Effect> {
        let queue = self.cache.cluster_queue_name(record).unwrap_or_default();
        let labels = || self.observation_labels(record, queue);
        match transition {
            Transition::Evicted { cause, first } => {
                let ready = conditions::true_since(&record.status, ConditionType::PodsReady);
                vec![
                    workload_event(record, &cause.event_reason(), cause.message.clone()),
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
            Transition::Finished { reason, message, ran } => {
                let ran = ran.map(|ran| Duration::try_from(ran).unwrap_or_default());
                let mut effects = vec![Effect::Observe(Observation::Finished(labels(), ran))];
                effects.extend(self.effects_of_finish(record, reason, message));
                effects
            }
            Transition::RetentionExpired => {
                let note = "Deleted finished workload due to elapsed retention".to_owned();
                vec![workload_event(record, "Deleted", note)]
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
                vec![workload_warning(record, reason.as_str(), message.clone())]
            }
            Transition::PodsReady => {
                let admitted = conditions::true_since(&record.status, ConditionType::Admitted).unwrap_or(now);
                vec![Effect::Observe(Observation::PodsReady {
                    labels: labels(),
                    since_admission: elapsed_duration(admitted, now),
                    since_queued: elapsed_duration(waiting_since(record, &record.status), now),
                })]
            }
            Transition::CheckUpdated(message) => {
                vec![workload_event(record, "AdmissionCheckUpdated", message.clone())]
            }
            Transition::CheckRejected(message) => {
                vec![workload_warning(
                    record,
                    "AdmissionCheckRejected",
                    format!("Deactivated due to {message}"),
                )]
            }
            Transition::ExecutionTimeExceeded(limit) => {
                let note = format!("The maximum execution time ({limit}s) exceeded");
                vec![workload_warning(record, "MaximumExecutionTimeExceeded", note)]
            }
            Transition::AdmissionGated(gates) => {
                let note = format!("Workload admission is gated by: {gates}");
                vec![workload_event(record, PendingReason::AdmissionGated.as_str(), note)]
            }
            Transition::AdmissionGateCleared => vec![gate_cleared_event(record)],
        }
    }

    /// Returns the effects of a finished Workload: for a slice whose quota a newer one has taken over an event on the Workload and
    /// an observation, for one that was replaced before that nothing, otherwise an event on the job.
    fn effects_of_finish(self, record: &WorkloadRecord, reason: &str, message: &str) -> Vec<Effect> {
        if reason == eviction::SLICE_REPLACED {
            if message == eviction::SLICE_SUPERSEDED {
                return Vec::new();
            }
            let cluster_queue = self.cache.cluster_queue_name(record).unwrap_or_default().to_owned();
            let replaced = Effect::Observe(Observation::SliceReplaced { cluster_queue });
            return vec![workload_event(record, reason, message.to_owned()), replaced];
        }
        let key = &record.meta.key;
        let event = if reason == workload::FAILED_TO_START {
            // Without the event the job would wait for ever without a reason: only its Workload has it.
            let note = format!(
                "Workload '{key}' cannot start the job, because its pod template and the admission (flavors, admission \
                 checks) contradict each other: {message}"
            );
            self.event_on_job(record, EventType::Warning, reason, note)
        } else {
            self.event_on_job(
                record,
                EventType::Normal,
                "FinishedWorkload",
                format!("Workload '{key}' is declared finished"),
            )
        };
        event.into_iter().collect()
    }

    /// Returns the events of a preemption on victim and preemptor, and its observation. If the preemptor is unknown,
    /// only the event on the victim.
    fn effects_of_preemption(
        self,
        victim: &WorkloadRecord,
        reason: PreemptionReason,
        message: &str,
    ) -> Vec<Effect> {
        let preemption = self.engine.preemption_of(&victim.meta.key);
        let Some(preemptor) = preemption.and_then(|entry| self.cache.workload(&entry.preemptor)) else {
            return vec![workload_event(victim, "Preempted", message.to_owned())];
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
        let mut effects = vec![
            workload_event(victim, "Preempted", format!("{message}; {priorities}")),
            workload_event(preemptor, "PreemptedWorkload", note),
        ];
        let preempting = self.cache.cluster_queue_name(preemptor).unwrap_or_default().to_owned();
        effects.push(Effect::Observe(Observation::Preempted {
            preempting_cluster_queue: preempting,
            victim_cluster_queue: queue.to_owned(),
            reason: reason.as_str(),
        }));
        effects
    }

    /// Returns the metric labels of a Workload.
    pub(crate) fn observation_labels(
        self,
        record: &WorkloadRecord,
        cluster_queue: &str,
    ) -> ObservationLabels {
        let local_queue = record.local_queue().and_then(|key| self.cache.local_queue(&key));
        ObservationLabels {
            cluster_queue: cluster_queue.to_owned(),
            cohorts: self.cache.cohorts_above(cluster_queue),
            local_queue: record.queue_name.as_deref().unwrap_or_default().to_owned(),
            local_queue_exported: local_queue
                .is_some_and(|queue| is_local_queue_exported(self.settings, queue)),
            namespace: record.meta.key.namespace.to_string(),
            priority_class: record.priority_class.as_ref().map(|c| c.name.clone()).unwrap_or_default(),
        }
    }

    /// Returns an event on the job of a Workload, if the job is cached.
    fn event_on_job(
        self,
        record: &WorkloadRecord,
        event_type: EventType,
        reason: &str,
        note: String,
    ) -> Option<Effect> {
        if let Some(unit) = self.cache.unit_of_workload(record) {
            let pod = self.cache.unit_pod_keys(&unit).next()?;
            let (uid, _) = self.cache.known_version(Kind::Pod, pod)?;
            return Some(Effect::Event(event_on((Kind::Pod, pod, uid), event_type, reason, note)));
        }
        let ((kind, key), job) = self.units().job_of_workload(record)?;
        Some(Effect::Event(event_on((Kind::Job(*kind), key, &job.uid), event_type, reason, note)))
    }
}

/// Returns whether metrics of a LocalQueue are exported.
pub(crate) fn is_local_queue_exported(settings: &CoreSettings, queue: &LocalQueueRecord) -> bool {
    let none = BTreeMap::new();
    let labels = queue.object.metadata.labels.as_ref().unwrap_or(&none);
    let selector = settings.local_queue_metrics_selector.as_ref();
    selector.is_none_or(|selector| crate::api::selector::matches(selector, labels))
}

/// Returns the observation that an evicted Workload has released its quota.
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

/// Returns since when a Workload with this status waits for admission: the transition time of Requeued, else its
/// creation.
pub(crate) fn waiting_since(record: &WorkloadRecord, status: &WorkloadStatus) -> Timestamp {
    conditions::find(status, ConditionType::Requeued)
        .map_or(record.meta.created, |condition| condition.last_transition_time.0)
}

/// Formats a duration in whole seconds, as in messages of events.
pub(crate) fn format_seconds(time: Duration) -> String {
    format!("{:.0}s", time.as_secs_f64())
}

/// Returns the event of an admission. `reserved` is the time since the quota reservation.
pub(crate) fn admitted_event(record: &WorkloadRecord, queue: &str, reserved: Duration) -> Effect {
    let seconds = format_seconds(reserved);
    let note = format!("Admitted by ClusterQueue {queue}, wait time since reservation was {seconds}");
    workload_event(record, "Admitted", note)
}

/// Returns the event of a Workload whose admission gates were removed.
pub(crate) fn gate_cleared_event(record: &WorkloadRecord) -> Effect {
    let note = "Admission gate cleared, workload is now admissible".to_owned();
    workload_event(record, "AdmissionGateCleared", note)
}

/// Formats the priority of a Workload as in Kueue's events.
fn format_priority(record: &WorkloadRecord) -> String {
    let (base, boost) = (record.priority, record.annotations.priority_boost);
    format!("{} (base: {base}, boost: {boost})", record.effective_priority())
}

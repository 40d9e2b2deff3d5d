//! Kueue's counters and histograms, with the same names, labels, buckets and meaning.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::by_queue::{QueueCounters, QueueHistograms};
use super::family::{
    Buckets, CounterFamily, CounterSet, FamilyRegistry, HistogramFamily, HistogramSet, LONG_WAIT_BUCKETS,
    WAIT_BUCKETS, attempt_labels, cluster_queue_labels, labels_with_role, local_queue_labels,
    with_common_labels,
};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::metrics::build;
use crate::metrics::model::{MetricFamilies, MetricLabels, Role};
use crate::reconciler::{self, Observation};

/// Families with the prefix `kueue`.
#[derive(Debug)]
pub(super) struct KueueCounters {
    families: MetricFamilies,
    attempts: CounterFamily,
    attempt_times: HistogramFamily,
    created: HistogramFamily,
    cohort_admitted: QueueCounters,
    reserved: CounterSet,
    admitted: CounterSet,
    finished: CounterSet,
    evicted: CounterSet,
    evicted_once: QueueCounters,
    preempted: QueueCounters,
    reserved_wait: HistogramSet,
    admission_wait: HistogramSet,
    execution: HistogramSet,
    checks_wait: HistogramSet,
    ready_wait: HistogramSet,
    admitted_until_ready: HistogramSet,
    gate_removed: QueueHistograms,
    ready_until_evicted: QueueHistograms,
    eviction_latency: QueueHistograms,
    recomputed: QueueCounters,
    slices: QueueCounters,
}

impl KueueCounters {
    pub(super) fn new(registry: &mut Registry, platform: &str, families: MetricFamilies) -> Self {
        build_info(registry, platform);
        let mut page = FamilyRegistry { registry, families };
        let reserved = page.counter_set("quota_reserved_workloads", "Quota reservations");
        let admitted = page.counter_set("admitted_workloads", "Admissions of workloads");
        let finished = page.counter_set("finished_workloads", "Workloads that finished");
        let evicted = page.counter_set("evicted_workloads", "Evictions");
        let reserved_wait =
            page.histogram_set("quota_reserved_wait_time_seconds", "Time from queueing to quota reservation");
        let admission_wait = page.histogram_set_of(
            "admission_wait_time_seconds",
            "Time from queueing to admission",
            (LONG_WAIT_BUCKETS, WAIT_BUCKETS),
        );
        let checks_wait = page
            .histogram_set("admission_checks_wait_time_seconds", "Time from quota reservation to admission");
        let execution = page.histogram_set_of(
            "execution_time_seconds",
            "Total time admitted, over all admissions of the workload",
            (LONG_WAIT_BUCKETS, LONG_WAIT_BUCKETS),
        );
        let ready_wait = page.histogram_set("ready_wait_time_seconds", "Time from queueing to ready pods");
        let admitted_until_ready =
            page.histogram_set("admitted_until_ready_wait_time_seconds", "Time from admission to ready pods");
        let attempts = page.counter("admission_attempts", "Scheduling cycles, by result");
        let attempt_times = page.histogram(
            "admission_attempt_duration_seconds",
            "Duration of a scheduling cycle",
            Buckets::Standard,
        );
        let created = page.histogram_if(
            families.creation_latency,
            "workload_creation_latency_seconds",
            "Time from a job's creation to its Workload's",
            Buckets::Latencies(11),
        );
        let gate_removed = page.queue_histogram(
            "pod_scheduling_gate_removal_seconds",
            "Time from admission to the removal of a scheduling gate of a pod",
            Buckets::Standard,
        );
        let ready_until_evicted = page.queue_histogram(
            "pods_ready_to_evicted_time_seconds",
            "Time from ready pods to the eviction",
            WAIT_BUCKETS,
        );
        let eviction_latency = page.queue_histogram(
            "workload_eviction_latency_seconds",
            "Time from the eviction to the release of quota",
            WAIT_BUCKETS,
        );
        let cohort_admitted = page.cohort_counter(
            "cohort_subtree_admitted_workloads",
            "Admissions in all ClusterQueues of the subtree",
        );
        let evicted_once =
            page.queue_counter("evicted_workloads_once", "First evictions of workloads, by reason");
        let preempted = page.queue_counter(
            "preempted_workloads",
            "Preempted workloads, by preempting ClusterQueue and reason",
        );
        let recomputed = page.queue_counter(
            "preemption_target_recomputations",
            "Preemption target searches repeated because of overlap within the cycle, by result",
        );
        let slices =
            page.queue_counter("replaced_workload_slices", "Workload slices replaced by newer slices");
        Self {
            families,
            attempts,
            attempt_times,
            created,
            cohort_admitted,
            reserved,
            admitted,
            finished,
            evicted,
            evicted_once,
            preempted,
            reserved_wait,
            admission_wait,
            execution,
            checks_wait,
            ready_wait,
            admitted_until_ready,
            gate_removed,
            ready_until_evicted,
            eviction_latency,
            recomputed,
            slices,
        }
    }

    /// Counts an observation of the core.
    pub(super) fn observe(&self, observation: &Observation, role: Role) {
        match observation {
            Observation::QuotaReserved(labels, wait) => {
                self.increment(&self.reserved, labels, &[], role);
                self.observe_duration(&self.reserved_wait, labels, *wait, role);
            }
            Observation::Admitted(labels, wait) => {
                self.increment(&self.admitted, labels, &[], role);
                for cohort in labels.cohorts.iter().filter(|_| self.families.cohorts) {
                    let name = vec![("cohort", cohort.clone())];
                    let series = with_common_labels(name, labels, &[], role);
                    self.cohort_admitted.change(&[cohort], &series, count_one);
                }
                self.observe_duration(&self.admission_wait, labels, *wait, role);
            }
            Observation::ChecksPassed(labels, wait) => {
                self.observe_duration(&self.checks_wait, labels, *wait, role);
            }
            Observation::PodsReady { labels, since_admission, since_queued } => {
                self.observe_duration(&self.admitted_until_ready, labels, *since_admission, role);
                self.observe_duration(&self.ready_wait, labels, *since_queued, role);
            }
            Observation::GateRemoved { gate, cluster_queue, is_group, latency } => {
                let is_group = if *is_group { "true" } else { "false" };
                let more = [("cluster_queue", cluster_queue.as_str()), ("is_group", is_group)];
                observe_histogram(
                    &self.gate_removed,
                    cluster_queue,
                    &[&[("name", *gate)], &more[..]].concat(),
                    (*latency, role),
                );
            }
            Observation::Finished(labels, execution) => {
                self.increment(&self.finished, labels, &[], role);
                if let Some(execution) = execution {
                    self.observe_duration(&self.execution, labels, *execution, role);
                }
            }
            Observation::Evicted { labels, reason, underlying_cause, first, ready } => {
                let more = [("reason", reason.clone()), ("underlying_cause", underlying_cause.clone())];
                self.increment(&self.evicted, labels, &more, role);
                if *first {
                    let series = cluster_queue_labels(labels, &more, role);
                    self.evicted_once.change(&[&labels.cluster_queue], &series, count_one);
                }
                if let Some(ready) = ready {
                    let queue = labels.cluster_queue.as_str();
                    let more = [
                        ("cluster_queue", queue),
                        ("reason", reason.as_str()),
                        ("underlying_cause", underlying_cause.as_str()),
                    ];
                    observe_histogram(&self.ready_until_evicted, queue, &more, (*ready, role));
                }
            }
            Observation::QuotaReleased { cluster_queue, reason, latency } => {
                let more = [("cluster_queue", cluster_queue.as_str()), ("reason", reason)];
                observe_histogram(&self.eviction_latency, cluster_queue, &more, (*latency, role));
            }
            Observation::SliceReplaced { cluster_queue } => {
                let labels = labels_with_role("cluster_queue", cluster_queue, role);
                self.slices.change(&[cluster_queue], &labels, count_one);
            }
            Observation::TargetsRecomputed { cluster_queue, result } => {
                let mut labels = labels_with_role("cluster_queue", cluster_queue, role);
                labels.insert(1, ("result", (*result).to_owned()));
                self.recomputed.change(&[cluster_queue], &labels, count_one);
            }
            Observation::Preempted { preempting_cluster_queue: preempting, reason, .. } => {
                let mut labels = labels_with_role("preempting_cluster_queue", preempting, role);
                labels.insert(1, ("reason", (*reason).to_owned()));
                self.preempted.change(&[preempting], &labels, count_one);
            }
            Observation::WorkloadCreated { job_kind, latency } => {
                let labels = labels_with_role("job_kind", job_kind, role);
                self.created.get_or_create(&labels).observe(latency.as_secs_f64());
            }
            Observation::QueueDeleted { kind, key } => self.forget(*kind, key),
            Observation::IneffectiveWrite { .. } => {}
            Observation::AdmissionAttempt { admitted } => {
                self.attempts.get_or_create(&attempt_labels(*admitted, role)).inc();
            }
        }
    }

    /// Records the duration of a scheduling cycle.
    pub(super) fn observe_attempt_duration(&self, admitted: bool, time: Duration, role: Role) {
        self.attempt_times.get_or_create(&attempt_labels(admitted, role)).observe(time.as_secs_f64());
    }

    fn increment(
        &self,
        counts: &CounterSet,
        labels: &reconciler::ObservationLabels,
        more: &[(&'static str, String)],
        role: Role,
    ) {
        counts.queue.change(&[&labels.cluster_queue], &cluster_queue_labels(labels, more, role), count_one);
        if self.families.local_queues && labels.local_queue_exported {
            let series = local_queue_labels(labels, more, role);
            counts.local_queue.change(&[&local_queue(labels)], &series, count_one);
        }
    }

    fn observe_duration(
        &self,
        waits: &HistogramSet,
        labels: &reconciler::ObservationLabels,
        time: Duration,
        role: Role,
    ) {
        let observe = |histogram: &Histogram| histogram.observe(time.as_secs_f64());
        waits.queue.change(&[&labels.cluster_queue], &cluster_queue_labels(labels, &[], role), observe);
        if self.families.local_queues && labels.local_queue_exported {
            let series = local_queue_labels(labels, &[], role);
            waits.local_queue.change(&[&local_queue(labels)], &series, observe);
        }
    }

    /// Removes what was counted of a queue or a cohort that is deleted.
    fn forget(&self, kind: Kind, key: &ObjectKey) {
        let sets = [&self.reserved, &self.admitted, &self.finished, &self.evicted];
        let waits = [
            &self.reserved_wait,
            &self.admission_wait,
            &self.execution,
            &self.checks_wait,
            &self.ready_wait,
            &self.admitted_until_ready,
        ];
        match kind {
            Kind::LocalQueue => {
                let queue = key.to_string();
                for set in sets {
                    set.local_queue.forget(&queue);
                }
                for set in waits {
                    set.local_queue.forget(&queue);
                }
            }
            Kind::ClusterQueue => {
                for set in sets {
                    set.queue.forget(&key.name);
                }
                for set in waits {
                    set.queue.forget(&key.name);
                }
                for family in [&self.evicted_once, &self.preempted, &self.recomputed, &self.slices] {
                    family.forget(&key.name);
                }
                for family in [&self.gate_removed, &self.ready_until_evicted, &self.eviction_latency] {
                    family.forget(&key.name);
                }
            }
            Kind::Cohort => self.cohort_admitted.forget(&key.name),
            _ => {}
        }
    }
}

fn count_one(counter: &Counter) {
    counter.inc();
}

/// Returns the name of the LocalQueue of a workload as that of an object.
fn local_queue(labels: &reconciler::ObservationLabels) -> String {
    ObjectKey::new(&labels.namespace, &labels.local_queue).to_string()
}

/// Records a duration of a ClusterQueue in a histogram without the label for the priority class.
fn observe_histogram(
    family: &QueueHistograms,
    queue: &str,
    labels: &[(&'static str, &str)],
    (time, role): (Duration, Role),
) {
    let all = labels.iter().map(|(name, value)| (*name, (*value).to_owned()));
    let labels: MetricLabels = all.chain([("replica_role", role.as_str().to_owned())]).collect();
    family.change(&[queue], &labels, |histogram| histogram.observe(time.as_secs_f64()));
}

fn build_info(registry: &mut Registry, platform: &str) {
    let labels = [
        ("git_version", concat!("v", env!("CARGO_PKG_VERSION"))),
        ("git_commit", build::COMMIT.unwrap_or_default()),
        ("build_date", build::DATE.unwrap_or_default()),
        ("go_version", ""),
        ("compiler", "rustc"),
        ("platform", platform),
    ];
    let family = Family::<MetricLabels, prometheus_client::metrics::gauge::Gauge>::default();
    family.get_or_create(&labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()).set(1);
    registry.register("build_info", "Build information", family);
}

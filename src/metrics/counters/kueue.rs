//! Kueue's counters and histograms, with the same names, labels, buckets and meaning.

use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::family::{
    Buckets, CounterFamily, CounterSet, FamilyRegistry, HistogramFamily, HistogramSet, LONG_WAIT_BUCKETS,
    WAIT_BUCKETS, attempt_labels, cluster_queue_labels, labels_with_role, local_queue_labels,
    with_common_labels,
};
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
    cohort_admitted: CounterFamily,
    reserved: CounterSet,
    admitted: CounterSet,
    finished: CounterSet,
    evicted: CounterSet,
    evicted_once: CounterFamily,
    preempted: CounterFamily,
    reserved_wait: HistogramSet,
    admission_wait: HistogramSet,
    execution: HistogramSet,
    checks_wait: HistogramSet,
    ready_wait: HistogramSet,
    admitted_until_ready: HistogramSet,
    gate_removed: HistogramFamily,
    ready_until_evicted: HistogramFamily,
    eviction_latency: HistogramFamily,
    recomputed: CounterFamily,
    slices: CounterFamily,
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
        let gate_removed = page.histogram(
            "pod_scheduling_gate_removal_seconds",
            "Time from admission to the removal of a scheduling gate of a pod",
            Buckets::Standard,
        );
        let ready_until_evicted = page.histogram(
            "pods_ready_to_evicted_time_seconds",
            "Time from ready pods to the eviction",
            WAIT_BUCKETS,
        );
        let eviction_latency = page.histogram(
            "workload_eviction_latency_seconds",
            "Time from the eviction to the release of quota",
            WAIT_BUCKETS,
        );
        let cohort_admitted = page.cohort_counter(
            "cohort_subtree_admitted_workloads",
            "Admissions in all ClusterQueues of the subtree",
        );
        let evicted_once = page.counter("evicted_workloads_once", "First evictions of workloads, by reason");
        let preempted =
            page.counter("preempted_workloads", "Preempted workloads, by preempting ClusterQueue and reason");
        let recomputed = page.counter(
            "preemption_target_recomputations",
            "Preemption target searches repeated because of overlap within the cycle, by result",
        );
        let slices = page.counter("replaced_workload_slices", "Workload slices replaced by newer slices");
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
                    self.cohort_admitted.get_or_create(&with_common_labels(name, labels, &[], role)).inc();
                }
                self.observe_duration(&self.admission_wait, labels, *wait, role);
            }
            Observation::ChecksPassed(labels, wait) => {
                self.observe_duration(&self.checks_wait, labels, *wait, role);
            }
            Observation::PodsReady(labels, since_admission, since_queued) => {
                self.observe_duration(&self.admitted_until_ready, labels, *since_admission, role);
                self.observe_duration(&self.ready_wait, labels, *since_queued, role);
            }
            Observation::GateRemoved { gate, cluster_queue, is_group, latency } => {
                let is_group = if *is_group { "true" } else { "false" };
                let more = [("cluster_queue", cluster_queue.as_str()), ("is_group", is_group)];
                observe_histogram(&self.gate_removed, ("name", gate), &more, *latency, role);
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
                    self.evicted_once.get_or_create(&cluster_queue_labels(labels, &more, role)).inc();
                }
                if let Some(ready) = ready {
                    let more = [("reason", reason.as_str()), ("underlying_cause", underlying_cause.as_str())];
                    let queue = ("cluster_queue", labels.cluster_queue.as_str());
                    observe_histogram(&self.ready_until_evicted, queue, &more, *ready, role);
                }
            }
            Observation::QuotaReleased { cluster_queue, reason, latency } => {
                let queue = ("cluster_queue", cluster_queue.as_str());
                observe_histogram(&self.eviction_latency, queue, &[("reason", reason)], *latency, role);
            }
            Observation::SliceReplaced { cluster_queue } => {
                self.slices.get_or_create(&labels_with_role("cluster_queue", cluster_queue, role)).inc();
            }
            Observation::TargetsRecomputed { cluster_queue, result } => {
                let mut labels = labels_with_role("cluster_queue", cluster_queue, role);
                labels.insert(1, ("result", (*result).to_owned()));
                self.recomputed.get_or_create(&labels).inc();
            }
            Observation::Preempted { preempting_cluster_queue: preempting, reason, .. } => {
                let mut labels = labels_with_role("preempting_cluster_queue", preempting, role);
                labels.insert(1, ("reason", (*reason).to_owned()));
                self.preempted.get_or_create(&labels).inc();
            }
            Observation::WorkloadCreated { job_kind, latency } => {
                let labels = labels_with_role("job_kind", job_kind, role);
                self.created.get_or_create(&labels).observe(latency.as_secs_f64());
            }
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
        counts.queue.get_or_create(&cluster_queue_labels(labels, more, role)).inc();
        if self.families.local_queues && labels.local_queue_exported {
            counts.local_queue.get_or_create(&local_queue_labels(labels, more, role)).inc();
        }
    }

    fn observe_duration(
        &self,
        waits: &HistogramSet,
        labels: &reconciler::ObservationLabels,
        time: Duration,
        role: Role,
    ) {
        waits.queue.get_or_create(&cluster_queue_labels(labels, &[], role)).observe(time.as_secs_f64());
        if self.families.local_queues && labels.local_queue_exported {
            waits
                .local_queue
                .get_or_create(&local_queue_labels(labels, &[], role))
                .observe(time.as_secs_f64());
        }
    }
}

/// Records a duration in a histogram without the labels for queue and priority class.
fn observe_histogram(
    family: &HistogramFamily,
    first: (&'static str, &str),
    more: &[(&'static str, &str)],
    time: Duration,
    role: Role,
) {
    let all = std::iter::once(&first).chain(more).map(|(name, value)| (*name, (*value).to_owned()));
    let labels: MetricLabels = all.chain([("replica_role", role.as_str().to_owned())]).collect();
    family.get_or_create(&labels).observe(time.as_secs_f64());
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

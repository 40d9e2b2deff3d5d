//! Counters and histograms of observations since the start of the process.
//!
//! One file for each group of families: `kueue` for Kueue's metrics, `own` for metrics that only this project has,
//! `reviews` for admission reviews.
//!
//! The output is Prometheus' text format, in which a counter family has the name of its samples: Kueue has a counter
//! `finished_workloads_total` and a gauge `finished_workloads`, which would have the same family name in OpenMetrics.

mod by_queue;
mod family;
mod kueue;
mod own;
mod reviews;

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

use self::kueue::KueueCounters;
use self::own::SluiceCounters;
pub use self::reviews::ReviewMetrics;
use super::model::{MetricFamilies, Role};
use crate::cache::Kind;
use crate::reconciler::Observation;

/// All counters of this process.
#[derive(Debug)]
pub struct Counters {
    registry: Registry,
    kueue: KueueCounters,
    sluice: SluiceCounters,
    reviews: ReviewMetrics,
}

impl Counters {
    /// Creates all counters at zero; `platform` is a label of the build info. Disabled families are not counted.
    pub fn new(platform: &str, families: MetricFamilies) -> Self {
        let mut registry = Registry::default();
        let kueue = KueueCounters::new(registry.sub_registry_with_prefix("kueue"), platform, families);
        let own = SluiceCounters::new(registry.sub_registry_with_prefix("sluice"));
        let reviews = ReviewMetrics::new(registry.sub_registry_with_prefix("sluice"));
        Self { registry, kueue, sluice: own, reviews }
    }

    /// Returns the metrics of admission reviews.
    pub fn reviews(&self) -> ReviewMetrics {
        self.reviews.clone()
    }

    /// Counts an observation of the core.
    pub fn observe(&self, observation: &Observation, role: Role) {
        match observation {
            Observation::IneffectiveWrite { resource, verb } => {
                self.sluice.count_ineffective_write(resource, verb);
            }
            Observation::Preempted { preempting_cluster_queue, victim_cluster_queue, reason } => {
                self.sluice.count_preemption(preempting_cluster_queue, victim_cluster_queue, reason);
            }
            Observation::QueueDeleted { kind: Kind::ClusterQueue, key } => {
                self.sluice.forget_queue(&key.name);
            }
            // Only Kueue's families count these. Named, so that a new observation is counted somewhere.
            Observation::QuotaReserved(..)
            | Observation::Admitted(..)
            | Observation::ChecksPassed(..)
            | Observation::PodsReady { .. }
            | Observation::GateRemoved { .. }
            | Observation::Evicted { .. }
            | Observation::QuotaReleased { .. }
            | Observation::SliceReplaced { .. }
            | Observation::TargetsRecomputed { .. }
            | Observation::Finished(..)
            | Observation::WorkloadCreated { .. }
            | Observation::QueueDeleted { .. }
            | Observation::AdmissionAttempt { .. } => {}
        }
        self.kueue.observe(observation, role);
    }

    /// Records the duration of a scheduling cycle.
    pub fn observe_attempt_duration(&self, admitted: bool, time: Duration, role: Role) {
        self.kueue.observe_attempt_duration(admitted, time, role);
    }

    /// Counts one write to the API server.
    pub fn count_write(&self, verb: &str, outcome: &str) {
        self.sluice.count_write(verb, outcome);
    }

    /// Counts one write that the API server refused; `resource` contains the subresource.
    pub fn count_refused_write(&self, resource: &str, verb: &str, code: u16) {
        self.sluice.count_refused_write(resource, verb, code);
    }

    /// Counts events that were not written, by reason.
    pub fn count_dropped_events(&self, reason: &str, number: u64) {
        self.sluice.count_dropped_events(reason, number);
    }

    /// Counts a request for a resource of an aggregated API group.
    pub fn count_visibility_request(&self, group: &str, resource: &str, code: u16) {
        self.sluice.count_visibility_request(group, resource, code);
    }

    /// Sets the number of events that wait to be written.
    pub fn set_queued_events(&self, number: usize) {
        self.sluice.set_queued_events(number);
    }

    /// Renders the metrics in Prometheus' text format.
    pub fn render(&self) -> Result<String, fmt::Error> {
        text(&self.registry)
    }
}

/// Renders a registry in Prometheus' text format.
pub fn text(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode_registry(&mut text, registry)?;
    Ok(with_total_suffix(&text))
}

/// Appends `_total` to the names of counter families, which the encoder omits and this text format requires.
fn with_total_suffix(text: &str) -> String {
    let mut page = String::with_capacity(text.len());
    let mut help: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        if line.starts_with("# HELP ") {
            help = Some(line);
            continue;
        }
        let counter = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" counter\n"));
        if let Some(name) = counter {
            let description = help.take().and_then(|line| line.strip_prefix("# HELP ")?.strip_prefix(name));
            let description = description.unwrap_or("\n");
            page.extend(["# HELP ", name, "_total", description, "# TYPE ", name, "_total counter\n"]);
            continue;
        }
        page.push_str(help.take().unwrap_or_default());
        page.push_str(line);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler;

    const ALL: MetricFamilies = MetricFamilies {
        cluster_queue_resources: true,
        local_queues: true,
        cohorts: true,
        creation_latency: true,
    };

    fn labels(local_queue_shown: bool) -> reconciler::ObservationLabels {
        reconciler::ObservationLabels {
            cluster_queue: "cq".into(),
            cohorts: vec!["team".into(), "org".into()],
            local_queue: "lq".into(),
            local_queue_exported: local_queue_shown,
            namespace: "ns".into(),
            priority_class: "high".into(),
        }
    }

    fn page(families: MetricFamilies, shown: bool) -> String {
        let counters = Counters::new("linux", families);
        counters.observe(&Observation::Admitted(labels(shown), Duration::from_secs(3)), Role::Standalone);
        counters
            .observe(&Observation::Finished(labels(shown), Some(Duration::from_secs(3))), Role::Standalone);
        let created = Observation::WorkloadCreated { job_kind: "Job", latency: Duration::from_millis(15) };
        counters.observe(&created, Role::Standalone);
        counters.observe_attempt_duration(true, Duration::from_millis(7), Role::Standalone);
        counters.count_write("apply", "done");
        counters.count_refused_write("workloads/status", "apply", 403);
        let resource = "workloads/status".to_owned();
        counters.observe(&Observation::IneffectiveWrite { resource, verb: "apply" }, Role::Standalone);
        let preempted = Observation::Preempted {
            preempting_cluster_queue: "a".into(),
            victim_cluster_queue: "b".into(),
            reason: "InCohortReclamation",
        };
        counters.observe(&preempted, Role::Standalone);
        counters.count_dropped_events("full", 2);
        counters.set_queued_events(3);
        counters.count_visibility_request("visibility.kueue.x-k8s.io", "clusterqueues", 200);
        counters.render().unwrap()
    }

    #[test]
    fn observations_are_exported() {
        let text = page(ALL, true);
        for line in [
            r#"kueue_admitted_workloads_total{cluster_queue="cq",priority_class="high",replica_role="standalone"} 1"#,
            r#"kueue_local_queue_admitted_workloads_total{name="lq",namespace="ns",priority_class="high",replica_role="standalone"} 1"#,
            r#"kueue_admission_wait_time_seconds_bucket{le="2.5",cluster_queue="cq",priority_class="high",replica_role="standalone"} 0"#,
            r#"kueue_admission_wait_time_seconds_bucket{le="5.0",cluster_queue="cq",priority_class="high",replica_role="standalone"} 1"#,
            r#"kueue_cohort_subtree_admitted_workloads_total{cohort="org",priority_class="high",replica_role="standalone"} 1"#,
            r#"kueue_cohort_subtree_admitted_workloads_total{cohort="team",priority_class="high",replica_role="standalone"} 1"#,
            r#"kueue_admission_attempt_duration_seconds_bucket{le="0.005",result="success",replica_role="standalone"} 0"#,
            r#"kueue_admission_attempt_duration_seconds_bucket{le="0.01",result="success",replica_role="standalone"} 1"#,
            r#"kueue_workload_creation_latency_seconds_bucket{le="0.02",job_kind="Job",replica_role="standalone"} 1"#,
            r#"sluice_writes_total{verb="apply",outcome="done"} 1"#,
            r#"sluice_writes_ineffective_total{resource="workloads/status",verb="apply"} 1"#,
            r#"sluice_writes_refused_total{resource="workloads/status",verb="apply",code="403"} 1"#,
            r#"sluice_events_dropped_total{reason="full"} 2"#,
            r#"sluice_preemptions_total{preempting_cluster_queue="a",victim_cluster_queue="b",reason="InCohortReclamation"} 1"#,
            "sluice_events_queued 3",
            "# TYPE kueue_finished_workloads_total counter",
            "# HELP kueue_finished_workloads_total Workloads that finished.",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("# TYPE kueue_finished_workloads counter"));
    }

    #[test]
    fn disabled_families_are_omitted() {
        let few = MetricFamilies { local_queues: false, cohorts: false, creation_latency: false, ..ALL };
        let text = page(few, true);
        for family in ["kueue_local_queue_", "kueue_cohort_", "kueue_workload_creation_latency"] {
            assert!(!text.contains(family), "{family} is in\n{text}");
        }
        assert!(!page(ALL, false).contains(r#"name="lq""#), "the LocalQueue is not selected");
    }
}

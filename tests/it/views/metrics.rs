//! The families on the metrics page compared with Kueue's documentation: name, type, labels and bounds.

use jiff::Timestamp;
use sluice::history::HistoryStats;
use sluice::metrics::counters::Counters;
use sluice::metrics::model::{
    ClusterQueueGauges, CohortGauges, Gauges, LocalQueueGauges, MetricFamilies, ResourceGauges, Role,
    UnadmittedGauge,
};
use sluice::reconciler::{Observation, ObservationLabels};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Kueue's families, except for MultiKueue: name, labels besides `replica_role`, and type; for histograms the number of bounds
/// and the last bound.
pub(crate) const KUEUE: &str = "
admission_attempt_duration_seconds | result | histogram 11 10
admission_attempts_total | result | counter
pod_scheduling_gate_removal_seconds | name cluster_queue is_group | histogram 11 10
workload_creation_latency_seconds | job_kind | histogram 11 10.24
admission_checks_wait_time_seconds | cluster_queue priority_class | histogram 14 10240
admission_cycle_preemption_skips | cluster_queue | gauge
admission_wait_time_seconds | cluster_queue priority_class | histogram 16 40960
admitted_active_workloads | cluster_queue | gauge
admitted_workloads_total | cluster_queue priority_class | counter
build_info | git_version git_commit build_date go_version compiler platform | gauge
cluster_queue_info | cluster_queue parent_cohort root_cohort | gauge
cluster_queue_resource_pending | cluster_queue resource | gauge
cluster_queue_status | cluster_queue status | gauge
evicted_workloads_once_total | cluster_queue reason underlying_cause priority_class | counter
evicted_workloads_total | cluster_queue reason underlying_cause priority_class | counter
execution_time_seconds | cluster_queue priority_class | histogram 16 40960
finished_workloads | cluster_queue | gauge
finished_workloads_total | cluster_queue priority_class | counter
pending_scheduling_hashes | cluster_queue status | gauge
pending_workloads | cluster_queue status | gauge
pods_ready_to_evicted_time_seconds | cluster_queue reason underlying_cause | histogram 14 10240
preempted_workloads_total | preempting_cluster_queue reason | counter
preemption_target_recomputations_total | cluster_queue result | counter
quota_reserved_wait_time_seconds | cluster_queue priority_class | histogram 14 10240
quota_reserved_workloads_total | cluster_queue priority_class | counter
replaced_workload_slices_total | cluster_queue | counter
reserving_active_workloads | cluster_queue | gauge
unadmitted_workloads | cluster_queue reason underlying_cause | gauge
workload_eviction_latency_seconds | cluster_queue reason | histogram 14 10240
local_queue_admission_checks_wait_time_seconds | name namespace priority_class | histogram 14 10240
local_queue_admission_fair_sharing_usage | name namespace cluster_queue | gauge
local_queue_admission_wait_time_seconds | name namespace priority_class | histogram 14 10240
local_queue_admitted_active_workloads | name namespace | gauge
local_queue_admitted_workloads_total | name namespace priority_class | counter
local_queue_evicted_workloads_total | name namespace reason underlying_cause priority_class | counter
local_queue_execution_time_seconds | name namespace priority_class | histogram 16 40960
local_queue_finished_workloads | name namespace | gauge
local_queue_finished_workloads_total | name namespace priority_class | counter
local_queue_pending_workloads | name namespace status | gauge
local_queue_quota_reserved_wait_time_seconds | name namespace priority_class | histogram 14 10240
local_queue_quota_reserved_workloads_total | name namespace priority_class | counter
local_queue_reserving_active_workloads | name namespace | gauge
local_queue_resource_reservation | name namespace flavor resource | gauge
local_queue_resource_usage | name namespace flavor resource | gauge
local_queue_status | name namespace active | gauge
local_queue_unadmitted_workloads | name namespace cluster_queue reason underlying_cause | gauge
cohort_info | cohort parent_cohort root_cohort | gauge
cohort_subtree_admitted_active_workloads | cohort | gauge
cohort_subtree_admitted_workloads_total | cohort priority_class | counter
cohort_subtree_quota | cohort flavor resource | gauge
cohort_subtree_resource_reservations | cohort flavor resource | gauge
cohort_weighted_share | cohort | gauge
cluster_queue_borrowing_limit | cohort cluster_queue flavor resource | gauge
cluster_queue_lending_limit | cohort cluster_queue flavor resource | gauge
cluster_queue_nominal_quota | cohort cluster_queue flavor resource | gauge
cluster_queue_resource_reservation | cohort cluster_queue flavor resource | gauge
cluster_queue_resource_usage | cohort cluster_queue flavor resource | gauge
cluster_queue_weighted_share | cluster_queue cohort | gauge
admitted_until_ready_wait_time_seconds | cluster_queue priority_class | histogram 14 10240
local_queue_admitted_until_ready_wait_time_seconds | name namespace priority_class | histogram 14 10240
local_queue_ready_wait_time_seconds | name namespace priority_class | histogram 14 10240
ready_wait_time_seconds | cluster_queue priority_class | histogram 14 10240
";

/// One of each observation.
fn observations() -> Vec<Observation> {
    let labels = || ObservationLabels {
        cluster_queue: "cq".into(),
        cohorts: vec!["team".into()],
        local_queue: "lq".into(),
        local_queue_exported: true,
        namespace: "ns".into(),
        priority_class: "high".into(),
    };
    let time = Duration::from_secs(3);
    let queue = || "cq".to_owned();
    vec![
        Observation::QuotaReserved(labels(), time),
        Observation::Admitted(labels(), time),
        Observation::ChecksPassed(labels(), time),
        Observation::PodsReady { labels: labels(), since_admission: time, since_queued: time },
        Observation::GateRemoved {
            gate: "kueue.x-k8s.io/topology",
            cluster_queue: queue(),
            is_group: false,
            latency: time,
        },
        Observation::Evicted {
            labels: labels(),
            reason: "Preempted".into(),
            underlying_cause: String::new(),
            first: true,
            ready: Some(time),
        },
        Observation::QuotaReleased { cluster_queue: queue(), reason: "Preempted".into(), latency: time },
        Observation::SliceReplaced { cluster_queue: queue() },
        Observation::TargetsRecomputed { cluster_queue: queue(), result: "skipped" },
        Observation::Preempted {
            preempting_cluster_queue: queue(),
            victim_cluster_queue: queue(),
            reason: "InClusterQueue",
        },
        Observation::Finished(labels(), Some(time)),
        Observation::WorkloadCreated { job_kind: "Job", latency: time },
        Observation::AdmissionAttempt { admitted: true },
    ]
}

fn gauges() -> Gauges {
    let resources =
        || vec![ResourceGauges { flavor: "f".into(), resource: "cpu".into(), ..Default::default() }];
    let unadmitted = || vec![UnadmittedGauge { reason: "NoReservation", count: 1, ..Default::default() }];
    Gauges {
        cluster_queues: vec![ClusterQueueGauges {
            name: "cq".into(),
            unadmitted: unadmitted(),
            pending_requests: vec![("cpu".into(), 1.0)],
            resources: resources(),
            preemption_skips: Some(1),
            share: Some(1.0),
            ..Default::default()
        }],
        local_queues: vec![LocalQueueGauges {
            name: "lq".into(),
            unadmitted: unadmitted(),
            resources: resources(),
            past_usage: Some(1.0),
            ..Default::default()
        }],
        cohorts: vec![CohortGauges {
            name: "team".into(),
            resources: resources(),
            share: Some(1.0),
            ..Default::default()
        }],
        ledger_drift: 0,
        history: std::sync::Arc::new(HistoryStats {
            limit_bytes: 1,
            oldest_record: Some(Timestamp::UNIX_EPOCH),
            records: [("wait", 1)].into(),
            ..HistoryStats::default()
        }),
    }
}

/// Description of a family on the page.
#[derive(Debug, Default, PartialEq, Eq)]
struct FamilyDescription {
    kind: String,
    labels: BTreeSet<String>,
    bounds: Vec<String>,
}

/// Parses the families of a page in Prometheus' text format.
fn parse_families(page: &str) -> BTreeMap<String, FamilyDescription> {
    let mut all: BTreeMap<String, FamilyDescription> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            name.clone_into(&mut current);
            let previous = all.insert(
                current.clone(),
                FamilyDescription { kind: kind.to_owned(), ..FamilyDescription::default() },
            );
            assert_eq!(previous, None, "{name} occurs twice");
        } else if let Some((_, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let family = all.get_mut(&current).unwrap();
            let labels = labels.rsplit_once('}').unwrap().0;
            for label in labels.split("\",") {
                let (name, value) = label.split_once("=\"").unwrap();
                if name == "le" {
                    family.bounds.push(value.trim_end_matches('"').to_owned());
                } else {
                    family.labels.insert(name.to_owned());
                }
            }
        }
    }
    all
}

/// The page after each observation, with a gauge of each object.
pub(crate) fn page_of_everything(families: MetricFamilies) -> String {
    let counters = Counters::new("linux", families);
    for observation in observations() {
        counters.observe(&observation, Role::Leader);
    }
    counters.observe_attempt_duration(true, Duration::from_secs(1), Role::Leader);
    sluice::metrics::render(&gauges(), families, Role::Leader).unwrap() + &counters.render().unwrap()
}

#[test]
fn metric_families_match_kueue() {
    let families = MetricFamilies {
        cluster_queue_resources: true,
        local_queues: true,
        cohorts: true,
        creation_latency: true,
    };
    let page = page_of_everything(families);
    let mut remaining = parse_families(&page);
    remaining.retain(|name, _| name.starts_with("kueue_"));
    for line in KUEUE.lines().filter(|line| !line.is_empty()) {
        let parts: Vec<&str> = line.split(" | ").collect();
        let name = format!("kueue_{}", parts[0]);
        let family = remaining.remove(&name).unwrap_or_else(|| panic!("{name} is missing in\n{page}"));
        let mut labels: BTreeSet<String> = parts[1].split(' ').map(str::to_owned).collect();
        if parts[0] != "build_info" {
            labels.insert("replica_role".to_owned());
        }
        assert_eq!(family.labels, labels, "{name}");
        let mut kind = parts[2].split(' ');
        assert_eq!(Some(family.kind.as_str()), kind.next(), "{name}");
        if let (Some(number), Some(last)) = (kind.next(), kind.next()) {
            let finite: Vec<f64> = family.bounds.iter().filter_map(|le| le.parse().ok()).collect();
            let finite: Vec<f64> = finite.into_iter().filter(|le| le.is_finite()).collect();
            assert_eq!(finite.len(), number.parse::<usize>().unwrap(), "{name}: {finite:?}");
            assert!(
                (finite[finite.len() - 1] - last.parse::<f64>().unwrap()).abs() < 1e-9,
                "{name}: {finite:?}"
            );
        }
    }
    assert_eq!(
        remaining.keys().collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "families with Kueue's prefix that Kueue does not have"
    );
}

//! Rendering of gauges. They are computed from each published snapshot, so they cannot drift from the state.

use std::fmt;

use prometheus_client::encoding::EncodeGaugeValue;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::model::{
    ClusterQueueGauges, CohortGauges, Gauges, LocalQueueGauges, MetricFamilies, MetricLabels, PendingGauges,
    QueueStatus, ResourceGauges, Role, UnadmittedGauge,
};

type GaugeFamily = Family<MetricLabels, Gauge<f64, std::sync::atomic::AtomicU64>>;

/// Renders all gauges in Prometheus' text format.
pub fn render(gauges: &Gauges, families: MetricFamilies, role: Role) -> Result<String, fmt::Error> {
    let mut page = Exposition { registry: Registry::with_prefix("kueue"), role };
    cluster_queues(&mut page, &gauges.cluster_queues);
    if families.cohorts {
        cohorts(&mut page, &gauges.cluster_queues, &gauges.cohorts);
    }
    if families.cluster_queue_resources {
        cluster_queue_resources(&mut page, &gauges.cluster_queues);
    }
    if families.local_queues {
        local_queues(&mut page, &gauges.local_queues);
    }
    let mut own = Exposition { registry: Registry::with_prefix("sluice"), role };
    let drift = to_f64(gauges.ledger_drift);
    own.family(
        "ledger_drift",
        "Flavor-resources whose ledger usage differs from usage recomputed from API objects; must be 0",
        [(Vec::new(), drift)],
    );
    own.family(
        "cluster_queue_head_fits_seconds",
        "Time since the head of the ClusterQueue fits into the available quota and is not admitted; 0 if it does not fit",
        gauges
            .cluster_queues
            .iter()
            .map(|queue| (vec![("cluster_queue", queue.name.clone())], queue.head_fits_seconds)),
    );
    super::history::register(&mut own.registry, &gauges.history, role);
    let mut text = String::new();
    encode_registry(&mut text, &page.registry)?;
    text.push_str(&super::counters::text(&own.registry)?);
    Ok(text)
}

/// Registers a gauge without labels.
pub(super) fn register_gauge<N>(registry: &mut Registry, name: &str, help: &str, value: N)
where
    N: EncodeGaugeValue + std::fmt::Debug + Send + Sync + 'static,
    ConstGauge<N>: prometheus_client::encoding::EncodeMetric,
{
    registry.register(name, help, ConstGauge::new(value));
}

struct Exposition {
    registry: Registry,
    role: Role,
}

impl Exposition {
    fn family(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (MetricLabels, f64)>) {
        let family = GaugeFamily::default();
        for (mut labels, value) in samples {
            labels.push(("replica_role", self.role.as_str().to_owned()));
            family.get_or_create(&labels).set(value);
        }
        self.registry.register(name, help, family);
    }
}

/// Converts a count; saturates at `u32::MAX`, which real counts do not reach.
fn to_f64(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

fn pending(labels: &MetricLabels, pending: PendingGauges) -> [(MetricLabels, f64); 2] {
    let with = |status: &str| {
        let mut labels = labels.clone();
        labels.push(("status", status.to_owned()));
        labels
    };
    [(with("active"), to_f64(pending.active)), (with("inadmissible"), to_f64(pending.inadmissible))]
}

fn unadmitted(labels: &MetricLabels, gauges: &[UnadmittedGauge]) -> Vec<(MetricLabels, f64)> {
    let sample = |gauge: &UnadmittedGauge| {
        let mut labels = labels.clone();
        labels.push(("reason", gauge.reason.to_owned()));
        labels.push(("underlying_cause", gauge.underlying_cause.to_owned()));
        (labels, to_f64(gauge.count))
    };
    gauges.iter().map(sample).collect()
}

fn cluster_queues(page: &mut Exposition, queues: &[ClusterQueueGauges]) {
    let name = |queue: &ClusterQueueGauges| vec![("cluster_queue", queue.name.clone())];
    page.family(
        "pending_workloads",
        "Pending workloads",
        queues.iter().flat_map(|queue| pending(&name(queue), queue.pending)),
    );
    page.family(
        "pending_scheduling_hashes",
        "Distinct scheduling hashes of pending workloads",
        queues.iter().flat_map(|queue| pending(&name(queue), queue.pending_hashes)),
    );
    page.family(
        "admission_cycle_preemption_skips",
        "Workloads with preemption targets that a cycle skipped because another workload used the same quota or targets",
        queues.iter().filter_map(|queue| Some((name(queue), to_f64(queue.preemption_skips?)))),
    );
    page.family(
        "reserving_active_workloads",
        "Workloads with reserved quota",
        queues.iter().map(|queue| (name(queue), to_f64(queue.reserving))),
    );
    page.family(
        "admitted_active_workloads",
        "Workloads admitted and not finished",
        queues.iter().map(|queue| (name(queue), to_f64(queue.admitted))),
    );
    let statuses = [
        ("pending", QueueStatus::Pending),
        ("active", QueueStatus::Active),
        ("terminated", QueueStatus::Terminated),
    ];
    page.family(
        "cluster_queue_status",
        "1 for the current status of the ClusterQueue, 0 otherwise",
        queues.iter().flat_map(|queue| {
            statuses.map(|(word, status)| {
                let mut labels = name(queue);
                labels.push(("status", word.to_owned()));
                (labels, if queue.status == status { 1.0 } else { 0.0 })
            })
        }),
    );
    page.family(
        "finished_workloads",
        "Finished workloads that still exist",
        queues.iter().map(|queue| (name(queue), to_f64(queue.finished))),
    );
    page.family(
        "unadmitted_workloads",
        "Workloads not admitted, by reason and underlying cause",
        queues.iter().flat_map(|queue| unadmitted(&name(queue), &queue.unadmitted)),
    );
    page.family(
        "cluster_queue_resource_pending",
        "Resources requested by pending workloads",
        queues.iter().flat_map(|queue| {
            queue.pending_requests.iter().map(|(resource, amount)| {
                let mut labels = name(queue);
                labels.push(("resource", resource.clone()));
                (labels, *amount)
            })
        }),
    );
}

fn cohorts(page: &mut Exposition, queues: &[ClusterQueueGauges], cohorts: &[CohortGauges]) {
    page.family(
        "cluster_queue_info",
        "Parent and root Cohort of the ClusterQueue",
        queues.iter().map(|queue| {
            let labels = vec![
                ("cluster_queue", queue.name.clone()),
                ("parent_cohort", queue.cohort.clone()),
                ("root_cohort", queue.root_cohort.clone()),
            ];
            (labels, 1.0)
        }),
    );
    let name = |cohort: &CohortGauges| vec![("cohort", cohort.name.clone())];
    page.family(
        "cohort_info",
        "Parent and root of the Cohort",
        cohorts.iter().map(|cohort| {
            let mut labels = name(cohort);
            labels.push(("parent_cohort", cohort.parent.clone()));
            labels.push(("root_cohort", cohort.root.clone()));
            (labels, 1.0)
        }),
    );
    if cohorts.iter().any(|cohort| cohort.share.is_some()) {
        page.family(
            "cohort_weighted_share",
            "Weighted dominant resource share",
            cohorts.iter().filter_map(|cohort| Some((name(cohort), cohort.share?))),
        );
    }
    page.family(
        "cohort_subtree_admitted_active_workloads",
        "Admitted workloads in all ClusterQueues of the subtree",
        cohorts.iter().map(|cohort| (name(cohort), to_f64(cohort.admitted))),
    );
    let each = |value: fn(&ResourceGauges) -> f64| {
        cohorts.iter().flat_map(move |cohort| {
            let labels = vec![("cohort", cohort.name.clone())];
            cohort.resources.iter().map(move |resource| (flavor_labels(&labels, resource), value(resource)))
        })
    };
    page.family("cohort_subtree_quota", "Quota of the subtree", each(|resource| resource.quota));
    page.family(
        "cohort_subtree_resource_reservations",
        "Reserved quota in the subtree",
        each(|resource| resource.reserved),
    );
}

fn flavor_labels(labels: &MetricLabels, resource: &ResourceGauges) -> MetricLabels {
    let mut labels = labels.clone();
    labels.push(("flavor", resource.flavor.clone()));
    labels.push(("resource", resource.resource.clone()));
    labels
}

fn cluster_queue_resources(page: &mut Exposition, queues: &[ClusterQueueGauges]) {
    let each = |value: fn(&ResourceGauges) -> f64| {
        queues.iter().flat_map(move |queue| {
            let labels = vec![("cohort", queue.cohort.clone()), ("cluster_queue", queue.name.clone())];
            queue.resources.iter().map(move |resource| (flavor_labels(&labels, resource), value(resource)))
        })
    };
    if queues.iter().any(|queue| queue.share.is_some()) {
        let labels = |queue: &ClusterQueueGauges| {
            vec![("cluster_queue", queue.name.clone()), ("cohort", queue.cohort.clone())]
        };
        page.family(
            "cluster_queue_weighted_share",
            "Weighted dominant resource share",
            queues.iter().filter_map(|queue| Some((labels(queue), queue.share?))),
        );
    }
    page.family("cluster_queue_nominal_quota", "Nominal quota", each(|resource| resource.quota));
    page.family(
        "cluster_queue_borrowing_limit",
        "Borrowing limit",
        each(|resource| resource.borrowing_limit),
    );
    page.family("cluster_queue_lending_limit", "Lending limit", each(|resource| resource.lending_limit));
    page.family("cluster_queue_resource_reservation", "Reserved quota", each(|resource| resource.reserved));
    page.family(
        "cluster_queue_resource_usage",
        "Quota used by admitted workloads",
        each(|resource| resource.used),
    );
}

fn local_queues(page: &mut Exposition, queues: &[LocalQueueGauges]) {
    let name =
        |queue: &LocalQueueGauges| vec![("name", queue.name.clone()), ("namespace", queue.namespace.clone())];
    page.family(
        "local_queue_pending_workloads",
        "Pending workloads",
        queues.iter().flat_map(|queue| pending(&name(queue), queue.pending)),
    );
    page.family(
        "local_queue_reserving_active_workloads",
        "Workloads with reserved quota",
        queues.iter().map(|queue| (name(queue), to_f64(queue.reserving))),
    );
    page.family(
        "local_queue_admitted_active_workloads",
        "Workloads admitted and not finished",
        queues.iter().map(|queue| (name(queue), to_f64(queue.admitted))),
    );
    if queues.iter().any(|queue| queue.past_usage.is_some()) {
        let labels = |queue: &LocalQueueGauges| {
            let mut labels = name(queue);
            labels.push(("cluster_queue", queue.cluster_queue.clone()));
            labels
        };
        page.family(
            "local_queue_admission_fair_sharing_usage",
            "Past usage with exponential decay, divided by the weight",
            queues.iter().filter_map(|queue| Some((labels(queue), queue.past_usage?))),
        );
    }
    page.family(
        "local_queue_status",
        "1 for the current Active status of the LocalQueue, 0 otherwise",
        queues.iter().flat_map(|queue| {
            ["True", "False", "Unknown"].map(|word| {
                let mut labels = name(queue);
                labels.push(("active", word.to_owned()));
                let now = if queue.active { "True" } else { "False" };
                (labels, if word == now { 1.0 } else { 0.0 })
            })
        }),
    );
    page.family(
        "local_queue_finished_workloads",
        "Finished workloads that still exist",
        queues.iter().map(|queue| (name(queue), to_f64(queue.finished))),
    );
    page.family(
        "local_queue_unadmitted_workloads",
        "Workloads not admitted, by reason and underlying cause",
        queues.iter().flat_map(|queue| {
            let mut labels = name(queue);
            labels.push(("cluster_queue", queue.cluster_queue.clone()));
            unadmitted(&labels, &queue.unadmitted)
        }),
    );
    let each = |value: fn(&ResourceGauges) -> f64| {
        queues.iter().flat_map(move |queue| {
            let labels = vec![("name", queue.name.clone()), ("namespace", queue.namespace.clone())];
            queue.resources.iter().map(move |resource| (flavor_labels(&labels, resource), value(resource)))
        })
    };
    page.family("local_queue_resource_reservation", "Reserved quota", each(|resource| resource.reserved));
    page.family(
        "local_queue_resource_usage",
        "Quota used by admitted workloads",
        each(|resource| resource.used),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::HistoryStats;
    use jiff::Timestamp;
    use std::sync::Arc;

    #[test]
    fn rendered_gauges_match_kueue_lines() {
        let gauges = Gauges {
            cluster_queues: vec![ClusterQueueGauges {
                name: "cq".into(),
                cohort: "team".into(),
                root_cohort: "org".into(),
                status: QueueStatus::Active,
                pending: PendingGauges { active: 2, inadmissible: 1 },
                reserving: 4,
                finished: 5,
                head_fits_seconds: 8.5,
                unadmitted: vec![UnadmittedGauge {
                    reason: "NoReservation",
                    underlying_cause: "WaitingForQuota",
                    count: 3,
                }],
                pending_requests: vec![("cpu".into(), 2.5)],
                resources: vec![ResourceGauges {
                    flavor: "f".into(),
                    resource: "cpu".into(),
                    quota: 1.5,
                    borrowing_limit: f64::INFINITY,
                    ..ResourceGauges::default()
                }],
                ..ClusterQueueGauges::default()
            }],
            ledger_drift: 6,
            history: Arc::new(HistoryStats {
                limit_bytes: 100,
                bytes: 70,
                oldest_record: Timestamp::from_second(1_700_000_000).ok(),
                records: [("wait", 9)].into(),
                drift: 2,
                conflicts: 4,
                cut: 3,
                ..HistoryStats::default()
            }),
            local_queues: vec![LocalQueueGauges {
                namespace: "ns".into(),
                name: "lq".into(),
                cluster_queue: "cq".into(),
                finished: 7,
                unadmitted: vec![UnadmittedGauge {
                    reason: "UnsatisfiedAdmissionChecks",
                    underlying_cause: "",
                    count: 1,
                }],
                ..LocalQueueGauges::default()
            }],
            ..Gauges::default()
        };
        let families = MetricFamilies {
            cluster_queue_resources: true,
            local_queues: true,
            cohorts: true,
            creation_latency: true,
        };
        let text = render(&gauges, families, Role::Leader).unwrap();
        for line in [
            r#"kueue_pending_workloads{cluster_queue="cq",status="active",replica_role="leader"} 2.0"#,
            r#"kueue_reserving_active_workloads{cluster_queue="cq",replica_role="leader"} 4.0"#,
            r#"kueue_cluster_queue_status{cluster_queue="cq",status="active",replica_role="leader"} 1.0"#,
            r#"kueue_cluster_queue_status{cluster_queue="cq",status="pending",replica_role="leader"} 0.0"#,
            r#"kueue_cluster_queue_info{cluster_queue="cq",parent_cohort="team",root_cohort="org",replica_role="leader"} 1.0"#,
            r#"kueue_finished_workloads{cluster_queue="cq",replica_role="leader"} 5.0"#,
            r#"kueue_unadmitted_workloads{cluster_queue="cq",reason="NoReservation",underlying_cause="WaitingForQuota",replica_role="leader"} 3.0"#,
            r#"kueue_cluster_queue_resource_pending{cluster_queue="cq",resource="cpu",replica_role="leader"} 2.5"#,
            r#"kueue_local_queue_finished_workloads{name="lq",namespace="ns",replica_role="leader"} 7.0"#,
            r#"kueue_local_queue_unadmitted_workloads{name="lq",namespace="ns",cluster_queue="cq",reason="UnsatisfiedAdmissionChecks",underlying_cause="",replica_role="leader"} 1.0"#,
            r#"sluice_cluster_queue_head_fits_seconds{cluster_queue="cq",replica_role="leader"} 8.5"#,
            r#"sluice_ledger_drift{replica_role="leader"} 6.0"#,
            r#"sluice_history_drift{replica_role="leader"} 2"#,
            r#"sluice_history_records_total{record="wait"} 9"#,
            "sluice_history_conflicts_total 4",
            "sluice_history_cut_total 3",
            "sluice_history_bytes 70",
            "sluice_history_oldest_record_timestamp_seconds 1700000000.0",
            r#"kueue_cluster_queue_nominal_quota{cohort="team",cluster_queue="cq",flavor="f",resource="cpu",replica_role="leader"} 1.5"#,
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
        assert!(text.contains("kueue_cluster_queue_borrowing_limit{"), "{text}");
    }
}

//! The search for victims, with a gated preemptor, so that only the search runs and no workload is evicted; and a whole cycle in
//! which every head preempts.

use super::world::{charge, empty, groups, settle, workload};
use criterion::Criterion;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use sluice::api::ObjectKey;
use sluice::api::v1beta2::{ClusterQueuePreemption, ReclaimPolicy, WithinClusterQueuePolicy};
use sluice::resources::Amount;
use sluice::scheduler::{Charge, ClusterQueue, Engine, EngineSettings, Outcome, PodSet, Workload};
use std::sync::Arc;

/// Queues of one cohort with nominal quota `nominal`, each with `per_queue` reserving workloads of one cpu; the first queue,
/// which reclaims quota, owns `first_nominal`.
fn crowd(
    settings: EngineSettings,
    queues: usize,
    per_queue: usize,
    nominal: i64,
    first_nominal: i64,
) -> Engine {
    let mut engine = empty(settings);
    for n in 0..queues {
        let queue = ClusterQueue {
            cohort: Some(Arc::from("c")),
            groups: groups(&["spot"], &["cpu"], if n == 0 { first_nominal } else { nominal }),
            namespace_selector: Some(LabelSelector::default()),
            preemption: ClusterQueuePreemption {
                reclaim_within_cohort: Some(ReclaimPolicy::Any),
                within_cluster_queue: Some(WithinClusterQueuePolicy::LowerPriority),
                ..ClusterQueuePreemption::default()
            },
            ..ClusterQueue::default()
        };
        engine.set_cluster_queue(&format!("q{n}"), Some(queue));
    }
    for n in 0..queues * per_queue {
        // The first queue has reserving workloads only if it is the only queue.
        let queue = if queues == 1 { 0 } else { 1 + n % (queues - 1) };
        engine.charge(&ObjectKey::new("ns", &format!("h{n}")), charge(&format!("q{queue}"), &["cpu"], n));
    }
    engine
}

fn preemptor(cpu: i64) -> Workload {
    let requests = [(Arc::from("cpu"), Amount::new(cpu))].into_iter().collect();
    let pods = PodSet { name: Arc::from("main"), count: 1, requests, ..PodSet::default() };
    Workload {
        key: ObjectKey::new("ns", "preemptor"),
        uid: Arc::from("preemptor"),
        cluster_queue: Arc::from("q0"),
        local_queue: Arc::from("lq"),
        priority: 100,
        pod_sets: vec![pods].into(),
        preemption_gated: true,
        ..Workload::default()
    }
}

pub(crate) fn preemption(c: &mut Criterion) {
    let fair = || EngineSettings { fair_sharing: Some(Vec::new()), ..EngineSettings::default() };
    let classic = EngineSettings::default;
    let cases: [(&str, Engine, i64); 6] = [
        ("classic, own queue, 1000 candidates, 1 must go", crowd(classic(), 1, 1_000, 1_000, 1_000), 1),
        ("classic, own queue, 1000 candidates, 500 must go", crowd(classic(), 1, 1_000, 1_000, 1_000), 500),
        ("classic, 10 queues, 1000 candidates, 500 must go", crowd(classic(), 10, 100, 0, 1_000), 500),
        ("fair, 100 queues of 10 candidates, 1 must go", crowd(fair(), 100, 10, 0, 1_000), 1),
        ("fair, 100 queues of 10 candidates, 100 must go", crowd(fair(), 100, 10, 0, 1_000), 100),
        ("fair, 100 queues of 10 candidates, 500 must go", crowd(fair(), 100, 10, 0, 1_000), 500),
    ];
    let mut group = c.benchmark_group("search");
    group.sample_size(20);
    for (name, mut engine, cpu) in cases {
        let preemptor = preemptor(cpu);
        group.bench_function(name, |b| {
            b.iter(|| {
                engine.enqueue(preemptor.clone());
                let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
                let gated =
                    decisions.first().is_some_and(|d| matches!(d.outcome, Outcome::PreemptionGated(_)));
                assert!(gated, "victims were found");
                engine.remove_pending(&preemptor.key);
            });
        });
    }
    group.finish();
}

/// 30 queues in 5 full cohorts, with 15,000 pending workloads that may not preempt; then one head per queue that evicts ten
/// victims.
pub(crate) fn crowded(c: &mut Criterion) {
    let mut engine = empty(EngineSettings::default());
    for n in 0..30 {
        let queue = ClusterQueue {
            cohort: Some(Arc::from(format!("c{}", n % 5))),
            groups: groups(&["spot"], &["cpu", "memory"], 100),
            namespace_selector: Some(LabelSelector::default()),
            preemption: ClusterQueuePreemption {
                reclaim_within_cohort: Some(ReclaimPolicy::Any),
                within_cluster_queue: Some(WithinClusterQueuePolicy::LowerPriority),
                ..ClusterQueuePreemption::default()
            },
            ..ClusterQueue::default()
        };
        engine.set_cluster_queue(&format!("q{n}"), Some(queue));
    }
    for n in 0..3_000 {
        let base = charge(&format!("q{}", n % 30), &["cpu", "memory"], n);
        engine.charge(&ObjectKey::new("ns", &format!("h{n}")), Charge { priority: 50, ..base });
    }
    for n in 0..15_000 {
        engine.enqueue(workload(n));
    }
    settle(&mut engine);
    let head = |n: usize| Workload { priority: 100, ..workload(15_001 + 10 * n) };
    let heads: Vec<Workload> = (0..30)
        .map(|n| Workload {
            cluster_queue: Arc::from(format!("q{n}")),
            pod_sets: workload(1).pod_sets,
            ..head(n)
        })
        .collect();
    let mut group = c.benchmark_group("cycle, 30 queues, 5 cohorts, 15000 pending");
    group.sample_size(20);
    group.bench_function("every head evicts ten", |b| {
        b.iter_custom(|times| {
            let mut spent = std::time::Duration::ZERO;
            for _ in 0..times {
                for head in &heads {
                    engine.enqueue(head.clone());
                }
                let start = std::time::Instant::now();
                let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
                spent += start.elapsed();
                let victims = |outcome: &Outcome| match outcome {
                    Outcome::Preempting(_, victims) => victims.len(),
                    _ => 0,
                };
                let evicted: usize = decisions.iter().map(|decision| victims(&decision.outcome)).sum();
                assert_eq!(evicted, 300, "every head evicts ten");
                for head in &heads {
                    engine.remove_pending(&head.key);
                }
                settle(&mut engine);
                engine.take_message_updates(usize::MAX);
            }
            spent
        });
    });
    group.finish();
}

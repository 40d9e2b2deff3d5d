//! Figures of the engine: one cycle of a busy cluster, and one event at growing numbers of pending workloads.

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use sluice::api::ObjectKey;
use sluice::quota::{FlavorQuotas, Limits, ResourceGroup};
use sluice::resources::Amount;
use sluice::scheduler::{
    Charge, ClusterQueue, Engine, EngineSettings, Flavor, FlavorResource, PodSet, Workload,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const QUEUES: usize = 30;
const COHORTS: usize = 5;

fn groups(nominal: i64) -> Vec<ResourceGroup> {
    let limits = Limits { nominal: Amount::new(nominal), ..Limits::default() };
    let flavor = |name: &str| FlavorQuotas {
        name: Arc::from(name),
        limits: ["cpu", "memory"].into_iter().map(|r| (Arc::from(r), limits)).collect(),
    };
    vec![ResourceGroup::of(vec![flavor("spot"), flavor("on-demand")])]
}

/// Every tenth workload has a shape of its own.
fn workload(n: usize) -> Workload {
    let number = i64::try_from(n).unwrap_or_default();
    let own = if n.is_multiple_of(10) { 1 + number % 500 } else { 10 };
    let requests =
        [("cpu", own), ("memory", 10)].into_iter().map(|(r, a)| (Arc::from(r), Amount::new(a))).collect();
    let pods = PodSet { name: Arc::from("main"), count: 1, requests, ..PodSet::default() };
    Workload {
        key: ObjectKey::new("ns", &format!("w{n}")),
        uid: Arc::from(format!("u{n}")),
        cluster_queue: Arc::from(format!("q{}", n % QUEUES)),
        local_queue: Arc::from("lq"),
        priority: number % 3,
        queued_since: Timestamp::from_second(number).unwrap_or_default(),
        pod_sets: vec![pods].into(),
    }
}

fn world(pending: usize, nominal: i64) -> Engine {
    let mut engine = Engine::new(EngineSettings::default());
    engine.set_namespace("ns", Some(BTreeMap::new()));
    for flavor in ["spot", "on-demand"] {
        engine.set_flavor(flavor, Some(Flavor::default()));
    }
    for n in 0..QUEUES {
        let queue = ClusterQueue {
            cohort: Some(Arc::from(format!("c{}", n % COHORTS))),
            groups: groups(nominal),
            namespace_selector: Some(LabelSelector::default()),
            ..ClusterQueue::default()
        };
        engine.set_cluster_queue(&format!("q{n}"), Some(queue));
    }
    for n in 0..pending {
        engine.enqueue(workload(n));
    }
    engine
}

fn charge(n: usize) -> Charge {
    let usage = ["cpu", "memory"].iter().map(|r| (FlavorResource::new("spot", r), Amount::new(1))).collect();
    Charge {
        cluster_queue: Arc::from(format!("q{}", n % QUEUES)),
        usage,
        uid: Arc::from("u"),
        local_queue: Arc::from("lq"),
        priority: 0,
        reserved_at: None,
        evicted: false,
    }
}

fn cycle(c: &mut Criterion) {
    let mut group = c.benchmark_group("cycle, 30 queues, 5 cohorts, 15000 pending");
    group.sample_size(20);
    for (name, nominal) in [("all heads admitted", 1_000_000), ("no head fits", 0)] {
        group.bench_function(name, |b| {
            b.iter_batched_ref(|| world(15_000, nominal), Engine::cycle, BatchSize::PerIteration);
        });
    }
    group.finish();
}

fn event(c: &mut Criterion) {
    let mut group = c.benchmark_group("event");
    for pending in [1_000, 10_000, 100_000] {
        let mut engine = world(pending, 0);
        while engine.has_work() {
            engine.cycle();
        }
        let extra = workload(pending + 7);
        group.bench_function(BenchmarkId::new("enqueue and forget", pending), |b| {
            b.iter(|| {
                engine.enqueue(extra.clone());
                engine.forget(&extra.key);
            });
        });
        let holder = ObjectKey::new("ns", "holder");
        group.bench_function(BenchmarkId::new("charge and release", pending), |b| {
            b.iter(|| {
                engine.charge(&holder, charge(3));
                engine.release(&holder);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, cycle, event);
criterion_main!(benches);

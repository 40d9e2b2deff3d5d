//! Figures of the engine: memory of a pending workload, one cycle of a busy cluster, one event and the time from an event
//! to its decision at growing numbers of pending workloads.

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use sluice::api::ObjectKey;
use sluice::quota::{FlavorQuotas, Limits, ResourceGroup};
use sluice::resources::Amount;
use sluice::scheduler::{
    Charge, ClusterQueue, Engine, EngineSettings, Flavor, FlavorResource, Outcome, PodSet, Workload,
};
use std::cell::RefCell;
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
        ..Workload::default()
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

fn settle(engine: &mut Engine) {
    while engine.has_work() {
        engine.cycle(Timestamp::UNIX_EPOCH);
    }
}

fn charge(n: usize) -> Charge {
    let usage = ["cpu", "memory"].iter().map(|r| (FlavorResource::new("spot", r), Amount::new(1))).collect();
    Charge {
        cluster_queue: Arc::from(format!("q{}", n % QUEUES)),
        usage,
        uid: Arc::from("u"),
        local_queue: Arc::from("lq"),
        ..Charge::default()
    }
}

fn cycle(c: &mut Criterion) {
    let mut group = c.benchmark_group("cycle, 30 queues, 5 cohorts, 15000 pending");
    group.sample_size(20);
    for (name, nominal) in [("all heads admitted", 1_000_000), ("no head fits", 0)] {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || world(15_000, nominal),
                |engine| engine.cycle(Timestamp::UNIX_EPOCH),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn event(c: &mut Criterion) {
    let mut group = c.benchmark_group("event");
    for pending in [1_000, 10_000, 100_000] {
        let mut engine = world(pending, 0);
        settle(&mut engine);
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

/// From a workload that lets go to the one that gets the quota, in a full cluster; what is needed to start over is done
/// outside the measurement.
fn decision(c: &mut Criterion) {
    let mut group = c.benchmark_group("event to decision");
    for pending in [1_000, 10_000, 100_000] {
        let mut engine = world(pending, 10);
        settle(&mut engine);
        let extra = workload(pending + 7);
        group.bench_function(BenchmarkId::new("arrival, does not fit", pending), |b| {
            let extra = Workload { priority: 100, ..extra.clone() };
            b.iter(|| {
                engine.enqueue(extra.clone());
                let decisions = engine.cycle(Timestamp::UNIX_EPOCH);
                engine.forget(&extra.key);
                decisions
            });
        });
        // What most of those that wait ask for, so that somebody fits into it.
        let usual = |charge: &&Charge| charge.usage.values().all(|amount| amount.get() == 10);
        let Some((holder, charge)) = engine
            .charges()
            .find(|(_, charge)| usual(charge))
            .map(|(key, charge)| (key.clone(), charge.clone()))
        else {
            continue;
        };
        let full = RefCell::new((engine, Vec::<ObjectKey>::new()));
        let start_over = || {
            let (engine, given) = &mut *full.borrow_mut();
            engine.charge(&holder, charge.clone());
            for key in given.drain(..) {
                engine.release(&key);
                engine.enqueue(numbered(&key));
            }
            settle(engine);
        };
        let release = |()| {
            let (engine, given) = &mut *full.borrow_mut();
            engine.release(&holder);
            let decisions = engine.cycle(Timestamp::UNIX_EPOCH);
            let admitted = decisions.iter().filter(|d| matches!(d.outcome, Outcome::Admitted(_)));
            given.extend(admitted.map(|decision| decision.key.clone()));
            assert!(!given.is_empty(), "nobody took what was free");
        };
        group.bench_function(BenchmarkId::new("release, somebody fits", pending), |b| {
            b.iter_batched(start_over, release, BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// The workload that has the name.
fn numbered(key: &ObjectKey) -> Workload {
    workload(key.name.trim_start_matches('w').parse().unwrap_or_default())
}

/// Resident memory of the process in bytes, where the system tells.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<usize>().ok());
    kib.unwrap_or_default().saturating_mul(1024)
}

/// Prints what one of many pending workloads costs; workloads of one job template share their pod sets.
fn memory(_: &mut Criterion) {
    let number = 100_000;
    let shared: Vec<_> = (0..20).map(|n| workload(n).pod_sets).collect();
    let variants: [(&str, &dyn Fn(usize) -> Workload); 2] = [
        ("shared pod sets", &|n| {
            let pod_sets = shared.get(n % shared.len()).cloned().unwrap_or_default();
            Workload { pod_sets, ..workload(n) }
        }),
        ("pod sets of their own", &workload),
    ];
    let mut kept = Vec::new();
    for (name, make) in variants {
        let mut engine = world(0, 0);
        let before = resident();
        for n in 0..number {
            engine.enqueue(make(n));
        }
        settle(&mut engine);
        let each = resident().saturating_sub(before) / number;
        eprintln!("memory, {number} pending, {name}: {each} bytes per workload");
        kept.push(engine);
    }
}

criterion_group!(benches, memory, cycle, event, decision);
criterion_main!(benches);

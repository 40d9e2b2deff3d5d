//! One event, and the time from an event to its decision.

use super::world::{charge, settle, workload, world};
use criterion::{BatchSize, BenchmarkId, Criterion};
use jiff::Timestamp;
use sluice::api::ObjectKey;
use sluice::scheduler::{Outcome, Workload};
use std::cell::RefCell;

const PENDING: [usize; 3] = [1_000, 10_000, 100_000];

pub(crate) fn event(c: &mut Criterion) {
    let mut group = c.benchmark_group("event");
    for pending in PENDING {
        let mut engine = world(pending, 0);
        settle(&mut engine);
        engine.take_message_updates(usize::MAX);
        let extra = workload(pending + 7);
        group.bench_function(BenchmarkId::new("enqueue and forget", pending), |b| {
            b.iter(|| {
                engine.enqueue(extra.clone());
                engine.remove_pending(&extra.key);
                // Message updates would accumulate otherwise.
                engine.take_message_updates(1);
            });
        });
        let reserving = ObjectKey::new("ns", "holder");
        group.bench_function(BenchmarkId::new("charge and release", pending), |b| {
            b.iter(|| {
                engine.charge(&reserving, charge("q3", &["cpu", "memory"], 0));
                engine.release(&reserving);
            });
        });
    }
    group.finish();
}

/// From the release of quota to the admission that uses it, in a full cluster; the state is restored outside the measurement.
pub(crate) fn decision(c: &mut Criterion) {
    let mut group = c.benchmark_group("event to decision");
    for pending in PENDING {
        let mut engine = world(pending, 10);
        settle(&mut engine);
        engine.take_message_updates(usize::MAX);
        let extra = workload(pending + 7);
        group.bench_function(BenchmarkId::new("arrival, does not fit", pending), |b| {
            let extra = Workload { priority: 100, ..extra.clone() };
            b.iter(|| {
                engine.enqueue(extra.clone());
                let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
                engine.remove_pending(&extra.key);
                decisions
            });
        });
        engine.take_message_updates(usize::MAX);
        // A charge of the amount that most pending workloads request, so that one of them fits.
        let Some((reserving, charge)) = engine
            .charges()
            .find(|(_, charge)| charge.usage.values().all(|amount| amount.get() == 10))
            .map(|(key, charge)| (key.clone(), charge.clone()))
        else {
            continue;
        };
        let full = RefCell::new((engine, Vec::<ObjectKey>::new()));
        let start_over = || {
            let (engine, admitted_keys) = &mut *full.borrow_mut();
            engine.charge(&reserving, charge.clone());
            for key in admitted_keys.drain(..) {
                engine.release(&key);
                engine.enqueue(numbered(&key));
            }
            settle(engine);
            engine.take_message_updates(usize::MAX);
        };
        let release = |()| {
            let (engine, admitted_keys) = &mut *full.borrow_mut();
            engine.release(&reserving);
            let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
            let admitted = decisions.iter().filter(|d| matches!(d.outcome, Outcome::Admitted(_)));
            admitted_keys.extend(admitted.map(|decision| decision.key.clone()));
            assert!(!admitted_keys.is_empty(), "no workload was admitted");
        };
        group.bench_function(BenchmarkId::new("release, one workload fits", pending), |b| {
            b.iter_batched(start_over, release, BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// Returns the workload with this name.
fn numbered(key: &ObjectKey) -> Workload {
    workload(key.name.trim_start_matches('w').parse().unwrap_or_default())
}

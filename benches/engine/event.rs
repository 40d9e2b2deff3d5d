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
                // What nobody takes would pile up.
                engine.take_message_updates(1);
            });
        });
        let holder = ObjectKey::new("ns", "holder");
        group.bench_function(BenchmarkId::new("charge and release", pending), |b| {
            b.iter(|| {
                engine.charge(&holder, charge("q3", &["cpu", "memory"], 0));
                engine.release(&holder);
            });
        });
    }
    group.finish();
}

/// From a workload that lets go to the one that gets the quota, in a full cluster; what is needed to start over is done
/// outside the measurement.
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
        // What most of those that wait ask for, so that somebody fits into it.
        let Some((holder, charge)) = engine
            .charges()
            .find(|(_, charge)| charge.usage.values().all(|amount| amount.get() == 10))
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
            engine.take_message_updates(usize::MAX);
        };
        let release = |()| {
            let (engine, given) = &mut *full.borrow_mut();
            engine.release(&holder);
            let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
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

//! One cycle with a head in every queue.

use super::world::{settle, workload, world};
use criterion::{BatchSize, Criterion};
use jiff::Timestamp;
use sluice::scheduler::{Engine, Outcome, Workload};

pub(crate) fn cycle(c: &mut Criterion) {
    let mut group = c.benchmark_group("cycle, 30 queues, 5 cohorts, 15000 pending");
    group.sample_size(20);
    for (name, nominal) in [("all heads admitted", 1_000_000), ("no head fits", 0)] {
        for (which, before) in [("first", 0), ("second", 1), ("sixth", 5)] {
            let after = || {
                let mut engine = world(15_000, nominal);
                for _ in 0..before {
                    one(&mut engine);
                }
                engine
            };
            group.bench_function(format!("{name}, {which} after the start"), |b| {
                b.iter_batched_ref(after, one, BatchSize::PerIteration);
            });
        }
    }
    group.bench_function("no head fits", |b| {
        let mut engine = world(15_000, 0);
        settle(&mut engine);
        let heads: Vec<Workload> =
            (0..30).map(|n| Workload { priority: 100, ..workload(15_000 + n) }).collect();
        b.iter_custom(|times| {
            let mut spent = std::time::Duration::ZERO;
            for _ in 0..times {
                for head in &heads {
                    engine.enqueue(head.clone());
                }
                let start = std::time::Instant::now();
                let decisions = one(&mut engine);
                spent += start.elapsed();
                assert_eq!(decisions, heads.len(), "one decision for each head");
                for head in &heads {
                    engine.remove_pending(&head.key);
                }
                engine.take_message_updates(usize::MAX);
            }
            spent
        });
    });
    group.bench_function("all heads admitted", |b| {
        let mut engine = world(15_000, 1_000_000);
        b.iter_custom(|times| {
            let mut spent = std::time::Duration::ZERO;
            for _ in 0..times {
                let start = std::time::Instant::now();
                let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
                spent += start.elapsed();
                for decision in decisions {
                    assert!(matches!(decision.outcome, Outcome::Admitted(_)), "there is quota for all heads");
                    engine.release(&decision.key);
                    let number = decision.key.name.trim_start_matches('w').parse().unwrap_or_default();
                    engine.enqueue(workload(number));
                }
            }
            spent
        });
    });
    group.finish();
}

fn one(engine: &mut Engine) -> usize {
    engine.run_cycle(Timestamp::UNIX_EPOCH).len()
}

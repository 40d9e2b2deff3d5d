//! Queues of one cohort that take from each other without pause, as the load of `make bench-cluster` has it: victims end
//! one after the other, come back, and are in the way of others again. Cycles always come to an end.

use super::world::{charge, engine, key, limits, one, pods, queue, workload};
use jiff::{SignedDuration, Timestamp};
use sluice::api::v1beta2::{ClusterQueuePreemption, ReclaimPolicy, WithinClusterQueuePolicy};
use sluice::scheduler::{ClusterQueue, Decision, Engine, Outcome};
use std::collections::BTreeMap;

const QUEUES: usize = 6;
/// Priority, CPU, steps that it runs, steps between arrivals, and how many there are in each queue.
const CLASSES: [(i64, i64, u32, u32, usize); 3] =
    [(50, 1, 2, 1, 35), (100, 5, 5, 5, 10), (200, 20, 10, 12, 5)];

/// More cycles than any change can ask for.
const ROUNDS: usize = 2000;

/// A workload on its way.
struct Item {
    class: usize,
    queue: usize,
    since: i64,
    /// The step at which it ends, or is gone as a victim.
    ends: Option<u32>,
    leaves: bool,
}

struct World {
    engine: Engine,
    items: BTreeMap<String, Item>,
    random: u64,
    step: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut engine = engine();
        for number in 0..QUEUES {
            let preemption = ClusterQueuePreemption {
                reclaim_within_cohort: Some(ReclaimPolicy::Any),
                within_cluster_queue: Some(WithinClusterQueuePolicy::LowerPriority),
                ..ClusterQueuePreemption::default()
            };
            let plain = queue(Some("c"), one("red", "cpu", limits(20, Some(100), None)));
            engine.set_cluster_queue(&format!("q{number}"), Some(ClusterQueue { preemption, ..plain }));
        }
        Self { engine, items: BTreeMap::new(), random: seed, step: 0 }
    }

    fn chance(&mut self, below: u32) -> u32 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.random >> 40).unwrap() % below
    }

    fn enqueue(&mut self, name: &str) {
        let item = &self.items[name];
        let (priority, cpu, ..) = CLASSES[item.class];
        let sets = vec![pods("main", 1, &[("cpu", cpu)])];
        self.engine.enqueue(workload(name, &format!("q{}", item.queue), priority, item.since, sets));
    }

    fn arrive(&mut self) {
        for queue in 0..QUEUES {
            for (class, (_, _, _, every, count)) in CLASSES.into_iter().enumerate() {
                let number = self.step / every;
                if self.step.is_multiple_of(every) && usize::try_from(number).unwrap() < count {
                    let name = format!("w{queue}-{class}-{number}");
                    let since = i64::from(self.step);
                    self.items.insert(name.clone(), Item { class, queue, since, ends: None, leaves: false });
                    self.enqueue(&name);
                }
            }
        }
    }

    /// Those whose time has come give their quota back; victims queue again.
    fn end(&mut self) {
        let over = |item: &Item| item.ends.is_some_and(|ends| ends <= self.step);
        let names: Vec<String> =
            self.items.iter().filter(|(_, item)| over(item)).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.engine.release(&key(&name));
            let victim = std::mem::take(&mut self.items.get_mut(&name).unwrap().leaves);
            if victim {
                let item = self.items.get_mut(&name).unwrap();
                (item.ends, item.since) = (None, i64::from(self.step));
                self.enqueue(&name);
            } else {
                self.items.remove(&name);
            }
            self.cycles();
        }
    }

    fn cycles(&mut self) {
        let now =
            Timestamp::UNIX_EPOCH + SignedDuration::from_millis(100) * i32::try_from(self.step).unwrap();
        let mut rounds = Vec::new();
        while self.engine.has_work() {
            let decisions = self.engine.cycle(now);
            rounds.push(decisions.iter().map(told).collect::<Vec<String>>());
            let last = rounds.get(rounds.len().saturating_sub(8)..);
            assert!(rounds.len() < ROUNDS, "cycles go on without end at step {}: {last:#?}", self.step);
            if decisions.is_empty() {
                break;
            }
            for decision in decisions {
                match decision.outcome {
                    Outcome::Admitted(_) => {
                        let item = self.items.get_mut(&*decision.key.name).unwrap();
                        item.ends = Some(self.step + CLASSES[item.class].2);
                        // The reservation's write has landed.
                        let usage = [("red", "cpu", CLASSES[item.class].1)];
                        let held = charge(&format!("q{}", item.queue), &usage);
                        let uid = decision.uid;
                        let priority = CLASSES[item.class].0;
                        self.engine
                            .charge(&decision.key, sluice::scheduler::Charge { uid, priority, ..held });
                    }
                    Outcome::Preempting(_, victims) => {
                        for victim in victims {
                            let takes = 1 + self.chance(4);
                            let ends = self.step + takes;
                            let item = self.items.get_mut(&*victim.key.name).unwrap();
                            (item.ends, item.leaves) = (Some(ends), true);
                            // Its eviction is known by its object.
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

fn told(decision: &Decision) -> String {
    let name = &decision.key.name;
    match &decision.outcome {
        Outcome::Admitted(_) => format!("{name} is admitted"),
        Outcome::Pending(verdict) | Outcome::Gated(verdict) => format!("{name} waits: {verdict}"),
        Outcome::Skipped(verdict) => format!("{name} is skipped: {verdict}"),
        Outcome::Preempting(verdict, victims) => {
            let names: Vec<&str> = victims.iter().map(|victim| &*victim.key.name).collect();
            format!("{name} preempts {names:?}: {verdict}")
        }
        other => format!("{name}: {other:?}"),
    }
}

#[test]
fn cycles_end_while_queues_take_from_each_other() {
    for seed in 0..4 {
        let mut world = World::new(seed);
        while world.step == 0 || !world.items.is_empty() {
            world.arrive();
            world.cycles();
            world.end();
            world.cycles();
            world.step += 1;
            assert!(world.step < 5000, "seed {seed}: {} never end", world.items.len());
        }
    }
}

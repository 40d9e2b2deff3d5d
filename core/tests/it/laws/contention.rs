//! Queues of one cohort that preempt each other without pause, as in the load of `make bench-cluster`: victims terminate one
//! after the other, return, and preempt again, for quota or for capacity of nodes. Cycles must always terminate.

use crate::fixtures::builders;
use crate::fixtures::builders::{charge, engine, key, limits, pod_set, queue, single_flavor_group, workload};
use jiff::{SignedDuration, Timestamp};
use sluice_core::api::v1beta2::{
    ClusterQueuePreemption, PodSetTopologyRequest, ReclaimPolicy, WithinClusterQueuePolicy,
};
use sluice_core::resources::{Amount, Requests};
use sluice_core::scheduler::{
    Charge, ClusterQueue, Decision, Engine, EngineSettings, Flavor, Outcome, PodSet, PodSetAssignment,
    PodSetPlacement,
};
use sluice_core::topology::{HOSTNAME_LABEL, NodeSpec, Occupancy, PodRequirements, TasGates};
use std::collections::BTreeMap;
use std::sync::Arc;

const QUEUES: usize = 6;
/// Priority, CPU, steps of run time, steps between arrivals, and number per queue.
const CLASSES: [(i64, i64, u32, u32, usize); 3] =
    [(50, 4, 2, 1, 35), (100, 20, 5, 5, 10), (200, 80, 10, 12, 5)];

/// More cycles than any change can cause.
const MAX_CYCLES: usize = 2000;

/// A workload that has arrived and not finished.
struct Item {
    class: usize,
    queue: usize,
    since: i64,
    /// Step at which it finishes or, as a victim, terminates.
    ends: Option<u32>,
    is_victim: bool,
}

struct World {
    engine: Engine,
    /// Whether pod sets need topology assignments.
    has_topology: bool,
    items: BTreeMap<String, Item>,
    random: u64,
    step: u32,
    /// Admissions, and preemptors with their victims.
    log: Vec<String>,
}

impl World {
    /// With this many hosts in each of three racks, or without nodes.
    fn new(seed: u64, hosts: Option<usize>) -> Self {
        let mut engine = hosts.map_or_else(engine, racks);
        for number in 0..QUEUES {
            let preemption = ClusterQueuePreemption {
                reclaim_within_cohort: Some(ReclaimPolicy::Any),
                within_cluster_queue: Some(WithinClusterQueuePolicy::LowerPriority),
                ..ClusterQueuePreemption::default()
            };
            let base = queue(Some("c"), single_flavor_group("red", "cpu", limits(80, Some(400), None)));
            engine.set_cluster_queue(&format!("q{number}"), Some(ClusterQueue { preemption, ..base }));
        }
        Self {
            engine,
            has_topology: hosts.is_some(),
            items: BTreeMap::new(),
            random: seed,
            step: 0,
            log: Vec::new(),
        }
    }

    fn random_below(&mut self, below: u32) -> u32 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.random >> 40).unwrap() % below
    }

    fn enqueue(&mut self, name: &str) {
        let item = &self.items[name];
        let (priority, cpu, ..) = CLASSES[item.class];
        let set =
            if self.has_topology { topology_pod_set(item, cpu) } else { pod_set("main", 1, &[("cpu", cpu)]) };
        self.engine.enqueue(workload(name, &format!("q{}", item.queue), priority, item.since, vec![set]));
    }

    fn enqueue_arrivals(&mut self) {
        for queue in 0..QUEUES {
            for (class, (_, _, _, every, count)) in CLASSES.into_iter().enumerate() {
                let number = self.step / every;
                if self.step.is_multiple_of(every) && usize::try_from(number).unwrap() < count {
                    let name = format!("w{queue}-{class}-{number}");
                    let since = i64::from(self.step);
                    self.items
                        .insert(name.clone(), Item { class, queue, since, ends: None, is_victim: false });
                    self.enqueue(&name);
                }
            }
        }
    }

    /// Releases workloads that are due; victims are enqueued again.
    fn finish_due(&mut self) {
        let due = |item: &Item| item.ends.is_some_and(|ends| ends <= self.step);
        let names: Vec<String> =
            self.items.iter().filter(|(_, item)| due(item)).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.engine.release(&key(&name));
            let victim = std::mem::take(&mut self.items.get_mut(&name).unwrap().is_victim);
            if victim {
                let item = self.items.get_mut(&name).unwrap();
                (item.ends, item.since) = (None, i64::from(self.step));
                self.enqueue(&name);
            } else {
                self.items.remove(&name);
            }
            self.run_cycles();
        }
    }

    fn run_cycles(&mut self) {
        let now =
            Timestamp::UNIX_EPOCH + SignedDuration::from_millis(100) * i32::try_from(self.step).unwrap();
        let mut rounds = Vec::new();
        while self.engine.has_work() {
            let decisions = self.engine.run_cycle(now);
            rounds.push(decisions.iter().map(describe).collect::<Vec<String>>());
            let last = rounds.get(rounds.len().saturating_sub(8)..);
            assert!(rounds.len() < MAX_CYCLES, "cycles do not terminate at step {}: {last:#?}", self.step);
            if decisions.is_empty() {
                break;
            }
            for decision in decisions {
                if matches!(decision.outcome, Outcome::Admitted(_) | Outcome::Preempting(..)) {
                    self.log.push(format!("step {}: {}", self.step, describe(&decision)));
                }
                match decision.outcome {
                    Outcome::Admitted(assignment) => {
                        let item = self.items.get_mut(&*decision.key.name).unwrap();
                        item.ends = Some(self.step + CLASSES[item.class].2);
                        // The write of the reservation succeeded.
                        let (priority, cpu, ..) = CLASSES[item.class];
                        let base = charge(&format!("q{}", item.queue), &[("red", "cpu", cpu)]);
                        let topology =
                            assignment.pod_sets.iter().filter_map(|set| occupancy(set, cpu)).collect();
                        let uid = decision.uid;
                        self.engine.charge(&decision.key, Charge { uid, priority, topology, ..base });
                    }
                    Outcome::Preempting(_, victims) => {
                        for victim in victims {
                            let takes = 1 + self.random_below(4);
                            let ends = self.step + takes;
                            let item = self.items.get_mut(&*victim.key.name).unwrap();
                            (item.ends, item.is_victim) = (Some(ends), true);
                            // The object would show the eviction; this test goes straight to the release.
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// An engine with three racks of hosts with 96 CPUs each, all of one flavor.
fn racks(hosts: usize) -> Engine {
    let mut settings = EngineSettings::default();
    settings.gates.placement = TasGates { balanced_placement: true, ..settings.gates.placement };
    let mut engine = Engine::new(settings);
    engine.set_namespace("ns", Some(BTreeMap::new()));
    engine.set_topology("racks", Some(["rack", HOSTNAME_LABEL].map(Arc::from).into()));
    engine.set_flavor("red", Some(Flavor { topology_name: Some(Arc::from("racks")), ..Flavor::default() }));
    for host in 0..3 * hosts {
        let name = format!("h{host}");
        let labels = [("rack", format!("r{}", host % 3)), (HOSTNAME_LABEL, name.clone())];
        let amounts = [("cpu", 96), ("pods", 110)];
        let spec = NodeSpec {
            labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            usable: true,
            allocatable: amounts.into_iter().map(|(r, a)| (Arc::from(r), Amount::new(a))).collect(),
            ..NodeSpec::default()
        };
        engine.set_node(&name, Some(spec));
    }
    engine
}

/// Four pods that require one rack, prefer one, or prefer one in slices of two per host.
fn topology_pod_set(item: &Item, cpu: i64) -> PodSet {
    let text = |text: &str| Some(text.to_owned());
    let base = PodSetTopologyRequest::default();
    let request = match item.class {
        0 => PodSetTopologyRequest { required: text("rack"), ..base },
        1 => PodSetTopologyRequest { preferred: text("rack"), ..base },
        _ => PodSetTopologyRequest {
            preferred: text("rack"),
            pod_set_slice_required_topology: text(HOSTNAME_LABEL),
            pod_set_slice_size: Some(2),
            ..base
        },
    };
    let pods = PodRequirements {
        request: Some(request),
        requests: requests_per_pod(cpu),
        ..PodRequirements::default()
    };
    PodSet { count: 4, pod_requirements: Arc::new(pods), ..builders::pod_set("main", 4, &[("cpu", cpu / 4)]) }
}

/// Requests of one of the four pods.
fn requests_per_pod(cpu: i64) -> Requests {
    Requests::from([(Arc::from("cpu"), Amount::new(cpu / 4))])
}

fn occupancy(set: &PodSetAssignment, cpu: i64) -> Option<Occupancy> {
    let PodSetPlacement::Assigned(placement) = &set.topology else { return None };
    Some(Occupancy {
        flavor: Arc::from("red"),
        pod_set: Arc::clone(&set.name),
        placement: placement.clone(),
        requests_per_pod: requests_per_pod(cpu),
    })
}

fn describe(decision: &Decision) -> String {
    let name = &decision.key.name;
    match &decision.outcome {
        Outcome::Admitted(_) => format!("{name} is admitted"),
        Outcome::Pending(verdict) | Outcome::PreemptionGated(verdict) => {
            format!("{name} is pending: {verdict}")
        }
        Outcome::Skipped(verdict) => format!("{name} is skipped: {verdict}"),
        Outcome::Preempting(verdict, victims) => {
            let names: Vec<&str> = victims.iter().map(|victim| &*victim.key.name).collect();
            format!("{name} preempts {names:?}: {verdict}")
        }
        other => format!("{name}: {other:?}"),
    }
}

fn run_history(seed: u64, hosts: Option<usize>) -> Vec<String> {
    let mut world = World::new(seed, hosts);
    while world.step == 0 || !world.items.is_empty() {
        world.enqueue_arrivals();
        world.run_cycles();
        world.finish_due();
        world.run_cycles();
        world.step += 1;
        assert!(world.step < 5000, "seed {seed}: {} workloads never finish", world.items.len());
    }
    world.log
}

/// With more node capacity than quota, topology hardly changes decisions: released nodes cause a few more nominations.
#[test]
fn cycles_terminate_under_mutual_preemption() {
    for seed in 0..3 {
        let (without, with_topology) = (run_history(seed, None), run_history(seed, Some(8)));
        let difference = without.len().abs_diff(with_topology.len());
        assert!(
            difference * 20 <= without.len(),
            "seed {seed}: {} and {} decisions",
            without.len(),
            with_topology.len()
        );
        let common = without.iter().zip(&with_topology).take_while(|(a, b)| a == b).count();
        assert!(
            common * 2 > without.len(),
            "seed {seed}: {:?}",
            without.iter().zip(&with_topology).nth(common)
        );
    }
}

/// Nodes have about as much capacity as all quota, or less.
#[test]
fn cycles_terminate_under_mutual_preemption_with_topology() {
    for hosts in [2, 1] {
        run_history(0, Some(hosts));
        run_history(1, Some(hosts));
    }
}

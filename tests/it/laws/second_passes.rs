//! Second passes of the scheduler: a workload that holds its quota and waits for places on nodes may evict what it could
//! evict if it came now, and nothing else.

use super::cluster::settings;
use super::plain::Quota;
use super::victims::{World, world};
use super::world::{COHORTS, QUEUES, charge, config, key, limits, one, pods, queue, workload};
use jiff::Timestamp;
use proptest::prelude::*;
use sluice::api::v1beta2::{ClusterQueuePreemption, ReclaimPolicy, WithinClusterQueuePolicy};
use sluice::resources::{Amount, Requests};
use sluice::scheduler::{
    Again, Assignment, Charge, ClusterQueue, Decision, Engine, EngineSettings, FairStrategy, Flavor, Outcome,
    PodSet, PodSetAssignment, PreemptionReason, Topology, Workload,
};
use sluice::topology::{HOSTNAME, NodeSpec, Occupancy, Placement, Pods};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Hosts of the random clusters.
const HOSTS: usize = 3;

/// A random cluster whose pods are placed on hosts.
#[derive(Clone, Debug)]
struct Placed {
    world: World,
    /// CPUs of each host.
    sizes: Vec<i64>,
    /// Host of each holder, counted around.
    hosts: Vec<usize>,
    /// Whether shares decide on victims, and by which strategies.
    fair: Option<Vec<FairStrategy>>,
    /// Whether the priority of the asking workload was raised after it had reserved its quota.
    raised: bool,
}

fn each(cpu: i64) -> Requests {
    Requests::from([(Arc::from("cpu"), Amount::new(cpu))])
}

fn on_host(host: usize, cpu: i64) -> Occupancy {
    let domains = vec![([Arc::from(format!("n{host}"))].into(), 1)];
    let placement = Placement { levels: [Arc::from(HOSTNAME)].into(), domains };
    Occupancy { flavor: Arc::from("red"), placement, each: each(cpu) }
}

/// Gives the flavor `red` hosts of these sizes.
fn add_hosts(engine: &mut Engine, sizes: &[i64]) {
    engine.set_flavor("red", Some(Flavor { topology_name: Some(Arc::from("hosts")), ..Flavor::default() }));
    engine.set_topology("hosts", Some([Arc::from(HOSTNAME)].into()));
    for (at, cpu) in sizes.iter().enumerate() {
        let node = NodeSpec {
            labels: BTreeMap::from([(HOSTNAME.to_owned(), format!("n{at}"))]),
            usable: true,
            allocatable: [("cpu", *cpu), ("pods", 99)]
                .map(|(name, n)| (Arc::from(name), Amount::new(n)))
                .into(),
            ..NodeSpec::default()
        };
        engine.set_node(&format!("n{at}"), Some(node));
    }
}

/// A workload of one pod that needs so much of one host.
fn of_one_host(name: &str, queue: &str, priority: i64, since: i64, cpu: i64) -> Workload {
    let placed = Pods { requests: each(cpu), ..Pods::default() };
    let set = PodSet { pods: Arc::new(placed), ..pods("main", 1, &[("cpu", cpu)]) };
    workload(name, queue, priority, since, vec![set])
}

/// Charges the workload without places, as after an admission that delays them, and makes it due for a second pass.
fn wait_for_places(engine: &mut Engine, workload: Workload, priority: i64, unhealthy: Option<&str>) {
    let (queue, cpu) = (Arc::clone(&workload.cluster_queue), workload.pod_sets[0].requests["cpu"].get());
    let held = Charge {
        uid: Arc::clone(&workload.uid),
        priority,
        queued_since: workload.queued_since,
        reserved_at: Some(workload.queued_since),
        ..charge(&queue, &[("red", "cpu", cpu)])
    };
    engine.charge(&workload.key, held);
    let set = PodSetAssignment {
        name: Arc::from("main"),
        count: 1,
        flavors: BTreeMap::from([(Arc::from("cpu"), Arc::from("red"))]),
        usage: each(cpu),
        topology: Topology::Delayed,
    };
    let granted = Assignment { cluster_queue: queue, pod_sets: vec![set] };
    let unhealthy = unhealthy.into_iter().map(str::to_owned).collect();
    engine.second_pass(Again { workload, granted, unhealthy, pinned: false });
}

/// Victims of the first decision on a workload, with the reasons.
fn victims(engine: &mut Engine, name: &str) -> Vec<(String, PreemptionReason)> {
    let decisions = engine.cycle(Timestamp::UNIX_EPOCH);
    let own = decisions.into_iter().find(|decision| *decision.key.name == *name);
    match own.map(|decision| decision.outcome) {
        Some(Outcome::Preempting(_, victims)) => {
            victims.iter().map(|victim| (victim.key.name.to_string(), victim.reason)).collect()
        }
        _ => Vec::new(),
    }
}

impl Placed {
    fn engine(&self) -> Engine {
        let mut engine = self.world.engine(settings(self.fair.clone()));
        add_hosts(&mut engine, &self.sizes);
        for (at, holder) in self.world.holders.iter().enumerate() {
            let topology = vec![on_host(self.hosts[at % self.hosts.len()], holder.amount)];
            engine.charge(&key(&format!("h{at:02}")), Charge { topology, ..self.world.held(at) });
        }
        engine
    }

    fn asks(&self) -> Workload {
        let asker = &self.world.asker;
        of_one_host("asks", QUEUES[asker.queue], asker.priority, asker.since, asker.amount)
    }

    /// Victims of a second pass, where the workload holds its quota already.
    fn second(&self) -> Vec<(String, PreemptionReason)> {
        let mut engine = self.engine();
        let priority = self.world.asker.priority - i64::from(self.raised);
        wait_for_places(&mut engine, self.asks(), priority, None);
        victims(&mut engine, "asks")
    }

    /// Victims of a first pass, where it comes now.
    fn first(&self) -> Vec<(String, PreemptionReason)> {
        let mut engine = self.engine();
        engine.enqueue(self.asks());
        victims(&mut engine, "asks")
    }

    /// Whether the queue of the asking workload uses more than it owns.
    fn borrows(&self) -> bool {
        let asker = &self.world.asker;
        let held = self.world.holders.iter().filter(|holder| holder.queue == asker.queue);
        let used = asker.amount + held.map(|holder| holder.amount).sum::<i64>();
        i128::from(used) > self.world.quotas[COHORTS.len() + asker.queue].nominal
    }
}

fn placed() -> impl Strategy<Value = Placed> {
    let both = vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
    let fair =
        prop_oneof![2 => Just(None), 1 => Just(Some(both.clone())), 1 => Just(Some(both[..1].to_vec()))];
    let sizes = prop::collection::vec(4..12_i64, HOSTS);
    let hosts = prop::collection::vec(0..HOSTS, 9);
    (world(), sizes, hosts, fair, prop::bool::weighted(0.2))
        .prop_map(|(world, sizes, hosts, fair, raised)| Placed { world, sizes, hosts, fair, raised })
}

/// The same with all queues below one cohort that owns nothing, and a queue that must neither evict its own workloads nor
/// others while it borrows.
fn forbidden() -> impl Strategy<Value = Placed> {
    placed().prop_map(|mut placed| {
        let world = &mut placed.world;
        world.parents = [vec![None; COHORTS.len()], vec![Some(0); QUEUES.len()]].concat();
        world.quotas[..COHORTS.len()].fill(Quota::default());
        (world.asker.within, world.asker.borrow) = (WithinClusterQueuePolicy::Never, None);
        placed.fair = None;
        placed
    })
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn a_second_pass_evicts_nothing_that_a_first_pass_could_not(placed in placed()) {
        let found = placed.second();
        if !found.is_empty() {
            prop_assert_eq!(found, placed.first());
        }
    }

    #[test]
    fn a_second_pass_of_a_borrowing_queue_with_never_evicts_nothing(placed in forbidden()) {
        if placed.borrows() {
            prop_assert_eq!(placed.second(), []);
        }
    }
}

/// The random clusters must be worth the laws: passes with victims of every kind, and forbidden ones that find no place.
#[test]
fn the_clusters_of_second_passes_have_victims_of_every_kind() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::new(config(1));
    let mut reasons = BTreeMap::<PreemptionReason, u32>::new();
    let mut refused = 0;
    for _ in 0..2000 {
        let placed = placed().new_tree(&mut runner).unwrap().current();
        for (_, reason) in placed.second() {
            *reasons.entry(reason).or_default() += 1;
        }
        let forbidden = forbidden().new_tree(&mut runner).unwrap().current();
        refused += u32::from(forbidden.borrows() && forbidden.second().is_empty() && waits(&forbidden));
    }
    assert!(reasons.len() == 4 && reasons.values().all(|number| *number > 5), "{reasons:?}");
    assert!(refused > 50, "{refused}");
}

/// Whether a second pass finds no place.
fn waits(placed: &Placed) -> bool {
    let mut engine = placed.engine();
    wait_for_places(&mut engine, placed.asks(), placed.world.asker.priority, None);
    let decisions = engine.cycle(Timestamp::UNIX_EPOCH);
    decisions.iter().any(|decision| matches!(decision.outcome, Outcome::Unplaced(_)))
}

/// One host of 4 CPUs, half of which is in use by a workload that must not be evicted.
fn half_a_host(reclaim: ReclaimPolicy) -> Engine {
    let settings = EngineSettings {
        gates: sluice::scheduler::EngineGates { fail_fast: false, ..EngineSettings::default().gates },
        ..EngineSettings::default()
    };
    let mut engine = super::world::engine_with(settings);
    add_hosts(&mut engine, &[4]);
    let preemption =
        ClusterQueuePreemption { reclaim_within_cohort: Some(reclaim), ..ClusterQueuePreemption::default() };
    for (name, cohort) in [("waits", "all"), ("near", "all"), ("far", "other")] {
        let made = queue(Some(cohort), one("red", "cpu", limits(4, None, None)));
        engine.set_cluster_queue(name, Some(ClusterQueue { preemption: preemption.clone(), ..made }));
    }
    let topology = vec![on_host(0, 2)];
    engine.charge(&key("stays"), Charge { topology, ..charge("near", &[("red", "cpu", 2)]) });
    engine
}

/// A workload that waits for its places keeps others from what it would need for the rest of the cycle, unless its queue may
/// take everything back, or it only lost a node.
#[test]
fn a_second_pass_without_places_keeps_its_footprint_for_the_cycle() {
    for (reclaim, unhealthy, kept) in [
        (ReclaimPolicy::Never, None, true),
        (ReclaimPolicy::LowerPriority, None, true),
        (ReclaimPolicy::Any, None, false),
        (ReclaimPolicy::Never, Some("n9"), false),
    ] {
        for queue in ["near", "far"] {
            let mut engine = half_a_host(reclaim);
            wait_for_places(&mut engine, of_one_host("first", "waits", 0, 0, 4), 0, unhealthy);
            engine.enqueue(of_one_host("second", queue, 0, 1, 2));
            let decisions = engine.cycle(Timestamp::UNIX_EPOCH);
            assert!(unplaced(&decisions), "{decisions:?}");
            let came = super::world::admitted(&decisions) == ["second"];
            assert_eq!(came, !kept, "{reclaim:?} {unhealthy:?} {queue}: {decisions:?}");
            // The pass is not due in the next cycle: nothing is kept any longer, and no wake-up was lost.
            let later = super::world::admitted(&super::world::settle(&mut engine));
            assert_eq!(later.is_empty(), came, "{reclaim:?} {unhealthy:?} {queue}");
        }
    }
}

fn unplaced(decisions: &[Decision]) -> bool {
    decisions.iter().any(|d| *d.key.name == *"first" && matches!(d.outcome, Outcome::Unplaced(_)))
}

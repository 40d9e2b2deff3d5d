//! Second passes of the scheduler: a workload that holds its quota and waits for places on nodes may evict what it could
//! evict if it came now, and nothing else.

use super::builders::{
    COHORTS, QUEUES, charge, config, key, limits, pod_set, queue, single_flavor_group, workload,
};
use super::classic_preemption::{World, world};
use super::cluster::settings;
use super::fast_model::Quota;
use jiff::Timestamp;
use proptest::prelude::*;
use sluice::api::v1beta2::{ClusterQueuePreemption, ReclaimPolicy, WithinClusterQueuePolicy};
use sluice::resources::{Amount, Requests};
use sluice::scheduler::{
    Assignment, Charge, ClusterQueue, Decision, Engine, EngineSettings, FairStrategy, Flavor, Outcome,
    PodSet, PodSetAssignment, PodSetPlacement, PreemptionReason, SecondPassRequest, Workload,
};
use sluice::topology::{HOSTNAME_LABEL, NodeSpec, Occupancy, Placement, PodRequirements};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Hosts of the random clusters.
const HOSTS: usize = 3;

/// A random cluster whose pods are placed on hosts.
#[derive(Clone, Debug)]
struct PlacedCluster {
    world: World,
    /// CPUs of each host.
    sizes: Vec<i64>,
    /// Host of each holder, counted around.
    hosts: Vec<usize>,
    /// Whether shares decide on victims, and by which strategies.
    fair: Option<Vec<FairStrategy>>,
    /// Whether the priority of the asking workload was raised after it had reserved its quota.
    priority_raised: bool,
}

fn requests_per_pod(cpu: i64) -> Requests {
    Requests::from([(Arc::from("cpu"), Amount::new(cpu))])
}

fn on_host(host: usize, cpu: i64) -> Occupancy {
    let domains = vec![([Arc::from(format!("n{host}"))].into(), 1)];
    let placement = Placement { levels: [Arc::from(HOSTNAME_LABEL)].into(), domains };
    Occupancy { flavor: Arc::from("red"), placement, requests_per_pod: requests_per_pod(cpu) }
}

/// Gives the flavor `red` hosts of these sizes.
fn add_hosts(engine: &mut Engine, sizes: &[i64]) {
    engine.set_flavor("red", Some(Flavor { topology_name: Some(Arc::from("hosts")), ..Flavor::default() }));
    engine.set_topology("hosts", Some([Arc::from(HOSTNAME_LABEL)].into()));
    for (at, cpu) in sizes.iter().enumerate() {
        let node = NodeSpec {
            labels: BTreeMap::from([(HOSTNAME_LABEL.to_owned(), format!("n{at}"))]),
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
fn one_host_workload(name: &str, queue: &str, priority: i64, since: i64, cpu: i64) -> Workload {
    let placed = PodRequirements { requests: requests_per_pod(cpu), ..PodRequirements::default() };
    let set = PodSet { pod_requirements: Arc::new(placed), ..pod_set("main", 1, &[("cpu", cpu)]) };
    workload(name, queue, priority, since, vec![set])
}

/// Charges the workload without places, as after an admission that delays them, and makes it due for a second pass.
fn request_second_pass(engine: &mut Engine, workload: Workload, priority: i64, unhealthy: Option<&str>) {
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
        usage: requests_per_pod(cpu),
        topology: PodSetPlacement::Delayed,
    };
    let granted = Assignment { cluster_queue: queue, pod_sets: vec![set] };
    let unhealthy = unhealthy.into_iter().map(str::to_owned).collect();
    engine.request_second_pass(SecondPassRequest {
        workload,
        granted,
        unhealthy_nodes: unhealthy,
        immovable: false,
    });
}

/// Victims of the first decision on a workload, with the reasons.
fn victims_of(engine: &mut Engine, name: &str) -> Vec<(String, PreemptionReason)> {
    let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
    let own = decisions.into_iter().find(|decision| *decision.key.name == *name);
    match own.map(|decision| decision.outcome) {
        Some(Outcome::Preempting(_, victims)) => {
            victims.iter().map(|victim| (victim.key.name.to_string(), victim.reason)).collect()
        }
        _ => Vec::new(),
    }
}

impl PlacedCluster {
    fn engine(&self) -> Engine {
        let mut engine = self.world.engine(settings(self.fair.clone()));
        add_hosts(&mut engine, &self.sizes);
        for (at, holder) in self.world.reserving.iter().enumerate() {
            let topology = vec![on_host(self.hosts[at % self.hosts.len()], holder.amount)];
            engine.charge(&key(&format!("h{at:02}")), Charge { topology, ..self.world.charge_of(at) });
        }
        engine
    }

    fn preemptor_workload(&self) -> Workload {
        let asker = &self.world.preemptor;
        one_host_workload("asks", QUEUES[asker.queue], asker.priority, asker.since, asker.amount)
    }

    /// Victims of a second pass, where the workload holds its quota already.
    fn second_pass_victims(&self) -> Vec<(String, PreemptionReason)> {
        let mut engine = self.engine();
        let priority = self.world.preemptor.priority - i64::from(self.priority_raised);
        request_second_pass(&mut engine, self.preemptor_workload(), priority, None);
        victims_of(&mut engine, "asks")
    }

    /// Victims of a first pass, where it comes now.
    fn first_pass_victims(&self) -> Vec<(String, PreemptionReason)> {
        let mut engine = self.engine();
        engine.enqueue(self.preemptor_workload());
        victims_of(&mut engine, "asks")
    }

    /// Whether the queue of the asking workload uses more than it owns.
    fn is_borrowing(&self) -> bool {
        let asker = &self.world.preemptor;
        let held = self.world.reserving.iter().filter(|holder| holder.queue == asker.queue);
        let used = asker.amount + held.map(|holder| holder.amount).sum::<i64>();
        i128::from(used) > self.world.quotas[COHORTS.len() + asker.queue].nominal
    }
}

fn placed() -> impl Strategy<Value = PlacedCluster> {
    let both = vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
    let fair =
        prop_oneof![2 => Just(None), 1 => Just(Some(both.clone())), 1 => Just(Some(both[..1].to_vec()))];
    let sizes = prop::collection::vec(4..12_i64, HOSTS);
    let hosts = prop::collection::vec(0..HOSTS, 9);
    (world(), sizes, hosts, fair, prop::bool::weighted(0.2)).prop_map(
        |(world, sizes, hosts, fair, raised)| PlacedCluster {
            world,
            sizes,
            hosts,
            fair,
            priority_raised: raised,
        },
    )
}

/// The same with all queues below one cohort that owns nothing, and a queue that must neither evict its own workloads nor
/// others while it borrows.
fn forbidden() -> impl Strategy<Value = PlacedCluster> {
    placed().prop_map(|mut placed| {
        let world = &mut placed.world;
        world.parents = [vec![None; COHORTS.len()], vec![Some(0); QUEUES.len()]].concat();
        world.quotas[..COHORTS.len()].fill(Quota::default());
        (world.preemptor.within_cluster_queue, world.preemptor.borrow_threshold) =
            (WithinClusterQueuePolicy::Never, None);
        placed.fair = None;
        placed
    })
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn second_pass_victims_equal_first_pass_victims(placed in placed()) {
        let found = placed.second_pass_victims();
        if !found.is_empty() {
            prop_assert_eq!(found, placed.first_pass_victims());
        }
    }

    #[test]
    fn second_pass_of_borrowing_queue_respects_never_policy(placed in forbidden()) {
        if placed.is_borrowing() {
            prop_assert_eq!(placed.second_pass_victims(), []);
        }
    }
}

/// The random clusters must be worth the laws: passes with victims of every kind, and forbidden ones that find no place.
#[test]
fn generator_covers_second_pass_preemption_reasons() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::new(config(1));
    let mut reasons = BTreeMap::<PreemptionReason, u32>::new();
    let mut refused = 0;
    for _ in 0..2000 {
        let placed = placed().new_tree(&mut runner).unwrap().current();
        for (_, reason) in placed.second_pass_victims() {
            *reasons.entry(reason).or_default() += 1;
        }
        let forbidden = forbidden().new_tree(&mut runner).unwrap().current();
        refused += u32::from(
            forbidden.is_borrowing()
                && forbidden.second_pass_victims().is_empty()
                && finds_no_placement(&forbidden),
        );
    }
    assert!(reasons.len() == 4 && reasons.values().all(|number| *number > 5), "{reasons:?}");
    assert!(refused > 50, "{refused}");
}

/// Whether a second pass finds no place.
fn finds_no_placement(placed: &PlacedCluster) -> bool {
    let mut engine = placed.engine();
    request_second_pass(&mut engine, placed.preemptor_workload(), placed.world.preemptor.priority, None);
    let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
    decisions.iter().any(|decision| matches!(decision.outcome, Outcome::TopologyPending(_)))
}

/// One host of 4 CPUs, half of which is in use by a workload that must not be evicted.
fn half_used_host(reclaim: ReclaimPolicy) -> Engine {
    let settings = EngineSettings {
        gates: sluice::scheduler::EngineGates { fail_fast: false, ..EngineSettings::default().gates },
        ..EngineSettings::default()
    };
    let mut engine = super::builders::engine_with(settings);
    add_hosts(&mut engine, &[4]);
    let preemption =
        ClusterQueuePreemption { reclaim_within_cohort: Some(reclaim), ..ClusterQueuePreemption::default() };
    for (name, cohort) in [("waits", "all"), ("near", "all"), ("far", "other")] {
        let made = queue(Some(cohort), single_flavor_group("red", "cpu", limits(4, None, None)));
        engine.set_cluster_queue(name, Some(ClusterQueue { preemption: preemption.clone(), ..made }));
    }
    let topology = vec![on_host(0, 2)];
    engine.charge(&key("stays"), Charge { topology, ..charge("near", &[("red", "cpu", 2)]) });
    engine
}

/// A workload that waits for its places keeps others from what it would need for the rest of the cycle, unless its queue may
/// take everything back, or it only lost a node.
#[test]
fn unplaced_second_pass_withholds_footprint_for_cycle() {
    for (reclaim, unhealthy, kept) in [
        (ReclaimPolicy::Never, None, true),
        (ReclaimPolicy::LowerPriority, None, true),
        (ReclaimPolicy::Any, None, false),
        (ReclaimPolicy::Never, Some("n9"), false),
    ] {
        for queue in ["near", "far"] {
            let mut engine = half_used_host(reclaim);
            request_second_pass(&mut engine, one_host_workload("first", "waits", 0, 0, 4), 0, unhealthy);
            engine.enqueue(one_host_workload("second", queue, 0, 1, 2));
            let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
            assert!(is_unplaced(&decisions), "{decisions:?}");
            let came = super::builders::admitted_names(&decisions) == ["second"];
            assert_eq!(came, !kept, "{reclaim:?} {unhealthy:?} {queue}: {decisions:?}");
            // The pass is not due in the next cycle: nothing is kept any longer, and no wake-up was lost.
            let later = super::builders::admitted_names(&super::builders::run_until_idle(&mut engine));
            assert_eq!(later.is_empty(), came, "{reclaim:?} {unhealthy:?} {queue}");
        }
    }
}

fn is_unplaced(decisions: &[Decision]) -> bool {
    decisions.iter().any(|d| *d.key.name == *"first" && matches!(d.outcome, Outcome::TopologyPending(_)))
}

//! Second passes of the scheduler: a reserving workload that waits for a topology assignment may preempt what it could preempt
//! in a first pass, and nothing else.

use super::classic_preemption::{World, world};
use super::cluster::settings;
use super::fast_model::Quota;
use crate::fixtures::builders;
use crate::fixtures::builders::{
    COHORTS, QUEUES, charge, config, key, limits, pod_set, queue, single_flavor_group, workload,
};
use jiff::Timestamp;
use proptest::prelude::*;
use sluice_core::api::v1beta2::{
    ClusterQueuePreemption, QueueingStrategy, ReclaimPolicy, WithinClusterQueuePolicy,
};
use sluice_core::resources::{Amount, Requests};
use sluice_core::scheduler::{
    Assignment, Charge, ClusterQueue, Decision, Engine, EngineSettings, FairStrategy, Flavor, Outcome,
    PodSet, PodSetAssignment, PodSetPlacement, PreemptionReason, SecondPassRequest, Workload,
};
use sluice_core::topology::{HOSTNAME_LABEL, NodeSpec, Occupancy, Placement, PodRequirements};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of hosts of the random clusters.
const HOSTS: usize = 3;

/// A random cluster whose workloads have topology assignments.
#[derive(Clone, Debug)]
struct PlacedCluster {
    world: World,
    /// CPUs of each host.
    sizes: Vec<i64>,
    /// Host of each reserving workload; indexes are taken modulo the length.
    hosts: Vec<usize>,
    /// Strategies of fair sharing, if enabled.
    fair: Option<Vec<FairStrategy>>,
    /// Whether the preemptor's priority was raised after it had reserved its quota.
    priority_raised: bool,
}

fn requests_per_pod(cpu: i64) -> Requests {
    Requests::from([(Arc::from("cpu"), Amount::new(cpu))])
}

pub(super) fn on_host(host: usize, cpu: i64) -> Occupancy {
    let domains = vec![([Arc::from(format!("n{host}"))].into(), 1)];
    let placement = Placement { levels: [Arc::from(HOSTNAME_LABEL)].into(), domains };
    Occupancy {
        flavor: Arc::from("red"),
        pod_set: Arc::from("main"),
        placement,
        requests_per_pod: requests_per_pod(cpu),
    }
}

/// Gives the flavor `red` one host of each size.
pub(super) fn add_hosts(engine: &mut Engine, sizes: &[i64]) {
    engine.set_flavor("red", Some(Flavor { topology_name: Some(Arc::from("hosts")), ..Flavor::default() }));
    engine.set_topology("hosts", Some([Arc::from(HOSTNAME_LABEL)].into()));
    for (index, cpu) in sizes.iter().enumerate() {
        let node = NodeSpec {
            labels: BTreeMap::from([(HOSTNAME_LABEL.to_owned(), format!("n{index}"))]),
            usable: true,
            allocatable: [("cpu", *cpu), ("pods", 99)]
                .map(|(name, n)| (Arc::from(name), Amount::new(n)))
                .into(),
            ..NodeSpec::default()
        };
        engine.set_node(&format!("n{index}"), Some(node));
    }
}

/// A workload of one pod that needs `cpu` on one host.
pub(super) fn one_host_workload(name: &str, queue: &str, priority: i64, since: i64, cpu: i64) -> Workload {
    let requirements = PodRequirements { requests: requests_per_pod(cpu), ..PodRequirements::default() };
    let set = PodSet { pod_requirements: Arc::new(requirements), ..pod_set("main", 1, &[("cpu", cpu)]) };
    workload(name, queue, priority, since, vec![set])
}

/// Charges the workload without a topology assignment, as after an admission that delays it, and requests its second pass.
fn request_second_pass(engine: &mut Engine, workload: Workload, priority: i64, unhealthy: Option<&str>) {
    let (queue, cpu) = (Arc::clone(&workload.cluster_queue), workload.pod_sets[0].requests["cpu"].get());
    let charged = Charge {
        uid: Arc::clone(&workload.uid),
        priority,
        queued_since: workload.queued_since,
        reserved_at: Some(workload.queued_since),
        ..charge(&queue, &[("red", "cpu", cpu)])
    };
    engine.charge(&workload.key, charged);
    let set = PodSetAssignment {
        name: Arc::from("main"),
        count: 1,
        flavors: BTreeMap::from([(Arc::from("cpu"), Arc::from("red"))]),
        usage: requests_per_pod(cpu),
        topology: PodSetPlacement::Delayed,
    };
    let granted = Assignment { cluster_queue: queue, pod_sets: vec![set] };
    let unhealthy = unhealthy.into_iter().map(str::to_owned).collect();
    engine.request_second_pass(SecondPassRequest { workload, granted, unhealthy_nodes: unhealthy });
}

/// Runs one cycle. Returns the victims of the workload `name`, with reasons.
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
        for (index, workload) in self.world.reserving.iter().enumerate() {
            let topology = vec![on_host(self.hosts[index % self.hosts.len()], workload.amount)];
            engine.charge(&key(&format!("h{index:02}")), Charge { topology, ..self.world.charge_of(index) });
        }
        engine
    }

    fn preemptor_workload(&self) -> Workload {
        let preemptor = &self.world.preemptor;
        one_host_workload(
            "asks",
            QUEUES[preemptor.queue],
            preemptor.priority,
            preemptor.since,
            preemptor.amount,
        )
    }

    /// Victims of a second pass: the workload has reserved its quota.
    fn second_pass_victims(&self) -> Vec<(String, PreemptionReason)> {
        let mut engine = self.engine();
        let priority = self.world.preemptor.priority - i64::from(self.priority_raised);
        request_second_pass(&mut engine, self.preemptor_workload(), priority, None);
        victims_of(&mut engine, "asks")
    }

    /// Victims of a first pass: the workload is pending.
    fn first_pass_victims(&self) -> Vec<(String, PreemptionReason)> {
        let mut engine = self.engine();
        engine.enqueue(self.preemptor_workload());
        victims_of(&mut engine, "asks")
    }

    /// Whether the preemptor's queue uses more than its quota.
    fn is_borrowing(&self) -> bool {
        let preemptor = &self.world.preemptor;
        let reserving = self.world.reserving.iter().filter(|workload| workload.queue == preemptor.queue);
        let used = preemptor.amount + reserving.map(|workload| workload.amount).sum::<i64>();
        i128::from(used) > self.world.quotas[COHORTS.len() + preemptor.queue].nominal
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

/// [`placed`] with all queues below one cohort without quota; the preemptor's queue may preempt neither its own workloads nor,
/// while it borrows, others.
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
        let victims = placed.second_pass_victims();
        if !victims.is_empty() {
            prop_assert_eq!(victims, placed.first_pass_victims());
        }
    }

    #[test]
    fn second_pass_of_borrowing_queue_respects_never_policy(placed in forbidden()) {
        if placed.is_borrowing() {
            prop_assert_eq!(placed.second_pass_victims(), []);
        }
    }
}

/// A second pass that finds no nodes, and two heads of its cohort: one whose own quota suffices, and one that borrows and
/// needs no nodes yet.
#[derive(Clone, Debug)]
struct ClaimedNode {
    /// CPUs of the node, and those that a workload of another cohort uses.
    node: i64,
    used: i64,
    /// CPUs of the second pass, of the head and of the borrower.
    pass: i64,
    head: i64,
    borrower: i64,
    /// Nominal quotas of the queues of the second pass and of the head.
    quotas: [i64; 2],
    reclaim: [ReclaimPolicy; 2],
    strict: [bool; 2],
}

impl ClaimedNode {
    fn engine(&self) -> Engine {
        let mut engine = builders::engine();
        add_hosts(&mut engine, &[self.node]);
        let mut add = |name: &str, cohort, nominal, reclaim, strict: bool, delayed: bool| {
            let strategy =
                if strict { QueueingStrategy::StrictFIFO } else { QueueingStrategy::BestEffortFIFO };
            let preemption =
                ClusterQueuePreemption { reclaim_within_cohort: Some(reclaim), ..<_>::default() };
            let provisioned_flavors = delayed.then(|| Arc::from("red")).into_iter().collect();
            let base = queue(Some(cohort), single_flavor_group("red", "cpu", limits(nominal, None, None)));
            let spec = ClusterQueue { strategy, preemption, provisioned_flavors, ..base };
            engine.set_cluster_queue(name, Some(spec));
        };
        let never = ReclaimPolicy::Never;
        add("elsewhere", "other", self.used, never, false, false);
        add("pass", "all", self.quotas[0], self.reclaim[0], false, true);
        add("owner", "all", self.quotas[1], self.reclaim[1], self.strict[0], false);
        add("guest", "all", 0, never, self.strict[1], true);
        let topology = vec![on_host(0, self.used)];
        engine
            .charge(&key("stays"), Charge { topology, ..charge("elsewhere", &[("red", "cpu", self.used)]) });
        engine
    }
}

fn claimed_node() -> impl Strategy<Value = ClaimedNode> {
    let reclaim =
        || prop::sample::select(vec![ReclaimPolicy::Never, ReclaimPolicy::LowerPriority, ReclaimPolicy::Any]);
    let amounts = (3..9_i64, 1..4_i64, 1..9_i64, 1..5_i64, 1..5_i64);
    (amounts, [1..9_i64, 1..6_i64], [reclaim(), reclaim()], any::<[bool; 2]>()).prop_map(
        |((node, used, pass, head, borrower), quotas, reclaim, strict)| ClaimedNode {
            node,
            used,
            pass,
            head,
            borrower,
            quotas,
            reclaim,
            strict,
        },
    )
}

/// Names of the workloads that a cycle with the second pass admits, those admitted later, and the quota that the cycle
/// leaves to the head's queue.
fn run_claimed(node: &ClaimedNode) -> ([Vec<String>; 2], i64) {
    let mut engine = node.engine();
    request_second_pass(&mut engine, one_host_workload("pass", "pass", 0, 0, node.pass), 0, None);
    engine.enqueue(one_host_workload("head", "owner", 3, 1, node.head));
    engine.enqueue(one_host_workload("borrower", "guest", 3, 2, node.borrower));
    let first = builders::admitted_names(&engine.run_cycle(Timestamp::UNIX_EPOCH));
    let left = engine.available("owner", &sluice_core::scheduler::FlavorResource::new("red", "cpu")).get();
    engine.release(&key("pass"));
    ([first, builders::admitted_names(&builders::run_until_idle(&mut engine))], left)
}

/// Whether the head could start but for a second pass that claims its nodes, and may not be able to take its quota back.
fn loses_nodes(node: &ClaimedNode) -> bool {
    let quota = node.head <= node.quotas[1] && node.pass <= node.quotas[0];
    let nodes = node.used < node.node && node.head <= node.node - node.used;
    let claims = node.reclaim.iter().all(|reclaim| *reclaim != ReclaimPolicy::Any);
    let claimed = (node.node - node.used).min(node.node) < node.pass && node.pass <= node.node;
    quota && nodes && claims && claimed && node.head > node.node - node.used - node.pass
}

proptest! {
    #![proptest_config(config(1500))]

    /// A head that loses its nodes to the claim of a second pass keeps its quota for the rest of the cycle, and what waits for
    /// it is admitted later.
    #[test]
    fn head_behind_second_pass_keeps_its_quota(node in claimed_node()) {
        let ([first, later], left) = run_claimed(&node);
        if loses_nodes(&node) {
            prop_assert!(!first.contains(&"head".to_owned()), "{:?}", first);
            prop_assert!(left >= node.head, "{left} is left for a head of {}", node.head);
            prop_assert!(later.contains(&"head".to_owned()), "{first:?} {later:?}");
        }
        // Without the second pass, quota alone limits the borrower.
        let total = node.quotas[0] + node.quotas[1];
        let admitted = |name: &str| first.iter().chain(&later).any(|admitted| admitted == name);
        let head = if admitted("head") { node.head } else { 0 };
        if node.borrower + node.head <= total && !node.strict[0] {
            prop_assert!(admitted("borrower") || head + node.borrower > total, "{first:?} {later:?}");
        }
    }
}

/// With reclaim Any, the head claims nothing: it can take its quota back.
#[test]
fn only_heads_that_cannot_reclaim_claim_quota() {
    let base = ClaimedNode {
        node: 4,
        used: 1,
        pass: 4,
        head: 2,
        borrower: 2,
        quotas: [4, 2],
        reclaim: [ReclaimPolicy::Never, ReclaimPolicy::LowerPriority],
        strict: [true, true],
    };
    let with = |pass, head| ClaimedNode { reclaim: [pass, head], ..base.clone() };
    let (any, lower, never) = (ReclaimPolicy::Any, ReclaimPolicy::LowerPriority, ReclaimPolicy::Never);
    let cases = [
        ("StrictFIFO", base.clone(), vec![], vec!["head"]),
        ("BestEffortFIFO", ClaimedNode { strict: [false, false], ..base.clone() }, vec![], vec!["head"]),
        ("reclaim Never", with(never, never), vec![], vec!["head"]),
        ("reclaim Any", with(never, any), vec!["borrower"], vec!["head"]),
        ("second pass with reclaim Any", with(any, lower), vec!["head"], vec![]),
        (
            "second pass that is placed",
            ClaimedNode { pass: 1, ..base.clone() },
            vec!["head", "borrower"],
            vec![],
        ),
    ];
    for (case, node, first, later) in cases {
        let ([actual, actual_later], _) = run_claimed(&node);
        assert_eq!(actual, first, "{case}");
        assert!(
            later.iter().all(|name| actual_later.iter().any(|other| other == name)),
            "{case}: {actual_later:?}"
        );
    }
}

/// Random clusters must cover all preemption reasons, and forbidden second passes that find no placement.
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

/// Runs a second pass. Returns whether it found no placement.
fn finds_no_placement(placed: &PlacedCluster) -> bool {
    let mut engine = placed.engine();
    request_second_pass(&mut engine, placed.preemptor_workload(), placed.world.preemptor.priority, None);
    let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
    decisions.iter().any(|decision| matches!(decision.outcome, Outcome::TopologyPending(_)))
}

/// One host of 4 CPUs, half of it used by a workload that must not be evicted.
fn half_used_host(reclaim: ReclaimPolicy) -> Engine {
    let settings = EngineSettings {
        gates: sluice_core::scheduler::EngineGates { fail_fast: false, ..EngineSettings::default().gates },
        ..EngineSettings::default()
    };
    let mut engine = builders::engine_with(settings);
    add_hosts(&mut engine, &[4]);
    let preemption =
        ClusterQueuePreemption { reclaim_within_cohort: Some(reclaim), ..ClusterQueuePreemption::default() };
    for (name, cohort) in [("waits", "all"), ("near", "all"), ("far", "other")] {
        let base = queue(Some(cohort), single_flavor_group("red", "cpu", limits(4, None, None)));
        engine.set_cluster_queue(name, Some(ClusterQueue { preemption: preemption.clone(), ..base }));
    }
    let topology = vec![on_host(0, 2)];
    engine.charge(&key("stays"), Charge { topology, ..charge("near", &[("red", "cpu", 2)]) });
    engine
}

/// A second pass without a placement withholds the capacity that it would need from others for the rest of the cycle, unless
/// its queue may reclaim from any workload, or it only lost a node.
#[test]
fn unplaced_second_pass_withholds_footprint_for_cycle() {
    for (reclaim, unhealthy, withheld) in [
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
            let admitted = builders::admitted_names(&decisions) == ["second"];
            assert_eq!(admitted, !withheld, "{reclaim:?} {unhealthy:?} {queue}: {decisions:?}");
            // The second pass is not due in the next cycle: nothing is withheld, and no wake-up was lost.
            let later = builders::admitted_names(&builders::run_until_idle(&mut engine));
            assert_eq!(later.is_empty(), admitted, "{reclaim:?} {unhealthy:?} {queue}");
        }
    }
}

fn is_unplaced(decisions: &[Decision]) -> bool {
    decisions.iter().any(|d| *d.key.name == *"first" && matches!(d.outcome, Outcome::TopologyPending(_)))
}

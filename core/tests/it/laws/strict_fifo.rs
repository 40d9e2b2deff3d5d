//! StrictFIFO: no workload is admitted while an earlier one of its queue is pending, except with a capacity reservation. Only
//! workloads whose namespace the queue does not select are skipped.

use crate::fixtures::builders;
use crate::fixtures::builders::{
    AmountRange, COHORTS, QUEUES, Step, admitted_names, apply_step, charge, cohort, config, engine, key,
    limits, pod_set, queue, run_until_idle, single_flavor_group, step, tree, workload,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice_core::api::ObjectKey;
use sluice_core::api::v1beta2::{
    BorrowPolicy, BorrowWithinCohort, ClusterQueuePreemption, QueueingStrategy, ReclaimPolicy,
    WithinClusterQueuePolicy,
};
use sluice_core::quota::{FlavorQuotas, ResourceGroup};
use sluice_core::scheduler::{ClusterQueue, Engine, Outcome, Workload};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One step of a history between cycles.
#[derive(Clone, Debug)]
enum Event {
    Config(Step),
    Enqueue(Workload),
    /// The n-th reserving workload finishes; n is taken modulo their number.
    Finish(usize),
    Cycle,
}

fn any_workload() -> impl Strategy<Value = Workload> {
    let namespace = prop::bool::weighted(0.2);
    (0..15_usize, namespace, 0..QUEUES.len(), 0..3_i64, 0..6_i64, 0..9_i64, 0..9_i64).prop_map(
        |(index, unselected, queue, priority, second, cpu, gpu)| {
            let sets = vec![pod_set("main", 1, &[("cpu", cpu), ("gpu", gpu)])];
            let created = workload(&format!("w{index}"), QUEUES[queue], priority, second, sets);
            let namespace = if unselected { "elsewhere" } else { "ns" };
            Workload { key: ObjectKey::new(namespace, &created.key.name), ..created }
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => step(AmountRange::Small).prop_map(Event::Config),
        6 => any_workload().prop_map(Event::Enqueue),
        3 => (0..12_usize).prop_map(Event::Finish),
        4 => Just(Event::Cycle),
    ]
}

/// Applies the step, but with every queue StrictFIFO; queues of odd index may reclaim.
fn configure(engine: &mut Engine, step: &Step) {
    let Step::Queue(index, Some((parent, groups))) = step else {
        return apply_step(engine, step);
    };
    let reclaim_within_cohort = (index % 2 == 1).then_some(ReclaimPolicy::Any);
    let spec = ClusterQueue {
        strategy: QueueingStrategy::StrictFIFO,
        preemption: ClusterQueuePreemption { reclaim_within_cohort, ..ClusterQueuePreemption::default() },
        ..queue(parent.map(|parent| COHORTS[parent]), groups.clone())
    };
    engine.set_cluster_queue(QUEUES[*index], Some(spec));
}

/// Runs one cycle. Checks that each queue admits only the head that it had before.
fn checked_cycle(engine: &mut Engine) -> TestCaseResult {
    let selected = |workload: &&Workload| &*workload.key.namespace == "ns";
    let head = |queue: &&str| {
        engine.pending_in_order(queue).into_iter().find(selected).map(|workload| workload.key.clone())
    };
    let heads: Vec<Option<ObjectKey>> = QUEUES.iter().map(head).collect();
    let with_reservation: Vec<ObjectKey> = engine.reservations().map(|(key, _, _)| key.clone()).collect();
    for decision in engine.run_cycle(jiff::Timestamp::UNIX_EPOCH) {
        let Outcome::Admitted(assignment) = decision.outcome else { continue };
        let index = QUEUES.iter().position(|queue| *queue == &*assignment.cluster_queue).unwrap();
        if with_reservation.contains(&decision.key) {
            continue;
        }
        prop_assert_eq!(
            heads[index].as_ref(),
            Some(&decision.key),
            "{} admitted a workload other than its head",
            QUEUES[index]
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn strict_fifo_admits_only_queue_head(
        tree in tree(AmountRange::Small), events in prop::collection::vec(event(), 1..60),
    ) {
        let mut engine = engine();
        for step in &tree {
            configure(&mut engine, step);
        }
        for event in &events {
            match event {
                Event::Config(step) => configure(&mut engine, step),
                Event::Enqueue(workload) => engine.enqueue(workload.clone()),
                Event::Finish(index) => {
                    let reserving: Vec<_> = engine.charges().map(|(key, _)| key.clone()).collect();
                    if let Some(key) = reserving.get(index % reserving.len().max(1)) {
                        engine.release(key);
                    }
                }
                Event::Cycle => checked_cycle(&mut engine)?,
            }
        }
        while engine.has_work() {
            checked_cycle(&mut engine)?;
        }
    }

    /// Unselected workloads ahead of all others change nothing: with sufficient quota, all selected workloads are admitted.
    #[test]
    fn unselected_workloads_do_not_block_strict_queues(
        workloads in prop::collection::vec(any_workload(), 1..20),
    ) {
        let mut engine = engine();
        for (index, name) in QUEUES.iter().enumerate() {
            let groups = builders::flavor_group(&["red"], "cpu", &[builders::limits(1000, None, None)]);
            configure(&mut engine, &Step::Queue(index, Some((None, groups))));
            for n in 0..3 {
                let stray = workload(&format!("stray{n}"), name, 9, 0, vec![pod_set("main", 1, &[("cpu", 1)])]);
                engine.enqueue(Workload { key: ObjectKey::new("elsewhere", &format!("{name}-{n}")), ..stray });
            }
        }
        for item in &workloads {
            let pod_sets = vec![pod_set("main", 1, &[("cpu", 1)])].into();
            engine.enqueue(Workload { pod_sets, ..item.clone() });
        }
        run_until_idle(&mut engine);
        for item in workloads {
            let admitted = engine.charge_of(&item.key).is_some();
            prop_assert_eq!(admitted, &*item.key.namespace == "ns", "{}", item.key);
        }
    }
}

/// A workload whose capacity reservation expired rejoins its class and follows the workloads that precede it.
#[test]
fn expired_reservation_gives_no_precedence() {
    let mut engine = engine();
    let within_cluster_queue = Some(WithinClusterQueuePolicy::LowerPriority);
    let spec = ClusterQueue {
        strategy: QueueingStrategy::StrictFIFO,
        preemption: ClusterQueuePreemption { within_cluster_queue, ..ClusterQueuePreemption::default() },
        ..queue(None, single_flavor_group("red", "cpu", limits(2, None, None)))
    };
    engine.set_cluster_queue("q0", Some(spec));
    engine.charge(&key("held"), charge("q0", &[("red", "cpu", 2)]));
    let pending_workload =
        |name: &str, second| workload(name, "q0", 5, second, vec![pod_set("main", 1, &[("cpu", 2)])]);
    engine.enqueue(pending_workload("late", 9));
    let start = Timestamp::UNIX_EPOCH;
    let decisions = engine.run_cycle(start);
    assert!(decisions.iter().any(|decision| matches!(decision.outcome, Outcome::Preempting(..))));
    engine.enqueue(pending_workload("early", 1));
    engine.expire_reservations(start + SignedDuration::from_mins(30));
    engine.release(&key("held"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["early"]);
}

#[test]
fn head_claim_ends_when_head_is_deleted() {
    let mut engine = engine();
    let pending_workload = |name: &str, cluster_queue: &str, amount| {
        workload(name, cluster_queue, 0, 0, vec![pod_set("main", 1, &[("cpu", amount)])])
    };
    let owner = queue(Some("all"), single_flavor_group("red", "cpu", limits(4, None, None)));
    engine.set_cluster_queue("owner", Some(ClusterQueue { strategy: QueueingStrategy::StrictFIFO, ..owner }));
    engine.set_cluster_queue(
        "guest",
        Some(queue(Some("all"), single_flavor_group("red", "cpu", limits(0, None, None)))),
    );
    engine.charge(&key("a"), charge("guest", &[("red", "cpu", 1)]));
    engine.enqueue(pending_workload("big", "owner", 4));
    run_until_idle(&mut engine);
    engine.enqueue(pending_workload("crumb", "guest", 1));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), Vec::<String>::new());
    engine.remove_pending(&key("big"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["crumb"]);
}

#[test]
fn earlier_workload_wins_when_head_claim_changes_hands() {
    let mut engine = engine();
    let pending_workload = |name: &str, cluster_queue: &str, second, amount| {
        workload(name, cluster_queue, 0, second, vec![pod_set("main", 1, &[("cpu", amount)])])
    };
    let nothing = || single_flavor_group("red", "cpu", limits(0, None, None));
    let borrow = BorrowWithinCohort { policy: Some(BorrowPolicy::LowerPriority), ..<_>::default() };
    let owner = ClusterQueue {
        strategy: QueueingStrategy::StrictFIFO,
        preemption: ClusterQueuePreemption {
            reclaim_within_cohort: Some(ReclaimPolicy::LowerPriority),
            borrow_within_cohort: Some(borrow),
            ..ClusterQueuePreemption::default()
        },
        ..queue(Some("all"), nothing())
    };
    engine.set_cohort("all", Some(cohort(None, single_flavor_group("red", "cpu", limits(4, None, None)))));
    engine.set_cluster_queue("owner", Some(owner));
    engine.set_cluster_queue("guest", Some(queue(Some("all"), nothing())));
    engine.charge(&key("a"), charge("guest", &[("red", "cpu", 1)]));
    engine.enqueue(pending_workload("first", "owner", 0, 4));
    engine.enqueue(pending_workload("third", "owner", 10, 4));
    run_until_idle(&mut engine);
    engine.enqueue(pending_workload("second", "guest", 5, 1));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), Vec::<String>::new());
    engine.remove_pending(&key("first"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["second"]);
}

/// Found by I8 in a soak run: the head can preempt only as long as its cohort could reclaim from the cohort above, which ends
/// when other workloads of its cohort use more.
#[test]
fn head_claim_ends_when_cohort_usage_grows() {
    let mut engine = engine();
    let both = |cpu, gpu| {
        let limits = BTreeMap::from([(Arc::from("cpu"), cpu), (Arc::from("gpu"), limits(gpu, None, None))]);
        vec![ResourceGroup::from_flavors(vec![FlavorQuotas { name: Arc::from("red"), limits }])]
    };
    let nominal = |cpu| limits(cpu, None, None);
    engine.set_cohort("top", Some(cohort(None, Vec::new())));
    engine.set_cohort("middle", Some(cohort(Some("top"), Vec::new())));
    engine.set_cohort("low", Some(cohort(Some("middle"), both(limits(2, Some(0), None), 0))));
    engine.set_cluster_queue("rich", Some(queue(Some("top"), both(nominal(7), 5))));
    engine.set_cluster_queue("guest", Some(queue(Some("middle"), both(nominal(7), 5))));
    let owner = queue(Some("low"), both(nominal(0), 9));
    engine.set_cluster_queue("owner", Some(ClusterQueue { strategy: QueueingStrategy::StrictFIFO, ..owner }));
    engine.charge(&key("a"), charge("owner", &[("red", "cpu", 2)]));
    engine.charge(&key("b"), charge("guest", &[("red", "cpu", 6), ("red", "gpu", 10)]));
    let pending_workload = |name: &str, cluster_queue: &str, cpu, gpu| {
        workload(name, cluster_queue, 0, 0, vec![pod_set("main", 1, &[("cpu", cpu), ("gpu", gpu)])])
    };
    engine.enqueue(pending_workload("head", "owner", 1, 5));
    engine.enqueue(pending_workload("kept-out", "guest", 0, 5));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), Vec::<String>::new());
    engine.enqueue(pending_workload("last-straw", "guest", 1, 0));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["last-straw", "kept-out"]);
}

//! StrictFIFO: nobody of a queue is admitted while one that comes first waits, but those for whom room is kept; only those
//! whose namespace the queue does not select are passed over.

use super::builders::{
    AmountRange, COHORTS, QUEUES, Step, admitted_names, apply_step, charge, cohort, config, engine, key,
    limits, pod_set, queue, run_until_idle, single_flavor_group, step, tree, workload,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice::api::ObjectKey;
use sluice::api::v1beta2::{
    BorrowPolicy, BorrowWithinCohort, ClusterQueuePreemption, QueueingStrategy, ReclaimPolicy,
    WithinClusterQueuePolicy,
};
use sluice::quota::{FlavorQuotas, ResourceGroup};
use sluice::scheduler::{ClusterQueue, Engine, Outcome, Workload};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What happens between cycles.
#[derive(Clone, Debug)]
enum Event {
    Config(Step),
    Enqueue(Workload),
    /// The n-th workload that holds quota, counted around, lets go.
    Finish(usize),
    Cycle,
}

fn any_workload() -> impl Strategy<Value = Workload> {
    let namespace = prop::bool::weighted(0.2);
    (0..15_usize, namespace, 0..QUEUES.len(), 0..3_i64, 0..6_i64, 0..9_i64, 0..9_i64).prop_map(
        |(at, stray, queue, priority, second, cpu, gpu)| {
            let sets = vec![pod_set("main", 1, &[("cpu", cpu), ("gpu", gpu)])];
            let made = workload(&format!("w{at}"), QUEUES[queue], priority, second, sets);
            let namespace = if stray { "elsewhere" } else { "ns" };
            Workload { key: ObjectKey::new(namespace, &made.key.name), ..made }
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

/// As the step says, but every queue is StrictFIFO; the odd ones may reclaim.
fn configure(engine: &mut Engine, step: &Step) {
    let Step::Queue(at, Some((up, groups))) = step else {
        return apply_step(engine, step);
    };
    let reclaim_within_cohort = (at % 2 == 1).then_some(ReclaimPolicy::Any);
    let made = ClusterQueue {
        strategy: QueueingStrategy::StrictFIFO,
        preemption: ClusterQueuePreemption { reclaim_within_cohort, ..ClusterQueuePreemption::default() },
        ..queue(up.map(|up| COHORTS[up]), groups.clone())
    };
    engine.set_cluster_queue(QUEUES[*at], Some(made));
}

/// One cycle, with the first of each queue that may not be passed over noted before.
fn checked_cycle(engine: &mut Engine) -> TestCaseResult {
    let selected = |workload: &&Workload| &*workload.key.namespace == "ns";
    let first = |queue: &&str| {
        engine.pending_in_order(queue).into_iter().find(selected).map(|workload| workload.key.clone())
    };
    let before: Vec<Option<ObjectKey>> = QUEUES.iter().map(first).collect();
    let kept: Vec<ObjectKey> = engine.reservations().map(|(key, _, _)| key.clone()).collect();
    for decision in engine.run_cycle(jiff::Timestamp::UNIX_EPOCH) {
        let Outcome::Admitted(given) = decision.outcome else { continue };
        let at = QUEUES.iter().position(|queue| *queue == &*given.cluster_queue).unwrap();
        if kept.contains(&decision.key) {
            continue;
        }
        prop_assert_eq!(
            before[at].as_ref(),
            Some(&decision.key),
            "admitted in {} before its turn",
            QUEUES[at]
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
                Event::Finish(at) => {
                    let holders: Vec<_> = engine.charges().map(|(key, _)| key.clone()).collect();
                    if let Some(key) = holders.get(at % holders.len().max(1)) {
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

    /// Strays ahead of everyone change nothing: with quota for all, all that are selected are admitted in order.
    #[test]
    fn unselected_workloads_do_not_block_strict_queues(
        wanted in prop::collection::vec(any_workload(), 1..20),
    ) {
        let mut engine = engine();
        for (at, name) in QUEUES.iter().enumerate() {
            let groups = super::builders::flavor_group(&["red"], "cpu", &[super::builders::limits(1000, None, None)]);
            configure(&mut engine, &Step::Queue(at, Some((None, groups))));
            for n in 0..3 {
                let stray = workload(&format!("stray{n}"), name, 9, 0, vec![pod_set("main", 1, &[("cpu", 1)])]);
                engine.enqueue(Workload { key: ObjectKey::new("elsewhere", &format!("{name}-{n}")), ..stray });
            }
        }
        for one in &wanted {
            let pod_sets = vec![pod_set("main", 1, &[("cpu", 1)])].into();
            engine.enqueue(Workload { pod_sets, ..one.clone() });
        }
        run_until_idle(&mut engine);
        for one in wanted {
            let given = engine.charge_of(&one.key).is_some();
            prop_assert_eq!(given, &*one.key.namespace == "ns", "{}", one.key);
        }
    }
}

/// Whom room was kept for in vain is one of its like again, and comes after those who come before it.
#[test]
fn expired_reservation_gives_no_precedence() {
    let mut engine = engine();
    let within_cluster_queue = Some(WithinClusterQueuePolicy::LowerPriority);
    let made = ClusterQueue {
        strategy: QueueingStrategy::StrictFIFO,
        preemption: ClusterQueuePreemption { within_cluster_queue, ..ClusterQueuePreemption::default() },
        ..queue(None, single_flavor_group("red", "cpu", limits(2, None, None)))
    };
    engine.set_cluster_queue("q0", Some(made));
    engine.charge(&key("held"), charge("q0", &[("red", "cpu", 2)]));
    let asks = |name: &str, second| workload(name, "q0", 5, second, vec![pod_set("main", 1, &[("cpu", 2)])]);
    engine.enqueue(asks("late", 9));
    let start = Timestamp::UNIX_EPOCH;
    let decisions = engine.run_cycle(start);
    assert!(decisions.iter().any(|decision| matches!(decision.outcome, Outcome::Preempting(..))));
    engine.enqueue(asks("early", 1));
    engine.expire_reservations(start + SignedDuration::from_mins(30));
    engine.release(&key("held"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["early"]);
}

#[test]
fn head_claim_ends_when_head_is_deleted() {
    let mut engine = engine();
    let asks =
        |name: &str, at: &str, amount| workload(name, at, 0, 0, vec![pod_set("main", 1, &[("cpu", amount)])]);
    let owner = queue(Some("all"), single_flavor_group("red", "cpu", limits(4, None, None)));
    engine.set_cluster_queue("owner", Some(ClusterQueue { strategy: QueueingStrategy::StrictFIFO, ..owner }));
    engine.set_cluster_queue(
        "guest",
        Some(queue(Some("all"), single_flavor_group("red", "cpu", limits(0, None, None)))),
    );
    engine.charge(&key("a"), charge("guest", &[("red", "cpu", 1)]));
    engine.enqueue(asks("big", "owner", 4));
    run_until_idle(&mut engine);
    engine.enqueue(asks("crumb", "guest", 1));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), Vec::<String>::new());
    engine.remove_pending(&key("big"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["crumb"]);
}

#[test]
fn earlier_workload_wins_when_head_claim_changes_hands() {
    let mut engine = engine();
    let asks = |name: &str, at: &str, second, amount| {
        workload(name, at, 0, second, vec![pod_set("main", 1, &[("cpu", amount)])])
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
    engine.enqueue(asks("first", "owner", 0, 4));
    engine.enqueue(asks("third", "owner", 10, 4));
    run_until_idle(&mut engine);
    engine.enqueue(asks("second", "guest", 5, 1));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), Vec::<String>::new());
    engine.remove_pending(&key("first"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["second"]);
}

/// Found by I8 in a soak: the head is a matter of evictions only as long as its cohort could take something back from the
/// cohort above, and that ends when others of its cohort take more.
#[test]
fn head_claim_ends_when_cohort_usage_grows() {
    let mut engine = engine();
    let both = |cpu, gpu| {
        let limits = BTreeMap::from([(Arc::from("cpu"), cpu), (Arc::from("gpu"), limits(gpu, None, None))]);
        vec![ResourceGroup::from_flavors(vec![FlavorQuotas { name: Arc::from("red"), limits }])]
    };
    let plain = |cpu| limits(cpu, None, None);
    engine.set_cohort("top", Some(cohort(None, Vec::new())));
    engine.set_cohort("middle", Some(cohort(Some("top"), Vec::new())));
    engine.set_cohort("low", Some(cohort(Some("middle"), both(limits(2, Some(0), None), 0))));
    engine.set_cluster_queue("rich", Some(queue(Some("top"), both(plain(7), 5))));
    engine.set_cluster_queue("guest", Some(queue(Some("middle"), both(plain(7), 5))));
    let owner = queue(Some("low"), both(plain(0), 9));
    engine.set_cluster_queue("owner", Some(ClusterQueue { strategy: QueueingStrategy::StrictFIFO, ..owner }));
    engine.charge(&key("a"), charge("owner", &[("red", "cpu", 2)]));
    engine.charge(&key("b"), charge("guest", &[("red", "cpu", 6), ("red", "gpu", 10)]));
    let asks = |name: &str, at: &str, cpu, gpu| {
        workload(name, at, 0, 0, vec![pod_set("main", 1, &[("cpu", cpu), ("gpu", gpu)])])
    };
    engine.enqueue(asks("head", "owner", 1, 5));
    engine.enqueue(asks("kept-out", "guest", 0, 5));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), Vec::<String>::new());
    engine.enqueue(asks("last-straw", "guest", 1, 0));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["last-straw", "kept-out"]);
}

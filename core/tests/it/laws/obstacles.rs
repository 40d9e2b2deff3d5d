//! The true obstacle of pending workloads: what an answer names is what admits the workload, those before it included; and a workload is
//! stuck exactly if it is never admitted when all that holds quota ends and no object changes.

use crate::fixtures::builders;
use crate::fixtures::builders::{
    FLAVORS, QUEUES, charge, config, engine, key, limits, pod_set, queue, run_until_idle, workload,
};
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice_core::api::ObjectKey;
use sluice_core::api::v1beta2::{ClusterQueuePreemption, QueueingStrategy, WithinClusterQueuePolicy};
use sluice_core::quota::{FlavorQuotas, ResourceGroup};
use sluice_core::scheduler::{
    BlockerKind, ClusterQueue, Engine, Explanation, Flavor, Obstacle, Outcome, Supposition, Workload,
};
use sluice_core::topology::PodRequirements;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A ClusterQueue: strategy, whether it is in the cohort, whether it preempts, and for each flavor nominal quota, borrowing and
/// lending limit of CPU, with the nominal quota of GPUs.
type Queue = (bool, bool, bool, Vec<Limits>);
/// Nominal quota, borrowing and lending limit of CPU, and nominal quota of GPUs.
type Limits = (i64, Option<i64>, Option<i64>, i64);
/// A pending workload: queue, priority, the flavor that it selects, and CPUs and GPUs of its pod sets.
type Pending = (usize, i64, Option<usize>, Vec<(i64, i64)>);

#[derive(Clone, Debug)]
struct World {
    queues: Vec<Queue>,
    charges: Vec<(usize, usize, i64)>,
    pending: Vec<Pending>,
}

fn world() -> impl Strategy<Value = World> {
    let limit = || prop::option::weighted(0.3, 0..5_i64);
    let flavor = (0..8_i64, limit(), limit(), 0..4_i64);
    let queue = (
        any::<bool>(),
        prop::bool::weighted(0.6),
        prop::bool::weighted(0.2),
        prop::collection::vec(flavor, 1..3),
    );
    let selected = prop::option::weighted(0.3, 0..3_usize);
    let set = (0..6_i64, prop_oneof![4 => Just(0_i64), 1 => 1..4_i64]);
    let pending = (0..3_usize, 0..2_i64, selected, prop::collection::vec(set, 1..3));
    (
        prop::collection::vec(queue, 3),
        prop::collection::vec((0..3_usize, 0..2_usize, 1..5_i64), 0..4),
        prop::collection::vec(pending, 1..6),
    )
        .prop_map(|(queues, charges, pending)| World { queues, charges, pending })
}

fn spec(of: &Queue) -> ClusterQueue {
    let (strict, in_cohort, preempts, flavors) = of;
    let quotas = |((nominal, borrowing, lending, gpus), name): (&Limits, &&str)| {
        let (borrowing, lending) = (borrowing.filter(|_| *in_cohort), lending.filter(|_| *in_cohort));
        let cpu = limits(*nominal, borrowing, lending);
        let limits = BTreeMap::from([(Arc::from("cpu"), cpu), (Arc::from("gpu"), limits(*gpus, None, None))]);
        FlavorQuotas { name: Arc::from(*name), limits }
    };
    let groups = vec![ResourceGroup::from_flavors(flavors.iter().zip(&FLAVORS).map(quotas).collect())];
    let within_cluster_queue = preempts.then_some(WithinClusterQueuePolicy::LowerPriority);
    ClusterQueue {
        strategy: if *strict { QueueingStrategy::StrictFIFO } else { QueueingStrategy::BestEffortFIFO },
        preemption: ClusterQueuePreemption { within_cluster_queue, ..ClusterQueuePreemption::default() },
        ..queue(in_cohort.then_some("c0"), groups)
    }
}

fn name(index: usize) -> String {
    format!("w{index}")
}

fn pending(index: usize, of: &Pending) -> Workload {
    let (queue, priority, selected, sets) = of;
    let node_selector: BTreeMap<String, String> = selected
        .iter()
        .map(|flavor| ("flavor".to_owned(), ["red", "blue", "green"][*flavor].to_owned()))
        .collect();
    let requirements = Arc::new(PodRequirements { node_selector, ..PodRequirements::default() });
    let sets = sets.iter().zip(["main", "side"]).map(|((cpus, gpus), name)| {
        let mut set = pod_set(name, 1, &[("cpu", *cpus), ("gpu", *gpus)]);
        set.pod_requirements = Arc::clone(&requirements);
        set
    });
    workload(&name(index), QUEUES[*queue], *priority, i64::try_from(index).unwrap(), sets.collect())
}

/// The world after all that can be admitted was admitted.
fn settled(world: &World) -> Engine {
    let mut engine = engine();
    for flavor in FLAVORS {
        let labels = BTreeMap::from([("flavor".to_owned(), flavor.to_owned())]);
        engine.set_flavor(flavor, Some(Flavor { node_labels: labels, ..Flavor::default() }));
    }
    for (of, name) in world.queues.iter().zip(QUEUES) {
        engine.set_cluster_queue(name, Some(spec(of)));
    }
    for (index, (queue, flavor, amount)) in world.charges.iter().enumerate() {
        engine.charge(
            &key(&format!("runs{index}")),
            charge(QUEUES[*queue], &[(FLAVORS[*flavor], "cpu", *amount)]),
        );
    }
    for (index, of) in world.pending.iter().enumerate() {
        engine.enqueue(pending(index, of));
        run(&mut engine);
    }
    engine
}

/// Runs cycles until none has work; victims release their quota at once and do not come back.
fn run(engine: &mut Engine) -> BTreeSet<ObjectKey> {
    let mut admitted = BTreeSet::new();
    for _ in 0..100 {
        let decisions = run_until_idle(engine);
        let mut victims = Vec::new();
        for decision in decisions {
            match decision.outcome {
                Outcome::Admitted(_) => drop(admitted.insert(decision.key)),
                Outcome::Preempting(_, all) => victims.extend(all.into_iter().map(|victim| victim.key)),
                _ => {}
            }
        }
        if victims.is_empty() {
            return admitted;
        }
        for victim in victims {
            engine.release(&victim);
        }
    }
    panic!("no end");
}

fn explain(engine: &mut Engine, workload: &ObjectKey) -> Option<Explanation> {
    engine.explain(workload, &Supposition::default(), &mut || true)
}

/// Adds to the nominal quota of a ClusterQueue.
fn add(world: &mut World, queue: usize, (flavor, resource): (&str, &str), amount: i128) {
    let amount = i64::try_from(amount).unwrap();
    let index = FLAVORS.iter().position(|known| *known == flavor).unwrap();
    let limits = &mut world.queues[queue].3[index];
    if resource == "cpu" { limits.0 += amount } else { limits.3 += amount }
}

/// Does what the answer names. Returns whether that is quota for all that is taken up to the workload.
fn follow(
    world: &mut World,
    engine: &mut Engine,
    found: &Explanation,
    index: usize,
) -> Result<bool, TestCaseError> {
    let queue = world.pending[index].0;
    match &found.obstacle {
        Obstacle::None | Obstacle::Object(_) => {
            return Err(TestCaseError::fail(format!("nothing is named: {found:?}")));
        }
        Obstacle::InUse | Obstacle::Behind(_) if !found.obstacle.stays() => {
            let short: Vec<_> = found.needs.iter().filter(|need| need.lacks() > 0).collect();
            prop_assert!(!short.is_empty(), "nothing is missing: {:?}", found);
            for need in short {
                add(world, queue, (&need.fr.flavor, &need.fr.resource), need.lacks());
            }
        }
        Obstacle::Behind(behind) => {
            engine.remove_pending(&behind.never.as_ref().unwrap().0);
            return Ok(false);
        }
        Obstacle::InUse => unreachable!(),
        Obstacle::NeverFits(never) => {
            let quota = never.blockers.iter().filter(|blocker| blocker.kind == BlockerKind::NeverFits);
            let first = quota.clone().next().map(|blocker| Arc::clone(&blocker.flavor));
            if let Some(flavor) = first {
                for blocker in quota.filter(|blocker| blocker.flavor == flavor) {
                    let lacks = blocker.requested.to_i128() - blocker.limit.to_i128();
                    prop_assert!(lacks > 0, "{:?}", blocker);
                    add(world, queue, (&flavor, &blocker.resource), blocker.requested.to_i128());
                }
            } else {
                // The flavor that was meant, with the label that is selected.
                prop_assert!(never.wrong.is_some(), "{:?}", never);
                let named =
                    never.blockers.iter().any(|blocker| matches!(blocker.kind, BlockerKind::Mismatch(_)));
                prop_assert!(named, "{:?}", never);
                let labels = BTreeMap::new();
                for flavor in FLAVORS {
                    engine.set_flavor(
                        flavor,
                        Some(Flavor { node_labels: labels.clone(), ..Flavor::default() }),
                    );
                }
            }
            for (of, name) in world.queues.iter().zip(QUEUES) {
                engine.set_cluster_queue(name, Some(spec(of)));
            }
            return Ok(false);
        }
    }
    for (of, name) in world.queues.iter().zip(QUEUES) {
        engine.set_cluster_queue(name, Some(spec(of)));
    }
    Ok(true)
}

fn named_changes_admit(world: &World, index: usize) -> TestCaseResult {
    let (mut world, mut engine) = (world.clone(), settled(world));
    let asked = key(&name(index));
    for _ in 0..20 {
        let Some(found) = explain(&mut engine, &asked) else { return Ok(()) };
        let is_quota = follow(&mut world, &mut engine, &found, index)?;
        let admitted = run(&mut engine);
        if admitted.contains(&asked) {
            return Ok(());
        }
        prop_assert!(!is_quota, "{:?} did not admit {} in {:#?}", found.needs, asked, world);
    }
    Err(TestCaseError::fail("the answers come to no end"))
}

/// Whether it is admitted at some time if all that holds quota ends, again and again.
fn admitted_in_time(world: &World) -> BTreeSet<ObjectKey> {
    let (mut engine, mut all) = (settled(world), BTreeSet::new());
    loop {
        let holding: Vec<ObjectKey> = engine.charges().map(|(key, _)| key.clone()).collect();
        if holding.is_empty() {
            return all;
        }
        for holder in holding {
            engine.release(&holder);
        }
        all.extend(run(&mut engine));
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn what_an_answer_names_admits_the_workload(world in world()) {
        for index in 0..world.pending.len() {
            named_changes_admit(&world, index)?;
        }
    }

    #[test]
    fn stuck_is_what_no_end_of_others_admits(world in world()) {
        let mut engine = settled(&world);
        let in_time = admitted_in_time(&world);
        for index in 0..world.pending.len() {
            let asked = key(&name(index));
            let Some(found) = explain(&mut engine, &asked) else { continue };
            prop_assert_eq!(
                found.obstacle.stays(), !in_time.contains(&asked), "{} in {:#?}: {:#?}", asked, &world, found
            );
        }
    }
}

/// Whichever workload is the head: those behind it have no other message, and no status is written.
#[test]
fn a_head_that_changes_writes_nothing_behind_it() {
    let mut engine = engine();
    let groups = builders::single_flavor_group("red", "cpu", limits(4, None, None));
    let spec = ClusterQueue { strategy: QueueingStrategy::StrictFIFO, ..queue(None, groups) };
    engine.set_cluster_queue("q0", Some(spec));
    engine.charge(&key("runs"), charge("q0", &[("red", "cpu", 4)]));
    let behind = |index: i64| {
        workload(&format!("w{index}"), "q0", 0, index, vec![pod_set("main", 1, &[("cpu", 1 + index % 3)])])
    };
    for index in 0..10_000 {
        engine.enqueue(behind(index));
    }
    run_until_idle(&mut engine);
    while engine.has_message_updates() {
        engine.take_message_updates(1_000);
    }
    let mut written = 0;
    for change in 0..1_000 {
        let mut head = behind(change % 3);
        (head.key, head.uid, head.priority) = (key(&format!("head{change}")), Arc::from("h"), change + 1);
        let head_key = head.key.clone();
        engine.enqueue(head);
        let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
        written += decisions.iter().filter(|decision| decision.key.name.starts_with('w')).count();
        while engine.has_message_updates() {
            let updates = engine.take_message_updates(1_000);
            written += updates.iter().filter(|key| key.name.starts_with('w')).count();
        }
        if change % 2 == 0 {
            engine.remove_pending(&head_key);
        }
    }
    assert_eq!(written, 0);
    let found = explain(&mut engine, &key("w5")).unwrap();
    let Obstacle::Behind(behind) = found.obstacle else { panic!("{found:?}") };
    assert_eq!(&*behind.head.name, "head999");
    assert!(behind.never.is_none());
}

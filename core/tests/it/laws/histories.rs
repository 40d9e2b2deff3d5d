//! Random histories of a whole cluster, checked after every step: I1, I2, I3, I5, I7, I8, I10, I11, I18, I19, I20, I25.

use super::cluster::{Cluster, Event, flavor_resource, settings};
use super::cycle_decisions::checked_cycle;
use super::fast_model::{FLAVOR_RESOURCES, node_index};
use super::strategies::{event, start};
use crate::fixtures::builders::{COHORTS, QUEUES, config, key};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice_core::resources::Amount;
use sluice_core::scheduler::{EngineSettings, FairStrategy, NodeRef, Outcome};
use std::collections::BTreeSet;
use std::sync::Arc;

fn node_ref(node: usize) -> NodeRef {
    match COHORTS.get(node) {
        Some(name) => NodeRef::Cohort(Arc::from(*name)),
        None => NodeRef::ClusterQueue(Arc::from(QUEUES[node - COHORTS.len()])),
    }
}

/// I1 at every node; after a cycle also I5: evaluations and searches that were not decided leave no usage behind.
pub(super) fn check_usage(cluster: &Cluster) -> TestCaseResult {
    let sums = cluster.model.sums(cluster.reserved.values().map(|(queue, usage)| (*queue, usage)));
    for node in 0..COHORTS.len() + QUEUES.len() {
        let actual = cluster.engine.usage(&node_ref(node));
        for fr in 0..FLAVOR_RESOURCES {
            let actual = actual.get(&flavor_resource(fr)).map_or(0, |usage| usage.usage.to_i128());
            prop_assert_eq!(actual, sums.usage[node][fr], "I1: usage of node {}", node);
        }
    }
    for queue in (0..QUEUES.len()).filter(|queue| cluster.queues.contains_key(queue)) {
        for fr in 0..FLAVOR_RESOURCES {
            let free = cluster.model.available(&sums, node_index(queue), fr).max(0);
            prop_assert_eq!(
                cluster.engine.available(QUEUES[queue], &flavor_resource(fr)),
                Amount::saturating_from_i128(free),
                "I1: available to {}",
                queue
            );
        }
    }
    Ok(())
}

/// I7: every workload is pending or reserving, in exactly one place.
pub(super) fn check_partition(cluster: &Cluster) -> TestCaseResult {
    let pending = cluster.pending_names();
    for name in &pending {
        prop_assert!(cluster.engine.workload(&key(name)).is_some(), "I7: {} is lost", name);
        prop_assert!(cluster.engine.charge_of(&key(name)).is_none(), "I7: {} is pending and reserving", name);
    }
    for name in cluster.reserved.keys() {
        prop_assert!(cluster.engine.workload(&key(name)).is_none(), "I7: {} is reserving and pending", name);
        prop_assert!(cluster.engine.charge_of(&key(name)).is_some(), "I7: {} has no charge", name);
    }
    let counted: usize = QUEUES.iter().map(|queue| cluster.engine.pending(queue).total()).sum();
    prop_assert_eq!(counted, pending.len());
    Ok(())
}

fn apply_and_check(cluster: &mut Cluster, events: &[Event]) -> TestCaseResult {
    for event in events {
        cluster.apply(event);
        if matches!(event, Event::Cycle) {
            checked_cycle(cluster)?;
        }
        check_partition(cluster)?;
        check_usage(cluster)?;
        check_no_head_fits(cluster)?;
    }
    Ok(())
}

/// Runs only cycles and terminations of victims: each pair of preemptor and victim occurs at most once (I20), and the cluster
/// settles.
fn run_until_settled(cluster: &mut Cluster, ends: &[usize]) -> TestCaseResult {
    let mut pairs: BTreeSet<(String, String)> = BTreeSet::new();
    for round in 0..400 {
        let mut cycles = 0;
        while cluster.engine.has_work() {
            let evicted: BTreeSet<String> = cluster.evicted_names().collect();
            for pair in checked_cycle(cluster)? {
                if evicted.contains(&pair.1) {
                    continue;
                }
                prop_assert!(!pairs.contains(&pair), "I20: {:?} preempts twice", pair);
                pairs.insert(pair);
            }
            cycles += 1;
            prop_assert!(cycles < 300, "I11: cycles do not terminate");
        }
        if cluster.evicted_names().next().is_none() {
            return check_settled(cluster);
        }
        cluster.apply(&Event::ReleaseVictim(ends[round % ends.len()]));
    }
    Err(TestCaseError::fail("I20: evictions do not terminate"))
}

fn check_settled(cluster: &mut Cluster) -> TestCaseResult {
    prop_assert_eq!(
        cluster.engine.run_cycle(cluster.now),
        Vec::new(),
        "I11: a settled engine decides nothing"
    );
    prop_assert_eq!(
        cluster.reservations(),
        std::collections::BTreeMap::new(),
        "I19: capacity is reserved although no victim is left"
    );
    for name in cluster.pending_names() {
        let open = cluster
            .queues
            .contains_key(&super::cluster::queue_index(&cluster.workloads[&name].cluster_queue));
        let has_verdict = cluster.engine.verdict(&key(&name)).is_some();
        let strict = cluster.is_behind_strict_head(&name);
        prop_assert!(has_verdict || !open || strict, "I25: {} has no pending reason", name);
    }
    check_no_head_fits(cluster)?;
    check_usage(cluster)?;
    check_pending_reasons(cluster)?;
    check_no_lost_wakeup(cluster)
}

/// I8: an engine without work has no head that fits, by a check that trusts neither parking nor wake-ups. The check leaves no
/// usage behind (I5).
pub(super) fn check_no_head_fits(cluster: &mut Cluster) -> TestCaseResult {
    if cluster.engine.has_work() {
        return Ok(());
    }
    for queue in QUEUES {
        let head = cluster.engine.fitting_head(queue, cluster.now);
        let verdict = head.as_ref().and_then(|key| cluster.engine.verdict(key));
        prop_assert_eq!(&head, &None, "I8: it fits and waits ({:?}) beside {:?}", verdict, cluster.reserved);
    }
    check_usage(cluster)
}

/// I25: the pending reason that a reader gets, numbers included, equals that of a fresh engine built from the present state.
fn check_pending_reasons(cluster: &mut Cluster) -> TestCaseResult {
    let mut fresh = cluster.rebuilt();
    let pending = cluster.pending_names();
    for name in &pending {
        fresh.engine.enqueue(cluster.workloads[name].clone());
    }
    for _ in 0..60 {
        if !fresh.engine.has_work() {
            break;
        }
        let changes_usage =
            |outcome: &Outcome| matches!(outcome, Outcome::Admitted(_) | Outcome::Preempting(..));
        if fresh.engine.run_cycle(fresh.now).iter().any(|decision| changes_usage(&decision.outcome)) {
            // It does not know the preemption history, and may preempt the same victims again.
            return Ok(());
        }
    }
    for name in pending {
        let actual = cluster.engine.fresh_verdict(&key(&name));
        // Behind the head of a StrictFIFO ClusterQueue, a reader gets the head and the position.
        let expected = match fresh.engine.waits_behind(&key(&name)) {
            Some(_) if cluster.engine.waits_behind(&key(&name)).is_none() => continue,
            Some(_) => fresh.engine.fresh_verdict(&key(&name)),
            None => fresh.engine.verdict(&key(&name)).cloned(),
        };
        if expected.is_some() {
            prop_assert_eq!(actual, expected, "I25: pending reason of {}", name);
        }
    }
    Ok(())
}

/// I8: a fresh engine built from the present state admits no pending workload, alone beside the heads of the StrictFIFO queues.
fn check_no_lost_wakeup(cluster: &Cluster) -> TestCaseResult {
    let strict = |queue: &usize| cluster.queues.get(queue).is_some_and(|spec| spec.rules.strict);
    let strict_heads: Vec<_> = (0..QUEUES.len())
        .filter(strict)
        .filter_map(|queue| {
            cluster.engine.pending_in_order(QUEUES[queue]).first().map(|head| (*head).clone())
        })
        .collect();
    for name in cluster.pending_names() {
        let pending = &cluster.workloads[&name];
        let queue = super::cluster::queue_index(&pending.cluster_queue);
        if !cluster.queues.contains_key(&queue) || (strict(&queue) && !strict_heads.contains(pending)) {
            continue;
        }
        let mut fresh = cluster.rebuilt();
        for workload in strict_heads.iter().chain([pending]) {
            fresh.engine.enqueue(workload.clone());
        }
        for _ in 0..30 {
            if !fresh.engine.has_work() {
                break;
            }
            for decision in fresh.engine.run_cycle(fresh.now) {
                let admitted = matches!(decision.outcome, Outcome::Admitted(_));
                let verdict = cluster.engine.verdict(&key(&name)).map(ToString::to_string);
                prop_assert!(
                    !admitted,
                    "I8: {name} is pending ({verdict:?}, parked {}), but {} is admitted by a fresh engine beside {:?}",
                    cluster.engine.is_parked(&key(&name)),
                    decision.key,
                    cluster.reserved
                );
            }
        }
    }
    Ok(())
}

fn fair() -> impl Strategy<Value = EngineSettings> {
    let (last, first) = (FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare);
    prop::sample::select(vec![vec![], vec![last], vec![first], vec![last, first]])
        .prop_map(|strategies| settings(Some(strategies)))
}

fn events(config: u32) -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(event(config), 20..120)
}

fn ends() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..14_usize, 1..6)
}

fn check_whole_history(
    settings: EngineSettings,
    start: &[Event],
    events: &[Event],
    ends: &[usize],
) -> TestCaseResult {
    let mut cluster = Cluster::new(settings);
    apply_and_check(&mut cluster, start)?;
    apply_and_check(&mut cluster, events)?;
    run_until_settled(&mut cluster, ends)
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn all_laws_hold_in_classic_histories(start in start(), events in events(1), ends in ends()) {
        check_whole_history(settings(None), &start, &events, &ends)?;
    }

    #[test]
    fn all_laws_hold_in_fair_histories(settings in fair(), start in start(), events in events(1), ends in ends()) {
        check_whole_history(settings, &start, &events, &ends)?;
    }

    #[test]
    fn i10_same_history_gives_same_decisions(settings in fair(), classic: bool, start in start(), events in events(2)) {
        let settings = if classic { super::cluster::settings(None) } else { settings };
        let mut twins = [Cluster::new(settings.clone()), Cluster::new(settings)];
        for event in start.iter().chain(&events) {
            let [first, second] = twins.each_mut().map(|cluster| {
                cluster.apply(event);
                if matches!(event, Event::Cycle) { cluster.unchecked_cycle() } else { Vec::new() }
            });
            prop_assert_eq!(first, second);
        }
    }
}

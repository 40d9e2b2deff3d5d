//! Long histories of everything that happens to a cluster: I1, I2, I3, I5, I7, I8, I10, I11, I18, I19, I20, I25.

use super::builders::{COHORTS, QUEUES, config, key};
use super::cluster::{Cluster, Event, flavor_resource, settings};
use super::cycle_decisions::checked_cycle;
use super::fast_model::{FLAVOR_RESOURCES, node_index};
use super::strategies::{event, start};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice::resources::Amount;
use sluice::scheduler::{EngineSettings, FairStrategy, NodeRef, Outcome};
use std::collections::BTreeSet;
use std::sync::Arc;

fn node_ref(node: usize) -> NodeRef {
    match COHORTS.get(node) {
        Some(name) => NodeRef::Cohort(Arc::from(*name)),
        None => NodeRef::ClusterQueue(Arc::from(QUEUES[node - COHORTS.len()])),
    }
}

/// I1 at every node; after a cycle also I5: what was weighed and searched, and not decided, has left nothing behind.
pub(super) fn check_usage(cluster: &Cluster) -> TestCaseResult {
    let sums = cluster.model.sums(cluster.reserved.values().map(|(queue, usage)| (*queue, usage)));
    for node in 0..COHORTS.len() + QUEUES.len() {
        let found = cluster.engine.usage(&node_ref(node));
        for at in 0..FLAVOR_RESOURCES {
            let found = found.get(&flavor_resource(at)).map_or(0, |figures| figures.usage.to_i128());
            prop_assert_eq!(found, sums.usage[node][at], "I1: usage of node {}", node);
        }
    }
    for queue in (0..QUEUES.len()).filter(|queue| cluster.queues.contains_key(queue)) {
        for at in 0..FLAVOR_RESOURCES {
            let free = cluster.model.available(&sums, node_index(queue), at).max(0);
            prop_assert_eq!(
                cluster.engine.available(QUEUES[queue], &flavor_resource(at)),
                Amount::saturating_from_i128(free),
                "I1: free to {}",
                queue
            );
        }
    }
    Ok(())
}

/// I7: everyone waits or holds quota, in one place.
pub(super) fn check_partition(cluster: &Cluster) -> TestCaseResult {
    let waiting = cluster.pending_names();
    for name in &waiting {
        prop_assert!(cluster.engine.workload(&key(name)).is_some(), "I7: {} is lost", name);
        prop_assert!(cluster.engine.charge_of(&key(name)).is_none(), "I7: {} holds quota", name);
    }
    for name in cluster.reserved.keys() {
        prop_assert!(cluster.engine.workload(&key(name)).is_none(), "I7: {} waits", name);
        prop_assert!(cluster.engine.charge_of(&key(name)).is_some(), "I7: {} holds nothing", name);
    }
    let counted: usize = QUEUES.iter().map(|queue| cluster.engine.pending(queue).total()).sum();
    prop_assert_eq!(counted, waiting.len());
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
    }
    Ok(())
}

/// Nothing happens any more but cycles, and victims that end one after the other: each pair is evicted at most once (I20),
/// and it comes to rest.
fn run_until_settled(cluster: &mut Cluster, ends: &[usize]) -> TestCaseResult {
    let mut pairs: BTreeSet<(String, String)> = BTreeSet::new();
    for round in 0..400 {
        let mut turns = 0;
        while cluster.engine.has_work() {
            let going: BTreeSet<String> = cluster.evicted_names().collect();
            for pair in checked_cycle(cluster)? {
                if going.contains(&pair.1) {
                    continue;
                }
                prop_assert!(!pairs.contains(&pair), "I20: {:?} for the second time", pair);
                pairs.insert(pair);
            }
            turns += 1;
            prop_assert!(turns < 300, "I11: cycles without end");
        }
        if cluster.evicted_names().next().is_none() {
            return check_settled(cluster);
        }
        cluster.apply(&Event::ReleaseVictim(ends[round % ends.len()]));
    }
    Err(TestCaseError::fail("I20: evictions without end"))
}

fn check_settled(cluster: &mut Cluster) -> TestCaseResult {
    prop_assert_eq!(cluster.engine.run_cycle(cluster.now), Vec::new(), "I11: at rest nothing is decided");
    prop_assert_eq!(
        cluster.reservations(),
        std::collections::BTreeMap::new(),
        "I19: kept though everyone has gone"
    );
    for name in cluster.pending_names() {
        let open = cluster
            .queues
            .contains_key(&super::cluster::queue_index(&cluster.workloads[&name].cluster_queue));
        let judged = cluster.engine.verdict(&key(&name)).is_some();
        let strict = cluster.is_behind_strict_head(&name);
        prop_assert!(judged || !open || strict, "I25: {} waits without a word", name);
    }
    check_usage(cluster)?;
    check_pending_reasons(cluster)?;
    check_no_lost_wakeup(cluster)
}

/// I25: what everybody is told on reading, figures included, is what an engine would say that has seen nothing but the present
/// state.
fn check_pending_reasons(cluster: &mut Cluster) -> TestCaseResult {
    let mut fresh = cluster.rebuilt();
    let waiting = cluster.pending_names();
    for name in &waiting {
        fresh.engine.enqueue(cluster.workloads[name].clone());
    }
    for _ in 0..60 {
        if !fresh.engine.has_work() {
            break;
        }
        let moves = |outcome: &Outcome| matches!(outcome, Outcome::Admitted(_) | Outcome::Preempting(..));
        if fresh.engine.run_cycle(fresh.now).iter().any(|decision| moves(&decision.outcome)) {
            // It knows nothing of who was evicted for whom, and may try that again.
            return Ok(());
        }
    }
    for name in waiting {
        let told = cluster.engine.fresh_verdict(&key(&name));
        if let Some(wanted) = fresh.engine.verdict(&key(&name)) {
            prop_assert_eq!(told.as_ref(), Some(wanted), "I25: what {} is told", name);
        }
    }
    Ok(())
}

/// I8: each of those that wait is put into an engine that has seen nothing but the present state, beside the first of every
/// StrictFIFO queue: nobody is admitted.
fn check_no_lost_wakeup(cluster: &Cluster) -> TestCaseResult {
    let strict = |queue: &usize| cluster.queues.get(queue).is_some_and(|spec| spec.rules.strict);
    let firsts: Vec<_> = (0..QUEUES.len())
        .filter(strict)
        .filter_map(|queue| {
            cluster.engine.pending_in_order(QUEUES[queue]).first().map(|first| (*first).clone())
        })
        .collect();
    for name in cluster.pending_names() {
        let waiting = &cluster.workloads[&name];
        let queue = super::cluster::queue_index(&waiting.cluster_queue);
        if !cluster.queues.contains_key(&queue) || (strict(&queue) && !firsts.contains(waiting)) {
            continue;
        }
        let mut fresh = cluster.rebuilt();
        for one in firsts.iter().chain([waiting]) {
            fresh.engine.enqueue(one.clone());
        }
        for _ in 0..30 {
            if !fresh.engine.has_work() {
                break;
            }
            for decision in fresh.engine.run_cycle(fresh.now) {
                let taken = matches!(decision.outcome, Outcome::Admitted(_));
                let told = cluster.engine.verdict(&key(&name)).map(ToString::to_string);
                prop_assert!(
                    !taken,
                    "I8: {name} waits ({told:?}, parked {}), but {} is admitted at once beside {:?}",
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
            let [one, other] = twins.each_mut().map(|cluster| {
                cluster.apply(event);
                if matches!(event, Event::Cycle) { cluster.unchecked_cycle() } else { Vec::new() }
            });
            prop_assert_eq!(one, other);
        }
    }
}

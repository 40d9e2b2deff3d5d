//! Explanations of pending workloads.

use super::*;
use crate::api::v1beta2::{ClusterQueuePreemption, WithinClusterQueuePolicy};
use crate::quota::{FlavorQuotas, QuotaLimits, ResourceGroup};
use crate::scheduler::{ClusterQueue, Flavor, Inactive};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

fn engine(nominal: i64, preemption: ClusterQueuePreemption) -> Engine {
    let mut engine = Engine::default();
    engine.set_namespace("ns", Some(BTreeMap::new()));
    engine.set_flavor("f", Some(Flavor::default()));
    let limits = QuotaLimits { nominal: Amount::new(nominal), ..QuotaLimits::default() };
    let limits = BTreeMap::from([(Arc::from("gpu"), limits)]);
    let groups = vec![ResourceGroup::from_flavors(vec![FlavorQuotas { name: Arc::from("f"), limits }])];
    let namespace_selector = Some(LabelSelector::default());
    let queue = ClusterQueue { groups, namespace_selector, preemption, ..ClusterQueue::default() };
    engine.set_cluster_queue("cq", Some(queue));
    engine
}

fn workload(name: &str, pods: i32, priority: i64) -> Workload {
    let requests = BTreeMap::from([(Arc::from("gpu"), Amount::new(1))]);
    let set = PodSet { name: Arc::from("main"), count: pods, requests, ..PodSet::default() };
    Workload {
        key: ObjectKey::new("ns", name),
        uid: Arc::from(name),
        cluster_queue: Arc::from("cq"),
        local_queue: Arc::from("lq"),
        priority,
        pod_sets: vec![set].into(),
        ..Workload::default()
    }
}

/// An engine with workloads of three priorities, of which "mid" waits.
fn preempting() -> Engine {
    let policy = ClusterQueuePreemption {
        within_cluster_queue: Some(WithinClusterQueuePolicy::LowerPriority),
        ..ClusterQueuePreemption::default()
    };
    let mut engine = engine(10, policy);
    for (name, pods, priority) in [("low", 2, 1), ("high", 8, 9), ("mid", 6, 5)] {
        engine.enqueue(workload(name, pods, priority));
        run(&mut engine);
    }
    engine
}

fn explain(engine: &mut Engine, name: &str) -> Explanation {
    engine.explain(&ObjectKey::new("ns", name), &Supposition::default(), &mut || true).unwrap()
}

fn run(engine: &mut Engine) {
    while engine.has_work() {
        engine.run_cycle(Timestamp::UNIX_EPOCH);
    }
}

#[test]
fn blockers_and_fewer_pods_are_found() {
    let mut engine = engine(10, ClusterQueuePreemption::default());
    for (name, pods) in [("a", 7), ("b", 8)] {
        engine.enqueue(workload(name, pods, 0));
        run(&mut engine);
    }
    let explanation = explain(&mut engine, "b");
    let [blocker] = &explanation.blockers[..] else { panic!("{explanation:?}") };
    assert_eq!((blocker.requested, blocker.available), (Amount::new(8), Amount::new(3)));
    let expected = SmallerFit { pods: 3, of: 8, ..SmallerFit::default() };
    assert_eq!(explanation.smaller, Some(expected));
    assert!(!explanation.preemption.unwrap().is_allowed);
    // The answer is the same when it is asked again, and the workload is admitted as if it had not been.
    assert_eq!(explain(&mut engine, "b").blockers, explanation.blockers);
    engine.release(&ObjectKey::new("ns", "a"));
    assert_eq!(explain(&mut engine, "b").reason, None);
    run(&mut engine);
    assert_eq!(engine.explain(&ObjectKey::new("ns", "b"), &Supposition::default(), &mut || true), None);
}

#[test]
fn preemption_counts_what_policies_allow() {
    let mut engine = preempting();
    let chances = explain(&mut engine, "mid").preemption.unwrap();
    let usage = [(FlavorResource::new("f", "gpu"), Amount::new(2))].into();
    assert_eq!(
        chances,
        PreemptionChances { is_allowed: true, own: 1, usage, ..PreemptionChances::default() }
    );
}

/// Three workloads have quota, two of them of what the others lack.
#[test]
fn only_those_are_counted_that_use_what_is_missing() {
    let mut engine = engine(4, ClusterQueuePreemption::default());
    let mut queue = engine.config.cluster_queue("cq").unwrap().config.clone();
    let limits = QuotaLimits { nominal: Amount::new(9), ..QuotaLimits::default() };
    let limits = BTreeMap::from([(Arc::from("cpu"), limits)]);
    queue.groups.push(ResourceGroup::from_flavors(vec![FlavorQuotas { name: Arc::from("f"), limits }]));
    engine.set_cluster_queue("cq", Some(queue));
    let mut other = workload("other", 1, 0);
    let mut sets = other.pod_sets.to_vec();
    sets[0].requests = BTreeMap::from([(Arc::from("cpu"), Amount::new(1))]);
    other.pod_sets = sets.into();
    for workload in [other, workload("a", 1, 0), workload("b", 2, 0), workload("c", 4, 0)] {
        engine.enqueue(workload);
        run(&mut engine);
    }
    assert_eq!(engine.charges().count(), 3);
    assert_eq!(explain(&mut engine, "c").users, 2);
}

#[test]
fn another_priority_says_what_it_would_preempt() {
    let policy = ClusterQueuePreemption {
        within_cluster_queue: Some(WithinClusterQueuePolicy::LowerPriority),
        ..ClusterQueuePreemption::default()
    };
    let mut engine = engine(10, policy);
    for (name, pods, priority) in [("a", 4, 1), ("b", 6, 2), ("c", 5, 0)] {
        engine.enqueue(workload(name, pods, priority));
        run(&mut engine);
    }
    let key = ObjectKey::new("ns", "c");
    let mut at = |priority: i64| {
        let supposed = Supposition { cluster_queue: None, priority: Some(priority) };
        let found = engine.explain(&key, &supposed, &mut || true).unwrap();
        let names: Vec<String> = found.victims.iter().map(|key| key.name.to_string()).collect();
        (found.reason.is_none(), names)
    };
    assert_eq!(at(0), (false, vec![]));
    assert_eq!(at(2), (false, vec![]), "one of lower priority is not enough");
    assert_eq!(at(3), (true, vec!["b".to_owned()]));
    assert_eq!(explain(&mut engine, "c").victims, []);
}

#[test]
fn fewer_pods_may_preempt() {
    let mut engine = preempting();
    let expected = SmallerFit { pods: 2, of: 6, preempts: true, ..SmallerFit::default() };
    assert_eq!(explain(&mut engine, "mid").smaller, Some(expected));
}

#[test]
fn a_question_ends_when_its_time_is_over() {
    let mut engine = engine(1_000, ClusterQueuePreemption::default());
    for (name, pods) in [("a", 600), ("b", 1_000)] {
        engine.enqueue(workload(name, pods, 0));
        run(&mut engine);
    }
    let mut left = 3;
    let mut keep_going = || {
        left -= 1;
        left >= 0
    };
    let explanation =
        engine.explain(&ObjectKey::new("ns", "b"), &Supposition::default(), &mut keep_going).unwrap();
    assert!(explanation.is_cut && !explanation.blockers.is_empty());
    let all = explain(&mut engine, "b");
    assert_eq!((all.smaller.unwrap().pods, all.is_cut), (400, false));
}

#[test]
fn another_queue_says_what_it_would_wait_for_there() {
    let mut engine = engine(10, ClusterQueuePreemption::default());
    let small = engine.config.cluster_queue("cq").unwrap().config.clone();
    let limits = QuotaLimits { nominal: Amount::new(2), ..QuotaLimits::default() };
    let limits = BTreeMap::from([(Arc::from("gpu"), limits)]);
    let groups = vec![ResourceGroup::from_flavors(vec![FlavorQuotas { name: Arc::from("f"), limits }])];
    engine.set_cluster_queue("small", Some(ClusterQueue { groups, ..small }));
    for (name, pods) in [("a", 8), ("b", 3)] {
        engine.enqueue(workload(name, pods, 0));
        run(&mut engine);
    }
    let mut ask = |queue: &str| {
        let supposed = Supposition { cluster_queue: Some(Arc::from(queue)), priority: None };
        engine.explain(&ObjectKey::new("ns", "b"), &supposed, &mut || true)
    };
    let there = ask("small").unwrap();
    assert_eq!(
        (there.reason, &there.blockers[0].kind),
        (Some(PendingReason::ExceedsMaxQuota), &BlockerKind::NeverFits)
    );
    assert_eq!(ask("cq").unwrap().blockers[0].kind, BlockerKind::InUse);
    assert_eq!(ask("nothing"), None);
}

/// A queue that takes no workload of the namespace, and one that is inactive, keep it out whatever is free there.
#[test]
fn another_queue_that_keeps_the_workload_out_says_so() {
    let mut engine = engine(10, ClusterQueuePreemption::default());
    let own = engine.config.cluster_queue("cq").unwrap().config.clone();
    let picky = LabelSelector {
        match_labels: Some(BTreeMap::from([("team".to_owned(), "other".to_owned())])),
        ..LabelSelector::default()
    };
    engine.set_cluster_queue("picky", Some(ClusterQueue { namespace_selector: Some(picky), ..own.clone() }));
    engine.set_cluster_queue("none", Some(ClusterQueue { namespace_selector: None, ..own.clone() }));
    let inactive = Some(Inactive { reason: Arc::from("Stopped"), message: Arc::from("is stopped") });
    engine.set_cluster_queue("stopped", Some(ClusterQueue { inactive, ..own }));
    engine.enqueue(workload("a", 8, 0));
    run(&mut engine);
    engine.enqueue(workload("b", 3, 0));
    run(&mut engine);
    let mut ask = |queue: &str| {
        let supposed = Supposition { cluster_queue: Some(Arc::from(queue)), priority: None };
        engine.explain(&ObjectKey::new("ns", "b"), &supposed, &mut || true).unwrap()
    };
    let selector = "Workload namespace doesn't match ClusterQueue selector";
    for (queue, reason, text) in [
        ("picky", PendingReason::Misconfigured, selector),
        ("none", PendingReason::Misconfigured, selector),
        ("stopped", PendingReason::Suspended, "ClusterQueue stopped is inactive: is stopped"),
    ] {
        let found = ask(queue);
        let Obstacle::Object(verdict) = &found.obstacle else { panic!("{queue}: {found:?}") };
        assert_eq!((verdict.to_string().as_str(), found.reason), (text, Some(reason)), "{queue}");
        assert!(found.obstacle.stays() && found.blockers.is_empty(), "{queue}");
    }
    // What keeps it out of another queue does not keep it out of its own.
    assert_eq!(ask("cq").blockers[0].kind, BlockerKind::InUse);
}

#[test]
fn a_workload_that_never_fits_says_so() {
    let mut engine = engine(4, ClusterQueuePreemption::default());
    engine.enqueue(workload("a", 5, 0));
    run(&mut engine);
    let explanation = explain(&mut engine, "a");
    assert_eq!(explanation.reason, Some(PendingReason::ExceedsMaxQuota));
    assert_eq!(explanation.blockers[0].kind, BlockerKind::NeverFits);
    assert_eq!(explanation.smaller.unwrap().pods, 4);
    assert_eq!(explanation.preemption, None);
}

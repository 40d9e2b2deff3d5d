//! Single stories with their messages.

use super::world::{
    admitted, both, by_usage, charge, cohort, cpu, engine, engine_with, key, limits, many, one, pods, queue,
    settle, workload,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};
use sluice::api::reason::PendingReason;
use sluice::api::v1beta2::{
    ClusterQueuePreemption, FlavorFungibility, FungibilityPolicy, QueueingStrategy, ReclaimPolicy,
    WithinClusterQueuePolicy,
};
use sluice::resources::Amount;
use sluice::scheduler::{
    Charge, ClusterQueue, Engine, EngineSettings, Flavor, LocalQueue, Outcome, PodSet, Workload,
};
use sluice::topology::{HOSTNAME, NodeSpec, Pods};
use std::collections::BTreeMap;
use std::sync::Arc;

fn flavors_of(engine: &mut Engine, pod_set: PodSet) -> Option<String> {
    engine.enqueue(workload("w", "q", 0, 0, vec![pod_set]));
    settle(engine).into_iter().find_map(|decision| match decision.outcome {
        Outcome::Admitted(given) => given.pod_sets[0].flavors.get("cpu").map(ToString::to_string),
        _ => None,
    })
}

#[test]
fn two_siblings_that_fit_alone_but_not_together_get_one_place() {
    let mut engine = engine();
    engine.set_cohort("root", Some(cohort(None, one("red", "cpu", limits(2000, None, None)))));
    for name in ["sub-0", "sub-1"] {
        engine.set_cluster_queue(name, Some(queue(Some("root"), one("red", "cpu", limits(0, None, None)))));
    }
    engine.enqueue(cpu("job-1", "sub-0", 0, 2000));
    engine.enqueue(cpu("job-2", "sub-1", 1, 2000));
    assert_eq!(admitted(&settle(&mut engine)), ["job-1"]);
    let verdict = engine.verdict(&key("job-2")).expect("it waits");
    assert_eq!(verdict.reason, PendingReason::WaitingForQuota);
    assert_eq!(
        verdict.to_string(),
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor red, \
         request 2, limit 2 at Cohort root"
    );
    engine.release(&key("job-1"));
    assert_eq!(admitted(&settle(&mut engine)), ["job-2"]);
}

#[test]
fn a_cycle_of_few_heads_takes_whole_trees_the_most_urgent_first() {
    let mut engine = engine();
    for (name, cohort) in [("a", None), ("b", Some("two")), ("c", Some("two")), ("d", None)] {
        engine.set_cluster_queue(name, Some(queue(cohort, one("red", "cpu", limits(9, None, None)))));
    }
    for (second, (at, priority)) in (0..).zip([("a", 0), ("b", 0), ("c", 5), ("d", 0)]) {
        let pods = vec![pods("main", 1, &[("cpu", 1)])];
        engine.enqueue(workload(&format!("in-{at}"), at, priority, second, pods));
    }
    let mut next = |heads| admitted(&engine.cycle_of(heads, Timestamp::UNIX_EPOCH));
    assert_eq!(next(0), [""; 0]);
    assert_eq!(next(1), ["in-c", "in-b"], "the more important brings its tree with it");
    assert_eq!(next(1), ["in-a"], "then the older");
    assert_eq!(next(usize::MAX), ["in-d"]);
}

#[test]
fn what_can_never_fit_says_where_and_why() {
    // Of equal limits the lowest is named.
    for above in [9000, 500] {
        let mut engine = engine();
        let own = one("red", "cpu", limits(1000, Some(500), None));
        engine.set_cluster_queue("q", Some(queue(Some("root"), own)));
        engine.set_cohort("root", Some(cohort(None, one("red", "cpu", limits(above, None, None)))));
        engine.enqueue(cpu("w", "q", 0, 2000));
        settle(&mut engine);
        let verdict = engine.verdict(&key("w")).expect("it waits");
        assert_eq!(verdict.reason, PendingReason::ExceedsMaxQuota);
        assert_eq!(
            verdict.to_string(),
            "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor red, \
             request (2) > maximum capacity (1500m) at ClusterQueue q"
        );
    }
}

#[test]
fn what_keeps_a_pod_set_from_several_flavors_is_said_in_one_breath() {
    let mut engine = engine();
    let quotas = [limits(1000, None, None), limits(500, None, None)];
    engine.set_cluster_queue("q", Some(queue(None, many(&["red", "blue"], "cpu", &quotas))));
    let sets = ["one", "two"].map(|name| pods(name, 1, &[("cpu", 2000)]));
    engine.enqueue(workload("w", "q", 0, 0, sets.to_vec()));
    settle(&mut engine);
    assert_eq!(
        engine.verdict(&key("w")).expect("it waits").to_string(),
        "couldn't assign flavors to pod set one: insufficient quota for cpu in flavor blue, request (2) > \
         maximum capacity (500m) at ClusterQueue q, insufficient quota for cpu in flavor red, request (2) > maximum \
         capacity (1) at ClusterQueue q"
    );
}

#[test]
fn the_message_does_not_follow_usage() {
    let mut engine = engine();
    engine.set_cluster_queue("q", Some(queue(None, one("red", "cpu", limits(9, None, None)))));
    engine.charge(&key("a"), charge("q", &[("red", "cpu", 5)]));
    engine.enqueue(cpu("w", "q", 0, 9));
    settle(&mut engine);
    let before = engine.verdict(&key("w")).expect("it waits").to_string();
    engine.charge(&key("b"), charge("q", &[("red", "cpu", 3)]));
    engine.release(&key("a"));
    settle(&mut engine);
    assert_eq!(engine.verdict(&key("w")).expect("it waits").to_string(), before);
}

#[test]
fn a_strict_head_blocks_its_queue_and_a_best_effort_head_does_not() {
    for (strategy, expected) in
        [(QueueingStrategy::StrictFIFO, vec![]), (QueueingStrategy::BestEffortFIFO, vec!["small"])]
    {
        let mut engine = engine();
        let rules = queue(None, one("red", "cpu", limits(3, None, None)));
        engine.set_cluster_queue("q", Some(ClusterQueue { strategy, ..rules }));
        engine.charge(&key("a"), charge("q", &[("red", "cpu", 1)]));
        engine.enqueue(cpu("big", "q", 0, 3));
        engine.enqueue(cpu("small", "q", 1, 1));
        assert_eq!(admitted(&settle(&mut engine)), expected);
    }
}

#[test]
fn a_namespace_that_is_not_selected_does_not_block_a_strict_queue() {
    let mut engine = engine();
    let rules = queue(None, one("red", "cpu", limits(3, None, None)));
    engine.set_cluster_queue("q", Some(ClusterQueue { strategy: QueueingStrategy::StrictFIFO, ..rules }));
    let mut stranger = cpu("stranger", "q", 0, 1);
    stranger.key.namespace = Arc::from("elsewhere");
    engine.enqueue(stranger);
    engine.enqueue(cpu("w", "q", 1, 1));
    assert_eq!(admitted(&settle(&mut engine)), ["w"]);
    engine.set_namespace("elsewhere", Some(BTreeMap::new()));
    assert_eq!(admitted(&settle(&mut engine)), ["stranger"]);
}

#[test]
fn a_blocked_strict_head_keeps_its_own_quota_from_borrowers() {
    let mut engine = engine();
    let owner = queue(Some("all"), one("red", "cpu", limits(4, None, None)));
    engine.set_cluster_queue("owner", Some(ClusterQueue { strategy: QueueingStrategy::StrictFIFO, ..owner }));
    engine.set_cluster_queue("guest", Some(queue(Some("all"), one("red", "cpu", limits(0, None, None)))));
    engine.charge(&key("a"), charge("guest", &[("red", "cpu", 1)]));
    engine.charge(&key("b"), charge("guest", &[("red", "cpu", 1)]));
    engine.enqueue(cpu("big", "owner", 0, 4));
    settle(&mut engine);
    engine.enqueue(cpu("crumb", "guest", 1, 1));
    assert_eq!(admitted(&settle(&mut engine)), Vec::<String>::new());
    engine.release(&key("a"));
    assert_eq!(admitted(&settle(&mut engine)), Vec::<String>::new());
    engine.release(&key("b"));
    assert_eq!(admitted(&settle(&mut engine)), ["big"]);
    engine.release(&key("big"));
    assert_eq!(admitted(&settle(&mut engine)), ["crumb"]);
}

#[test]
fn members_of_a_parked_class_are_explained_once() {
    let mut engine = engine();
    engine.set_cluster_queue("q", Some(queue(None, one("red", "cpu", limits(1, None, None)))));
    for n in 0..5 {
        engine.enqueue(cpu(&format!("w{n}"), "q", n, 2));
    }
    assert_eq!(settle(&mut engine).len(), 1, "only the first is judged");
    assert!(engine.has_news());
    let told: Vec<String> = engine.take_explained(3).iter().map(|key| key.name.to_string()).collect();
    assert_eq!(told, ["w1", "w2", "w3"]);
    assert_eq!(engine.take_explained(9), [key("w4")]);
    assert!(!engine.has_news());
    engine.enqueue(cpu("w9", "q", 9, 2));
    assert!(!engine.has_work(), "it waits with those like it");
    assert_eq!(engine.take_explained(9), [key("w9")]);
    assert_eq!(engine.ahead_of(&key("w9")), Some(5));
}

#[test]
fn those_who_wait_are_told_again_only_when_it_reads_otherwise() {
    let mut engine = engine();
    let rules = |nominal, weight| ClusterQueue {
        weight: Some(weight),
        ..queue(None, one("red", "cpu", limits(nominal, None, None)))
    };
    engine.set_cluster_queue("q", Some(rules(1, 1.0)));
    for n in 0..3 {
        engine.enqueue(cpu(&format!("w{n}"), "q", n, 5));
    }
    settle(&mut engine);
    assert_eq!(engine.take_explained(9).len(), 2);
    engine.set_cluster_queue("q", Some(rules(1, 2.0)));
    assert!(!settle(&mut engine).is_empty(), "they are judged anew");
    assert_eq!(engine.take_explained(9), [], "and nothing else is said of them");
    engine.set_cluster_queue("q", Some(rules(2, 2.0)));
    settle(&mut engine);
    assert_eq!(engine.take_explained(9), [key("w1"), key("w2")]);
}

#[test]
fn nothing_is_remembered_of_a_queue_that_never_was_and_has_nobody_left() {
    let mut engine = engine();
    engine.enqueue(cpu("w", "nowhere", 0, 1));
    settle(&mut engine);
    engine.forget(&key("w"));
    assert!(!format!("{engine:?}").contains("nowhere"));
}

#[test]
fn nothing_is_remembered_of_a_queue_that_is_deleted_empty() {
    let mut engine = engine();
    engine.set_cluster_queue("gone", Some(queue(None, one("red", "cpu", limits(1, None, None)))));
    engine.set_cluster_queue("gone", None);
    assert!(!format!("{engine:?}").contains("gone"));
}

/// A queue that may evict the less important, with LocalQueues of which one used more than the other.
fn used(usage_based: bool) -> Engine {
    let mut engine = engine_with(by_usage(SignedDuration::from_hours(1), SignedDuration::from_mins(5)));
    let within_cluster_queue = Some(WithinClusterQueuePolicy::LowerPriority);
    let preemption = ClusterQueuePreemption { within_cluster_queue, ..ClusterQueuePreemption::default() };
    let made = queue(None, one("red", "cpu", limits(2, None, None)));
    engine.set_cluster_queue("q", Some(ClusterQueue { preemption, usage_based, ..made }));
    for (local, used) in [("much", 5.0), ("little", 1.0)] {
        let consumed = BTreeMap::from([(Arc::from("cpu"), used)]);
        let local_queue = LocalQueue { cluster_queue: Arc::from("q"), consumed, ..LocalQueue::default() };
        engine.set_local_queue(&key(local), Some(local_queue));
    }
    engine
}

#[test]
fn past_usage_says_who_goes_first_only_where_the_queue_counts_it() {
    for (usage_based, expected) in [(true, "old"), (false, "new")] {
        let mut engine = used(usage_based);
        for (second, (name, local)) in (0..).zip([("old", "much"), ("new", "little")]) {
            let reserved_at = Timestamp::from_second(second).ok();
            let held = charge("q", &[("red", "cpu", 1)]);
            engine.charge(&key(name), Charge { local_queue: Arc::from(local), reserved_at, ..held });
        }
        engine.enqueue(Workload { priority: 1, ..cpu("w", "q", 0, 1) });
        assert_eq!(victims(&mut engine), 1);
        assert!(engine.preemption_of(&key(expected)).is_some(), "usage based: {usage_based}");
    }
}

#[test]
fn past_usage_says_who_comes_first_only_where_the_queue_counts_it() {
    for (usage_based, weight, expected) in [(true, 1.0, "late"), (true, 9.0, "early"), (false, 1.0, "early")]
    {
        let mut engine = used(usage_based);
        for (second, (name, local)) in (0..).zip([("early", "much"), ("late", "little")]) {
            engine.enqueue(Workload { local_queue: Arc::from(local), ..cpu(name, "q", second, 2) });
        }
        // By weight it used less than the other.
        let cluster_queue = Arc::from("q");
        let heavy = LocalQueue { cluster_queue, weight: Some(weight), ..LocalQueue::default() };
        engine.set_local_queue(&key("much"), Some(heavy));
        assert_eq!(admitted(&settle(&mut engine)), [expected], "usage based: {usage_based}, weight {weight}");
    }
}

#[test]
fn a_namespace_that_changes_wakes_nobody_of_another() {
    let mut engine = engine();
    engine.set_namespace("other", Some(BTreeMap::new()));
    engine.set_cluster_queue("q", Some(queue(None, one("red", "cpu", limits(1, None, None)))));
    let mut stranger = cpu("stranger", "q", 1, 2);
    stranger.key.namespace = Arc::from("other");
    engine.enqueue(cpu("w", "q", 0, 2));
    engine.enqueue(stranger);
    assert_eq!(settle(&mut engine).len(), 2, "neither fits");
    engine.set_namespace("other", None);
    let judged: Vec<String> =
        settle(&mut engine).into_iter().map(|decision| decision.key.name.to_string()).collect();
    assert_eq!(judged, ["stranger"]);
}

#[test]
fn workloads_that_ask_the_same_of_quota_and_not_of_nodes_are_judged_apart() {
    let mut engine = engine();
    let of_nodes = Flavor { topology_name: Some(Arc::from("hosts")), ..Flavor::default() };
    engine.set_flavor("red", Some(of_nodes));
    engine.set_topology("hosts", Some(Arc::from([Arc::from(HOSTNAME)])));
    let node = NodeSpec {
        labels: BTreeMap::from([(HOSTNAME.to_owned(), "n".to_owned())]),
        usable: true,
        allocatable: [("cpu", 4), ("pods", 9)].map(|(name, n)| (Arc::from(name), Amount::new(n))).into(),
        ..NodeSpec::default()
    };
    engine.set_node("n", Some(node));
    engine.set_cluster_queue("q", Some(queue(None, one("red", "cpu", limits(9, None, None)))));
    for (second, (name, of_node)) in (0..).zip([("wide", 5), ("narrow", 3)]) {
        let mut made = cpu(name, "q", second, 1);
        let requests = BTreeMap::from([(Arc::from("cpu"), Amount::new(of_node))]);
        let pods = Arc::new(Pods { requests, ..Pods::default() });
        made.pod_sets =
            made.pod_sets.iter().map(|set| PodSet { pods: Arc::clone(&pods), ..set.clone() }).collect();
        engine.enqueue(made);
    }
    assert_eq!(admitted(&settle(&mut engine)), ["narrow"]);
}

/// Fair sharing between two queues of a cohort with quotas of their own, which may reclaim.
fn fair(own: i64, reclaim: ReclaimPolicy) -> Engine {
    let settings = EngineSettings { fair_sharing: Some(Vec::new()), ..EngineSettings::default() };
    let mut engine = engine_with(settings);
    let preemption =
        ClusterQueuePreemption { reclaim_within_cohort: Some(reclaim), ..ClusterQueuePreemption::default() };
    for name in ["owner", "guest"] {
        let made = queue(Some("all"), one("red", "cpu", limits(own, None, None)));
        engine.set_cluster_queue(name, Some(ClusterQueue { preemption: preemption.clone(), ..made }));
    }
    engine
}

/// How many must go in one cycle.
pub(super) fn victims(engine: &mut Engine) -> usize {
    let decisions = engine.cycle(Timestamp::UNIX_EPOCH);
    let number = |outcome: &Outcome| match outcome {
        Outcome::Preempting(_, victims) => victims.len(),
        _ => 0,
    };
    decisions.iter().map(|decision| number(&decision.outcome)).sum()
}

#[test]
fn fair_sharing_reclaims_what_is_lent_where_the_queue_says_so() {
    for (reclaim, expected) in [(ReclaimPolicy::Any, 2), (ReclaimPolicy::Never, 0)] {
        let mut engine = fair(2, reclaim);
        for n in 0..4 {
            engine.charge(&key(&format!("h{n}")), charge("guest", &[("red", "cpu", 1)]));
        }
        engine.enqueue(cpu("w", "owner", 0, 2));
        assert_eq!(victims(&mut engine), expected, "{reclaim:?}");
    }
}

#[test]
fn fair_sharing_takes_nothing_from_those_who_would_have_less() {
    let mut engine = fair(0, ReclaimPolicy::Any);
    engine.set_cohort("all", Some(cohort(None, one("red", "cpu", limits(4, None, None)))));
    for (n, holder) in ["owner", "owner", "guest", "guest"].into_iter().enumerate() {
        engine.charge(&key(&format!("h{n}")), charge(holder, &[("red", "cpu", 1)]));
    }
    engine.enqueue(cpu("w", "owner", 0, 2));
    assert_eq!(victims(&mut engine), 0);
    for name in ["h0", "h1"] {
        engine.release(&key(name));
        engine.charge(&key(name), charge("guest", &[("red", "cpu", 1)]));
    }
    assert_eq!(victims(&mut engine), 2, "shares become equal");
}

#[test]
fn borrowing_goes_on_to_the_next_flavor_if_the_queue_says_so() {
    for (policy, expected) in [(None, "red"), (Some(FungibilityPolicy::TryNextFlavor), "blue")] {
        let mut engine = engine();
        let own = [limits(0, None, None), limits(5, None, None)];
        let rules = queue(Some("all"), many(&["red", "blue"], "cpu", &own));
        let fungibility = FlavorFungibility { when_can_borrow: policy, ..FlavorFungibility::default() };
        engine.set_cluster_queue("q", Some(ClusterQueue { fungibility, ..rules }));
        engine.set_cohort("all", Some(cohort(None, one("red", "cpu", limits(5, None, None)))));
        assert_eq!(flavors_of(&mut engine, pods("main", 1, &[("cpu", 2)])).as_deref(), Some(expected));
    }
}

#[test]
fn taints_and_affinity_choose_the_flavor() {
    let mut engine = engine();
    let labels = |value: &str| BTreeMap::from([("zone".to_owned(), value.to_owned())]);
    let taint = Taint { key: "gpu".into(), effect: "NoSchedule".into(), ..Taint::default() };
    let tainted = Flavor { node_labels: labels("a"), node_taints: vec![taint], ..Flavor::default() };
    engine.set_flavor("red", Some(tainted));
    engine.set_flavor("blue", Some(Flavor { node_labels: labels("b"), ..Flavor::default() }));
    let quotas = [limits(5, None, None), limits(5, None, None)];
    engine.set_cluster_queue("q", Some(queue(None, many(&["red", "blue"], "cpu", &quotas))));
    let plain = pods("main", 1, &[("cpu", 1)]);
    assert_eq!(flavors_of(&mut engine, plain.clone()).as_deref(), Some("blue"));
    engine.release(&key("w"));
    let toleration =
        Toleration { key: Some("gpu".into()), operator: Some("Exists".into()), ..Toleration::default() };
    let with = |change: &dyn Fn(&mut Pods), set: &PodSet| {
        let mut pods = Pods::clone(&set.pods);
        change(&mut pods);
        PodSet { pods: Arc::new(pods), ..set.clone() }
    };
    let tolerant = with(&|pods| pods.tolerations = vec![toleration.clone()], &plain);
    assert_eq!(flavors_of(&mut engine, tolerant.clone()).as_deref(), Some("red"));
    engine.release(&key("w"));
    let requirement = |key: &str, operator: &str| NodeSelectorRequirement {
        key: key.into(),
        operator: operator.into(),
        values: Some(vec!["a".into()]),
    };
    let term =
        |r: Vec<NodeSelectorRequirement>| NodeSelectorTerm { match_expressions: Some(r), match_fields: None };
    let not_a = vec![requirement("zone", "NotIn"), requirement("elsewhere", "In")];
    let picky = with(&|pods| pods.required_affinity = vec![term(not_a.clone())], &tolerant);
    assert_eq!(flavors_of(&mut engine, picky).as_deref(), Some("blue"));
    engine.release(&key("w"));
    let selective = with(&|pods| pods.node_selector = labels("c"), &tolerant);
    assert_eq!(flavors_of(&mut engine, selective), None);
    let verdict = engine.verdict(&key("w")).expect("it waits");
    assert_eq!(verdict.reason, PendingReason::NoMatchingFlavor);
}

#[test]
fn pods_count_where_a_queue_covers_them() {
    let mut engine = engine();
    engine.set_cluster_queue("q", Some(queue(None, one("red", "pods", limits(3, None, None)))));
    engine.enqueue(workload("w", "q", 0, 0, vec![pods("main", 4, &[])]));
    engine.enqueue(workload("v", "q", 0, 1, vec![pods("main", 3, &[])]));
    assert_eq!(admitted(&settle(&mut engine)), ["v"]);
}

#[test]
fn a_cycle_stops_only_what_hangs_on_it() {
    let mut engine = engine();
    for (name, up) in [("a", "b"), ("c", "d")] {
        engine.set_cluster_queue(name, Some(queue(Some(name), one("red", "cpu", limits(1, None, None)))));
        engine.set_cohort(name, Some(cohort(Some(up), Vec::new())));
    }
    engine.set_cohort("b", Some(cohort(Some("a"), Vec::new())));
    engine.enqueue(cpu("stuck", "a", 0, 1));
    engine.enqueue(cpu("free", "c", 0, 1));
    assert_eq!(admitted(&settle(&mut engine)), ["free"]);
    assert!(engine.inactive_reason("a").is_some() && engine.inactive_reason("c").is_none());
    assert_eq!(engine.verdict(&key("stuck")).map(|v| v.reason), Some(PendingReason::Suspended));
    engine.set_cohort("b", None);
    assert_eq!(admitted(&settle(&mut engine)), ["stuck"]);
}

/// What the whole asks for can lack something else than what its fewest pods ask for.
#[test]
fn fewer_pods_come_in_when_what_they_lacked_is_given_back() {
    let mut engine = engine();
    engine.set_cluster_queue("q", Some(queue(None, both(&[("red", 3, 3)]))));
    engine.charge(&key("held"), charge("q", &[("red", "gpu", 1)]));
    let set = PodSet { min_count: Some(1), ..pods("main", 2, &[("cpu", 2), ("gpu", 3)]) };
    engine.enqueue(workload("w", "q", 0, 0, vec![set]));
    assert!(admitted(&settle(&mut engine)).is_empty(), "one pod lacks a gpu");
    engine.release(&key("held"));
    assert_eq!(admitted(&settle(&mut engine)), ["w"]);
}

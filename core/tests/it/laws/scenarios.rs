//! Fixed scenarios, with their messages.

use crate::fixtures::builders::{
    admission_fair_sharing_settings, admitted_names, charge, cohort, cpu_gpu_group, cpu_workload, engine,
    engine_with, flavor_group, key, limits, pod_set, queue, run_until_idle, single_flavor_group, workload,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};
use sluice_core::api::reason::PendingReason;
use sluice_core::api::v1beta2::{
    ClusterQueuePreemption, FlavorFungibility, FungibilityPolicy, QueueingStrategy, ReclaimPolicy,
    WithinClusterQueuePolicy,
};
use sluice_core::resources::Amount;
use sluice_core::scheduler::{
    Charge, ClusterQueue, Engine, EngineSettings, Flavor, LocalQueue, Outcome, PodSet, Workload,
};
use sluice_core::topology::{HOSTNAME_LABEL, NodeSpec, PodRequirements};
use std::collections::BTreeMap;
use std::sync::Arc;

fn admitted_flavor(engine: &mut Engine, pod_set: PodSet) -> Option<String> {
    engine.enqueue(workload("w", "q", 0, 0, vec![pod_set]));
    run_until_idle(engine).into_iter().find_map(|decision| match decision.outcome {
        Outcome::Admitted(assignment) => assignment.pod_sets[0].flavors.get("cpu").map(ToString::to_string),
        _ => None,
    })
}

#[test]
fn second_sibling_waits_when_cohort_is_full() {
    let mut engine = engine();
    engine
        .set_cohort("root", Some(cohort(None, single_flavor_group("red", "cpu", limits(2000, None, None)))));
    for name in ["sub-0", "sub-1"] {
        engine.set_cluster_queue(
            name,
            Some(queue(Some("root"), single_flavor_group("red", "cpu", limits(0, None, None)))),
        );
    }
    engine.enqueue(cpu_workload("job-1", "sub-0", 0, 2000));
    engine.enqueue(cpu_workload("job-2", "sub-1", 1, 2000));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["job-1"]);
    let verdict = engine.verdict(&key("job-2")).expect("it is pending");
    assert_eq!(verdict.reason, PendingReason::WaitingForQuota);
    assert_eq!(
        verdict.to_string(),
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor red, \
         request 2, limit 2 at Cohort root"
    );
    engine.release(&key("job-1"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["job-2"]);
}

#[test]
fn limited_cycle_takes_whole_trees_by_priority() {
    let mut engine = engine();
    for (name, cohort) in [("a", None), ("b", Some("two")), ("c", Some("two")), ("d", None)] {
        engine.set_cluster_queue(
            name,
            Some(queue(cohort, single_flavor_group("red", "cpu", limits(9, None, None)))),
        );
    }
    for (second, (cluster_queue, priority)) in (0..).zip([("a", 0), ("b", 0), ("c", 5), ("d", 0)]) {
        let pods = vec![pod_set("main", 1, &[("cpu", 1)])];
        engine.enqueue(workload(&format!("in-{cluster_queue}"), cluster_queue, priority, second, pods));
    }
    let mut next = |heads| admitted_names(&engine.run_cycle_limited(heads, Timestamp::UNIX_EPOCH));
    assert_eq!(next(0), [""; 0]);
    assert_eq!(next(1), ["in-c", "in-b"], "the head of highest priority brings its whole tree");
    assert_eq!(next(1), ["in-a"], "then the older head");
    assert_eq!(next(usize::MAX), ["in-d"]);
}

#[test]
fn exceeds_max_quota_verdict_names_lowest_node() {
    // Of equal limits, the lowest node is named.
    for above in [9000, 500] {
        let mut engine = engine();
        let groups = single_flavor_group("red", "cpu", limits(1000, Some(500), None));
        engine.set_cluster_queue("q", Some(queue(Some("root"), groups)));
        engine.set_cohort(
            "root",
            Some(cohort(None, single_flavor_group("red", "cpu", limits(above, None, None)))),
        );
        engine.enqueue(cpu_workload("w", "q", 0, 2000));
        run_until_idle(&mut engine);
        let verdict = engine.verdict(&key("w")).expect("it is pending");
        assert_eq!(verdict.reason, PendingReason::ExceedsMaxQuota);
        assert_eq!(
            verdict.to_string(),
            "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor red, \
             request (2) > maximum capacity (1500m) at ClusterQueue q"
        );
    }
}

#[test]
fn verdict_lists_all_flavors_in_one_message() {
    let mut engine = engine();
    let quotas = [limits(1000, None, None), limits(500, None, None)];
    engine.set_cluster_queue("q", Some(queue(None, flavor_group(&["red", "blue"], "cpu", &quotas))));
    let sets = ["one", "two"].map(|name| pod_set(name, 1, &[("cpu", 2000)]));
    engine.enqueue(workload("w", "q", 0, 0, sets.to_vec()));
    run_until_idle(&mut engine);
    assert_eq!(
        engine.verdict(&key("w")).expect("it is pending").to_string(),
        "couldn't assign flavors to pod set one: insufficient quota for cpu in flavor blue, request (2) > \
         maximum capacity (500m) at ClusterQueue q, insufficient quota for cpu in flavor red, request (2) > maximum \
         capacity (1) at ClusterQueue q"
    );
}

#[test]
fn verdict_is_stable_when_usage_changes() {
    let mut engine = engine();
    engine
        .set_cluster_queue("q", Some(queue(None, single_flavor_group("red", "cpu", limits(9, None, None)))));
    engine.charge(&key("a"), charge("q", &[("red", "cpu", 5)]));
    engine.enqueue(cpu_workload("w", "q", 0, 9));
    run_until_idle(&mut engine);
    let before = engine.verdict(&key("w")).expect("it is pending").to_string();
    engine.charge(&key("b"), charge("q", &[("red", "cpu", 3)]));
    engine.release(&key("a"));
    run_until_idle(&mut engine);
    assert_eq!(engine.verdict(&key("w")).expect("it is pending").to_string(), before);
}

#[test]
fn only_strict_fifo_head_blocks_queue() {
    for (strategy, expected) in
        [(QueueingStrategy::StrictFIFO, vec![]), (QueueingStrategy::BestEffortFIFO, vec!["small"])]
    {
        let mut engine = engine();
        let base = queue(None, single_flavor_group("red", "cpu", limits(3, None, None)));
        engine.set_cluster_queue("q", Some(ClusterQueue { strategy, ..base }));
        engine.charge(&key("a"), charge("q", &[("red", "cpu", 1)]));
        engine.enqueue(cpu_workload("big", "q", 0, 3));
        engine.enqueue(cpu_workload("small", "q", 1, 1));
        assert_eq!(admitted_names(&run_until_idle(&mut engine)), expected);
    }
}

#[test]
fn unselected_namespace_does_not_block_strict_queue() {
    let mut engine = engine();
    let base = queue(None, single_flavor_group("red", "cpu", limits(3, None, None)));
    engine.set_cluster_queue("q", Some(ClusterQueue { strategy: QueueingStrategy::StrictFIFO, ..base }));
    let mut unselected = cpu_workload("stranger", "q", 0, 1);
    unselected.key.namespace = Arc::from("elsewhere");
    engine.enqueue(unselected);
    engine.enqueue(cpu_workload("w", "q", 1, 1));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["w"]);
    engine.set_namespace("elsewhere", Some(BTreeMap::new()));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["stranger"]);
}

#[test]
fn blocked_strict_head_withholds_quota_from_borrowers() {
    let mut engine = engine();
    let owner = queue(Some("all"), single_flavor_group("red", "cpu", limits(4, None, None)));
    engine.set_cluster_queue("owner", Some(ClusterQueue { strategy: QueueingStrategy::StrictFIFO, ..owner }));
    engine.set_cluster_queue(
        "guest",
        Some(queue(Some("all"), single_flavor_group("red", "cpu", limits(0, None, None)))),
    );
    engine.charge(&key("a"), charge("guest", &[("red", "cpu", 1)]));
    engine.charge(&key("b"), charge("guest", &[("red", "cpu", 1)]));
    engine.enqueue(cpu_workload("big", "owner", 0, 4));
    run_until_idle(&mut engine);
    engine.enqueue(cpu_workload("crumb", "guest", 1, 1));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), Vec::<String>::new());
    engine.release(&key("a"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), Vec::<String>::new());
    engine.release(&key("b"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["big"]);
    engine.release(&key("big"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["crumb"]);
}

#[test]
fn parked_class_members_get_message_update_once() {
    let mut engine = engine();
    engine
        .set_cluster_queue("q", Some(queue(None, single_flavor_group("red", "cpu", limits(1, None, None)))));
    for n in 0..5 {
        engine.enqueue(cpu_workload(&format!("w{n}"), "q", n, 2));
    }
    assert_eq!(run_until_idle(&mut engine).len(), 1, "only the head is nominated");
    assert!(engine.has_message_updates());
    let names: Vec<String> = engine.take_message_updates(3).iter().map(|key| key.name.to_string()).collect();
    assert_eq!(names, ["w1", "w2", "w3"]);
    assert_eq!(engine.take_message_updates(9), [key("w4")]);
    assert!(!engine.has_message_updates());
    engine.enqueue(cpu_workload("w9", "q", 9, 2));
    assert!(!engine.has_work(), "it joins its parked class");
    assert_eq!(engine.take_message_updates(9), [key("w9")]);
    assert_eq!(engine.ahead_of(&key("w9")), Some(5));
}

#[test]
fn message_update_repeats_only_when_text_changes() {
    let mut engine = engine();
    let spec = |nominal, weight| ClusterQueue {
        weight: Some(weight),
        ..queue(None, single_flavor_group("red", "cpu", limits(nominal, None, None)))
    };
    engine.set_cluster_queue("q", Some(spec(1, 1.0)));
    for n in 0..3 {
        engine.enqueue(cpu_workload(&format!("w{n}"), "q", n, 5));
    }
    run_until_idle(&mut engine);
    assert_eq!(engine.take_message_updates(9).len(), 2);
    engine.set_cluster_queue("q", Some(spec(1, 2.0)));
    assert!(!run_until_idle(&mut engine).is_empty(), "the head is nominated again");
    assert_eq!(engine.take_message_updates(9), [], "its message is unchanged");
    engine.set_cluster_queue("q", Some(spec(2, 2.0)));
    run_until_idle(&mut engine);
    assert_eq!(engine.take_message_updates(9), [key("w1"), key("w2")]);
}

#[test]
fn unknown_queue_is_forgotten_when_empty() {
    let mut engine = engine();
    engine.enqueue(cpu_workload("w", "nowhere", 0, 1));
    run_until_idle(&mut engine);
    engine.remove_pending(&key("w"));
    assert!(!format!("{engine:?}").contains("nowhere"));
}

#[test]
fn deleted_empty_queue_is_forgotten() {
    let mut engine = engine();
    engine.set_cluster_queue(
        "gone",
        Some(queue(None, single_flavor_group("red", "cpu", limits(1, None, None)))),
    );
    engine.set_cluster_queue("gone", None);
    assert!(!format!("{engine:?}").contains("gone"));
}

/// A queue that may preempt lower priority, with two LocalQueues of different past usage.
fn engine_with_past_usage(usage_based: bool) -> Engine {
    let mut engine = engine_with(admission_fair_sharing_settings(
        SignedDuration::from_hours(1),
        SignedDuration::from_mins(5),
    ));
    let within_cluster_queue = Some(WithinClusterQueuePolicy::LowerPriority);
    let preemption = ClusterQueuePreemption { within_cluster_queue, ..ClusterQueuePreemption::default() };
    let base = queue(None, single_flavor_group("red", "cpu", limits(2, None, None)));
    engine
        .set_cluster_queue("q", Some(ClusterQueue { preemption, orders_by_past_usage: usage_based, ..base }));
    for (local, used) in [("much", 5.0), ("little", 1.0)] {
        let consumed = BTreeMap::from([(Arc::from("cpu"), used)]);
        let local_queue = LocalQueue { cluster_queue: Arc::from("q"), consumed, ..LocalQueue::default() };
        engine.set_local_queue(&key(local), Some(local_queue));
    }
    engine
}

#[test]
fn afs_usage_orders_victims_only_when_enabled() {
    for (usage_based, expected) in [(true, "old"), (false, "new")] {
        let mut engine = engine_with_past_usage(usage_based);
        for (second, (name, local)) in (0..).zip([("old", "much"), ("new", "little")]) {
            let reserved_at = Timestamp::from_second(second).ok();
            let base = charge("q", &[("red", "cpu", 1)]);
            engine.charge(&key(name), Charge { local_queue: Arc::from(local), reserved_at, ..base });
        }
        engine.enqueue(Workload { priority: 1, ..cpu_workload("w", "q", 0, 1) });
        assert_eq!(count_victims(&mut engine), 1);
        assert!(engine.preemption_of(&key(expected)).is_some(), "usage based: {usage_based}");
    }
}

#[test]
fn afs_usage_orders_heads_only_when_enabled() {
    for (usage_based, weight, expected) in [(true, 1.0, "late"), (true, 9.0, "early"), (false, 1.0, "early")]
    {
        let mut engine = engine_with_past_usage(usage_based);
        for (second, (name, local)) in (0..).zip([("early", "much"), ("late", "little")]) {
            engine.enqueue(Workload { local_queue: Arc::from(local), ..cpu_workload(name, "q", second, 2) });
        }
        // With the larger weight, its weighted usage is below that of the other.
        let cluster_queue = Arc::from("q");
        let heavy = LocalQueue { cluster_queue, weight: Some(weight), ..LocalQueue::default() };
        engine.set_local_queue(&key("much"), Some(heavy));
        assert_eq!(
            admitted_names(&run_until_idle(&mut engine)),
            [expected],
            "usage based: {usage_based}, weight {weight}"
        );
    }
}

#[test]
fn namespace_change_wakes_only_same_namespace() {
    let mut engine = engine();
    engine.set_namespace("other", Some(BTreeMap::new()));
    engine
        .set_cluster_queue("q", Some(queue(None, single_flavor_group("red", "cpu", limits(1, None, None)))));
    let mut other = cpu_workload("stranger", "q", 1, 2);
    other.key.namespace = Arc::from("other");
    engine.enqueue(cpu_workload("w", "q", 0, 2));
    engine.enqueue(other);
    assert_eq!(run_until_idle(&mut engine).len(), 2, "neither fits");
    engine.set_namespace("other", None);
    let nominated: Vec<String> =
        run_until_idle(&mut engine).into_iter().map(|decision| decision.key.name.to_string()).collect();
    assert_eq!(nominated, ["stranger"]);
}

#[test]
fn different_node_requests_split_equivalence_class() {
    let mut engine = engine();
    let with_topology = Flavor { topology_name: Some(Arc::from("hosts")), ..Flavor::default() };
    engine.set_flavor("red", Some(with_topology));
    engine.set_topology("hosts", Some(Arc::from([Arc::from(HOSTNAME_LABEL)])));
    let node = NodeSpec {
        labels: BTreeMap::from([(HOSTNAME_LABEL.to_owned(), "n".to_owned())]),
        usable: true,
        allocatable: [("cpu", 4), ("pods", 9)].map(|(name, n)| (Arc::from(name), Amount::new(n))).into(),
        ..NodeSpec::default()
    };
    engine.set_node("n", Some(node));
    engine
        .set_cluster_queue("q", Some(queue(None, single_flavor_group("red", "cpu", limits(9, None, None)))));
    for (second, (name, per_pod)) in (0..).zip([("wide", 5), ("narrow", 3)]) {
        let mut created = cpu_workload(name, "q", second, 1);
        let requests = BTreeMap::from([(Arc::from("cpu"), Amount::new(per_pod))]);
        let pods = Arc::new(PodRequirements { requests, ..PodRequirements::default() });
        created.pod_sets = created
            .pod_sets
            .iter()
            .map(|set| PodSet { pod_requirements: Arc::clone(&pods), ..set.clone() })
            .collect();
        engine.enqueue(created);
    }
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["narrow"]);
}

/// Fair sharing between two queues of a cohort with this nominal quota and reclaim policy.
fn fair_sharing_engine(nominal: i64, reclaim: ReclaimPolicy) -> Engine {
    let settings = EngineSettings { fair_sharing: Some(Vec::new()), ..EngineSettings::default() };
    let mut engine = engine_with(settings);
    let preemption =
        ClusterQueuePreemption { reclaim_within_cohort: Some(reclaim), ..ClusterQueuePreemption::default() };
    for name in ["owner", "guest"] {
        let base = queue(Some("all"), single_flavor_group("red", "cpu", limits(nominal, None, None)));
        engine.set_cluster_queue(name, Some(ClusterQueue { preemption: preemption.clone(), ..base }));
    }
    engine
}

/// Runs one cycle. Returns the number of victims.
pub(super) fn count_victims(engine: &mut Engine) -> usize {
    let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
    let number = |outcome: &Outcome| match outcome {
        Outcome::Preempting(_, victims) => victims.len(),
        _ => 0,
    };
    decisions.iter().map(|decision| number(&decision.outcome)).sum()
}

#[test]
fn fair_sharing_reclaims_lent_quota_when_policy_allows() {
    for (reclaim, expected) in [(ReclaimPolicy::Any, 2), (ReclaimPolicy::Never, 0)] {
        let mut engine = fair_sharing_engine(2, reclaim);
        for n in 0..4 {
            engine.charge(&key(&format!("h{n}")), charge("guest", &[("red", "cpu", 1)]));
        }
        engine.enqueue(cpu_workload("w", "owner", 0, 2));
        assert_eq!(count_victims(&mut engine), expected, "{reclaim:?}");
    }
}

#[test]
fn fair_sharing_spares_queues_with_smaller_share() {
    let mut engine = fair_sharing_engine(0, ReclaimPolicy::Any);
    engine.set_cohort("all", Some(cohort(None, single_flavor_group("red", "cpu", limits(4, None, None)))));
    for (n, cluster_queue) in ["owner", "owner", "guest", "guest"].into_iter().enumerate() {
        engine.charge(&key(&format!("h{n}")), charge(cluster_queue, &[("red", "cpu", 1)]));
    }
    engine.enqueue(cpu_workload("w", "owner", 0, 2));
    assert_eq!(count_victims(&mut engine), 0);
    for name in ["h0", "h1"] {
        engine.release(&key(name));
        engine.charge(&key(name), charge("guest", &[("red", "cpu", 1)]));
    }
    assert_eq!(count_victims(&mut engine), 2, "shares become equal");
}

#[test]
fn borrowing_tries_next_flavor_when_policy_requires() {
    for (policy, expected) in [(None, "red"), (Some(FungibilityPolicy::TryNextFlavor), "blue")] {
        let mut engine = engine();
        let quotas = [limits(0, None, None), limits(5, None, None)];
        let base = queue(Some("all"), flavor_group(&["red", "blue"], "cpu", &quotas));
        let fungibility = FlavorFungibility { when_can_borrow: policy, ..FlavorFungibility::default() };
        engine.set_cluster_queue("q", Some(ClusterQueue { fungibility, ..base }));
        engine
            .set_cohort("all", Some(cohort(None, single_flavor_group("red", "cpu", limits(5, None, None)))));
        assert_eq!(
            admitted_flavor(&mut engine, pod_set("main", 1, &[("cpu", 2)])).as_deref(),
            Some(expected)
        );
    }
}

#[test]
fn taints_and_affinity_choose_flavor() {
    let mut engine = engine();
    let labels = |value: &str| BTreeMap::from([("zone".to_owned(), value.to_owned())]);
    let taint = Taint { key: "gpu".into(), effect: "NoSchedule".into(), ..Taint::default() };
    let tainted = Flavor { node_labels: labels("a"), node_taints: vec![taint], ..Flavor::default() };
    engine.set_flavor("red", Some(tainted));
    engine.set_flavor("blue", Some(Flavor { node_labels: labels("b"), ..Flavor::default() }));
    let quotas = [limits(5, None, None), limits(5, None, None)];
    engine.set_cluster_queue("q", Some(queue(None, flavor_group(&["red", "blue"], "cpu", &quotas))));
    let base = pod_set("main", 1, &[("cpu", 1)]);
    assert_eq!(admitted_flavor(&mut engine, base.clone()).as_deref(), Some("blue"));
    engine.release(&key("w"));
    let toleration =
        Toleration { key: Some("gpu".into()), operator: Some("Exists".into()), ..Toleration::default() };
    let modified = |change: &dyn Fn(&mut PodRequirements), set: &PodSet| {
        let mut pods = PodRequirements::clone(&set.pod_requirements);
        change(&mut pods);
        PodSet { pod_requirements: Arc::new(pods), ..set.clone() }
    };
    let tolerant = modified(&|pods| pods.tolerations = vec![toleration.clone()], &base);
    assert_eq!(admitted_flavor(&mut engine, tolerant.clone()).as_deref(), Some("red"));
    engine.release(&key("w"));
    let requirement = |key: &str, operator: &str| NodeSelectorRequirement {
        key: key.into(),
        operator: operator.into(),
        values: Some(vec!["a".into()]),
    };
    let term =
        |r: Vec<NodeSelectorRequirement>| NodeSelectorTerm { match_expressions: Some(r), match_fields: None };
    let not_a = vec![requirement("zone", "NotIn"), requirement("elsewhere", "In")];
    let picky = modified(&|pods| pods.required_affinity = vec![term(not_a.clone())], &tolerant);
    assert_eq!(admitted_flavor(&mut engine, picky).as_deref(), Some("blue"));
    engine.release(&key("w"));
    let selective = modified(&|pods| pods.node_selector = labels("c"), &tolerant);
    assert_eq!(admitted_flavor(&mut engine, selective), None);
    let verdict = engine.verdict(&key("w")).expect("it is pending");
    assert_eq!(verdict.reason, PendingReason::NoMatchingFlavor);
}

#[test]
fn pods_resource_is_charged_when_covered() {
    let mut engine = engine();
    engine
        .set_cluster_queue("q", Some(queue(None, single_flavor_group("red", "pods", limits(3, None, None)))));
    engine.enqueue(workload("w", "q", 0, 0, vec![pod_set("main", 4, &[])]));
    engine.enqueue(workload("v", "q", 0, 1, vec![pod_set("main", 3, &[])]));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["v"]);
}

#[test]
fn cohort_cycle_deactivates_only_affected_subtree() {
    let mut engine = engine();
    for (name, parent) in [("a", "b"), ("c", "d")] {
        engine.set_cluster_queue(
            name,
            Some(queue(Some(name), single_flavor_group("red", "cpu", limits(1, None, None)))),
        );
        engine.set_cohort(name, Some(cohort(Some(parent), Vec::new())));
    }
    engine.set_cohort("b", Some(cohort(Some("a"), Vec::new())));
    engine.enqueue(cpu_workload("stuck", "a", 0, 1));
    engine.enqueue(cpu_workload("free", "c", 0, 1));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["free"]);
    assert!(engine.inactive_reason("a").is_some() && engine.inactive_reason("c").is_none());
    assert_eq!(engine.verdict(&key("stuck")).map(|v| v.reason), Some(PendingReason::Suspended));
    engine.set_cohort("b", None);
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["stuck"]);
}

/// The full pod count may lack another resource than the minimum pod count.
#[test]
fn partial_admission_retries_when_lacking_resource_is_released() {
    let mut engine = engine();
    engine.set_cluster_queue("q", Some(queue(None, cpu_gpu_group(&[("red", 3, 3)]))));
    engine.charge(&key("held"), charge("q", &[("red", "gpu", 1)]));
    let set = PodSet { min_count: Some(1), ..pod_set("main", 2, &[("cpu", 2), ("gpu", 3)]) };
    engine.enqueue(workload("w", "q", 0, 0, vec![set]));
    assert!(admitted_names(&run_until_idle(&mut engine)).is_empty(), "one pod lacks a gpu");
    engine.release(&key("held"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["w"]);
}

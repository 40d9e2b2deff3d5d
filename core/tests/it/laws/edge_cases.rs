//! Order of admission and choice of victims in cases that random worlds rarely reach: one fixed scenario each.

use super::scenarios::count_victims;
use super::second_passes::{add_hosts, on_host, one_host_workload};
use crate::fixtures::builders::{
    admission_fair_sharing_settings, admitted_names, charge, cohort, cpu_gpu_group, cpu_workload, engine,
    engine_with, flavor_group, key, limits, pod_set, queue, run_until_idle, single_flavor_group, workload,
};
use jiff::{SignedDuration, Timestamp};
use sluice_core::api::reason::PendingReason;
use sluice_core::api::v1beta2::{
    BorrowPolicy, BorrowWithinCohort, ClusterQueuePreemption, FlavorFungibility, FungibilityPreference,
    ReclaimPolicy, WithinClusterQueuePolicy,
};
use sluice_core::scheduler::{
    Charge, ClusterQueue, Engine, EngineGates, EngineSettings, LocalQueue, PodSet, PreemptionReason, Workload,
};
use std::sync::Arc;

fn fair_sharing_engine() -> Engine {
    engine_with(EngineSettings { fair_sharing: Some(Vec::new()), ..EngineSettings::default() })
}

fn admitted_in_first_cycle(engine: &mut Engine) -> Vec<String> {
    admitted_names(&engine.run_cycle(Timestamp::UNIX_EPOCH))
}

/// A queue above its share does not come first because it has a victim: the victim counts toward its share until released.
#[test]
fn new_victim_still_counts_toward_drs() {
    let mut engine = fair_sharing_engine();
    for (name, reclaim, nominal) in [
        ("taker", ReclaimPolicy::Any, 7),
        ("big", ReclaimPolicy::Never, 6),
        ("other", ReclaimPolicy::Never, 7),
    ] {
        let preemption = ClusterQueuePreemption {
            reclaim_within_cohort: Some(reclaim),
            ..ClusterQueuePreemption::default()
        };
        let base = queue(Some("all"), single_flavor_group("red", "cpu", limits(nominal, None, None)));
        engine.set_cluster_queue(name, Some(ClusterQueue { preemption, ..base }));
    }
    for (name, cluster_queue, amount) in [("a", "taker", 1), ("b", "big", 9), ("c", "other", 4)] {
        engine.charge(&key(name), charge(cluster_queue, &[("red", "cpu", amount)]));
    }
    for (second, (name, cluster_queue, amount)) in
        (0..).zip([("x", "taker", 8), ("y", "big", 6), ("z", "other", 6)])
    {
        engine.enqueue(cpu_workload(name, cluster_queue, second, amount));
    }
    assert_eq!(admitted_in_first_cycle(&mut engine), ["z"]);
    let preemption = engine.preemption_of(&key("b")).expect("b is evicted for x");
    assert_eq!(preemption.preemptor, key("x"));
}

#[test]
fn cohort_subtree_precedes_queue_on_tie() {
    let mut engine = fair_sharing_engine();
    engine.set_cohort("root", Some(cohort(None, single_flavor_group("red", "cpu", limits(1, None, None)))));
    engine.set_cohort("side", Some(cohort(Some("root"), Vec::new())));
    for (name, parent) in [("inner", "side"), ("outer", "root")] {
        engine.set_cluster_queue(
            name,
            Some(queue(Some(parent), single_flavor_group("red", "cpu", limits(0, None, None)))),
        );
    }
    engine.enqueue(cpu_workload("a", "outer", 0, 1));
    engine.enqueue(cpu_workload("b", "inner", 0, 1));
    assert_eq!(admitted_in_first_cycle(&mut engine), ["b"]);
}

/// Debt in a resource that the workload does not request never keeps its queue from reclaiming its own quota.
#[test]
fn zero_request_is_within_nominal_despite_debt() {
    for (gpu, reason) in
        [(0, PreemptionReason::InCohortReclamation), (1, PreemptionReason::InCohortReclaimWhileBorrowing)]
    {
        let mut engine = engine();
        let borrow =
            BorrowWithinCohort { policy: Some(BorrowPolicy::LowerPriority), ..BorrowWithinCohort::default() };
        let preemption = ClusterQueuePreemption {
            reclaim_within_cohort: Some(ReclaimPolicy::LowerPriority),
            borrow_within_cohort: Some(borrow),
            within_cluster_queue: Some(WithinClusterQueuePolicy::Never),
        };
        let owner = queue(Some("all"), cpu_gpu_group(&[("red", 4, 1)]));
        engine.set_cluster_queue("owner", Some(ClusterQueue { preemption, ..owner }));
        let guest = queue(Some("all"), cpu_gpu_group(&[("red", 0, 9)]));
        engine.set_cluster_queue("guest", Some(guest));
        engine.charge(&key("debt"), charge("owner", &[("red", "gpu", 2)]));
        engine.charge(&key("victim"), charge("guest", &[("red", "cpu", 4)]));
        let pod_sets = vec![pod_set("main", 1, &[("cpu", 1), ("gpu", gpu)])];
        engine.enqueue(workload("w", "owner", 1, 0, pod_sets));
        assert!(admitted_in_first_cycle(&mut engine).is_empty());
        let preemption = engine.preemption_of(&key("victim")).expect("the guest is evicted");
        assert_eq!(preemption.victim.reason, reason, "{gpu} gpu requested");
    }
}

/// A queue that uses more than its quota of a resource, of which the workload requests 0, still counts as not borrowing:
/// targets that are allowed only without borrowing are evicted.
#[test]
fn unrequested_borrowing_does_not_protect_targets() {
    let mut engine = engine();
    let preemption = ClusterQueuePreemption {
        within_cluster_queue: Some(WithinClusterQueuePolicy::LowerPriority),
        reclaim_within_cohort: Some(ReclaimPolicy::Any),
        ..ClusterQueuePreemption::default()
    };
    let owner = queue(Some("all"), cpu_gpu_group(&[("red", 2, 0)]));
    engine.set_cluster_queue("owner", Some(ClusterQueue { preemption, ..owner }));
    engine.set_cluster_queue("guest", Some(queue(Some("all"), cpu_gpu_group(&[("red", 0, 1)]))));
    engine.charge(&key("other"), charge("owner", &[("red", "gpu", 1)]));
    engine.charge(&key("own"), charge("owner", &[("red", "cpu", 1)]));
    engine.charge(&key("borrower"), charge("guest", &[("red", "cpu", 1)]));
    let set = pod_set("main", 1, &[("cpu", 2), ("gpu", 0)]);
    engine.enqueue(workload("asks", "owner", 1, 0, vec![set]));
    assert_eq!(count_victims(&mut engine), 2);
}

/// With this preference, preemption without borrowing ranks above borrowing without preemption; but a flavor that needs both
/// does not fit.
#[test]
fn flavor_preempts_for_one_resource_while_borrowing_another() {
    let mut engine = engine();
    let preemption = ClusterQueuePreemption {
        within_cluster_queue: Some(WithinClusterQueuePolicy::LowerPriority),
        ..ClusterQueuePreemption::default()
    };
    let preference = Some(FungibilityPreference::PreemptionOverBorrowing);
    let fungibility = FlavorFungibility { preference, ..FlavorFungibility::default() };
    let base = queue(Some("all"), cpu_gpu_group(&[("red", 2, 0)]));
    engine.set_cluster_queue("asks", Some(ClusterQueue { preemption, fungibility, ..base }));
    engine.set_cluster_queue("lends", Some(queue(Some("all"), cpu_gpu_group(&[("red", 0, 1)]))));
    engine.charge(&key("low"), charge("asks", &[("red", "cpu", 2)]));
    engine.enqueue(workload("w", "asks", 1, 0, vec![pod_set("main", 1, &[("cpu", 1), ("gpu", 1)])]));
    assert_eq!(count_victims(&mut engine), 1);
}

/// A flavor that can never fit is no pending reason when another flavor of its group was assigned.
#[test]
fn pending_reason_ignores_rejected_flavors_of_satisfied_group() {
    let mut engine = engine();
    let gpus = flavor_group(&["red", "blue"], "gpu", &[limits(1, None, None), limits(9, None, None)]);
    let groups = single_flavor_group("red", "cpu", limits(1, None, None)).into_iter().chain(gpus).collect();
    engine.set_cluster_queue("q", Some(queue(None, groups)));
    engine.charge(&key("held"), charge("q", &[("red", "cpu", 1)]));
    engine.enqueue(workload("w", "q", 0, 0, vec![pod_set("main", 1, &[("cpu", 1), ("gpu", 5)])]));
    assert!(admitted_in_first_cycle(&mut engine).is_empty());
    assert_eq!(engine.verdict(&key("w")).map(|verdict| verdict.reason), Some(PendingReason::WaitingForQuota));
}

/// Entry penalties are counted in whole billionths, rounded down individually: of two LocalQueues with equal weighted usage,
/// the one with smaller pieces comes first.
#[test]
fn entry_penalties_are_rounded_down_individually() {
    let mut engine = engine_with(admission_fair_sharing_settings(
        SignedDuration::from_mins(1),
        SignedDuration::from_secs(1),
    ));
    let spec = queue(None, single_flavor_group("red", "cpu", limits(11_000, None, None)));
    engine.set_cluster_queue("q", Some(ClusterQueue { orders_by_past_usage: true, ..spec }));
    for (local, weight) in [("pieces", 0.5), ("whole", 1.0)] {
        let cluster_queue = Arc::from("q");
        let spec = LocalQueue { cluster_queue, weight: Some(weight), ..LocalQueue::default() };
        engine.set_local_queue(&key(local), Some(spec));
    }
    let with_local_queue = |local: &str, base: Workload| Workload { local_queue: Arc::from(local), ..base };
    for (name, local, milli) in [("a", "pieces", 1000), ("b", "pieces", 2000), ("c", "whole", 6000)] {
        engine.enqueue(with_local_queue(local, cpu_workload(name, "q", 0, milli)));
    }
    assert_eq!(run_until_idle(&mut engine).len(), 3);
    engine.enqueue(with_local_queue("whole", cpu_workload("early", "q", 1, 2000)));
    engine.enqueue(with_local_queue("pieces", cpu_workload("late", "q", 2, 2000)));
    assert_eq!(admitted_in_first_cycle(&mut engine), ["late"]);
}

/// The quota of the replaced slice goes over to the larger one: it cannot be evicted for more, whatever its priority is.
#[test]
fn slice_does_not_preempt_the_one_that_it_replaces() {
    for size in [3, 5] {
        let mut engine = engine();
        let within = Some(WithinClusterQueuePolicy::LowerPriority);
        let preemption =
            ClusterQueuePreemption { within_cluster_queue: within, ..ClusterQueuePreemption::default() };
        let base = queue(None, single_flavor_group("red", "cpu", limits(6, None, None)));
        engine.set_cluster_queue("q", Some(ClusterQueue { preemption, ..base }));
        engine.charge(&key("old"), charge("q", &[("red", "cpu", 2)]));
        engine.charge(&key("other"), Charge { priority: 9, ..charge("q", &[("red", "cpu", 3)]) });
        let larger = workload("new", "q", 5, 0, vec![pod_set("main", 1, &[("cpu", size)])]);
        engine.enqueue(Workload { replaces: Some(key("old")), is_slice: true, ..larger });
        let admitted = admitted_in_first_cycle(&mut engine);
        assert_eq!(admitted.len(), usize::from(size == 3), "{admitted:?}");
        assert!(engine.preemption_of(&key("old")).is_none());
    }
}

/// A second pass would place all pods of the larger slice, and the nodes of those that run would seem free.
#[test]
fn slice_does_not_grow_where_nodes_are_provisioned() {
    for provisioned in [false, true] {
        let gates = EngineGates { elastic_topology: true, ..EngineGates::default() };
        let mut engine = engine_with(EngineSettings { gates, ..EngineSettings::default() });
        add_hosts(&mut engine, &[3]);
        let provisioned_flavors = provisioned.then(|| Arc::from("red")).into_iter().collect();
        let base = queue(None, single_flavor_group("red", "cpu", limits(3, None, None)));
        engine.set_cluster_queue("q", Some(ClusterQueue { provisioned_flavors, ..base }));
        let small = charge("q", &[("red", "cpu", 1)]);
        engine.charge(&key("old"), Charge { topology: vec![on_host(0, 1)], ..small });
        let larger = one_host_workload("new", "q", 0, 0, 1);
        let pod_sets = larger.pod_sets.iter().map(|set| PodSet { count: 2, ..set.clone() }).collect();
        engine.enqueue(Workload { replaces: Some(key("old")), is_slice: true, pod_sets, ..larger });
        let admitted = admitted_in_first_cycle(&mut engine);
        assert_eq!(admitted.is_empty(), provisioned, "{admitted:?}");
    }
}

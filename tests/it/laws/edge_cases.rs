//! Who comes first, and why somebody goes, in the places that random worlds rarely come by: one story each.

use super::builders::{
    admission_fair_sharing_settings, admitted_names, charge, cohort, cpu_gpu_group, cpu_workload, engine,
    engine_with, flavor_group, key, limits, pod_set, queue, run_until_idle, single_flavor_group, workload,
};
use super::scenarios::count_victims;
use jiff::{SignedDuration, Timestamp};
use sluice::api::reason::PendingReason;
use sluice::api::v1beta2::{
    BorrowPolicy, BorrowWithinCohort, ClusterQueuePreemption, FlavorFungibility, FungibilityPreference,
    ReclaimPolicy, WithinClusterQueuePolicy,
};
use sluice::scheduler::{ClusterQueue, Engine, EngineSettings, LocalQueue, PreemptionReason, Workload};
use std::sync::Arc;

fn fair_sharing_engine() -> Engine {
    engine_with(EngineSettings { fair_sharing: Some(Vec::new()), ..EngineSettings::default() })
}

fn admitted_in_first_cycle(engine: &mut Engine) -> Vec<String> {
    admitted_names(&engine.run_cycle(Timestamp::UNIX_EPOCH))
}

/// A queue that has more than its share does not come first because somebody of it must go: it has that share until they
/// are gone.
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
        let made = queue(Some("all"), single_flavor_group("red", "cpu", limits(nominal, None, None)));
        engine.set_cluster_queue(name, Some(ClusterQueue { preemption, ..made }));
    }
    for (name, at, held) in [("a", "taker", 1), ("b", "big", 9), ("c", "other", 4)] {
        engine.charge(&key(name), charge(at, &[("red", "cpu", held)]));
    }
    for (second, (name, at, asks)) in (0..).zip([("x", "taker", 8), ("y", "big", 6), ("z", "other", 6)]) {
        engine.enqueue(cpu_workload(name, at, second, asks));
    }
    assert_eq!(admitted_in_first_cycle(&mut engine), ["z"]);
    let gone = engine.preemption_of(&key("b")).expect("b goes for x");
    assert_eq!(gone.preemptor, key("x"));
}

#[test]
fn cohort_subtree_precedes_queue_on_tie() {
    let mut engine = fair_sharing_engine();
    engine.set_cohort("root", Some(cohort(None, single_flavor_group("red", "cpu", limits(1, None, None)))));
    engine.set_cohort("side", Some(cohort(Some("root"), Vec::new())));
    for (name, up) in [("inner", "side"), ("outer", "root")] {
        engine.set_cluster_queue(
            name,
            Some(queue(Some(up), single_flavor_group("red", "cpu", limits(0, None, None)))),
        );
    }
    engine.enqueue(cpu_workload("a", "outer", 0, 1));
    engine.enqueue(cpu_workload("b", "inner", 0, 1));
    assert_eq!(admitted_in_first_cycle(&mut engine), ["b"]);
}

/// A queue takes back what it owns though it is in debt for something that the workload asks none of.
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
        let asks = vec![pod_set("main", 1, &[("cpu", 1), ("gpu", gpu)])];
        engine.enqueue(workload("w", "owner", 1, 0, asks));
        assert!(admitted_in_first_cycle(&mut engine).is_empty());
        let gone = engine.preemption_of(&key("victim")).expect("it goes");
        assert_eq!(gone.victim.reason, reason, "{gpu} asked");
    }
}

/// Of a resource that is named and not asked for, a queue may use more than it owns, and still counts as one that does not
/// borrow: those who may only go for such a one go.
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

/// What fits by borrowing is worse than what takes victims and does not borrow, where the queue says so; but a flavor that has
/// both is not one that fits.
#[test]
fn flavor_preempts_for_one_resource_while_borrowing_another() {
    let mut engine = engine();
    let preemption = ClusterQueuePreemption {
        within_cluster_queue: Some(WithinClusterQueuePolicy::LowerPriority),
        ..ClusterQueuePreemption::default()
    };
    let preference = Some(FungibilityPreference::PreemptionOverBorrowing);
    let fungibility = FlavorFungibility { preference, ..FlavorFungibility::default() };
    let asks = queue(Some("all"), cpu_gpu_group(&[("red", 2, 0)]));
    engine.set_cluster_queue("asks", Some(ClusterQueue { preemption, fungibility, ..asks }));
    engine.set_cluster_queue("lends", Some(queue(Some("all"), cpu_gpu_group(&[("red", 0, 1)]))));
    engine.charge(&key("low"), charge("asks", &[("red", "cpu", 2)]));
    engine.enqueue(workload("w", "asks", 1, 0, vec![pod_set("main", 1, &[("cpu", 1), ("gpu", 1)])]));
    assert_eq!(count_victims(&mut engine), 1);
}

/// A flavor that is too small for ever is no reason for waiting when another one of its group was taken.
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

/// What is admitted counts for its LocalQueue in whole billionths, rounded down one by one: of two LocalQueues that used as
/// much by weight, the one that did so in smaller pieces comes first.
#[test]
fn entry_penalties_are_rounded_down_individually() {
    let mut engine = engine_with(admission_fair_sharing_settings(
        SignedDuration::from_mins(1),
        SignedDuration::from_secs(1),
    ));
    let made = queue(None, single_flavor_group("red", "cpu", limits(11_000, None, None)));
    engine.set_cluster_queue("q", Some(ClusterQueue { orders_by_past_usage: true, ..made }));
    for (local, weight) in [("pieces", 0.5), ("whole", 1.0)] {
        let cluster_queue = Arc::from("q");
        let made = LocalQueue { cluster_queue, weight: Some(weight), ..LocalQueue::default() };
        engine.set_local_queue(&key(local), Some(made));
    }
    let of = |local: &str, asks: Workload| Workload { local_queue: Arc::from(local), ..asks };
    for (name, local, milli) in [("a", "pieces", 1000), ("b", "pieces", 2000), ("c", "whole", 6000)] {
        engine.enqueue(of(local, cpu_workload(name, "q", 0, milli)));
    }
    assert_eq!(run_until_idle(&mut engine).len(), 3);
    engine.enqueue(of("whole", cpu_workload("early", "q", 1, 2000)));
    engine.enqueue(of("pieces", cpu_workload("late", "q", 2, 2000)));
    assert_eq!(admitted_in_first_cycle(&mut engine), ["late"]);
}

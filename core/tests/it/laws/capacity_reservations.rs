//! Capacity reservations of preemptors that wait for their victims: fixed scenarios.

use super::scenarios::count_victims;
use crate::fixtures::builders::{
    admitted_names, charge, cpu_workload, engine, flavor_group, key, limits, queue, run_until_idle,
    single_flavor_group,
};
use jiff::Timestamp;
use sluice_core::api::reason::PendingReason;
use sluice_core::api::v1beta2::{ClusterQueuePreemption, WithinClusterQueuePolicy};
use sluice_core::scheduler::{Charge, ClusterQueue, Decision, Engine, Outcome, Workload};

/// Workloads of lower priority in the same queue may be preempted.
fn preempt_lower_priority() -> ClusterQueuePreemption {
    let within_cluster_queue = Some(WithinClusterQueuePolicy::LowerPriority);
    ClusterQueuePreemption { within_cluster_queue, ..ClusterQueuePreemption::default() }
}

#[test]
fn reserved_workload_is_not_nominated_until_victims_terminate() {
    let mut engine = engine();
    let base = queue(None, single_flavor_group("red", "cpu", limits(2, None, None)));
    engine.set_cluster_queue("q", Some(ClusterQueue { preemption: preempt_lower_priority(), ..base }));
    engine.charge(&key("held"), charge("q", &[("red", "cpu", 2)]));
    engine.enqueue(Workload { priority: 1, ..cpu_workload("w", "q", 0, 2) });
    assert_eq!(count_victims(&mut engine), 1);
    assert!(
        !engine.has_work(),
        "a workload with a reservation is not nominated before its victims terminate"
    );
    engine.release(&key("held"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["w"]);
}

#[test]
fn reservation_moves_to_free_flavor_before_victims_terminate() {
    let mut engine = engine();
    let quota = limits(2, None, None);
    let base = queue(None, flavor_group(&["red", "blue"], "cpu", &[quota, quota]));
    engine.set_cluster_queue("q", Some(ClusterQueue { preemption: preempt_lower_priority(), ..base }));
    engine.charge(&key("important"), Charge { priority: 2, ..charge("q", &[("red", "cpu", 2)]) });
    engine.charge(&key("held"), charge("q", &[("blue", "cpu", 2)]));
    engine.enqueue(Workload { priority: 1, ..cpu_workload("w", "q", 0, 2) });
    assert_eq!(count_victims(&mut engine), 1);
    assert!(engine.preemption_of(&key("held")).is_some());
    engine.release(&key("important"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["w"]);
    assert!(engine.preemption_of(&key("held")).is_none(), "the admitted preemptor needs no victim");
}

#[test]
fn dropped_reservation_spares_same_cycle_targets() {
    let mut engine = engine();
    let configure = |engine: &mut Engine, nominal| {
        let base = queue(Some("all"), single_flavor_group("red", "cpu", limits(nominal, None, None)));
        engine.set_cluster_queue("a", Some(ClusterQueue { preemption: preempt_lower_priority(), ..base }));
    };
    configure(&mut engine, 4);
    let own = [limits(2, None, None), limits(2, None, None)];
    engine.set_cluster_queue("b", Some(queue(Some("all"), flavor_group(&["red", "blue"], "cpu", &own))));
    for name in ["one", "two", "three"] {
        engine.charge(&key(name), charge("a", &[("red", "cpu", 2)]));
    }
    engine.enqueue(Workload { priority: 1, ..cpu_workload("w", "a", 0, 1) });
    assert_eq!(count_victims(&mut engine), 1);
    engine.enqueue(Workload { priority: 2, ..cpu_workload("mover", "b", 0, 1) });
    assert!(
        admitted_names(&run_until_idle(&mut engine)).is_empty(),
        "red has capacity once the victim terminates"
    );
    configure(&mut engine, 3);
    let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
    assert_eq!(admitted_names(&decisions), ["mover"], "on blue");
    let preempts = |decision: &Decision| matches!(decision.outcome, Outcome::Preempting(..));
    assert!(!decisions.iter().any(preempts), "the capacity released on red is enough: {decisions:?}");
}

/// The head claim of a queue above its limit is 0: a negative claim would give other workloads capacity.
#[test]
fn overdrawn_queue_head_claim_is_never_negative() {
    let mut engine = engine();
    for (name, quota) in [
        ("debtor", limits(10, Some(0), None)),
        ("lender", limits(21, None, None)),
        ("borrower", limits(0, None, None)),
    ] {
        engine.set_cluster_queue(name, Some(queue(Some("all"), single_flavor_group("red", "cpu", quota))));
    }
    engine.charge(&key("debt"), charge("debtor", &[("red", "cpu", 25)]));
    engine.enqueue(Workload { priority: 2, ..cpu_workload("first", "lender", 0, 6) });
    engine.enqueue(Workload { priority: 1, ..cpu_workload("claims", "debtor", 0, 3) });
    engine.enqueue(cpu_workload("w", "borrower", 0, 4));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["first"]);
    let reason = engine.verdict(&key("w")).map(|verdict| verdict.reason);
    assert_eq!(reason, Some(PendingReason::WaitingForQuota), "no workload is evicted for it");
}

/// The usage of a deactivated workload leaves projected usage at once, but its quota is granted only after its release.
#[test]
fn deactivated_workload_leaves_projected_usage_before_current() {
    let mut engine = engine();
    let base = queue(None, single_flavor_group("red", "cpu", limits(2, None, None)));
    engine.set_cluster_queue("q", Some(ClusterQueue { preemption: preempt_lower_priority(), ..base }));
    let held = || charge("q", &[("red", "cpu", 1)]);
    for name in ["goes", "stays"] {
        engine.charge(&key(name), held());
    }
    let reason = |engine: &Engine, name| engine.verdict(&key(name)).map(|verdict| verdict.reason);
    engine.enqueue(cpu_workload("w", "q", 0, 1));
    assert!(admitted_names(&run_until_idle(&mut engine)).is_empty());
    assert_eq!(reason(&engine, "w"), Some(PendingReason::WaitingForQuota));
    engine.charge(&key("goes"), Charge { deactivated: true, ..held() });
    assert!(admitted_names(&run_until_idle(&mut engine)).is_empty(), "its pods may still run");
    assert_eq!(reason(&engine, "w"), Some(PendingReason::WaitingForPreemptedWorkloads));
    // The released capacity covers only the first workload: the second, more important, evicts the active one.
    engine.enqueue(Workload { priority: 1, ..cpu_workload("important", "q", 1, 1) });
    assert_eq!(count_victims(&mut engine), 1);
    assert!(engine.preemption_of(&key("stays")).is_some() && engine.preemption_of(&key("goes")).is_none());
    // A victim that is also deactivated is subtracted from projected usage only once.
    engine.charge(&key("stays"), Charge { deactivated: true, ..held() });
    engine.remove_pending(&key("important"));
    engine.enqueue(cpu_workload("late", "q", 2, 1));
    assert!(admitted_names(&run_until_idle(&mut engine)).is_empty());
    assert_eq!(reason(&engine, "late"), Some(PendingReason::WaitingForPreemptedWorkloads));
    engine.release(&key("goes"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["w"]);
    engine.release(&key("stays"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["late"]);
}

//! Room that is kept for one who waits for its victims: told one by one.

use super::builders::{
    admitted_names, charge, cpu_workload, engine, flavor_group, key, limits, queue, run_until_idle,
    single_flavor_group,
};
use super::scenarios::count_victims;
use jiff::Timestamp;
use sluice::api::reason::PendingReason;
use sluice::api::v1beta2::{ClusterQueuePreemption, WithinClusterQueuePolicy};
use sluice::scheduler::{Charge, ClusterQueue, Decision, Engine, Outcome, Workload};

/// The less important of the own queue may be evicted.
fn preempt_lower_priority() -> ClusterQueuePreemption {
    let within_cluster_queue = Some(WithinClusterQueuePolicy::LowerPriority);
    ClusterQueuePreemption { within_cluster_queue, ..ClusterQueuePreemption::default() }
}

#[test]
fn reserved_workload_is_not_nominated_until_victims_terminate() {
    let mut engine = engine();
    let made = queue(None, single_flavor_group("red", "cpu", limits(2, None, None)));
    engine.set_cluster_queue("q", Some(ClusterQueue { preemption: preempt_lower_priority(), ..made }));
    engine.charge(&key("held"), charge("q", &[("red", "cpu", 2)]));
    engine.enqueue(Workload { priority: 1, ..cpu_workload("w", "q", 0, 2) });
    assert_eq!(count_victims(&mut engine), 1);
    assert!(!engine.has_work(), "there is nothing to be found out meanwhile");
    engine.release(&key("held"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["w"]);
}

#[test]
fn reservation_moves_to_free_flavor_before_victims_terminate() {
    let mut engine = engine();
    let quota = limits(2, None, None);
    let made = queue(None, flavor_group(&["red", "blue"], "cpu", &[quota, quota]));
    engine.set_cluster_queue("q", Some(ClusterQueue { preemption: preempt_lower_priority(), ..made }));
    engine.charge(&key("important"), Charge { priority: 2, ..charge("q", &[("red", "cpu", 2)]) });
    engine.charge(&key("held"), charge("q", &[("blue", "cpu", 2)]));
    engine.enqueue(Workload { priority: 1, ..cpu_workload("w", "q", 0, 2) });
    assert_eq!(count_victims(&mut engine), 1);
    assert!(engine.preemption_of(&key("held")).is_some());
    engine.release(&key("important"));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["w"]);
    assert!(engine.preemption_of(&key("held")).is_none(), "nobody has to go for it any more");
}

#[test]
fn dropped_reservation_spares_same_cycle_targets() {
    let mut engine = engine();
    let configure = |engine: &mut Engine, nominal| {
        let made = queue(Some("all"), single_flavor_group("red", "cpu", limits(nominal, None, None)));
        engine.set_cluster_queue("a", Some(ClusterQueue { preemption: preempt_lower_priority(), ..made }));
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
        "there is room on red once the victim is gone"
    );
    configure(&mut engine, 3);
    let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
    assert_eq!(admitted_names(&decisions), ["mover"], "on blue");
    let preempts = |decision: &Decision| matches!(decision.outcome, Outcome::Preempting(..));
    assert!(!decisions.iter().any(preempts), "what was kept on red is enough: {decisions:?}");
}

/// A queue that holds more than its limit has nothing to claim, and gives nobody room by claiming less than that.
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
    assert_eq!(reason, Some(PendingReason::WaitingForQuota), "nobody goes for it");
}

/// What a deactivated workload holds is free in the plan, and is given when it is free in fact.
#[test]
fn deactivated_workload_leaves_projected_usage_before_current() {
    let mut engine = engine();
    let made = queue(None, single_flavor_group("red", "cpu", limits(2, None, None)));
    engine.set_cluster_queue("q", Some(ClusterQueue { preemption: preempt_lower_priority(), ..made }));
    let held = || charge("q", &[("red", "cpu", 1)]);
    for name in ["goes", "stays"] {
        engine.charge(&key(name), held());
    }
    let reason = |engine: &Engine, name| engine.verdict(&key(name)).map(|verdict| verdict.reason);
    engine.enqueue(cpu_workload("w", "q", 0, 1));
    assert!(admitted_names(&run_until_idle(&mut engine)).is_empty());
    assert_eq!(reason(&engine, "w"), Some(PendingReason::WaitingForQuota));
    engine.charge(&key("goes"), Charge { deactivated: true, ..held() });
    assert!(admitted_names(&run_until_idle(&mut engine)).is_empty(), "its pods may run on");
    assert_eq!(reason(&engine, "w"), Some(PendingReason::WaitingForPreemptedWorkloads));
    // Nothing is left for a second one, however important: but not the workload that leaves goes for it.
    engine.enqueue(Workload { priority: 1, ..cpu_workload("important", "q", 1, 1) });
    assert_eq!(count_victims(&mut engine), 1);
    assert!(engine.preemption_of(&key("stays")).is_some() && engine.preemption_of(&key("goes")).is_none());
    // A victim that is deactivated as well is taken out of the plan once.
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

//! Verdicts of workloads that find no nodes: their reason, and one count of pods and nodes in each message.

use super::second_passes::{add_hosts, on_host, one_host_workload};
use crate::fixtures::builders::{
    charge, engine, key, limits, pod_set, queue, run_until_idle, single_flavor_group, workload,
};
use sluice_core::api::reason::PendingReason;
use sluice_core::scheduler::{Charge, Engine, NodeRef, PodSet, Supposition, Workload};
use sluice_core::topology::NodeSpec;
use std::sync::Arc;

/// One node of 4 CPUs that is full.
fn full_host() -> Engine {
    let mut engine = engine();
    add_hosts(&mut engine, &[4]);
    engine.set_cluster_queue(
        "q",
        Some(queue(None, single_flavor_group("red", "cpu", limits(100, None, None)))),
    );
    let topology = vec![on_host(0, 4)];
    engine.charge(&key("runs"), Charge { topology, ..charge("q", &[("red", "cpu", 4)]) });
    engine
}

fn verdict_of(engine: &mut Engine, pending: Workload) -> (PendingReason, String) {
    let pending_key = pending.key.clone();
    engine.enqueue(pending);
    run_until_idle(engine);
    let verdict = engine.verdict(&pending_key).expect("it has a verdict");
    (verdict.reason, verdict.to_string())
}

#[test]
fn nodes_outside_topology_are_counted() {
    let mut engine = full_host();
    engine.set_node("cordoned", Some(NodeSpec { usable: false, ..NodeSpec::default() }));
    engine.set_node("unlabelled", Some(NodeSpec { usable: true, ..NodeSpec::default() }));
    let (reason, message) = verdict_of(&mut engine, one_host_workload("w", "q", 0, 0, 2));
    // As in Kueue: other workloads use the nodes, so it waits. The message names the topology.
    assert_eq!(reason, PendingReason::WaitingForQuota);
    let nodes =
        "Total nodes: 3; excluded: cordoned or not ready: 1, no topology label: 1, resource \"cpu\": 1";
    assert!(message.ends_with(nodes), "{message}");
}

#[test]
fn message_has_one_count_of_pods() {
    let mut engine = full_host();
    let one = one_host_workload("w", "q", 0, 0, 2);
    let pod_requirements = Arc::clone(&one.pod_sets[0].pod_requirements);
    let set = PodSet { pod_requirements, ..pod_set("main", 4, &[("cpu", 2)]) };
    let (reason, message) = verdict_of(&mut engine, workload("w", "q", 0, 0, vec![set]));
    assert_eq!(reason, PendingReason::TopologyPlacementFailed);
    assert!(
        message.contains("allows to fit only 2 out of 4 pod(s)") && !message.contains("fit any"),
        "{message}"
    );
}

/// Nodes that other workloads use become free; a request above all nodes waits for a change.
#[test]
fn nodes_in_use_are_no_lasting_obstacle() {
    for (cpu, never_fits) in [(2, false), (4, false), (5, true)] {
        let mut engine = full_host();
        let pending = one_host_workload("w", "q", 0, 0, cpu);
        let pending_key = pending.key.clone();
        engine.enqueue(pending);
        run_until_idle(&mut engine);
        let verdict = engine.verdict(&pending_key).expect("it has a verdict");
        let reason =
            if never_fits { PendingReason::TopologyPlacementFailed } else { PendingReason::WaitingForQuota };
        assert_eq!(verdict.reason, reason, "{cpu} CPUs: {verdict}");
        let found = engine.explain(&pending_key, &Supposition::default(), &mut || true).unwrap();
        assert_eq!(found.obstacle.stays(), never_fits, "{cpu} CPUs: {found:?}");
        engine.release(&key("runs"));
        run_until_idle(&mut engine);
        assert_eq!(engine.verdict(&pending_key).is_none(), !never_fits, "{cpu} CPUs after the release");
    }
}

/// Quota that was lent and may not be lent any more still counts as borrowed.
#[test]
fn share_without_weight_and_lendable_quota_is_maximum() {
    let mut engine = engine();
    let group = |nominal, lending| single_flavor_group("red", "cpu", limits(nominal, None, lending));
    let free =
        sluice_core::scheduler::ClusterQueue { weight: Some(0.0), ..queue(Some("all"), group(0, None)) };
    engine.set_cluster_queue("free", Some(free));
    engine.set_cluster_queue("owner", Some(queue(Some("all"), group(4, None))));
    let share = |engine: &Engine| engine.weighted_share(&NodeRef::ClusterQueue(Arc::from("free")));
    assert_eq!(share(&engine), 0);
    engine.charge(&key("runs"), charge("free", &[("red", "cpu", 2)]));
    assert_eq!(share(&engine), i64::MAX);
    engine.set_cluster_queue("owner", Some(queue(Some("all"), group(4, Some(0)))));
    assert_eq!(share(&engine), i64::MAX);
}

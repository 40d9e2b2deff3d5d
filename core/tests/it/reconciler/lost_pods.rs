//! Pods that are being deleted and do not end: the time that frees their quota frees their room on the node, so that nothing is evicted
//! for what only they hold.

use crate::fixtures::leading_core::{Core, START, condition, reserving_workload, workload, writes};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, Effect};

const HOST: &str = "kubernetes.io/hostname";

/// A node of 2 CPU, on which a workload of low priority and a pod use 1 each. The grace period of the pod ended some seconds ago.
fn core_with_stuck_pod(seconds_ago: i64, named: bool) -> Core {
    let mut core = Core::new(CoreSettings::default());
    core.put(Kind::Topology, json!({"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": HOST}]}}));
    core.put(Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": {"topologyName": "t"}}));
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups,
        "preemption": {"withinClusterQueue": "LowerPriority"}});
    core.put(Kind::ClusterQueue, json!({"metadata": {"name": "cq"}, "spec": spec}));
    core.put(
        Kind::Node,
        json!({"metadata": {"name": "n", "labels": {HOST: "n"}}, "status": {
            "allocatable": {"cpu": "2", "pods": "9"}, "conditions": [condition("Ready", "True", "Ready")]}}),
    );
    let admitted = [condition("QuotaReserved", "True", "a"), condition("Admitted", "True", "a")];
    let mut low = without_owner(reserving_workload("low", &admitted));
    low["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = json!({"levels": [HOST],
        "slices": [{"domainCount": 1, "podCounts": {"universal": 1}, "valuesPerLevel": [{"universal": "n"}]}]});
    core.put(Kind::Workload, low);
    let ended = Timestamp::from_second(START - seconds_ago).unwrap().to_string();
    let annotations = if named { json!({"kueue.x-k8s.io/workload": "gone"}) } else { json!({}) };
    core.put(
        Kind::Pod,
        json!({"metadata": {"name": "stuck", "namespace": "ns", "annotations": annotations,
                "deletionTimestamp": ended, "finalizers": ["example.com/holds"]},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running"}}),
    );
    core
}

fn without_owner(mut workload: Value) -> Value {
    workload["metadata"]["labels"] = json!({});
    workload["metadata"]["ownerReferences"] = json!([]);
    workload
}

/// A workload that needs 1 CPU of the node.
fn waiting(priority: i32) -> Value {
    let mut next = without_owner(workload("next", &[]));
    next["spec"]["priority"] = json!(priority);
    next
}

/// Returns whether `next` gets quota, and whether another workload is evicted.
fn outcome(effects: &[Effect]) -> (bool, bool) {
    let (mut admitted, mut evicted) = (false, false);
    for write in writes(effects, Kind::Workload) {
        let status = &write.body["status"];
        admitted |= *write.key.name == *"w-next" && status["admission"].is_object();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        evicted |= conditions.iter().any(|c| c["type"] == "Evicted" && c["status"] == "True");
    }
    (admitted, evicted)
}

#[test]
fn nothing_is_evicted_for_the_room_of_a_lost_pod() {
    for named in [false, true] {
        let mut core = core_with_stuck_pod(301, named);
        assert_eq!(outcome(&core.put(Kind::Workload, waiting(9))), (true, false), "named: {named}");
        // While it may still end in time, it uses the node.
        let mut core = core_with_stuck_pod(200, named);
        assert_eq!(outcome(&core.put(Kind::Workload, waiting(9))), (false, true), "named: {named}");
    }
}

#[test]
fn room_of_a_lost_pod_is_free_when_its_time_has_come() {
    for named in [false, true] {
        let mut core = core_with_stuck_pod(200, named);
        let effects = core.put(Kind::Workload, waiting(0));
        assert_eq!(outcome(&effects), (false, false), "named: {named}");
        core.land(&effects, &mut waiting(0));
        assert_eq!(outcome(&core.advance_seconds(98)), (false, false), "named: {named}");
        assert_eq!(outcome(&core.advance_seconds(3)), (true, false), "named: {named}");
    }
}

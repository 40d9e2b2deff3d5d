//! What Workloads that hold quota are charged with as their objects change.

use super::core_settings::{Core, condition, holding, workload, writes};
use serde_json::{Value, json};
use sluice::state::{Kind, Settings};

fn runs() -> [Value; 2] {
    [condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted")]
}

/// A Workload that nothing owns.
fn alone(mut workload: Value) -> Value {
    workload["metadata"]["labels"] = json!({});
    workload["metadata"]["ownerReferences"] = json!([]);
    workload
}

/// The same, held by an owner that is not built: it does not stop by itself.
fn of_another(mut workload: Value) -> Value {
    workload["metadata"]["labels"] = json!({});
    workload["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1", "kind": "Other", "name": "o", "uid": "o", "controller": true}]);
    workload
}

fn used(core: &Core) -> i64 {
    core.state.snapshot().queues.cluster_queues["cq"].cells.values().map(|cell| cell.usage.get()).sum()
}

#[test]
fn reclaimable_pods_count_from_all_that_were_asked_for() {
    for (asked, admitted, reclaimable, left) in [
        (10, 10, 3, 7),
        (10, 4, 3, 4),
        (10, 4, 6, 4),
        (10, 4, 7, 3),
        (10, 4, 10, 0),
        (10, 4, 12, 0),
        (4, 4, 0, 4),
        // A pod set that was made smaller while it runs.
        (2, 4, 1, 1),
    ] {
        let mut core = Core::new(Settings::default());
        let mut held = alone(holding("j", &runs()));
        held["spec"]["podSets"][0]["count"] = json!(asked);
        held["status"]["admission"]["podSetAssignments"][0]["count"] = json!(admitted);
        held["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"] = json!(admitted);
        held["status"]["reclaimablePods"] = json!([{"name": "main", "count": reclaimable}]);
        core.put(Kind::Workload, held);
        core.pass(1);
        let of = format!("{reclaimable} of {asked}, {admitted} admitted");
        assert_eq!(used(&core), left * 1000, "{of}");
    }
}

/// The queue lets the more important evict the less important.
fn preempting(core: &mut Core) {
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups,
        "preemption": {"withinClusterQueue": "LowerPriority"}});
    core.put(Kind::ClusterQueue, json!({"metadata": {"name": "cq"}, "spec": spec}));
}

/// What a deactivated Workload holds is on its way: the next one waits for that, and nothing else is evicted for it.
#[test]
fn a_deactivated_workload_is_counted_as_leaving() {
    for priority in [0, 9] {
        let mut core = Core::new(Settings::default());
        preempting(&mut core);
        core.put(Kind::Workload, of_another(holding("stays", &runs())));
        let mut goes = of_another(holding("goes", &runs()));
        goes["spec"]["active"] = json!(false);
        let mut written = writes(&core.put(Kind::Workload, goes), Kind::Workload);
        let mut next = alone(workload("next", &[]));
        next["spec"]["priority"] = json!(priority);
        written.extend(writes(&core.put(Kind::Workload, next), Kind::Workload));
        written.extend(writes(&core.pass(1), Kind::Workload));
        assert_eq!(used(&core), 2000, "its pods may run on");
        let said = |name: &str| {
            let own = written.iter().filter(|write| *write.key.name == *name);
            own.flat_map(|write| write.body["status"]["conditions"].as_array().cloned().unwrap_or_default())
                .map(|c| format!("{}={} {}", c["type"], c["status"], c["reason"]).replace('"', ""))
                .collect::<Vec<_>>()
        };
        assert_eq!(said("stays"), [""; 0], "priority {priority}");
        assert!(said("goes").contains(&"Evicted=True Deactivated".to_owned()), "{:?}", said("goes"));
        assert!(!said("goes").iter().any(|c| c.starts_with("Preempted=True")), "{:?}", said("goes"));
        let waits = "QuotaReserved=False WaitingForPreemptedWorkloads".to_owned();
        assert_eq!(said("next"), [waits], "priority {priority}");
    }
}

/// One that was evicted already and is then deactivated by its user is not evicted a second time, whether its quota has
/// returned or not.
#[test]
fn a_deactivated_workload_is_not_evicted_a_second_time() {
    let evicted =
        [condition("Evicted", "True", "Preempted"), condition("Preempted", "True", "InClusterQueue")];
    let released =
        [condition("QuotaReserved", "False", "Pending"), condition("Requeued", "True", "Preempted")];
    let held = of_another(holding("j", &[&runs()[..], &evicted].concat()));
    let waits = alone(workload("j", &[&released[..], &evicted].concat()));
    for mut before in [held, waits] {
        let mut core = Core::new(Settings::default());
        before["status"]["requeueState"] = json!({"count": 1});
        before["spec"]["active"] = json!(false);
        let mut written = writes(&core.put(Kind::Workload, before), Kind::Workload);
        written.extend(writes(&core.pass(1), Kind::Workload));
        assert!(!written.is_empty(), "it is not put off any longer");
        for write in written {
            let status = &write.body["status"];
            let conditions = status["conditions"].as_array().unwrap();
            let reason = |kind: &str| {
                conditions
                    .iter()
                    .find(|c| c["type"] == kind)
                    .map(|c| c["reason"].as_str().unwrap().to_owned())
            };
            assert_eq!(reason("Evicted").as_deref(), Some("Preempted"), "{status}");
            assert_eq!(reason("Preempted").as_deref(), Some("InClusterQueue"), "{status}");
            assert!(status["schedulingStats"].is_null(), "an eviction was counted: {status}");
        }
    }
}

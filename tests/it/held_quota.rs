//! What Workloads that hold quota are charged with as their objects change.

use super::core_settings::{Core, condition, holding};
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

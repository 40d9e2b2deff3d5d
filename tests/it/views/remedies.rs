//! Corrections that the audit names for workloads that never fit: each reader gets what it can change.

use crate::fixtures::offline_objects::{queues, workload};
use crate::views::obstacles::{audited, audited_as, nodes, one_host};
use serde_json::json;
use sluice::visibility::access::{Access, TenantDetail};

/// A tenant is told what it can do alone, a reader of the cluster also what would admit the workload as it is.
#[test]
fn a_tenant_is_told_what_it_can_correct() {
    let mut placed = nodes();
    placed.push(one_host("many", 5, "1"));
    let mut large = nodes();
    large.push(one_host("large", 1, "5"));
    let mut much = queues(&[("q", 4, json!({"cohortName": null}))]);
    much.push(workload("much", "q", &[5], false));
    let mut undeclared = queues(&[("q", 4, json!({}))]);
    let mut memory = workload("memory", "q", &[1], false);
    memory["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"] =
        json!({"memory": "1Gi"});
    undeclared.push(memory);
    let tenant = Access::to_namespace("ns", TenantDetail::None);
    for (objects, of_cluster, of_tenant) in [
        (
            placed,
            "ask for fewer pods, or for a wider level, or add nodes to f",
            "ask for fewer pods, or for a wider level",
        ),
        (large, "ask for smaller pods, or add larger nodes to f", "ask for smaller pods"),
        (much, "raise the quota, or ask for less", "ask for less"),
        (
            undeclared,
            "kubectl edit clusterqueue q; change spec.resourceGroups",
            "ask for no memory, or in another queue",
        ),
    ] {
        assert_eq!(audited(&objects, "workload-never-fits"), [of_cluster]);
        assert_eq!(audited_as(&tenant, Some("ns"), &objects, "workload-never-fits"), [of_tenant]);
    }
}

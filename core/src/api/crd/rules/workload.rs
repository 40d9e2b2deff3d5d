//! Rules of Workload.

use super::{Rules, atomic, conditions, keyed, label, merged, subdomain, tolerations};
use serde_json::{Value, json};

pub(super) fn add(rules: &mut Rules) {
    root(rules);
    spec(rules);
    pod_set(rules);
    status(rules);
    admission(rules);
    topology_assignment(rules);
    check_state(rules);
}

/// Returns a CEL expression: a workload (`self` or `oldSelf`) has a condition with status True.
pub(in crate::api::crd) fn holds(workload: &str, condition: &str) -> String {
    format!(
        "has({workload}.status) && has({workload}.status.conditions) && {workload}.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True')"
    )
}

fn root(rules: &mut Rules) {
    let reserved = holds("self", "QuotaReserved");
    let was_reserved = holds("oldSelf", "QuotaReserved");
    let admitted = holds("self", "Admitted");
    let was_admitted = holds("oldSelf", "Admitted");
    let both_classes =
        format!("({was_reserved} && has(oldSelf.spec.priorityClassRef) && has(self.spec.priorityClassRef)");
    let counts = format!(
        "{reserved} && has(self.status.admission) ? size(self.spec.podSets) == size(self.status.admission.podSetAssignments) : true"
    );
    let class = format!(
        "({was_reserved}) ? (!has(oldSelf.spec.priorityClassRef) && !has(self.spec.priorityClassRef)) || (has(oldSelf.spec.priorityClassRef) && has(self.spec.priorityClassRef)) : true"
    );
    let group = format!(
        "{both_classes}) ? oldSelf.spec.priorityClassRef.group == self.spec.priorityClassRef.group : true"
    );
    let kind = format!(
        "{both_classes}) ? oldSelf.spec.priorityClassRef.kind == self.spec.priorityClassRef.kind : true"
    );
    let name = format!(
        "{both_classes} && self.spec.priorityClassRef.group == 'scheduling.k8s.io' && self.spec.priorityClassRef.kind == 'PriorityClass') ? oldSelf.spec.priorityClassRef.name == self.spec.priorityClassRef.name : true"
    );
    let queue = format!(
        "(({was_reserved}) && ({reserved})) ? ((has(oldSelf.spec.queueName) == has(self.spec.queueName)) && (!has(oldSelf.spec.queueName) || oldSelf.spec.queueName == self.spec.queueName)) : true"
    );
    let time = format!(
        "(({was_admitted}) && ({admitted}))?((has(oldSelf.spec.maximumExecutionTimeSeconds)?oldSelf.spec.maximumExecutionTimeSeconds:0) ==  (has(self.spec.maximumExecutionTimeSeconds)?self.spec.maximumExecutionTimeSeconds:0)):true"
    );
    rules.of("Workload").check(&[
        (&counts, "podSetAssignments must have the same number of podSets as the spec"),
        (&class, "priorityClassRef is immutable while workload quota reserved"),
        (&group, "priorityClassRef.group is immutable while workload quota reserved"),
        (&kind, "priorityClassRef.kind is immutable while workload quota reserved"),
        (
            &name,
            "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
        ),
        (&queue, "queueName is immutable while workload quota reserved"),
        (&time, "maximumExecutionTimeSeconds is immutable while workload quota reserved"),
    ]);
}

fn gate_name() -> Value {
    json!({ "minLength": 1, "maxLength": 63 })
}

fn spec(rules: &mut Rules) {
    rules
        .of("WorkloadSpec")
        .field("active", json!({ "default": true }))
        .field("maximumExecutionTimeSeconds", json!({ "minimum": 1 }))
        .field("podSets", merged(keyed(&["name"], 18), &json!({ "minItems": 1 })))
        .field("preemptionGates", keyed(&["name"], 8))
        .field("queueName", subdomain())
        .check(&[(
            "!has(self.priorityClassRef) || has(self.priority)",
            "priority should not be nil when priorityClassRef is set",
        )]);
    rules.of("PreemptionGate").require(&["name"]).field("name", gate_name());
    rules
        .of("PriorityClassRef")
        .require(&["group", "kind", "name"])
        .field("group", json!({ "enum": ["kueue.x-k8s.io", "scheduling.k8s.io"] }))
        .field("kind", json!({ "enum": ["WorkloadPriorityClass", "PriorityClass"] }))
        .field("name", merged(subdomain(), &json!({ "minLength": 1 })))
        .check(&[
            (
                "(self.group == 'scheduling.k8s.io') ? self.kind == 'PriorityClass' : true",
                "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
            ),
            (
                "(self.group == 'kueue.x-k8s.io') ? self.kind == 'WorkloadPriorityClass' : true",
                "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
            ),
        ]);
}

fn pod_set(rules: &mut Rules) {
    rules
        .of("PodSet")
        .require(&["template"])
        .field("count", json!({ "default": 1, "minimum": 0 }))
        .field("minCount", json!({ "minimum": 1 }))
        .field("name", merged(label(), &json!({ "default": "main" })))
        .check(&[(
            "has(self.minCount) ? self.minCount <= self.count : true",
            "minCount should be positive and less or equal to count",
        )]);
    let level = json!({ "maxLength": 63 });
    let pod_label = json!({ "maxLength": 317 });
    rules
        .of("PodSetTopologyRequest")
        .field("required", level.clone())
        .field("preferred", level.clone())
        .field("podSetSliceRequiredTopology", level)
        .field("podIndexLabel", pod_label.clone())
        .field("subGroupIndexLabel", pod_label)
        .field("subGroupCount", json!({ "minimum": 0 }))
        .field("podSetSliceSize", json!({ "minimum": 1 }))
        .field("podSetGroupName", json!({ "maxLength": 256 }))
        .field("podsetSliceRequiredTopologyConstraints", atomic(3));
    rules
        .of("PodSetSliceTopologyConstraint")
        .require(&["size", "topology"])
        .field("size", json!({ "minimum": 1 }))
        .field("topology", json!({ "minLength": 1, "maxLength": 63 }));
}

fn status(rules: &mut Rules) {
    let cluster = json!({ "maxLength": 256 });
    rules
        .of("WorkloadStatus")
        .field("conditions", conditions())
        .field("admissionChecks", keyed(&["name"], 8))
        .field("clusterName", cluster.clone())
        .field("nominatedClusterNames", merged(atomic(20), &json!({ "items": cluster })))
        .field("preemptionGates", keyed(&["name"], 8))
        .field("reclaimablePods", keyed(&["name"], 18))
        .field("resourceRequests", keyed(&["name"], 18))
        .field("unhealthyNodes", keyed(&["name"], 8))
        .check(&[
            (
                "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
                "clusterName is immutable once set",
            ),
            (
                "!has(self.clusterName) || (!has(self.nominatedClusterNames) || (has(self.nominatedClusterNames) && size(self.nominatedClusterNames) == 0))",
                "clusterName and nominatedClusterNames are mutually exclusive",
            ),
        ]);
    rules
        .of("PreemptionGateState")
        .require(&["lastTransitionTime", "name", "position"])
        .field("name", gate_name());
    rules
        .of("ReclaimablePod")
        .require(&["count", "name"])
        .field("count", json!({ "minimum": 0 }))
        .field("name", label());
    rules.of("RequeueState").field("count", json!({ "minimum": 0 }));
    rules.of("PodSetRequest").require(&["name"]).field("name", label());
    rules.of("SchedulingStats").field("evictions", keyed(&["reason", "underlyingCause"], 256));
    rules
        .of("EvictionCount")
        .require(&["count", "reason", "underlyingCause"])
        .field("count", json!({ "minimum": 0 }))
        .field("reason", json!({ "maxLength": 316 }))
        .field("underlyingCause", json!({ "maxLength": 316 }));
    rules.of("UnhealthyNode").require(&["name"]).field("name", json!({ "maxLength": 63 }));
}

fn admission(rules: &mut Rules) {
    rules.of("Admission").field("clusterQueue", subdomain()).field("podSetAssignments", keyed(&["name"], 18));
    rules
        .of("PodSetAssignment")
        .field("count", json!({ "minimum": 0 }))
        .field("delayedTopologyRequest", json!({ "maxLength": 7 }))
        .field("flavors", json!({ "additionalProperties": subdomain() }))
        .field("name", merged(label(), &json!({ "default": "main" })));
}

fn topology_assignment(rules: &mut Rules) {
    let some = json!({ "minItems": 1 });
    rules
        .of("TopologyAssignment")
        .require(&["levels", "slices"])
        .field("levels", merged(merged(atomic(16), &some), &json!({ "items": { "maxLength": 317 } })))
        .field("slices", atomic(1000))
        .check(&[(
            "self.slices.all(x, size(x.valuesPerLevel) == size(self.levels))",
            "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
        )]);
    rules
        .of("TopologyAssignmentSlice")
        .require(&["domainCount", "podCounts", "valuesPerLevel"])
        .field("domainCount", json!({ "minimum": 1 }))
        .field("valuesPerLevel", merged(atomic(16), &some))
        .check(&[
            (
                "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
                "podCounts.individual must have length equal to domainCount",
            ),
            (
                "self.valuesPerLevel.all(x, !has(x.individual) || size(x.individual.roots) == self.domainCount)",
                "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this TopologyAssignmentSlice",
            ),
        ]);
    let one = "exactly one of the fields in [universal individual] must be set";
    rules
        .of("TopologyAssignmentPodCounts")
        .field("individual", merged(merged(atomic(100_000), &some), &json!({ "items": { "minimum": 1 } })))
        .field("universal", json!({ "minimum": 1 }))
        .check(&[("[has(self.universal),has(self.individual)].filter(x,x==true).size() == 1", one)]);
    let value = json!({ "maxLength": 63 });
    rules
        .of("TopologyAssignmentValues")
        .field("universal", value.clone())
        .check(&[("has(self.universal) != has(self.individual)", one)]);
    rules
        .of("TopologyAssignmentIndividualValues")
        .require(&["roots"])
        .field("prefix", value.clone())
        .field("suffix", value.clone())
        .field("roots", merged(merged(atomic(100_000), &some), &json!({ "items": value })));
}

fn check_state(rules: &mut Rules) {
    rules
        .of("AdmissionCheckState")
        .require(&["lastTransitionTime", "message", "name", "state"])
        .field("message", json!({ "maxLength": 32768 }))
        .field("name", json!({ "minLength": 1, "maxLength": 316 }))
        .field("podSetUpdates", atomic(18))
        .field("requeueAfterSeconds", json!({ "minimum": 0 }))
        .field("retryCount", json!({ "minimum": 0 }));
    rules.of("PodSetUpdate").require(&["name"]).field("name", label()).field("tolerations", tolerations());
}

//! The CEL rules of the schemas of Kueue's kinds, as code: a server evaluates them after types and bounds.
//!
//! Invariant: every rule outside a status has an entry, which a test checks, so that a new rule is not forgotten.

use super::objects::{field, is_true, text_at, value_at};
use serde_json::Value;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Returns whether the rule with this text and message holds for a value. A rule about a change holds without `old`; an
/// unknown rule holds.
pub(super) fn holds(rule: &str, message: &str, value: &Value, old: Option<&Value>) -> bool {
    let change = |same: fn(&Value, &Value) -> bool| old.is_none_or(|old| same(value, old));
    match message {
        "field is immutable" => change(|new, old| new == old),
        "must be unique" => {
            let items = items(value);
            items.iter().enumerate().all(|(index, item)| items.iter().take(index).all(|other| other != item))
        }
        "at least one nodeLabel is required when topology is set" => {
            !has(value, "topologyName")
                || field(value, "nodeLabels").and_then(Value::as_object).is_some_and(|map| !map.is_empty())
        }
        "topologyName is immutable when topologyName is set" => change(|new, old| {
            !has(old, "topologyName") || field(new, "topologyName") == field(old, "topologyName")
        }),
        "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after the change" =>
        {
            let ends_at_host = |levels: &Value| {
                items(levels).last().map(|level| text_at(level, "/nodeLabel")) == Some(HOSTNAME)
            };
            old.is_none_or(|old| value == old || (ends_at_host(value) && ends_at_host(old)))
        }
        "the kubernetes.io/hostname label can only be used at the lowest level of topology" => {
            let levels = items(value).split_last().map_or(&[][..], |(_, higher)| higher);
            levels.iter().all(|level| text_at(level, "/nodeLabel") != HOSTNAME)
        }
        "exactly one of the fields in [kubeConfig clusterProfileRef] must be set" => {
            has(value, "kubeConfig") != has(value, "clusterProfileRef")
        }
        "flavors must have the same number of resources as the coveredResources" => {
            let covered = list(value, "coveredResources").len();
            list(value, "flavors").iter().all(|flavor| list(flavor, "resources").len() == covered)
        }
        "borrowingLimit must be nil when cohort is empty" => {
            has(value, "cohortName") || !has_borrowing_limit(value)
        }
        "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor" => {
            let tries_next = |name: &str| text_at(value, name) == "TryNextFlavor";
            !has(value, "preference") || (tries_next("/whenCanBorrow") && tries_next("/whenCanPreempt"))
        }
        "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never" => {
            let policy = text_at(value, "/borrowWithinCohort/policy");
            text_at(value, "/reclaimWithinCohort") != "Never" || matches!(policy, "" | "Never")
        }
        "priority should not be nil when priorityClassRef is set" => {
            !has(value, "priorityClassRef") || has(value, "priority")
        }
        "only the PriorityClass kind is allowed for the scheduling.k8s.io group" => {
            text_at(value, "/group") != "scheduling.k8s.io" || text_at(value, "/kind") == "PriorityClass"
        }
        "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group" => {
            text_at(value, "/group") != "kueue.x-k8s.io" || text_at(value, "/kind") == "WorkloadPriorityClass"
        }
        "minCount should be positive and less or equal to count" => {
            let number = |name: &str| field(value, name).and_then(Value::as_i64);
            number("minCount").is_none_or(|min| number("count").is_some_and(|count| min <= count))
        }
        "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'" => {
            items(value).iter().all(|item| {
                // A taint needs an effect, a toleration does not.
                let optional = rule.contains("!has(x.effect)");
                let effect = field(item, "effect").and_then(Value::as_str);
                effect.map_or(optional, |effect| {
                    matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute")
                })
            })
        }
        _ => toleration_holds(message, value).or_else(|| workload_holds(message, value, old)).unwrap_or(true),
    }
}

fn toleration_holds(message: &str, tolerations: &Value) -> Option<bool> {
    let test: fn(&Value) -> bool = match message {
        "operator must be Exists when 'key' is empty, which means 'match all values and all keys'" => {
            |item| has(item, "key") || text_at(item, "/operator") == "Exists"
        }
        "effect must be 'NoExecute' when 'tolerationSeconds' is set" => {
            |item| !has(item, "tolerationSeconds") || text_at(item, "/effect") == "NoExecute"
        }
        "supported toleration values: 'Equal'(default), 'Exists'" => {
            |item| field(item, "operator").is_none_or(|operator| operator == "Equal" || operator == "Exists")
        }
        "a value must be empty when 'operator' is 'Exists'" => {
            |item| text_at(item, "/operator") != "Exists" || !has(item, "value")
        }
        _ => return None,
    };
    Some(items(tolerations).iter().all(test))
}

/// Rules of a whole Workload; all but the first are about changes while quota is reserved.
fn workload_holds(message: &str, workload: &Value, old: Option<&Value>) -> Option<bool> {
    let class =
        |object: &Value, name: &str| value_at(object, &format!("/spec/priorityClassRef/{name}")).cloned();
    let has_class = |object: &Value| value_at(object, "/spec/priorityClassRef").is_some();
    if message == "podSetAssignments must have the same number of podSets as the spec" {
        let assigned =
            value_at(workload, "/status/admission/podSetAssignments").map(|list| items(list).len());
        let declared = value_at(workload, "/spec/podSets").map_or(0, |list| items(list).len());
        return Some(
            !is_true(workload, "QuotaReserved") || assigned.is_none_or(|assigned| assigned == declared),
        );
    }
    let Some(old) = old else { return Some(true) };
    let was_reserved = is_true(old, "QuotaReserved");
    let both_classes = was_reserved && has_class(old) && has_class(workload);
    let same_class_field = |name: &str| class(old, name) == class(workload, name);
    Some(match message {
        "priorityClassRef is immutable while workload quota reserved" => {
            !was_reserved || has_class(old) == has_class(workload)
        }
        "priorityClassRef.group is immutable while workload quota reserved" => {
            !both_classes || same_class_field("group")
        }
        "priorityClassRef.kind is immutable while workload quota reserved" => {
            !both_classes || same_class_field("kind")
        }
        "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved" =>
        {
            let of_pods = text_at(workload, "/spec/priorityClassRef/group") == "scheduling.k8s.io";
            !both_classes || !of_pods || same_class_field("name")
        }
        "queueName is immutable while workload quota reserved" => {
            let reserved = was_reserved && is_true(workload, "QuotaReserved");
            !reserved || value_at(workload, "/spec/queueName") == value_at(old, "/spec/queueName")
        }
        "maximumExecutionTimeSeconds is immutable while workload quota reserved" => {
            let seconds = |object: &Value| {
                value_at(object, "/spec/maximumExecutionTimeSeconds").and_then(Value::as_i64).unwrap_or(0)
            };
            let admitted = is_true(old, "Admitted") && is_true(workload, "Admitted");
            !admitted || seconds(workload) == seconds(old)
        }
        _ => return None,
    })
}

fn has_borrowing_limit(spec: &Value) -> bool {
    let flavors = list(spec, "resourceGroups").iter().flat_map(|group| list(group, "flavors"));
    flavors.flat_map(|flavor| list(flavor, "resources")).any(|quota| has(quota, "borrowingLimit"))
}

fn has(value: &Value, name: &str) -> bool {
    field(value, name).is_some()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    field(value, name).map_or(&[], items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::crd;
    use serde_json::json;

    /// For each message, a value that breaks the rule, and the value before if it is about a change.
    fn broken(message: &str) -> (Value, Option<Value>) {
        let reserved = json!({"conditions": [{"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "True"}]});
        let change = |new: Value, old: Value| {
            (json!({"spec": new, "status": reserved}), Some(json!({"spec": old, "status": reserved})))
        };
        let class = |group: &str, kind: &str, name: &str| json!({"priorityClassRef": {"group": group, "kind": kind, "name": name}});
        let limit = json!({"resourceGroups": [{"flavors": [{"resources": [{"borrowingLimit": "1"}]}]}]});
        match message {
            "field is immutable" => (json!("b"), Some(json!("a"))),
            "must be unique" => (json!(["a", "b", "a"]), None),
            "at least one nodeLabel is required when topology is set" => (json!({"topologyName": "t"}), None),
            "topologyName is immutable when topologyName is set" => {
                (json!({}), Some(json!({"topologyName": "t"})))
            }
            "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after the change" => {
                (json!([{"nodeLabel": "a"}]), Some(json!([{"nodeLabel": "b"}])))
            }
            "the kubernetes.io/hostname label can only be used at the lowest level of topology" => {
                (json!([{"nodeLabel": HOSTNAME}, {"nodeLabel": "a"}]), None)
            }
            "exactly one of the fields in [kubeConfig clusterProfileRef] must be set" => (json!({}), None),
            "flavors must have the same number of resources as the coveredResources" => {
                (json!({"coveredResources": ["cpu"], "flavors": [{"resources": []}]}), None)
            }
            "borrowingLimit must be nil when cohort is empty" => (limit, None),
            "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor" => (
                json!({"preference": "x", "whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor"}),
                None,
            ),
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never" => (
                json!({"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}),
                None,
            ),
            "priority should not be nil when priorityClassRef is set" => {
                (json!({"priorityClassRef": {}}), None)
            }
            "only the PriorityClass kind is allowed for the scheduling.k8s.io group" => {
                (json!({"group": "scheduling.k8s.io", "kind": "WorkloadPriorityClass"}), None)
            }
            "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group" => {
                (json!({"group": "kueue.x-k8s.io", "kind": "PriorityClass"}), None)
            }
            "minCount should be positive and less or equal to count" => {
                (json!({"minCount": 5, "count": 3}), None)
            }
            "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'" => {
                (json!([{"effect": "No"}]), None)
            }
            "operator must be Exists when 'key' is empty, which means 'match all values and all keys'" => {
                (json!([{}]), None)
            }
            "effect must be 'NoExecute' when 'tolerationSeconds' is set" => {
                (json!([{"tolerationSeconds": 1}]), None)
            }
            "supported toleration values: 'Equal'(default), 'Exists'" => (json!([{"operator": "Is"}]), None),
            "a value must be empty when 'operator' is 'Exists'" => {
                (json!([{"operator": "Exists", "value": "v"}]), None)
            }
            "podSetAssignments must have the same number of podSets as the spec" => {
                let mut status = reserved;
                status["admission"] = json!({"podSetAssignments": []});
                (json!({"spec": {"podSets": [{}]}, "status": status}), None)
            }
            "priorityClassRef is immutable while workload quota reserved" => {
                change(json!({}), class("g", "k", "n"))
            }
            "priorityClassRef.group is immutable while workload quota reserved" => {
                change(class("h", "k", "n"), class("g", "k", "n"))
            }
            "priorityClassRef.kind is immutable while workload quota reserved" => {
                change(class("g", "l", "n"), class("g", "k", "n"))
            }
            "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved" =>
            {
                let group = "scheduling.k8s.io";
                change(class(group, "PriorityClass", "m"), class(group, "PriorityClass", "n"))
            }
            "queueName is immutable while workload quota reserved" => {
                change(json!({"queueName": "b"}), json!({"queueName": "a"}))
            }
            "maximumExecutionTimeSeconds is immutable while workload quota reserved" => {
                change(json!({"maximumExecutionTimeSeconds": 1}), json!({}))
            }
            other => panic!("a rule without code: {other}"),
        }
    }

    fn each_rule(schema: &Value, found: &mut Vec<(String, String)>) {
        for rule in items(field(schema, "x-kubernetes-validations").unwrap_or(&Value::Null)) {
            found.push((text_at(rule, "/rule").to_owned(), text_at(rule, "/message").to_owned()));
        }
        for (name, part) in schema.as_object().into_iter().flatten().filter(|(name, _)| *name != "status") {
            match part {
                Value::Object(_) => each_rule(part, found),
                Value::Array(_) if name != "x-kubernetes-validations" => {
                    for part in items(part) {
                        each_rule(part, found);
                    }
                }
                _ => {}
            }
        }
    }

    #[test]
    fn every_rule_of_the_schemas_can_fail() {
        let mut found = Vec::new();
        for (_, definition) in crd::definitions().unwrap() {
            each_rule(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], &mut found);
        }
        assert!(found.len() > 20, "{} rules", found.len());
        for (rule, message) in found {
            let (value, old) = broken(&message);
            assert!(!holds(&rule, &message, &value, old.as_ref()), "{message}");
            assert!(
                old.is_none() || holds(&rule, &message, &value, Some(&value)),
                "without a change: {message}"
            );
        }
    }
}

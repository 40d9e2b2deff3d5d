//! New Workloads that skip review (`skip-simple-creates` in config/webhooks/validating.yaml): no rule refuses what the
//! condition lets pass. Which Workloads it lets pass is tested on a real API server (e2e `manager_down`).

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::string::string_regex;
use serde_json::{Value, json};
use sluice::api::validation::{Gates, workload};
use std::path::Path;

/// A gate that is off by default, and that rules of Workloads depend on.
const OFF: &str = "PriorityBoost";

/// The pattern of amounts in the condition, without its anchors.
fn pattern() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/webhooks/validating.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once("matches('^").expect("the condition has a pattern");
    rest.split_once("$')").expect("the pattern ends").0.to_owned()
}

fn amounts() -> impl Strategy<Value = Value> {
    let amount = prop_oneof![
        string_regex(&pattern()).unwrap().prop_map(Value::from),
        (0_i64..=i64::MAX).prop_map(Value::from),
    ];
    let name = prop_oneof![Just("cpu".to_owned()), Just("memory".to_owned()), "[a-z./-]{1,20}"];
    btree_map(name.prop_filter("reserved", |name| name != "pods"), amount, 0..=16).prop_map(|all| json!(all))
}

fn containers() -> impl Strategy<Value = Value> {
    let container = (option::of(amounts()), option::of(amounts())).prop_map(|(requests, limits)| {
        let mut resources = json!({});
        for (name, list) in [("requests", requests), ("limits", limits)] {
            if let Some(list) = list {
                resources[name] = list;
            }
        }
        json!({"name": "c", "resources": resources})
    });
    vec(container, 1..=8).prop_map(Value::from)
}

fn pod_sets() -> impl Strategy<Value = Value> {
    let request = prop_oneof![
        Just(Value::Null),
        Just(json!({"required": "rack"})),
        Just(json!({"preferred": "no level", "podSetGroupName": "g"})),
        Just(json!({"unconstrained": true, "podIndexLabel": "i", "subGroupCount": 2})),
    ];
    let pod_set = (containers(), request, 0..=i32::MAX).prop_map(|(containers, request, count)| {
        json!({"name": "main", "count": count, "topologyRequest": request,
               "template": {"metadata": {"name": "any"}, "spec": {"containers": containers}}})
    });
    vec(pod_set, 1..=8).prop_map(Value::from)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn validation_accepts_workloads_that_skip_review(
        pod_sets in pod_sets(),
        annotations in btree_map("[a-z.]{1,12}(/[a-z-]{1,12})?", ".{0,40}", 0..3),
        priority in any::<i32>(),
    ) {
        let object = json!({
            "metadata": {"name": "w", "namespace": "ns", "annotations": annotations},
            "spec": {"queueName": "q", "priority": priority, "podSets": pod_sets},
        });
        let gates = Gates::new([(OFF.to_owned(), true)].into());
        prop_assert_eq!(workload(&object, None, &gates), vec![]);
    }
}

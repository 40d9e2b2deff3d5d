//! What holds an admission is charged by it, whatever else its status and its spec contain: by a manager that has just started as
//! by one that saw the versions before.

use super::long_histories::SeededRandom;
use crate::fixtures::builders::seed_and_multiplier;
use crate::fixtures::leading_core::{Core, condition, reserving_workload};
use serde_json::{Map, Value, json};
use sluice_core::api::crd;
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, SnapshotIntervals};

const CASES: u64 = 500;
/// Times that the API server stores and Go reads.
const TIMES: [&str; 9] = [
    "2026-06-01T00:00:00Z",
    "9999-12-30T21:59:59Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.123456789123456789-24:00",
    "0001-01-01T00:00:00Z",
    "0000-01-01T00:00:00+24:00",
    "2026-06-01T00:00:00.0000000000Z",
    "2026-06-01t00:00:00z",
    "2026-06-01T01:02:03,5+05:30",
];

/// The schema of Workloads.
fn schema() -> Value {
    let definitions = crd::definitions().unwrap();
    let (_, definition) = definitions.into_iter().find(|(name, _)| name.contains("_workloads.")).unwrap();
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let current = versions.iter().find(|version| version["name"] == "v1beta2").unwrap();
    current["schema"]["openAPIV3Schema"].clone()
}

/// A value that a schema accepts, or would accept if it knew more values of its enumerations.
fn accepted(random: &mut SeededRandom, schema: &Value) -> Value {
    if schema.get("x-kubernetes-int-or-string").is_some() {
        return [json!(3), json!("3"), json!("1e18"), json!("0.1n")][random.index_below(4)].clone();
    }
    let number = |name: &str, default: i64| schema.get(name).and_then(Value::as_i64).unwrap_or(default);
    match schema["type"].as_str().unwrap_or_default() {
        "object" => {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let mut object = Map::new();
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                if required.contains(&json!(name)) || random.below(2) == 0 {
                    object.insert(name.clone(), accepted(random, field));
                }
            }
            if schema["additionalProperties"].is_object() {
                object.insert("cpu".to_owned(), accepted(random, &schema["additionalProperties"]));
            }
            Value::Object(object)
        }
        "array" => (0..random.below(4)).map(|_| accepted(random, &schema["items"])).collect(),
        "integer" => {
            let (least, most) =
                (number("minimum", i64::from(i32::MIN)), number("maximum", i64::from(i32::MAX)));
            json!([least, most, least.max(1).min(most)][random.index_below(3)])
        }
        "boolean" => json!(random.below(2) == 0),
        "string" if schema["format"] == "date-time" => json!(TIMES[random.index_below(TIMES.len())]),
        "string" => match schema["enum"].as_array() {
            Some(values) if random.below(2) == 0 => values[random.index_below(values.len())].clone(),
            Some(_) => json!("Later"),
            None => json!(["a", "main", "x1"][random.index_below(3)]),
        },
        other => panic!("a schema of type {other}: {schema}"),
    }
}

/// A value of any type, which no schema would accept here.
fn odd(random: &mut SeededRandom) -> Value {
    let values = [
        json!(null),
        json!(7),
        json!(-1.5),
        json!("text"),
        json!([1, "a", {}]),
        json!({"a": {"b": []}}),
        json!(true),
        json!([[]]),
        json!(i64::MAX),
    ];
    values[random.index_below(values.len())].clone()
}

fn new_core() -> Core {
    let snapshot = SnapshotIntervals { queues: jiff::SignedDuration::ZERO, ..SnapshotIntervals::default() };
    Core::new(CoreSettings { snapshot, ..CoreSettings::default() })
}

fn cpu_usage(core: &mut Core) -> i64 {
    core.advance_seconds(1);
    let snapshot = core.state.snapshot();
    snapshot.queues.cluster_queues["cq"].usage_by_flavor_resource.values().map(|node| node.usage.get()).sum()
}

/// A Workload that holds 1 CPU; its owner is of a kind that is not known.
fn admitted() -> Value {
    let conditions =
        [condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted")];
    let mut workload = reserving_workload("j", &conditions);
    workload["metadata"]["labels"] = json!({});
    workload["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "example.com/v1", "kind": "Other", "name": "o", "uid": "o", "controller": true}]);
    workload
}

/// Replaces a random part of a value, at any depth.
fn replace_some_part(random: &mut SeededRandom, value: &mut Value) {
    let children = match &*value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    if children == 0 || random.below(3) == 0 {
        *value = odd(random);
        return;
    }
    let index = random.index_below(children);
    let child = match value {
        Value::Object(fields) => fields.values_mut().nth(index),
        Value::Array(items) => items.get_mut(index),
        _ => None,
    };
    replace_some_part(random, child.unwrap());
}

/// Returns the charge of a version for a manager that saw the one before, and for one that starts.
fn charges(before: &Value, version: &Value) -> [i64; 2] {
    let mut running = new_core();
    running.put(Kind::Workload, before.clone());
    assert_eq!(cpu_usage(&mut running), 1000);
    running.put(Kind::Workload, version.clone());
    let mut started = new_core();
    started.put(Kind::Workload, version.clone());
    [cpu_usage(&mut running), cpu_usage(&mut started)]
}

#[test]
fn fields_beside_the_admission_change_no_charge() {
    let (seed, times) = seed_and_multiplier("unreadable statuses");
    let mut random = SeededRandom(seed);
    let schema = schema();
    let fields = schema["properties"]["status"]["properties"].as_object().unwrap();
    for case in 0..CASES * times {
        let mut version = admitted();
        for (name, field) in
            fields.iter().filter(|(name, _)| !["admission", "conditions"].contains(&&***name))
        {
            if random.below(3) == 0 {
                version["status"][name.as_str()] = accepted(&mut random, field);
            }
        }
        for condition in version["status"]["conditions"].as_array_mut().unwrap() {
            condition["lastTransitionTime"] = json!(TIMES[random.index_below(TIMES.len())]);
        }
        if random.below(4) == 0 {
            let mut other = accepted(&mut random, &fields["conditions"]["items"]);
            other["type"] = json!("Other");
            version["status"]["conditions"].as_array_mut().unwrap().push(other);
        }
        let [running, started] = charges(&admitted(), &version);
        assert_eq!(running, started, "case {case}: {version:#}");
        // The pods that are reclaimable are the one field that says what is charged.
        if version["status"]["reclaimablePods"].is_null() {
            assert_eq!(started, 1000, "case {case}: {version:#}");
        }
    }
}

#[test]
fn unreadable_parts_change_no_charge() {
    let (seed, times) = seed_and_multiplier("unreadable parts");
    let mut random = SeededRandom(seed);
    let schema = schema();
    let fields = schema["properties"]["status"]["properties"].as_object().unwrap();
    for case in 0..CASES * times {
        let mut version = admitted();
        version["metadata"]["generation"] = json!(2);
        for (name, field) in fields {
            if !["admission", "conditions", "reclaimablePods"].contains(&name.as_str()) {
                let mut value = accepted(&mut random, field);
                replace_some_part(&mut random, &mut value);
                version["status"][name.as_str()] = value;
            }
        }
        if random.below(2) == 0 {
            replace_some_part(&mut random, &mut version["spec"]);
        }
        version["status"]["conditions"].as_array_mut().unwrap().push(odd(&mut random));
        assert_eq!(charges(&admitted(), &version), [1000, 1000], "case {case}: {version:#}");
    }
}

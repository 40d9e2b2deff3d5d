//! Round trips between v1beta1 and v1beta2 over random objects of the schemas of both: what comes back is what was given, but
//! for what Kueue's conversion loses, which is listed here.

use super::long_histories::SeededRandom;
use crate::fixtures::builders::config;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::api::crd;
use sluice_core::api::v1beta2::TopologyAssignment;
use sluice_core::conversion::{MAX_VALUES, Version, answer, convert};
use sluice_core::topology::decode;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Kinds with their schemas in both versions.
static KINDS: LazyLock<Vec<(String, BTreeMap<&str, Value>)>> = LazyLock::new(|| {
    let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    let added = crd::v1beta1::versions().unwrap();
    let kind = |((_, definition), (_, v1beta1)): ((String, Value), &(&str, Value))| {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        let v1beta2 = schema(&definition["spec"]["versions"][0]);
        (kind, BTreeMap::from([("v1beta1", schema(v1beta1)), ("v1beta2", v1beta2)]))
    };
    crd::definitions().unwrap().into_iter().zip(&added).map(kind).collect()
});

/// A random value of a schema. Fields that neither version has are added to some objects.
fn value(schema: &Value, depth: u32, random: &mut SeededRandom) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        return values[random.index_below(values.len())].clone();
    }
    match schema["type"].as_str() {
        Some("object") => object(schema, depth, random),
        Some("array") => {
            let length = random.index_below(3);
            (0..length).map(|_| value(&schema["items"], depth + 1, random)).collect()
        }
        Some("boolean") => (random.below(2) == 0).into(),
        Some("integer") => random.below(9).into(),
        Some("string") if schema["format"] == "date-time" => {
            format!("2026-01-01T00:00:0{}Z", random.below(9)).into()
        }
        Some("string") => format!("n-{}", random.below(20)).into(),
        _ => format!("{}", random.below(9)).into(),
    }
}

fn object(schema: &Value, depth: u32, random: &mut SeededRandom) -> Value {
    let mut object = json!({});
    if schema["additionalProperties"].is_object() {
        object["key"] = value(&schema["additionalProperties"], depth + 1, random);
    }
    for (name, own) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
        let is_wanted = depth < 2 || random.below(3) > 0;
        // Templates are large, and nothing of them is converted.
        if name == "template" {
            object[name] = json!({"spec": {"containers": [{"name": "c"}]}});
        } else if (required || is_wanted) && !["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            object[name] = value(own, depth + 1, random);
        }
    }
    if random.below(4) == 0 {
        object["future"] = json!({"field": random.below(9)});
    }
    object
}

/// A random object that API servers would store: names in lists differ, assignments are consistent.
fn stored(kind: &str, version: &str, random: &mut SeededRandom) -> Value {
    let (_, schemas) = KINDS.iter().find(|(name, _)| name == kind).unwrap();
    let mut object = object(&schemas[version], 0, random);
    object["apiVersion"] = format!("kueue.x-k8s.io/{version}").into();
    object["kind"] = kind.into();
    object["metadata"] = json!({"name": "x", "annotations": {"note": "kept"}, "labels": {"a": "b"}});
    let pod_sets = object["spec"]["podSets"].as_array_mut();
    for (index, pod_set) in pod_sets.into_iter().flatten().enumerate() {
        pod_set["name"] = format!("p{index}").into();
    }
    let assignments = object.pointer_mut("/status/admission/podSetAssignments").and_then(Value::as_array_mut);
    for assignment in assignments.into_iter().flatten() {
        assignment["topologyAssignment"] = topology_assignment(version, random);
    }
    object
}

fn topology_assignment(version: &str, random: &mut SeededRandom) -> Value {
    let levels = ["rack", "host"];
    if version == "v1beta1" {
        let domain = |random: &mut SeededRandom| {
            json!({"values": [format!("r{}", random.below(3)), format!("n-{}", random.below(30))],
                "count": 1 + random.below(3)})
        };
        let domains: Vec<Value> = (0..random.below(6)).map(|_| domain(random)).collect();
        return json!({"levels": levels, "domains": domains});
    }
    let slice = |random: &mut SeededRandom| {
        let count = 1 + random.below(3);
        let roots: Vec<String> = (0..count).map(|_| random.below(30).to_string()).collect();
        let counts: Vec<u64> = (0..count).map(|_| 1 + random.below(3)).collect();
        let pods = if random.below(2) == 0 { json!({"universal": 2}) } else { json!({"individual": counts}) };
        json!({"domainCount": count, "podCounts": pods, "valuesPerLevel": [
            {"universal": format!("r{}", random.below(3))}, {"individual": {"prefix": "n-", "roots": roots}}]})
    };
    let slices: Vec<Value> = (0..random.below(4)).map(|_| slice(random)).collect();
    json!({"levels": levels, "slices": slices})
}

/// An object without empty collections, with assignments expanded: the same assignment has several compressed forms.
fn comparable(mut object: Value) -> Value {
    let assignments = object.pointer_mut("/status/admission/podSetAssignments").and_then(Value::as_array_mut);
    for assignment in assignments.into_iter().flatten().map(|set| &mut set["topologyAssignment"]) {
        if let Ok(compressed) = serde_json::from_value::<TopologyAssignment>(assignment.clone())
            && assignment["slices"].is_array()
        {
            *assignment = format!("{:?}", decode(&compressed).unwrap()).into();
        }
    }
    without_empty(object)
}

fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, without_empty(value)));
            let is_kept = |value: &Value| !value.is_null() && *value != json!({}) && *value != json!([]);
            fields.filter(|(_, value)| is_kept(value)).collect()
        }
        Value::Array(items) => items.into_iter().map(without_empty).collect(),
        other => other,
    }
}

/// Queues of either version have all counts after a conversion.
fn with_counts(object: &mut Value) {
    if object["kind"] == "ClusterQueue" || object["kind"] == "LocalQueue" {
        for count in ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"] {
            if object["status"][count].is_null() {
                object["status"][count] = 0.into();
            }
        }
    }
}

fn remove(object: &mut Value, pointer: &str) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).and_then(Value::as_object_mut);
    parent.and_then(|fields| fields.remove(field)).unwrap_or_default()
}

/// What Kueue's conversion makes of an object of v1beta1 that goes to v1beta2 and back.
fn with_losses(mut object: Value) -> Value {
    with_counts(&mut object);
    match object["kind"].as_str().unwrap() {
        "ClusterQueue" => {
            remove(&mut object, "/status/pendingWorkloadsStatus");
            remove(&mut object, "/status/fairSharing/admissionFairSharingStatus");
            for (field, earlier) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
                let policy = object.pointer_mut(&format!("/spec/flavorFungibility/{field}"));
                if let Some(policy) = policy.filter(|policy| *policy == earlier) {
                    *policy = "MayStopSearch".into();
                }
            }
            let checks = remove(&mut object, "/spec/admissionChecks");
            let rules: Vec<Value> =
                checks.as_array().into_iter().flatten().map(|name| json!({"name": name})).collect();
            if !rules.is_empty() {
                object["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": rules});
            }
        }
        "Cohort" => drop(remove(&mut object, "/status/fairSharing/admissionFairSharingStatus")),
        "LocalQueue" => drop(remove(&mut object, "/status/flavors")),
        "Workload" if object["spec"]["priorityClassSource"].as_str().is_none_or(str::is_empty) => {
            remove(&mut object, "/spec/priorityClassName");
            remove(&mut object, "/spec/priorityClassSource");
        }
        "Workload" if object["spec"]["priorityClassName"].is_null() => {
            object["spec"]["priorityClassName"] = "".into();
        }
        _ => {}
    }
    object
}

proptest! {
    #![proptest_config(config(2_000))]

    /// v1beta1 carries all that v1beta2 has, also what it has no field for.
    #[test]
    fn v1beta2_comes_back_whole(seed in any::<u64>(), kind in 0..11_usize) {
        let mut random = SeededRandom(seed);
        let kind = &KINDS[kind].0;
        let mut given = stored(kind, "v1beta2", &mut random);
        let there = convert(given.clone(), Version::V1beta1).unwrap();
        let back = convert(there, Version::V1beta2).unwrap();
        with_counts(&mut given);
        prop_assert_eq!(comparable(back), comparable(given));
    }

    #[test]
    fn v1beta1_comes_back_but_for_losses(seed in any::<u64>(), kind in 0..11_usize) {
        let mut random = SeededRandom(seed);
        let kind = &KINDS[kind].0;
        let given = stored(kind, "v1beta1", &mut random);
        let there = convert(given.clone(), Version::V1beta2).unwrap();
        // What is stored has no field of v1beta1 alone.
        let stored = there.to_string();
        for field in ["Exexcution", "priorityClassSource", "pendingWorkloadsStatus", "domains", "sluice.dev"] {
            prop_assert!(!stored.contains(field), "{field}: {stored}");
        }
        let back = convert(there, Version::V1beta1).unwrap();
        prop_assert_eq!(comparable(back), comparable(with_losses(given)));
    }

    /// No review causes a panic, and each that is JSON is answered.
    #[test]
    fn odd_reviews_are_answered(seed in any::<u64>(), kind in 0..11_usize, to in 0..2_usize) {
        let mut random = SeededRandom(seed);
        let version = ["v1beta1", "v1beta2"][1 - to];
        let mut object = stored(&KINDS[kind].0, version, &mut random);
        for _ in 0..3 {
            spoil(&mut object, &mut random);
        }
        let wanted = format!("kueue.x-k8s.io/{}", ["v1beta1", "v1beta2"][to]);
        let review = json!({"request": {"uid": "u", "desiredAPIVersion": wanted, "objects": [object]}});
        let response = answer(review.to_string().as_bytes(), MAX_VALUES).unwrap()["response"].clone();
        prop_assert_eq!(&response["uid"], "u");
        if response["result"]["status"] != "Success" {
            prop_assert_eq!(&response["result"]["status"], "Failure");
            prop_assert!(response["result"]["message"].as_str().is_some_and(|text| text.contains(": ")));
        }
    }
}

/// Replaces a value somewhere by one of another type.
fn spoil(value: &mut Value, random: &mut SeededRandom) {
    let children: Vec<&mut Value> = match value {
        Value::Object(fields) => fields.values_mut().collect(),
        Value::Array(items) => items.iter_mut().collect(),
        _ => Vec::new(),
    };
    let length = children.len();
    if length == 0 || random.below(5) == 0 {
        let odd = [json!(null), json!([]), json!({}), json!("x"), json!([{}]), json!(-1), json!([[1]])];
        *value = odd[random.index_below(odd.len())].clone();
        return;
    }
    let child = random.index_below(length);
    spoil(children.into_iter().nth(child).unwrap(), random);
}

//! Conversions against recorded answers of an API server with Kueue's conversion webhook, as far as they do not depend on a
//! server: what it defaults and removes follows from the generated schemas.

use crate::fixtures::recorded_reviews::cases;
use serde_json::{Map, Value, json};
use sluice_core::api::crd;
use sluice_core::conversion::{Version, convert};
use sluice_core::resources::Quantity;
use std::collections::BTreeMap;

/// Schemas by version and plural.
struct Schemas(BTreeMap<(String, String), Value>);

impl Schemas {
    fn generated() -> Self {
        let mut schemas = BTreeMap::new();
        let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
        for (_, definition) in crd::definitions().unwrap() {
            let plural = definition["spec"]["names"]["plural"].as_str().unwrap().to_owned();
            schemas.insert(("v1beta2".to_owned(), plural), schema(&definition["spec"]["versions"][0]));
        }
        for (plural, version) in crd::v1beta1::versions().unwrap() {
            schemas.insert(("v1beta1".to_owned(), plural.to_owned()), schema(&version));
        }
        Self(schemas)
    }

    fn of(&self, version: &str, plural: &str) -> &Value {
        &self.0[&(version.to_owned(), plural.to_owned())]
    }
}

/// Removes fields that the schema does not have.
fn prune(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            if let Some(known) = schema["properties"].as_object() {
                fields.retain(|name, _| known.contains_key(name));
            }
            for (name, field) in fields.iter_mut() {
                let own = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                if name != "metadata" && own.is_object() {
                    prune(field, own);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| prune(item, &schema["items"])),
        _ => {}
    }
}

/// Adds the schema's defaults.
fn default(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, own) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = own.get("default").filter(|_| !fields.contains_key(name)) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, field) in fields.iter_mut() {
                let own = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                default(field, own);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| default(item, &schema["items"])),
        _ => {}
    }
}

/// As the checker compares: without nulls and empty collections, quantities in one form.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), plain(value)));
            let is_kept = |value: &Value| !value.is_null() && *value != json!({}) && *value != json!([]);
            Value::Object(fields.filter(|(_, value)| is_kept(value)).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::String(text) => counted(text).map_or_else(|| value.clone(), |numbers| json!(numbers)),
        _ => value.clone(),
    }
}

/// A quantity in thousandths, rounded up, and in billionths, as far as they can be counted. The checker writes fractions.
fn counted(text: &str) -> Option<[i64; 2]> {
    let Some((numerator, denominator)) = text.split_once('/') else {
        let quantity = Quantity::parse(text).ok()?;
        return Some([quantity.milli(), quantity.saturating_scaled_value(-9)]);
    };
    let (numerator, denominator) = (numerator.parse::<i64>().ok()?, denominator.parse::<i64>().ok()?);
    let scaled = |unit: i64| (numerator * unit + denominator - 1) / denominator;
    Some([scaled(1_000), scaled(1_000_000_000)])
}

/// The webhook that defaults ClusterQueues adds quotas that are left out.
fn zero_quotas(object: &mut Value) {
    fn items<'a>(value: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
        value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
    }
    for group in items(&mut object["spec"], "resourceGroups") {
        for resource in items(group, "flavors").flat_map(|flavor| items(flavor, "resources")) {
            resource.as_object_mut().unwrap().entry("nominalQuota").or_insert_with(|| "0".into());
        }
    }
}

/// Plays a case: the object is created and its status patched in one version, and read in the other.
fn played(schemas: &Schemas, case: &Value) -> Value {
    let path = case["request"]["path"].as_str().unwrap();
    let (wanted, plural) = {
        let parts: Vec<&str> = path.split('/').collect();
        (parts[3], parts[parts.len() - 2])
    };
    let mut object = case["steps"][0]["body"].clone();
    let given = object["apiVersion"].as_str().unwrap().split('/').nth(1).unwrap().to_owned();
    let schema = schemas.of(&given, plural);
    prune(&mut object, schema);
    default(&mut object, schema);
    if plural == "clusterqueues" {
        zero_quotas(&mut object);
    }
    let steps = case["steps"].as_array().unwrap().iter().zip(case["expect"]["steps"].as_array().unwrap());
    for (step, code) in steps.skip(1).filter(|(_, code)| **code == 200) {
        assert_eq!((&step["type"], code), (&json!("application/merge-patch+json"), &json!(200)));
        json_patch::merge(&mut object, &step["body"]);
        prune(&mut object, schema);
        default(&mut object, schema);
    }
    let to = Version::of(&format!("kueue.x-k8s.io/{wanted}")).unwrap();
    let mut found = convert(object, to).unwrap();
    prune(&mut found, schemas.of(wanted, plural));
    if to == Version::V1beta2 {
        // It is stored so, and defaults are added to what is stored.
        default(&mut found, schemas.of(wanted, plural));
    }
    let fields = found.as_object_mut().unwrap();
    fields.retain(|name, _| name != "apiVersion" && name != "kind");
    found["metadata"].as_object_mut().unwrap().retain(|name, _| name == "labels" || name == "annotations");
    plain(&found)
}

#[test]
fn conversions_are_as_recorded() {
    let schemas = Schemas::generated();
    let (mut played_cases, mut different) = (0, Vec::new());
    for suite in ["conversion", "conversion-back"] {
        for case in cases(suite) {
            let mut expected = plain(&case["expect"]["object"]);
            // Added by a webhook.
            expected["metadata"].as_object_mut().unwrap().remove("finalizers");
            let found = played(&schemas, &case);
            if found != expected {
                different.push(format!("{}: {found} instead of {expected}", case["name"]));
            }
            played_cases += 1;
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert_eq!(played_cases, 346);
}

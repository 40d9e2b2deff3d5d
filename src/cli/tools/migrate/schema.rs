//! Comparison of the definitions of a cluster and of this build: missing fields, and different defaults.
//!
//! A path has the names of properties, `[]` for the elements of a list and `{}` for the values of a map.

use std::collections::BTreeMap;

use serde_json::Value;

/// Default of each field of a schema by its path; `None` without one.
type Fields = BTreeMap<Vec<String>, Option<Value>>;

/// Returns the schema of a version of a definition.
pub(super) fn of_version<'a>(definition: &'a Value, version: &str) -> Option<&'a Value> {
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    versions.iter().find(|entry| entry["name"] == *version)?.pointer("/schema/openAPIV3Schema")
}

/// Returns the paths of fields that `own` lacks.
pub(super) fn lacking(own: &Value, other: &Value) -> Vec<Vec<String>> {
    let (own, other) = (fields(own), fields(other));
    let mut paths: Vec<Vec<String>> = Vec::new();
    for path in other.keys().filter(|path| !own.contains_key(*path)) {
        // All fields below a missing field are missing too.
        if !paths.iter().any(|above| path.starts_with(above)) {
            paths.push(path.clone());
        }
    }
    paths
}

/// Returns the fields of both schemas whose defaults differ, each with the defaults of `own` and of `other`.
pub(super) fn changed_defaults(own: &Value, other: &Value) -> Vec<String> {
    let (own, other) = (fields(own), fields(other));
    let text = |value: &Option<Value>| value.as_ref().map_or_else(|| "none".to_owned(), Value::to_string);
    let differs = |(path, default): (&Vec<String>, &Option<Value>)| {
        let before = other.get(path)?;
        (before != default)
            .then(|| format!("{}: {} instead of {}", path.join("."), text(default), text(before)))
    };
    own.iter().filter_map(differs).collect()
}

/// Returns whether an object has a value at a path.
pub(super) fn has(object: &Value, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    match first.as_str() {
        "[]" => object.as_array().is_some_and(|all| all.iter().any(|element| has(element, rest))),
        "{}" => object.as_object().is_some_and(|all| all.values().any(|value| has(value, rest))),
        name => object.get(name).is_some_and(|value| has(value, rest)),
    }
}

/// Returns path and text of the first value of an object that the schema's enumeration of the field lacks.
pub(super) fn outside(schema: &Value, object: &Value) -> Option<(String, String)> {
    let named = |name: &str, found: (String, String)| {
        let path = if found.0.is_empty() { name.to_owned() } else { format!("{name}.{}", found.0) };
        (path, found.1)
    };
    if let Some(values) = schema.get("enum").and_then(Value::as_array)
        && !object.is_null()
        && !values.contains(object)
    {
        return Some((String::new(), object.to_string()));
    }
    match object {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let child = schema.get("properties").and_then(|all| all.get(name));
            let child = child.or_else(|| schema.get("additionalProperties"))?;
            Some(named(name, outside(child, value)?))
        }),
        Value::Array(all) => {
            let items = schema.get("items")?;
            all.iter().find_map(|value| Some(named("[]", outside(items, value)?)))
        }
        _ => None,
    }
}

fn fields(schema: &Value) -> Fields {
    let mut all = Fields::new();
    collect(schema, &mut Vec::new(), &mut all);
    all
}

fn collect(schema: &Value, path: &mut Vec<String>, all: &mut Fields) {
    let mut below = |name: &str, child: &Value| {
        path.push(name.to_owned());
        if name != "[]" && name != "{}" {
            all.insert(path.clone(), child.get("default").cloned());
        }
        collect(child, path, all);
        path.pop();
    };
    for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        below(name, child);
    }
    if let Some(items) = schema.get("items") {
        below("[]", items);
    }
    if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
        below("{}", values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_defaults_and_values_are_found() {
        let own = json!({"properties": {"spec": {"properties": {"a": {"default": 1}}}}});
        let other = json!({"properties": {"spec": {"properties": {
            "a": {"default": 2},
            "list": {"items": {"properties": {"new": {"properties": {"deep": {}}}}}},
        }}}});
        let lacking = lacking(&own, &other);
        assert_eq!(lacking, [vec!["spec".to_owned(), "list".to_owned()]]);
        assert_eq!(changed_defaults(&own, &other), ["spec.a: 1 instead of 2"]);
        let path = ["spec", "list", "[]", "new"].map(str::to_owned);
        assert!(has(&json!({"spec": {"list": [{}, {"new": {}}]}}), &path));
        assert!(!has(&json!({"spec": {"list": [{}]}}), &path));
    }

    #[test]
    fn values_that_an_enumeration_lacks_are_found() {
        let policy = json!({"enum": ["Never", "Always"]});
        let schema = json!({"properties": {"spec": {"properties": {
            "policy": policy, "list": {"items": {"properties": {"policy": policy}}}, "map": {"additionalProperties": policy},
        }}}});
        let find = |spec: Value| outside(&schema, &json!({"spec": spec, "other": 1}));
        assert_eq!(
            find(json!({"policy": "Never", "list": [{"policy": "Always"}], "map": {"a": "Never"}})),
            None
        );
        let found = |path: &str| Some((path.to_owned(), "\"New\"".to_owned()));
        assert_eq!(find(json!({"policy": "New"})), found("spec.policy"));
        assert_eq!(find(json!({"list": [{}, {"policy": "New"}]})), found("spec.list.[].policy"));
        assert_eq!(find(json!({"map": {"a": "New"}})), found("spec.map.a"));
    }
}

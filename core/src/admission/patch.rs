//! Construction of JSON patches (RFC 6902) on the raw object, so that unknown fields are preserved.

use serde_json::{Map, Value, json};

use crate::frameworks::{FieldChange, Pointer};

/// Patch operations, and the object after these operations, so that each operation builds on the earlier ones.
#[derive(Debug)]
pub(super) struct Patch {
    object: Value,
    operations: Vec<Value>,
}

impl Patch {
    pub(super) fn new(object: &Value) -> Self {
        Self { object: object.clone(), operations: Vec::new() }
    }

    /// Returns the object after the operations.
    pub(super) fn object(&self) -> &Value {
        &self.object
    }

    pub(super) fn into_operations(self) -> Vec<Value> {
        self.operations
    }

    /// Sets a field; creates missing parent objects. Returns false and changes nothing if a parent is not an object.
    pub(super) fn set(&mut self, fields: &[&str], value: Value) -> bool {
        let Some((last, parents)) = fields.split_last() else {
            return false;
        };
        let mut current = &mut self.object;
        let mut pointer = String::new();
        for (depth, field) in parents.iter().enumerate() {
            let Value::Object(map) = current else { return false };
            pointer = format!("{pointer}/{}", escape(field));
            let next = map.entry((*field).to_owned()).or_insert(Value::Null);
            if next.is_null() {
                // One operation adds the whole missing branch.
                let rest = fields.get(depth + 1..).unwrap_or_default();
                let branch = rest
                    .iter()
                    .rev()
                    .fold(value, |inner, name| Value::Object(Map::from_iter([((*name).to_owned(), inner)])));
                *next = branch.clone();
                self.operations.push(json!({"op": "add", "path": pointer, "value": branch}));
                return true;
            }
            current = next;
        }
        let Value::Object(map) = current else { return false };
        if map.get(*last) == Some(&value) {
            return true;
        }
        self.operations
            .push(json!({"op": "add", "path": format!("{pointer}/{}", escape(last)), "value": value}));
        map.insert((*last).to_owned(), value);
        true
    }

    /// Sets the field at a JSON pointer whose steps are all fields of objects, as [`Self::set`] does.
    pub(super) fn set_at(&mut self, pointer: Pointer, value: Value) -> bool {
        let fields: Vec<&str> = pointer.split('/').skip(1).collect();
        self.set(&fields, value)
    }

    /// Makes the changes that a kind says.
    pub(super) fn make(&mut self, changes: &[FieldChange]) {
        for change in changes {
            let path: Vec<&str> = change.path.iter().map(String::as_str).collect();
            self.set(&path, change.value.clone());
        }
    }

    /// Appends an element to a list; creates a missing list. Returns false and changes nothing if the field is not a
    /// list.
    pub(super) fn append(&mut self, fields: &[&str], value: Value) -> bool {
        let list = fields.iter().try_fold(&mut self.object, |value, field| value.get_mut(field));
        match list {
            None | Some(Value::Null) => self.set(fields, Value::Array(vec![value])),
            Some(Value::Array(items)) => {
                let pointer = pointer(fields);
                self.operations.push(json!({"op": "add", "path": format!("{pointer}/-"), "value": value}));
                items.push(value);
                true
            }
            Some(_) => false,
        }
    }

    /// Adds a scheduling gate to the pod template at a JSON pointer, unless it has it. Nothing changes if there is no template.
    pub(super) fn add_gate(&mut self, template: &str, name: &str) {
        let pointer = format!("{template}/spec");
        let spec = self.object.pointer_mut(&pointer).and_then(Value::as_object_mut);
        let Some(spec) = spec else { return };
        let path = format!("{pointer}/schedulingGates");
        let gate = json!({"name": name});
        match spec.get_mut("schedulingGates") {
            None | Some(Value::Null) => {
                spec.insert("schedulingGates".to_owned(), json!([gate]));
                self.operations.push(json!({"op": "add", "path": path, "value": [gate]}));
            }
            Some(Value::Array(gates)) if gates.iter().all(|gate| gate["name"] != name) => {
                gates.push(gate.clone());
                self.operations.push(json!({"op": "add", "path": format!("{path}/-"), "value": gate}));
            }
            Some(_) => {}
        }
    }

    /// Sets a field to `text` in every object at `path` where it is missing or null; `*` in `path` means all list
    /// elements.
    pub(super) fn fill_missing(&mut self, path: &[&str], field: &str, text: &str) {
        let mut missing = Vec::new();
        collect_missing(&self.object, path, field, &mut String::new(), &mut missing);
        for pointer in missing {
            if let Some(map) = self.object.pointer_mut(&pointer).and_then(Value::as_object_mut) {
                map.insert(field.to_owned(), Value::String(text.to_owned()));
                self.operations
                    .push(json!({"op": "add", "path": format!("{pointer}/{field}"), "value": text}));
            }
        }
    }

    /// Removes a field of a list element, if present.
    pub(super) fn remove_in_list(&mut self, fields: &[&str], index: usize, field: &str) {
        let removed = fields
            .iter()
            .try_fold(&mut self.object, |value, name| value.get_mut(name))
            .and_then(|list| list.get_mut(index))
            .and_then(Value::as_object_mut)
            .and_then(|element| element.shift_remove(field));
        if removed.is_some() {
            let pointer = pointer(fields);
            let path = format!("{pointer}/{index}/{}", escape(field));
            self.operations.push(json!({"op": "remove", "path": path}));
        }
    }
}

fn pointer(fields: &[&str]) -> String {
    fields.iter().flat_map(|field| ["/".to_owned(), escape(field)]).collect()
}

/// Collects the pointers of the objects at `path` in which `field` is missing or null.
fn collect_missing(
    value: &Value,
    path: &[&str],
    field: &str,
    pointer: &mut String,
    missing: &mut Vec<String>,
) {
    match path.split_first() {
        None if value.is_object() && value.get(field).is_none_or(Value::is_null) => {
            missing.push(pointer.clone());
        }
        None => {}
        Some((&"*", rest)) => {
            for (index, element) in value.as_array().into_iter().flatten().enumerate() {
                collect_missing(element, rest, field, &mut format!("{pointer}/{index}"), missing);
            }
        }
        Some((name, rest)) => {
            if let Some(next) = value.get(*name) {
                collect_missing(next, rest, field, &mut format!("{pointer}/{}", escape(name)), missing);
            }
        }
    }
}

fn escape(field: &str) -> String {
    field.replace('~', "~0").replace('/', "~1")
}

//! RFC 6902 patches, built by hand on the raw object: unknown fields stay as they are.

use serde_json::{Map, Value, json};

/// Operations that change an object, and the object as changed so far, so that each step sees the ones before.
#[derive(Debug)]
pub(super) struct Patch {
    object: Value,
    operations: Vec<Value>,
}

impl Patch {
    pub(super) fn new(object: &Value) -> Self {
        Self { object: object.clone(), operations: Vec::new() }
    }

    /// The object as it stands after the operations.
    #[cfg(test)]
    pub(super) fn object(&self) -> &Value {
        &self.object
    }

    pub(super) fn into_operations(self) -> Vec<Value> {
        self.operations
    }

    /// Sets a field below objects, making those that are absent. Says whether it could: a parent of another type stays.
    pub(super) fn set(&mut self, fields: &[&str], value: Value) -> bool {
        let Some((last, parents)) = fields.split_last() else {
            return false;
        };
        let mut at = &mut self.object;
        let mut pointer = String::new();
        for (depth, field) in parents.iter().enumerate() {
            let Value::Object(map) = at else { return false };
            pointer = format!("{pointer}/{}", escape(field));
            let next = map.entry((*field).to_owned()).or_insert(Value::Null);
            if next.is_null() {
                // The whole missing branch goes in at once.
                let rest = fields.get(depth + 1..).unwrap_or_default();
                let branch = rest
                    .iter()
                    .rev()
                    .fold(value, |inner, name| Value::Object(Map::from_iter([((*name).to_owned(), inner)])));
                *next = branch.clone();
                self.operations.push(json!({"op": "add", "path": pointer, "value": branch}));
                return true;
            }
            at = next;
        }
        let Value::Object(map) = at else { return false };
        if map.get(*last) == Some(&value) {
            return true;
        }
        self.operations
            .push(json!({"op": "add", "path": format!("{pointer}/{}", escape(last)), "value": value}));
        map.insert((*last).to_owned(), value);
        true
    }

    /// Adds an element at the end of a list, making the list if absent. Says whether it could.
    pub(super) fn append(&mut self, fields: &[&str], value: Value) -> bool {
        let listed = fields.iter().try_fold(&mut self.object, |at, field| at.get_mut(field));
        match listed {
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

    /// Gives every element of a list that lacks a field, or has null there, a text. `path` names lists by `*`.
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

    /// Removes a field of an element of a list, if it is there.
    pub(super) fn remove_in_list(&mut self, fields: &[&str], index: usize, field: &str) {
        let removed = fields
            .iter()
            .try_fold(&mut self.object, |at, name| at.get_mut(name))
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

/// Pointers of the objects at `path` that have no value in `field`.
fn collect_missing(at: &Value, path: &[&str], field: &str, pointer: &mut String, found: &mut Vec<String>) {
    match path.split_first() {
        None if at.is_object() && at.get(field).is_none_or(Value::is_null) => found.push(pointer.clone()),
        None => {}
        Some((&"*", rest)) => {
            for (index, element) in at.as_array().into_iter().flatten().enumerate() {
                collect_missing(element, rest, field, &mut format!("{pointer}/{index}"), found);
            }
        }
        Some((name, rest)) => {
            if let Some(next) = at.get(*name) {
                collect_missing(next, rest, field, &mut format!("{pointer}/{}", escape(name)), found);
            }
        }
    }
}

fn escape(field: &str) -> String {
    field.replace('~', "~0").replace('/', "~1")
}

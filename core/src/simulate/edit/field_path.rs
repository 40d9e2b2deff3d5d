//! Paths of fields as people write them: `spec.resourceGroups[0].flavors[0]`, `metadata.labels['example.com/team']`.
//!
//! Invariant: a path that is parsed has at least one step, and the first one is the name of a field.

use serde_json::{Map, Value};
use std::fmt;

/// A path from an object to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(usize),
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Item(index) => write!(f, "[{index}]")?,
                Step::Field(name) if name.contains(['.', '[', '/']) => write!(f, "['{name}']")?,
                Step::Field(name) if at == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
            }
        }
        Ok(())
    }
}

impl FieldPath {
    /// Parses a path.
    ///
    /// # Errors
    /// The text is no path; the error says what is expected where.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let column = text.len().saturating_sub(rest.len()).saturating_add(1);
            let (step, after) = if let Some(inside) = rest.strip_prefix('[') {
                bracket(inside).map_err(|fault| format!("{fault} (column {column})"))?
            } else {
                let name = if steps.is_empty() { rest } else { rest.strip_prefix('.').unwrap_or_default() };
                let end = name.find(['.', '[']).unwrap_or(name.len());
                let (name, after) = name.split_at(end);
                if name.is_empty() {
                    return Err(format!("the name of a field is expected (column {column})"));
                }
                (Step::Field(name.to_owned()), after)
            };
            steps.push(step);
            rest = after;
        }
        match steps.first() {
            Some(Step::Field(_)) => Ok(Self(steps)),
            _ => Err("the name of a field is expected (column 1)".to_owned()),
        }
    }

    /// Sets the field; fields on the way that are missing are added, and an item after the last one. `null` removes the field.
    ///
    /// # Errors
    /// An item does not exist, or a value on the way is neither object nor list; the error names the path up to there.
    pub(super) fn set(&self, object: &mut Value, value: Value) -> Result<(), String> {
        let Some((last, before)) = self.0.split_last() else { return Ok(()) };
        let mut parent = object;
        for (at, step) in before.iter().enumerate() {
            parent = enter(parent, step).map_err(|fault| self.fault_at(at, &fault))?;
        }
        let place = |fault: String| self.fault_at(before.len(), &fault);
        match last {
            Step::Field(name) if value.is_null() => {
                if let Some(fields) = parent.as_object_mut() {
                    fields.shift_remove(name);
                }
            }
            Step::Item(index) if value.is_null() => {
                enter(parent, last).map_err(place)?;
                if let Some(items) = parent.as_array_mut().filter(|items| *index < items.len()) {
                    items.remove(*index);
                }
            }
            _ => *enter(parent, last).map_err(place)? = value,
        }
        Ok(())
    }

    fn fault_at(&self, at: usize, fault: &str) -> String {
        let upto = Self(self.0.iter().take(at.saturating_add(1)).cloned().collect());
        format!("{upto}: {fault}")
    }
}

/// Reads a step after its opening bracket, and returns what follows the closing one.
fn bracket(inside: &str) -> Result<(Step, &str), String> {
    let quoted = inside.strip_prefix('\'').map(|name| (name, "']"));
    let quoted = quoted.or_else(|| inside.strip_prefix('"').map(|name| (name, "\"]")));
    if let Some((name, end)) = quoted {
        let (name, after) = name.split_once(end).ok_or_else(|| format!("{end} is missing"))?;
        return Ok((Step::Field(name.to_owned()), after));
    }
    let (index, after) = inside.split_once(']').ok_or("] is missing")?;
    let index = index.parse().map_err(|_| format!("the number of an item is expected, not {index:?}"))?;
    Ok((Step::Item(index), after))
}

/// Returns the value at a step, which is added if it is missing.
fn enter<'a>(parent: &'a mut Value, step: &Step) -> Result<&'a mut Value, String> {
    match step {
        Step::Field(name) => {
            if parent.is_null() {
                *parent = Value::Object(Map::new());
            }
            let fields = parent.as_object_mut().ok_or("is in a value that has no fields")?;
            Ok(fields.entry(name.clone()).or_insert(Value::Null))
        }
        Step::Item(index) => {
            if parent.is_null() {
                *parent = Value::Array(Vec::new());
            }
            let items = parent.as_array_mut().ok_or("is in a value that is no list")?;
            let count = items.len();
            if *index == count {
                items.push(Value::Null);
            }
            items.get_mut(*index).ok_or_else(|| format!("the list has {count} items"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_printed_as_they_are_parsed() {
        for path in ["spec", "spec.a[0].b", "metadata.labels['example.com/team']", "spec.lists[1][2]"] {
            assert_eq!(FieldPath::parse(path).unwrap().to_string(), path);
        }
        assert_eq!(FieldPath::parse("a[\"b\"]").unwrap().to_string(), "a.b");
        for (path, fault) in [
            ("", "the name of a field is expected (column 1)"),
            ("[0]", "the name of a field is expected (column 1)"),
            ("spec..a", "the name of a field is expected (column 5)"),
            ("spec.", "the name of a field is expected (column 5)"),
            ("spec[x]", "the number of an item is expected, not \"x\" (column 5)"),
            ("spec[-1]", "the number of an item is expected, not \"-1\" (column 5)"),
            ("spec[1", "] is missing (column 5)"),
            ("labels['a", "'] is missing (column 7)"),
            ("spec[1]x", "the name of a field is expected (column 8)"),
        ] {
            assert_eq!(FieldPath::parse(path).unwrap_err(), fault, "{path}");
        }
    }

    #[test]
    fn fields_are_set_added_and_removed() {
        let set = |path: &str, value: Value| {
            let mut object = json!({"spec": {"list": [{"a": 1}], "text": "t"}});
            FieldPath::parse(path).unwrap().set(&mut object, value).map(|()| object["spec"].clone())
        };
        let text = || "t";
        assert_eq!(set("spec.list[0].a", json!(2)).unwrap(), json!({"list": [{"a": 2}], "text": text()}));
        assert_eq!(
            set("spec.list[1].b", json!(3)).unwrap(),
            json!({"list": [{"a": 1}, {"b": 3}], "text": text()})
        );
        assert_eq!(set("spec.list[0]", Value::Null).unwrap(), json!({"list": [], "text": text()}));
        assert_eq!(set("spec.list", Value::Null).unwrap(), json!({"text": text()}));
        assert_eq!(set("spec.new[0]", json!(1)).unwrap()["new"], json!([1]));
        assert_eq!(set("spec.list[2].a", json!(1)).unwrap_err(), "spec.list[2]: the list has 1 items");
        assert_eq!(
            set("spec.text.a", json!(1)).unwrap_err(),
            "spec.text.a: is in a value that has no fields"
        );
        assert_eq!(set("spec.text[0]", json!(1)).unwrap_err(), "spec.text[0]: is in a value that is no list");
    }
}

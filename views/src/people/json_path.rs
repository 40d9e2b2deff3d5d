//! JSONPath templates of kubectl, as far as scripts use them.
//!
//! Invariant: values are printed as kubectl prints them: texts without quotes, other values as JSON, several values separated
//! by a space.

use super::json_path_parser::{Part, Path, Step, parse};
use serde_json::Value;

/// A template that has been read.
#[derive(Clone, Debug)]
pub struct JsonPath {
    parts: Vec<Part>,
    allow_missing: bool,
}

impl JsonPath {
    /// Reads a template. With `allow_missing`, a field that an object lacks prints nothing.
    ///
    /// # Errors
    /// The template is malformed or uses an unsupported expression; the text names it.
    pub fn parse(template: &str, allow_missing: bool) -> Result<Self, String> {
        let parts = parse(template).map_err(|error| format!("jsonpath: {error}"))?;
        Ok(Self { parts, allow_missing })
    }

    /// Returns the text for an object.
    ///
    /// # Errors
    /// The object lacks a field, and that is not allowed.
    pub fn text(&self, object: &Value) -> Result<String, String> {
        let mut out = String::new();
        self.write(&self.parts, object, object, &mut out)?;
        Ok(out)
    }

    /// Returns the values at all paths of the template.
    ///
    /// # Errors
    /// The object lacks a field, and that is not allowed.
    pub fn values(&self, object: &Value) -> Result<Vec<Value>, String> {
        let mut found = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => found.push(Value::String(text.clone())),
                Part::Path(path) | Part::Range(path, _) => {
                    found.extend(self.find(path, object, object)?.into_iter().cloned());
                }
            }
        }
        Ok(found)
    }

    fn write(&self, parts: &[Part], root: &Value, current: &Value, out: &mut String) -> Result<(), String> {
        for part in parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Path(path) => {
                    let texts: Vec<String> =
                        self.find(path, root, current)?.into_iter().map(value_text).collect();
                    out.push_str(&texts.join(" "));
                }
                Part::Range(path, inner) => {
                    for value in self.find(path, root, current)? {
                        self.write(inner, root, value, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn find<'a>(&self, path: &Path, root: &'a Value, current: &'a Value) -> Result<Vec<&'a Value>, String> {
        let mut values = vec![if path.from_root { root } else { current }];
        for step in &path.steps {
            let mut next = Vec::new();
            for value in values {
                let found = values_of(step, value);
                if let (true, Step::Field(name)) = (found.is_empty() && !self.allow_missing, step) {
                    return Err(format!("{name} is not found"));
                }
                next.extend(found);
            }
            values = next;
        }
        Ok(values)
    }
}

fn values_of<'a>(step: &Step, value: &'a Value) -> Vec<&'a Value> {
    match (step, value) {
        (Step::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
        (Step::All, Value::Array(items)) => items.iter().collect(),
        (Step::All, Value::Object(fields)) => fields.values().collect(),
        (Step::Item(number), Value::Array(items)) => {
            let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let place = if *number < 0 { length.saturating_add(*number) } else { *number };
            usize::try_from(place).ok().and_then(|place| items.get(place)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(template: &str, object: &Value) -> Result<String, String> {
        JsonPath::parse(template, true)?.text(object)
    }

    #[test]
    fn templates_print_as_kubectls() {
        let list = json!({"kind": "List", "items": [
            {"metadata": {"name": "a", "labels": {"x.y/z": "1"}}, "n": 1, "on": true},
            {"metadata": {"name": "b"}, "n": 2.5, "l": [1, 2, 3]},
        ]});
        for (template, expected) in [
            ("{.items[*].metadata.name}", "a b"),
            ("{$.items[0].metadata.name}", "a"),
            ("{.items[-1].metadata.name}", "b"),
            ("{.items[7].metadata.name}", ""),
            ("{.items[*].metadata.labels.x\\.y/z}", "1"),
            ("{.items[*].metadata.labels['x.y/z']}", "1"),
            ("{range .items[*]}{.metadata.name}{\"\\t\"}{.n}{\"\\n\"}{end}", "a\t1\nb\t2.5\n"),
            ("{range .items[*]}{@.metadata.name}{'-'}{$.kind} {end}", "a-List b-List "),
            ("names: {.items[*].metadata.name}!", "names: a b!"),
            ("{.items[0].on} {.items[1].l}", "true [1,2,3]"),
            ("{kind}", "List"),
            ("{.items[0].metadata}", r#"{"name":"a","labels":{"x.y/z":"1"}}"#),
            ("{.items[0].metadata.*}", r#"a {"x.y/z":"1"}"#),
            ("{.missing}", ""),
            ("{range .items[*]}[{range .l[*]}{@},{end}]{end}", "[][1,2,3,]"),
            ("{.kind} {\"and\"} {.kind}", "List and List"),
            (".kind", ".kind"),
        ] {
            assert_eq!(text(template, &list), Ok(expected.to_owned()), "{template}");
        }
        let strict = JsonPath::parse("{.missing.field}", false).unwrap();
        assert_eq!(strict.text(&list), Err("missing is not found".to_owned()));
        let values = JsonPath::parse("{.items[*].n}", true).unwrap().values(&list);
        assert_eq!(values, Ok(vec![json!(1), json!(2.5)]));
    }
}

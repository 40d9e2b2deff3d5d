//! A list of objects that is printed page by page, as one document.
//!
//! Invariant: the text of several pages is that of one list of all their items.

use super::object_text::{for_output, json_text, yaml_text};
use super::output::ObjectFormat;
use serde_json::{Map, Value, json};

/// A list whose items arrive page by page. Items are kept only for templates, which may refer to any item.
#[derive(Debug)]
pub struct ObjectList {
    format: ObjectFormat,
    managed_fields: bool,
    /// The list without its items; `None` before the first item.
    head: Option<Value>,
    kept: Vec<Value>,
}

impl ObjectList {
    /// Begins a list.
    pub fn new(format: ObjectFormat, managed_fields: bool) -> Self {
        Self { format, managed_fields, head: None, kept: Vec::new() }
    }

    /// Returns the text of a page's items. `page` has kind, version and metadata of the list.
    ///
    /// # Errors
    /// An item cannot be printed.
    pub fn push(&mut self, page: &Value, items: Vec<Value>) -> Result<String, String> {
        let mut text = String::new();
        for item in items {
            let first = self.head.is_none();
            let head = self.head.get_or_insert_with(|| list_head(page));
            match &self.format {
                ObjectFormat::Json => {
                    text.push_str(&if first { json_start(head) } else { ",\n".to_owned() });
                    text.push_str(&indented(
                        &json_text(&for_output(&item, self.managed_fields)),
                        "        ",
                        "        ",
                    ));
                }
                ObjectFormat::Yaml => {
                    if first {
                        text.push_str(&yaml_text(&json!({"apiVersion": head.get("apiVersion")}))?);
                        text.push_str("items:\n");
                    }
                    text.push_str(&indented(
                        &yaml_text(&for_output(&item, self.managed_fields))?,
                        "- ",
                        "  ",
                    ));
                    text.push('\n');
                }
                ObjectFormat::Name => text.push_str(&self.format.text(&item, false)?),
                ObjectFormat::JsonPath(_) | ObjectFormat::JsonPathAsJson(_) => self.kept.push(item),
            }
        }
        Ok(text)
    }

    /// Returns the text that ends the list; empty if it had no items.
    ///
    /// # Errors
    /// The template cannot be printed.
    pub fn end(self) -> Result<String, String> {
        let Some(head) = self.head else { return Ok(String::new()) };
        match &self.format {
            ObjectFormat::Json => Ok("\n    ]\n}\n".to_owned()),
            ObjectFormat::Yaml => {
                yaml_text(&json!({"kind": head.get("kind"), "metadata": head.get("metadata")}))
            }
            ObjectFormat::Name => Ok(String::new()),
            ObjectFormat::JsonPath(_) | ObjectFormat::JsonPathAsJson(_) => {
                let Value::Object(mut list) = head else { return Ok(String::new()) };
                let shown = self.kept.iter().map(|item| for_output(item, self.managed_fields)).collect();
                list.insert("items".to_owned(), Value::Array(shown));
                self.format.text(&Value::Object(list), self.managed_fields)
            }
        }
    }
}

/// Returns kind, version and the resource version of a list.
fn list_head(page: &Value) -> Value {
    let mut head = Map::new();
    for field in ["apiVersion", "kind"] {
        head.extend(page.get(field).map(|value| (field.to_owned(), value.clone())));
    }
    let version = page.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    head.insert("metadata".to_owned(), json!({"resourceVersion": version}));
    Value::Object(head)
}

fn json_start(head: &Value) -> String {
    let text = json_text(head);
    let open = text.strip_suffix("\n}\n").unwrap_or(&text);
    format!("{open},\n    \"items\": [\n")
}

/// Puts a text in front of the first line and another in front of the others; the last line break is left out.
fn indented(text: &str, first: &str, others: &str) -> String {
    let line = |(number, line): (usize, &str)| format!("{}{line}", if number == 0 { first } else { others });
    text.trim_end_matches('\n').split('\n').enumerate().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::people::json_path::JsonPath;

    fn item(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "managedFields": []}, "spec": {"text": "a\n\n  b", "list": [[1], []]}})
    }

    fn print(format: &ObjectFormat, pages: &[&[&str]]) -> String {
        let page = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7", "continue": "x"}});
        let mut list = ObjectList::new(format.clone(), false);
        let mut text = String::new();
        for names in pages {
            text += &list.push(&page, names.iter().map(|name| item(name)).collect()).unwrap();
        }
        text + &list.end().unwrap()
    }

    #[test]
    fn several_pages_are_one_document() {
        let items: Vec<Value> =
            ["a", "b", "c"].into_iter().map(|name| for_output(&item(name), false)).collect();
        let expected = json!({
            "apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": items,
        });
        let path = |template| JsonPath::parse(template, true).unwrap();
        for pages in [&[&["a", "b", "c"][..]][..], &[&["a"], &[], &["b", "c"]]] {
            let text = print(&ObjectFormat::Json, pages);
            assert_eq!(text, json_text(&expected));
            let text = print(&ObjectFormat::Yaml, pages);
            assert_eq!(text, yaml_text(&expected).unwrap());
            assert_eq!(print(&ObjectFormat::Name, pages), "pod/a\npod/b\npod/c\n");
            assert_eq!(print(&ObjectFormat::JsonPath(path("{.items[*].metadata.name}")), pages), "a b c");
            assert_eq!(
                print(&ObjectFormat::JsonPathAsJson(path("{.items[1].kind}")), pages),
                "[\n    \"Pod\"\n]\n"
            );
        }
        assert_eq!(print(&ObjectFormat::Json, &[&[]]), "", "an empty list prints nothing");
    }
}

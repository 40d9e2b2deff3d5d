//! Tables that the API server makes.

use super::text_table::TextTable;
use serde_json::Value;

/// Pages of a table of the API server.
#[derive(Debug, Default)]
pub struct ServerTable {
    /// Whether columns of less priority are shown.
    pub wide: bool,
    /// Whether the namespace is shown.
    pub namespace: bool,
    pages: Vec<Value>,
}

impl ServerTable {
    /// Creates an empty table.
    pub fn new(wide: bool, namespace: bool) -> Self {
        Self { wide, namespace, pages: Vec::new() }
    }

    /// Adds a page.
    pub fn push(&mut self, page: Value) {
        self.pages.push(page);
    }

    /// Returns the text, fitted to the width of a terminal; `None` if there is no row.
    pub fn text(&self, width: Option<usize>) -> Option<String> {
        let first = self.pages.first()?;
        let definitions = first.get("columnDefinitions").and_then(Value::as_array)?;
        let is_shown =
            |column: &Value| self.wide || column.get("priority").and_then(Value::as_i64) == Some(0);
        let shown: Vec<bool> = definitions.iter().map(is_shown).collect();
        let names = definitions.iter().zip(&shown).filter(|(_, shown)| **shown);
        let names = names.map(|(column, _)| column.get("name").and_then(Value::as_str).unwrap_or_default());
        let mut table = TextTable::kubectl(self.namespace.then_some("Namespace").into_iter().chain(names));
        for row in self.pages.iter().filter_map(|page| page.get("rows")?.as_array()).flatten() {
            let cells = row.get("cells").and_then(Value::as_array).into_iter().flatten();
            let cells = cells.zip(&shown).filter(|(_, shown)| **shown).map(|(cell, _)| cell_text(cell));
            let namespace =
                row.pointer("/object/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
            table.push(self.namespace.then(|| namespace.to_owned()).into_iter().chain(cells));
        }
        (!table.is_empty()).then(|| table.text(true, width))
    }
}

fn cell_text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_of_priority_0_are_shown() {
        let page = |name: &str| {
            json!({"columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Restarts", "priority": 0}, {"name": "Node", "priority": 1}],
                "rows": [{"cells": [name, 3, null], "object": {"metadata": {"namespace": "ns"}}}]})
        };
        let text = |wide, namespace| {
            let mut table = ServerTable::new(wide, namespace);
            table.push(page("a"));
            table.push(page("b"));
            table.text(None).unwrap()
        };
        assert_eq!(text(false, false), "NAME   RESTARTS\na      3\nb      3\n");
        assert_eq!(
            text(true, true),
            "NAMESPACE   NAME   RESTARTS   NODE\nns          a      3          \nns          b      3          \n"
        );
        assert_eq!(ServerTable::new(false, false).text(None), None);
    }
}

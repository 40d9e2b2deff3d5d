//! Tables as clients such as `kubectl get` ask for them: columns, and a row for each object.

use jiff::Timestamp;
use serde_json::{Value, json};

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// Type of its cells, as in OpenAPI, or `date`.
    pub kind: &'static str,
    /// Format; empty for none.
    pub format: &'static str,
    /// Description.
    pub description: &'static str,
    /// Whether it is shown only in wide tables.
    pub wide: bool,
}

/// What a row of a table has of its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl IncludeObject {
    /// Reads the option `includeObject`.
    ///
    /// # Errors
    /// The value is none of the three.
    pub fn parse(text: Option<&str>) -> Result<Self, String> {
        match text.unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(format!("includeObject: {other:?} must be None, Metadata or Object")),
        }
    }
}

/// An object that can be a row.
pub trait TableRow: serde::Serialize {
    /// The columns.
    const COLUMNS: &'static [Column];

    /// The cells, one for each column. Ages are those at `now`.
    fn cells(&self, now: Timestamp) -> Vec<Value>;

    /// The metadata of the object.
    fn metadata(&self) -> Value;

    /// Returns the row.
    fn to_row(&self, include: IncludeObject, now: Timestamp) -> Value {
        let object = match include {
            IncludeObject::None => Value::Null,
            IncludeObject::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": self.metadata(),
            }),
            IncludeObject::Object => json!(self),
        };
        json!({"cells": self.cells(now), "object": object})
    }
}

/// Returns the definitions of columns.
pub fn column_definitions(columns: &[Column]) -> Value {
    let definition = |column: &Column| {
        json!({
            "name": column.name, "type": column.kind, "format": column.format, "description": column.description,
            "priority": i32::from(column.wide),
        })
    };
    columns.iter().map(definition).collect()
}

//! Tables for clients such as `kubectl get`: columns, and a row for each object.

use jiff::Timestamp;
use serde_json::{Value, json};

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading of the column.
    pub name: &'static str,
    /// Type of the cells, as in OpenAPI, or `date`.
    pub kind: &'static str,
    /// Format of the cells; empty for none.
    pub format: &'static str,
    /// Description for users.
    pub description: &'static str,
    /// Whether it is shown only in wide tables.
    pub wide: bool,
}

/// Part of its object that a row of a table contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Parses the option `includeObject`.
    ///
    /// # Errors
    /// If the value is none of the three.
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

    /// Returns the cells, one for each column. Ages are computed at `now`.
    fn cells(&self, now: Timestamp) -> Vec<Value>;

    /// Returns the metadata of the object.
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

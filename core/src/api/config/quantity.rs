//! Quantities of the configuration, written as text or number.

use crate::resources;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use std::borrow::Cow;

/// Name of the schema, by which the check of the document recognizes quantities.
pub(super) const TITLE: &str = "Quantity";

/// A quantity that can be read: a document with any other text does not load.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity(pub resources::Quantity);

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    /// The value is not a quantity, or has no digit: Kubernetes reads a suffix alone as 0, which would charge nothing.
    pub fn read(value: &Value) -> Result<Self, String> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err("must be a quantity such as 2, 500m or 10Gi".to_owned()),
        };
        let quantity = resources::Quantity::parse(&text).map_err(|error| error.to_string())?;
        if text.bytes().any(|byte| byte.is_ascii_digit()) {
            Ok(Self(quantity))
        } else {
            Err("no digits".to_owned())
        }
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed(TITLE)
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": TITLE })
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.canonical())
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::read(&value).map_err(|reason| de::Error::custom(format!("not a quantity: {value}: {reason}")))
    }
}

//! Past usage of a LocalQueue, which has no maximum.
//!
//! Invariant: an infinite value is a text in JSON, which has no such number, so that no reader takes it for unknown or for 0.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// The text of an infinite number.
const INFINITE: &str = "inf";

/// A number, at least 0, or infinite: a LocalQueue of weight 0 is the last in order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PastUsage(f64);

impl PastUsage {
    /// Creates a value. A number that is not finite becomes infinite, and 0 has no sign.
    pub fn new(number: f64) -> Self {
        Self(if number.is_nan() { f64::INFINITY } else { number + 0.0 })
    }

    /// Compares two values: the lesser one comes first in order.
    pub fn order(self, other: Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl fmt::Display for PastUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_infinite() { f.pad(INFINITE) } else { write!(f, "{:.2}", self.0) }
    }
}

impl Serialize for PastUsage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_infinite() {
            serializer.serialize_str(INFINITE)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for PastUsage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form<'a> {
            Number(f64),
            Text(Cow<'a, str>),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(number) => Ok(Self::new(number)),
            Form::Text(text) if text == INFINITE => Ok(Self(f64::INFINITY)),
            Form::Text(text) => Err(serde::de::Error::custom(format!("{text:?} is not a past usage"))),
        }
    }
}

impl JsonSchema for PastUsage {
    fn schema_name() -> Cow<'static, str> {
        "PastUsage".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "number", "format": "double"}, {"type": "string", "enum": [INFINITE]}]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_number_comes_back_from_json() {
        let cases = [
            (0.0, json!(0.0)),
            (-0.0, json!(0.0)),
            (0.13, json!(0.13)),
            (f64::MAX, json!(f64::MAX)),
            (f64::INFINITY, json!("inf")),
            (f64::NAN, json!("inf")),
        ];
        let mut last: Option<PastUsage> = None;
        for (number, form) in cases {
            let usage = PastUsage::new(number);
            let text = serde_json::to_string(&usage).unwrap();
            assert_eq!(text, form.to_string());
            let read: PastUsage = serde_json::from_str(&text).unwrap();
            assert_eq!(read, usage, "{number}");
            assert!(last.is_none_or(|last| last.order(read).is_le()));
            last = Some(read);
        }
        assert_eq!(
            (PastUsage::new(-0.0).to_string(), PastUsage::new(f64::NAN).to_string()),
            ("0.00".into(), "inf".into())
        );
        assert!(serde_json::from_str::<PastUsage>("\"much\"").is_err());
    }
}

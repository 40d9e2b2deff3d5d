//! Partial decoding of JSON: fields that no rule needs are skipped, or kept as raw text.
//!
//! Invariants: the number of decoded values is bounded by a [`ValueBudget`] for any nesting and size (a value of two
//! bytes of text takes seventy bytes of memory, an object hundreds). A value of an unexpected type keeps its type, so
//! that an error can name its field, but becomes empty.

use std::cell::Cell;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Name of the added field that contains the whole text of an object. The text itself cannot forge it, because fields
/// that are not projected are skipped.
pub const RAW_TEXT_FIELD: &str = "\u{0}text";

/// Defines visitor methods that return scalars as JSON values.
#[macro_export]
macro_rules! scalars_as_values {
    () => {
        fn visit_unit<E: serde::de::Error>(self) -> Result<serde_json::Value, E> {
            Ok(serde_json::Value::Null)
        }

        fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<serde_json::Value, E> {
            Ok(value.into())
        }

        fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<serde_json::Value, E> {
            Ok(value.into())
        }

        fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<serde_json::Value, E> {
            Ok(value.into())
        }

        fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<serde_json::Value, E> {
            Ok(value.into())
        }

        fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<serde_json::Value, E> {
            Ok(value.into())
        }
    };
}
pub use crate::scalars_as_values;

/// Which parts of a value are decoded.
#[derive(Clone, Copy, Debug)]
pub enum Projection {
    /// A string, number, boolean or null.
    Scalar,
    /// The whole value.
    Whole,
    /// These fields of an object.
    Fields(&'static [(&'static str, Projection)]),
    /// All fields of an object; these with their own projection.
    AllFields(&'static [(&'static str, Projection)]),
    /// These fields of an object, and its whole text as [`RAW_TEXT_FIELD`].
    FieldsWithText(&'static [(&'static str, Projection)]),
    /// The scalar values of a map, except for these keys.
    Map(&'static [&'static str]),
    /// The elements of a list with at most this many elements.
    Items(usize, &'static Projection),
}

static WHOLE: Projection = Projection::Whole;
static SCALAR: Projection = Projection::Scalar;

impl Projection {
    /// Returns the projection of a field, or `None` if the field is skipped.
    fn field(&'static self, name: &str) -> Option<&'static Self> {
        let named = |fields: &'static [(&'static str, Self)]| {
            fields.iter().find(|(field, _)| *field == name).map(|(_, projection)| projection)
        };
        match self {
            Self::Scalar | Self::Items(..) => None,
            Self::Whole => Some(&WHOLE),
            Self::Fields(fields) | Self::FieldsWithText(fields) => named(fields),
            Self::AllFields(fields) => named(fields).or(Some(&WHOLE)),
            Self::Map(but) => (!but.contains(&name)).then_some(&SCALAR),
        }
    }

    /// Returns the maximum number of elements and their projection, or `None` if elements are skipped.
    fn elements(&'static self) -> Option<(usize, &'static Self)> {
        match self {
            Self::Whole => Some((usize::MAX, &WHOLE)),
            Self::Items(limit, projection) => Some((*limit, projection)),
            _ => None,
        }
    }
}

/// Maximum number of values that decoding may create.
#[derive(Debug)]
pub struct ValueBudget {
    remaining: Cell<usize>,
    exhausted: Cell<bool>,
}

impl ValueBudget {
    /// Creates a budget of `values`; an object costs 4 plus one per field.
    pub const fn new(values: usize) -> Self {
        Self { remaining: Cell::new(values), exhausted: Cell::new(false) }
    }

    /// Returns whether decoding failed because a limit was exceeded.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted.get()
    }

    fn consume<E: de::Error>(&self, values: usize) -> Result<(), E> {
        let remaining = self.remaining.get().checked_sub(values);
        self.remaining.set(remaining.unwrap_or_default());
        remaining.map(drop).ok_or_else(|| self.exceeded("more values than can be looked at"))
    }

    fn exceeded<E: de::Error>(&self, what: impl fmt::Display) -> E {
        self.exhausted.set(true);
        E::custom(what)
    }
}

/// Why the body of a review is not evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// It is not JSON.
    Malformed(String),
    /// It has more values than allowed.
    TooManyValues(String),
}

/// Decodes the parts of a body that `projection` selects, of at most this many values.
///
/// # Errors
/// The body is not JSON or has too many values.
pub fn read_within(projection: &'static Projection, values: usize, body: &[u8]) -> Result<Value, ReadError> {
    let budget = ValueBudget::new(values);
    read_projection(projection, &budget, body).map_err(|error| {
        if budget.is_exhausted() {
            ReadError::TooManyValues(error.to_string())
        } else {
            ReadError::Malformed(error.to_string())
        }
    })
}

/// Decodes the parts of `text` that `projection` selects.
///
/// # Errors
/// The text is not JSON, or exceeds the budget or a list limit.
pub fn read_projection(
    projection: &'static Projection,
    budget: &ValueBudget,
    text: &[u8],
) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = PartialReader { projection, budget }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Removes the raw text fields, so that the value can be shown to users.
pub fn without_raw_text(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.shift_remove(RAW_TEXT_FIELD);
            fields.values_mut().for_each(|inner| *inner = without_raw_text(inner.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| *inner = without_raw_text(inner.take())),
        _ => {}
    }
    value
}

/// Cost of an object without its fields.
const OBJECT_COST: usize = 4;

#[derive(Clone, Copy)]
struct PartialReader<'a> {
    projection: &'static Projection,
    budget: &'a ValueBudget,
}

impl PartialReader<'_> {
    fn with_projection(self, projection: &'static Projection) -> Self {
        Self { projection, ..self }
    }

    /// Decodes the projected fields of `raw` and adds the raw text.
    fn with_text(self, raw: &str) -> serde_json::Result<Value> {
        let mut value = serde_json::Deserializer::from_str(raw).deserialize_any(self)?;
        if let Value::Object(fields) = &mut value {
            fields.insert(RAW_TEXT_FIELD.to_owned(), raw.into());
        }
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for PartialReader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if matches!(self.projection, Projection::FieldsWithText(_)) {
            let raw = <&RawValue>::deserialize(deserializer)?;
            return self.with_text(raw.get()).map_err(de::Error::custom);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PartialReader<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    scalars_as_values!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        let Some((limit, projection)) = self.projection.elements() else {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Array(all));
        };
        while let Some(item) = items.next_element_seed(self.with_projection(projection))? {
            self.budget.consume(1)?;
            if all.len() >= limit {
                return Err(self.budget.exceeded(format_args!("a list of more than {limit} elements")));
            }
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        self.budget.consume(OBJECT_COST)?;
        while let Some(field) = map.next_key::<String>()? {
            let Some(projection) = self.projection.field(&field) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            self.budget.consume(1)?;
            let value = map.next_value_seed(self.with_projection(projection))?;
            fields.insert(field, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const KEEP: Projection = Projection::Fields(&[
        ("scalar", Projection::Scalar),
        ("whole", Projection::Whole),
        ("map", Projection::Map(&["not"])),
        ("list", Projection::Items(3, &Projection::Fields(&[("a", Projection::Scalar)]))),
        ("open", Projection::AllFields(&[("b", Projection::Fields(&[("c", Projection::Scalar)]))])),
        ("text", Projection::FieldsWithText(&[("d", Projection::Scalar)])),
    ]);

    fn partly(text: &str) -> serde_json::Result<Value> {
        read_projection(&KEEP, &ValueBudget::new(1_000), text.as_bytes())
    }

    #[test]
    fn kept_fields_are_read_and_rest_skipped() {
        let whole = json!({
            "scalar": 1, "other": [{}, {}], "whole": [{"x": [1, -1, 0.5, true, null]}],
            "map": {"k": "v", "not": "v", "odd": {"x": 1}}, "list": [{"a": "1", "b": 2}, null, 3],
            "open": {"a": [1], "b": {"c": 1, "d": 2}}, "text": {"d": 1, "e": [2]},
        });
        let read = json!({
            "scalar": 1, "whole": [{"x": [1, -1, 0.5, true, null]}],
            "map": {"k": "v", "odd": {}}, "list": [{"a": "1"}, null, 3],
            "open": {"a": [1], "b": {"c": 1}}, "text": {"d": 1, RAW_TEXT_FIELD: r#"{"d":1,"e":[2]}"#},
        });
        assert_eq!(partly(&whole.to_string()).unwrap(), read);
        for (odd, kept) in [
            (json!({"scalar": [1, [2]]}), json!({"scalar": []})),
            (json!({"scalar": {"a": 1}}), json!({"scalar": {}})),
            (json!({"list": {"a": 1}}), json!({"list": {}})),
            (json!({"map": [1]}), json!({"map": []})),
            (json!({"text": [1]}), json!({"text": []})),
            (json!({"text": null}), json!({"text": null})),
            (json!([1]), json!([])),
            (json!("x"), json!("x")),
        ] {
            assert_eq!(partly(&odd.to_string()).unwrap(), kept);
        }
        assert!(partly("{} {}").is_err() && partly("{").is_err());
    }

    #[test]
    fn decoded_value_count_is_bounded() {
        let many = |item: &str| format!(r#"{{"whole":[{}0]}}"#, format!("{item},").repeat(2_000));
        for item in ["0", r#""""#, "{}", r#"{"":0}"#, "[[[]]]"] {
            let budget = ValueBudget::new(1_000);
            assert!(read_projection(&KEEP, &budget, many(item).as_bytes()).is_err(), "{item}");
            assert!(budget.is_exhausted(), "{item}");
            let budget = ValueBudget::new(30_000);
            assert!(read_projection(&KEEP, &budget, many(item).as_bytes()).is_ok(), "{item}");
        }
        let unread = many("{}").replace("whole", "unread");
        assert!(partly(&unread).is_ok());
        let deep = |field: &str| format!(r#"{{"{field}":{}{}}}"#, "[".repeat(500_000), "]".repeat(500_000));
        assert!(partly(&deep("whole")).is_err());
        for passed in ["other", "scalar", "text"] {
            assert!(partly(&deep(passed)).is_ok(), "{passed}");
        }
        let budget = ValueBudget::new(1_000);
        assert!(
            read_projection(&KEEP, &budget, br#"{"list":[{},{},{},{}]}"#).is_err() && budget.is_exhausted()
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), text in ".{0,64}") {
            let _ = read_projection(&KEEP, &ValueBudget::new(100), &bytes);
            let quoted = json!({"whole": text, "text": {"d": text}}).to_string();
            let value = partly(&quoted).unwrap();
            prop_assert_eq!(value["whole"].as_str(), Some(text.as_str()));
            prop_assert_eq!(value["text"]["d"].as_str(), Some(text.as_str()));
        }
    }
}

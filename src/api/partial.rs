//! JSON of which a part is read: what no rule looks at is passed over while it is read, or kept as text.
//!
//! Invariants: what reading makes of a text is bounded by an [`Allowance`], however its values are nested and however
//! small they are (a value takes seventy bytes and an object hundreds, where the text has two); a value of an unexpected
//! type stays one, so that it can be told of by its field, but empty.

use std::cell::Cell;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The field beside the read fields of an object that bears its whole text. An object of that text cannot forge it: a
/// field that is not asked for is passed over.
pub const RAW_TEXT_FIELD: &str = "\u{0}text";

/// The methods of a visitor that makes values of scalars as they are.
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
pub(crate) use scalars_as_values;

/// What is read of a value.
#[derive(Debug)]
pub enum Projection {
    /// A text, number, truth or null.
    Scalar,
    /// All of it.
    Whole,
    /// These fields of an object.
    Fields(&'static [(&'static str, Projection)]),
    /// All fields of an object, these in part.
    AllFields(&'static [(&'static str, Projection)]),
    /// These fields of an object, and beside them, as [`TEXT`], the text of the whole.
    FieldsWithText(&'static [(&'static str, Projection)]),
    /// The values of a map, except under these keys.
    Map(&'static [&'static str]),
    /// The elements of a list, of which there may be so many.
    Items(usize, &'static Projection),
}

static WHOLE: Projection = Projection::Whole;
static SCALAR: Projection = Projection::Scalar;

impl Projection {
    /// What is read of a field; nothing if it is passed over.
    fn field(&'static self, name: &str) -> Option<&'static Self> {
        let named = |fields: &'static [(&'static str, Self)]| {
            fields.iter().find(|(field, _)| *field == name).map(|(_, keep)| keep)
        };
        match self {
            Self::Scalar | Self::Items(..) => None,
            Self::Whole => Some(&WHOLE),
            Self::Fields(fields) | Self::FieldsWithText(fields) => named(fields),
            Self::AllFields(fields) => named(fields).or(Some(&WHOLE)),
            Self::Map(but) => (!but.contains(&name)).then_some(&SCALAR),
        }
    }

    /// What is read of an element and how many there may be; nothing if they are passed over.
    fn elements(&'static self) -> Option<(usize, &'static Self)> {
        match self {
            Self::Whole => Some((usize::MAX, &WHOLE)),
            Self::Items(limit, keep) => Some((*limit, keep)),
            _ => None,
        }
    }
}

/// How many values reading may make.
#[derive(Debug)]
pub struct ValueBudget {
    remaining: Cell<usize>,
    exhausted: Cell<bool>,
}

impl ValueBudget {
    /// So many values; an object counts for several.
    pub const fn new(values: usize) -> Self {
        Self { remaining: Cell::new(values), exhausted: Cell::new(false) }
    }

    /// Whether more was asked for than there was.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted.get()
    }

    fn consume<E: de::Error>(&self, values: usize) -> Result<(), E> {
        let left = self.remaining.get().checked_sub(values);
        self.remaining.set(left.unwrap_or_default());
        left.map(drop).ok_or_else(|| self.exceeded("more values than can be looked at"))
    }

    fn exceeded<E: de::Error>(&self, what: impl fmt::Display) -> E {
        self.exhausted.set(true);
        E::custom(what)
    }
}

/// Reads the part that is kept.
///
/// # Errors
/// It is no JSON, or holds more than the allowance.
pub fn read_projection(
    keep: &'static Projection,
    allowance: &ValueBudget,
    text: &[u8],
) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = PartialReader { projection: keep, budget: allowance }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// A value as it can be shown: what was read of it, without the texts.
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

/// Values that an object takes before its first field.
const OBJECT_COST: usize = 4;

#[derive(Clone, Copy)]
struct PartialReader<'a> {
    projection: &'static Projection,
    budget: &'a ValueBudget,
}

impl PartialReader<'_> {
    fn with_projection(self, keep: &'static Projection) -> Self {
        Self { projection: keep, ..self }
    }

    /// The fields that are read, with the text.
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
        let Some((limit, keep)) = self.projection.elements() else {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Array(all));
        };
        while let Some(item) = items.next_element_seed(self.with_projection(keep))? {
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
            let Some(keep) = self.projection.field(&field) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            self.budget.consume(1)?;
            let value = map.next_value_seed(self.with_projection(keep))?;
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
            let allowance = ValueBudget::new(1_000);
            assert!(read_projection(&KEEP, &allowance, many(item).as_bytes()).is_err(), "{item}");
            assert!(allowance.is_exhausted(), "{item}");
            let allowance = ValueBudget::new(30_000);
            assert!(read_projection(&KEEP, &allowance, many(item).as_bytes()).is_ok(), "{item}");
        }
        let unread = many("{}").replace("whole", "unread");
        assert!(partly(&unread).is_ok());
        let deep = |field: &str| format!(r#"{{"{field}":{}{}}}"#, "[".repeat(500_000), "]".repeat(500_000));
        assert!(partly(&deep("whole")).is_err());
        for passed in ["other", "scalar", "text"] {
            assert!(partly(&deep(passed)).is_ok(), "{passed}");
        }
        let allowance = ValueBudget::new(1_000);
        assert!(
            read_projection(&KEEP, &allowance, br#"{"list":[{},{},{},{}]}"#).is_err()
                && allowance.is_exhausted()
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

//! Numbers that no JSON can have: infinities, NaN, and numbers beyond a double.
//!
//! A parser refuses the whole document for such a number without the field. Here it is found by its path, so that only
//! its object is refused. In YAML a number beyond a double is a text, as it is for kubectl, and an amount such as `1e1000` is
//! used as written.

use crate::api::validation::{FieldError, child_path};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::NonFiniteFloatPolicy::{AsString, PassThrough};
use std::fmt;

/// A number that is not finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NonFinite {
    /// Path in the document.
    path: String,
    /// As written, such as `.nan`, `-.Inf` or `1e1000`.
    text: String,
}

impl NonFinite {
    /// Reads a document with its numbers that are not finite, without those that are texts; `None` if it has neither, or is
    /// invalid otherwise.
    pub(super) fn find(document: &str, is_json: bool) -> Option<(Value, Vec<Self>)> {
        let options = |policy| {
            serde_saphyr::options! { budget: None, with_snippet: false, non_finite_float_policy: policy }
        };
        let mut object: Value = serde_saphyr::from_str_with_options(document, options(AsString)).ok()?;
        // The other policy gives null where this one gives a text.
        let nulls: Value = serde_saphyr::from_str_with_options(document, options(PassThrough)).ok()?;
        let mut found = Vec::new();
        let seed = Texts { object: &mut object, nulls: &nulls, path: String::new(), found: &mut found };
        serde_saphyr::with_deserializer_from_str_with_options(document, options(AsString), |deserializer| {
            seed.deserialize(deserializer)
        })
        .ok()?;
        let any = !found.is_empty();
        found.retain(|number| is_json || is_named(&number.text));
        any.then_some((object, found))
    }

    /// Returns the error for an object at a path of the document, if the number is in it.
    pub(super) fn error_in(&self, inside: &str) -> Option<String> {
        let rest = self.path.strip_prefix(inside)?;
        let path = if inside.is_empty() { rest } else { rest.strip_prefix('.')? };
        Some(FieldError::invalid(path, self.text.as_str(), "must be a finite number").to_string())
    }
}

/// Returns whether YAML has a name for the number: it is then no text.
fn is_named(text: &str) -> bool {
    let name = text.trim_start_matches(['+', '-']);
    [".inf", ".nan"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Puts the texts of numbers that are not finite, as written, into the object, and lists them.
struct Texts<'a> {
    /// The object with a text for such a number, though not the one that is written.
    object: &'a mut Value,
    /// The object with null for such a number.
    nulls: &'a Value,
    path: String,
    found: &'a mut Vec<NonFinite>,
}

impl<'de> DeserializeSeed<'de> for Texts<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match (&*self.object, self.nulls) {
            (Value::Object(_), Value::Object(_)) => deserializer.deserialize_map(self),
            (Value::Array(_), Value::Array(_)) => deserializer.deserialize_seq(self),
            (Value::String(_), Value::Null) => deserializer.deserialize_string(self),
            _ => deserializer.deserialize_ignored_any(IgnoredAny).map(drop),
        }
    }
}

impl<'de> Visitor<'de> for Texts<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the same document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            let child = self.object.get_mut(&name).zip(self.nulls.get(&name));
            let Some((object, nulls)) = child else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let path = child_path(&self.path, &name);
            map.next_value_seed(Texts { object, nulls, path, found: &mut *self.found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let children = self.object.as_array_mut().into_iter().flatten();
        let children = children.zip(self.nulls.as_array().into_iter().flatten());
        for (index, (object, nulls)) in children.enumerate() {
            let path = format!("{}[{index}]", self.path);
            items.next_element_seed(Texts { object, nulls, path, found: &mut *self.found })?;
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        *self.object = text.into();
        self.found.push(NonFinite { path: self.path, text: text.to_owned() });
        Ok(())
    }
}

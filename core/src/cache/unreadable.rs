//! Objects whose newest version cannot be decoded, wholly or in part, and why.

use super::Kind;
use crate::api::ObjectKey;
use std::collections::BTreeMap;

/// An object that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnreadableObject {
    pub(crate) uid: String,
    /// The field, and what is wrong with it.
    pub(crate) problem: String,
}

/// Objects that cannot be decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadableObjects(BTreeMap<(Kind, ObjectKey), UnreadableObject>);

impl UnreadableObjects {
    /// Records why an object cannot be decoded. Returns whether that is new.
    pub(crate) fn record(&mut self, kind: Kind, key: &ObjectKey, object: &UnreadableObject) -> bool {
        self.0.insert((kind, key.clone()), object.clone()).as_ref() != Some(object)
    }

    /// Records that an object can be decoded, or is gone. Returns whether that is new.
    pub(crate) fn clear(&mut self, kind: Kind, key: &ObjectKey) -> bool {
        !self.0.is_empty() && self.0.remove(&(kind, key.clone())).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns why an object cannot be decoded; `None` if it can.
    pub(crate) fn problem(&self, kind: Kind, key: &ObjectKey) -> Option<&str> {
        if self.is_empty() {
            return None;
        }
        self.0.get(&(kind, key.clone())).map(|object| object.problem.as_str())
    }

    /// Returns all of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Kind, &ObjectKey, &UnreadableObject)> {
        self.0.iter().map(|((kind, key), object)| (*kind, key, object))
    }
}

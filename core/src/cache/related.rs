//! Objects that jobs of another kind read, as they are stored.
//!
//! Invariant: an object that is not here is missing only if the list of its kind is complete.

use crate::api::ObjectKey;
use crate::frameworks::{Found, Related, RelatedKey, RelatedKind};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects that jobs of another kind read.
#[derive(Clone, Debug, Default)]
pub struct RelatedObjects {
    objects: BTreeMap<RelatedKey, Arc<Value>>,
    /// Kinds whose list is complete.
    listed: BTreeSet<RelatedKind>,
}

impl RelatedObjects {
    pub(super) fn start_list(&mut self, kind: RelatedKind) {
        self.listed.remove(&kind);
    }

    pub(super) fn finish_list(&mut self, kind: RelatedKind) {
        self.listed.insert(kind);
    }

    pub(crate) fn insert(&mut self, object: RelatedKey, raw: Value) {
        self.objects.insert(object, Arc::new(raw));
    }

    pub(crate) fn remove(&mut self, object: &RelatedKey) {
        self.objects.remove(object);
    }

    /// Returns the objects that webhooks read.
    pub(crate) fn in_reviews(&self) -> Self {
        let read = self.objects.iter().filter(|(object, _)| object.kind.in_reviews);
        let objects = read.map(|(key, object)| (key.clone(), Arc::clone(object))).collect();
        Self { objects, listed: self.listed.clone() }
    }

    pub(super) fn keys(&self, kind: RelatedKind) -> Vec<ObjectKey> {
        let of_kind = self.objects.keys().filter(|object| object.kind == kind);
        of_kind.map(|object| object.key.clone()).collect()
    }
}

impl Related for RelatedObjects {
    fn find(&self, object: &RelatedKey) -> Found<'_> {
        match self.objects.get(object) {
            Some(raw) => Found::Object(raw),
            None if self.listed.contains(&object.kind) => Found::Missing,
            None => Found::NotYet,
        }
    }
}

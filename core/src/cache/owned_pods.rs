//! Pods of marked templates, by the object that says their group.
//!
//! Invariant: they are kept only while pods are jobs; of each only what its owner needs to know to make it a member.

use super::{Cache, remove_from_index};
use crate::api::ObjectKey;
use crate::api::decoding::DecodeError;
use crate::frameworks::{JobKind, OwnedPod, UnitKey};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Pods by key, and by the object or replica that says their group.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnedPods {
    by_key: BTreeMap<ObjectKey, OwnedPod>,
    by_unit: BTreeMap<UnitKey, BTreeSet<ObjectKey>>,
}

impl OwnedPods {
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if let Some(pod) = self.by_key.remove(key) {
            remove_from_index(&mut self.by_unit, &pod.unit, key);
        }
    }

    /// Stores a pod if it is one of a marked template.
    pub(super) fn insert(&mut self, key: &ObjectKey, raw: &Value) -> Result<(), DecodeError> {
        if let Some(pod) = OwnedPod::read(raw)? {
            self.by_unit.entry(pod.unit.clone()).or_default().insert(key.clone());
            self.by_key.insert(key.clone(), pod);
        }
        Ok(())
    }
}

impl Cache {
    /// Returns the object that says the group of a pod, or the replica.
    pub(crate) fn owner_of_pod(&self, key: &ObjectKey) -> Option<&UnitKey> {
        self.pods.owned.by_key.get(key).map(|pod| &pod.unit)
    }

    /// Returns the replicas of an object that have pods, in order.
    pub(crate) fn replicas_with_pods(
        &self,
        kind: JobKind,
        key: &ObjectKey,
    ) -> impl Iterator<Item = &UnitKey> {
        let first = UnitKey::of_replica(kind, key.clone(), 0);
        let units = self.pods.owned.by_unit.range(first..).map(|(unit, _)| unit);
        units.take_while(move |unit| unit.kind == kind && unit.key == *key)
    }

    /// Returns the pods of an object or a replica, in order.
    pub(crate) fn owned_pods(&self, owner: &UnitKey) -> impl Iterator<Item = &OwnedPod> {
        let keys = self.pods.owned.by_unit.get(owner).into_iter().flatten();
        keys.filter_map(|key| self.pods.owned.by_key.get(key))
    }
}

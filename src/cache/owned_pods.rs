//! Pods of marked templates, by the object that says their group.
//!
//! Invariant: they are kept only while pods are jobs; of each only what its owner needs to know to make it a member.

use super::{Cache, remove_from_index};
use crate::api::ObjectKey;
use crate::cache::JobId;
use crate::frameworks::OwnedPod;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Pods by key and by owner.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnedPods {
    by_key: BTreeMap<ObjectKey, OwnedPod>,
    by_owner: BTreeMap<JobId, BTreeSet<ObjectKey>>,
}

impl OwnedPods {
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if let Some(pod) = self.by_key.remove(key) {
            remove_from_index(&mut self.by_owner, &pod.owner, key);
        }
    }

    /// Stores a pod if it is one of a marked template.
    pub(super) fn insert(&mut self, key: &ObjectKey, raw: &Value) -> Result<(), String> {
        if let Some(pod) = OwnedPod::read(raw).map_err(|error| error.to_string())? {
            self.by_owner.entry(pod.owner.clone()).or_default().insert(key.clone());
            self.by_key.insert(key.clone(), pod);
        }
        Ok(())
    }
}

impl Cache {
    /// Returns the object that says the group of a pod.
    pub(crate) fn owner_of_pod(&self, key: &ObjectKey) -> Option<&JobId> {
        self.pods.owned.by_key.get(key).map(|pod| &pod.owner)
    }

    /// Returns the pods of an object, in order.
    pub(crate) fn owned_pods(&self, owner: &JobId) -> impl Iterator<Item = &OwnedPod> {
        let keys = self.pods.owned.by_owner.get(owner).into_iter().flatten();
        keys.filter_map(|key| self.pods.owned.by_key.get(key))
    }
}

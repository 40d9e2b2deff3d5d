//! [`ObjectLookup`] for the snapshot of the core.

use super::{ObjectLookup, OwnerRef, OwnerView};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::frameworks::{ChildGroup, Related, SizedChild};
use crate::snapshot::Snapshot;
use std::collections::BTreeMap;

impl ObjectLookup for Snapshot {
    fn namespace_labels(&self, namespace: &str) -> Option<&BTreeMap<String, String>> {
        self.references.namespaces.get(namespace).map(AsRef::as_ref)
    }

    fn local_queue_exists(&self, namespace: &str, name: &str) -> bool {
        self.references.local_queues.contains_key(&ObjectKey::new(namespace, name))
    }

    fn default_priority_class_exists(&self) -> bool {
        self.references.default_priority_class
    }

    fn queue_is_multikueue(&self, namespace: &str, local_queue: &str) -> bool {
        let reference = self.references.local_queues.get(&ObjectKey::new(namespace, local_queue));
        reference.is_some_and(|reference| reference.is_remote)
    }

    fn related(&self) -> &dyn Related {
        &self.references.related
    }

    fn knows_pods(&self) -> bool {
        self.synced
    }

    fn is_unread(&self, owner: &OwnerRef) -> bool {
        let kind = Kind::from_group_kind(owner.group(), &owner.kind);
        kind.is_some_and(|kind| self.unread_kinds.contains(&kind))
    }

    fn children(&self, controller: &OwnerRef) -> Vec<SizedChild> {
        Self::children(self, &controller.uid)
    }

    fn groups_beside(
        &self,
        above: &OwnerRef,
        (group, kind): (&str, &str),
        key: ObjectKey,
    ) -> Vec<ChildGroup> {
        let kind = Kind::from_group_kind(group, kind);
        kind.map(|kind| Self::groups_beside(self, &above.uid, &(kind, key))).unwrap_or_default()
    }

    fn owner(&self, namespace: &str, owner: &OwnerRef) -> Option<OwnerView> {
        let entry = Snapshot::owner(self, namespace, owner)?;
        Some(OwnerView {
            uid: entry.uid.to_string(),
            queue_name: entry.queue_name.as_deref().map(str::to_owned),
            place: entry.place,
            controller: entry.controller.clone(),
            deleting: entry.deleting,
            pod_sets: entry.pod_sets.clone(),
            pod_requests: entry.pod_requests.clone(),
            pod_identity: entry.pod_identity.clone(),
            submitter: entry.submitter.clone(),
        })
    }
}

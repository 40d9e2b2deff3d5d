//! An owner reference, without the fields that no decision reads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::sync::Arc;

/// The owner of an object: its controller, as a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    /// Group and version.
    pub api_version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Name, in the namespace of the object.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
}

impl OwnerRecord {
    /// Returns the API group of the owner; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the owner marked as controller, or the first owner if none is marked.
    pub fn from_object_meta(meta: &ObjectMeta) -> Option<Self> {
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        let owner = owners.iter().find(|o| o.controller == Some(true)).or_else(|| owners.first())?;
        Some(Self::from_reference(owner))
    }

    /// Returns the owner that a reference names.
    pub fn from_reference(owner: &OwnerReference) -> Self {
        Self {
            api_version: Arc::from(owner.api_version.as_str()),
            kind: Arc::from(owner.kind.as_str()),
            name: Arc::from(owner.name.as_str()),
            uid: Arc::from(owner.uid.as_str()),
        }
    }

    /// Whether a reference names this owner.
    pub fn is_named_by(&self, owner: &OwnerReference) -> bool {
        (&*self.uid, &*self.name, &*self.kind, &*self.api_version)
            == (&*owner.uid, &*owner.name, &*owner.kind, &*owner.api_version)
    }
}

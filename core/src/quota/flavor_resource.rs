//! Ids of flavor-resources: quotas are looked up by number instead of names.

use super::FlavorResource;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Id of a flavor-resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorResourceId(u32);

/// Id of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ResourceId(u32);

/// Amounts by flavor-resource, sorted by id.
pub type Usage = Vec<(FlavorResourceId, i128)>;

/// All flavor-resources ever named. They are few, and none is dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct FlavorResourceInterner {
    ids: BTreeMap<FlavorResource, FlavorResourceId>,
    names: Vec<(FlavorResource, ResourceId)>,
    resources: BTreeMap<Arc<str>, ResourceId>,
}

impl FlavorResourceInterner {
    pub(super) fn find(&self, fr: &FlavorResource) -> Option<FlavorResourceId> {
        self.ids.get(fr).copied()
    }

    pub(super) fn intern(&mut self, fr: &FlavorResource) -> FlavorResourceId {
        if let Some(id) = self.find(fr) {
            return id;
        }
        let next = u32::try_from(self.resources.len()).unwrap_or(u32::MAX);
        let resource = *self.resources.entry(Arc::clone(&fr.resource)).or_insert(ResourceId(next));
        let id = FlavorResourceId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push((fr.clone(), resource));
        self.ids.insert(fr.clone(), id);
        id
    }

    pub(super) fn name(&self, id: FlavorResourceId) -> Option<&FlavorResource> {
        self.entry(id).map(|(name, _)| name)
    }

    pub(super) fn resource(&self, id: FlavorResourceId) -> Option<ResourceId> {
        self.entry(id).map(|(_, resource)| *resource)
    }

    fn entry(&self, id: FlavorResourceId) -> Option<&(FlavorResource, ResourceId)> {
        self.names.get(usize::try_from(id.0).ok()?)
    }
}

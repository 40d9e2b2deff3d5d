//! Short names of flavors and resources: figures are looked up by number.

use super::FlavorResource;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a flavor and resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorResourceId(u32);

/// Number of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ResourceId(u32);

/// Amounts by flavor and resource, in the order of the numbers.
pub type Usage = Vec<(FlavorResourceId, i128)>;

/// All flavors and resources that were ever named. They are few, and none is forgotten.
#[derive(Clone, Debug, Default)]
pub(super) struct FlavorResourceInterner {
    ids: BTreeMap<FlavorResource, FlavorResourceId>,
    names: Vec<(FlavorResource, ResourceId)>,
    resources: BTreeMap<Arc<str>, ResourceId>,
}

impl FlavorResourceInterner {
    pub(super) fn find(&self, pair: &FlavorResource) -> Option<FlavorResourceId> {
        self.ids.get(pair).copied()
    }

    pub(super) fn intern(&mut self, pair: &FlavorResource) -> FlavorResourceId {
        if let Some(id) = self.find(pair) {
            return id;
        }
        let next = u32::try_from(self.resources.len()).unwrap_or(u32::MAX);
        let resource = *self.resources.entry(Arc::clone(&pair.resource)).or_insert(ResourceId(next));
        let id = FlavorResourceId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push((pair.clone(), resource));
        self.ids.insert(pair.clone(), id);
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

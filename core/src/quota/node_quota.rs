//! Quotas and usage of one node, by flavor-resource.

use super::FlavorResourceId;
use crate::resources::UsageLayer;

/// Quota and usage of one node for one flavor-resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeQuota {
    /// Quota of the subtree, which it may use or lend.
    pub(super) subtree_quota: i128,
    /// The part of the subtree quota that is never lent.
    pub(super) local_quota: i128,
    /// Maximum usage above `subtree_quota`.
    pub(super) borrowing_limit: Option<i128>,
    /// Whether the node or a descendant declares a quota for it, even 0.
    pub(super) declared: bool,
    current_usage: i128,
    projected_usage: i128,
}

impl NodeQuota {
    /// Usage; at inner nodes only the part above the children's local quotas.
    pub(super) const fn usage(&self, layer: UsageLayer) -> i128 {
        match layer {
            UsageLayer::Current => self.current_usage,
            UsageLayer::Projected => self.projected_usage,
        }
    }

    /// Usage that the node requests from its parent.
    pub(super) fn usage_above_local_quota(&self, layer: UsageLayer) -> i128 {
        (self.usage(layer) - self.local_quota).max(0)
    }

    /// Unused part of the local quota.
    pub(super) fn local_quota_available(&self, layer: UsageLayer) -> i128 {
        (self.local_quota - self.usage(layer)).max(0)
    }

    /// What the parent may still provide within the borrowing limit; `None` without a limit.
    pub(super) fn borrowable(&self, layer: UsageLayer) -> Option<i128> {
        let stored = self.subtree_quota - self.local_quota;
        self.borrowing_limit.map(|limit| stored - self.usage_above_local_quota(layer) + limit)
    }

    /// Usage above the subtree quota.
    pub(super) fn borrowed(&self, layer: UsageLayer) -> i128 {
        (self.usage(layer) - self.subtree_quota).max(0)
    }

    pub(super) const fn add_usage(&mut self, layer: UsageLayer, delta: i128) {
        let side = match layer {
            UsageLayer::Current => &mut self.current_usage,
            UsageLayer::Projected => &mut self.projected_usage,
        };
        *side += delta;
    }

    /// Adds usage. Returns the change of the usage requested from the parent.
    pub(super) fn add_and_overflow(&mut self, layer: UsageLayer, delta: i128) -> i128 {
        let before = self.usage_above_local_quota(layer);
        self.add_usage(layer, delta);
        self.usage_above_local_quota(layer) - before
    }

    fn is_empty(&self) -> bool {
        !self.declared && self.current_usage == 0 && self.projected_usage == 0
    }
}

/// Sorted by id: with few entries, binary search in one allocation beats a map.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeQuotas(Vec<(FlavorResourceId, NodeQuota)>);

impl NodeQuotas {
    pub(super) fn get(&self, fr: FlavorResourceId) -> NodeQuota {
        let index = self.0.binary_search_by_key(&fr, |(id, _)| *id);
        index.ok().and_then(|index| self.0.get(index)).map(|(_, quota)| *quota).unwrap_or_default()
    }

    /// Changes an entry; drops it if it is empty afterwards.
    pub(super) fn update(&mut self, fr: FlavorResourceId, change: impl FnOnce(&mut NodeQuota)) {
        let mut anywhere = usize::MAX;
        self.update_with_hint(&mut anywhere, fr, change);
    }

    /// Like `update`, with the expected index of the entry, for updates in order; sets it to the following index.
    pub(super) fn update_with_hint(
        &mut self,
        hint: &mut usize,
        fr: FlavorResourceId,
        change: impl FnOnce(&mut NodeQuota),
    ) {
        let at_hint = self.0.get(*hint).is_some_and(|(id, _)| *id == fr);
        let position = if at_hint { Ok(*hint) } else { self.0.binary_search_by_key(&fr, |(id, _)| *id) };
        let index = position.unwrap_or_else(|index| {
            self.0.insert(index, (fr, NodeQuota::default()));
            index
        });
        *hint = index;
        if let Some((_, quota)) = self.0.get_mut(index) {
            change(quota);
            if quota.is_empty() {
                self.0.remove(index);
            } else {
                *hint += 1;
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (FlavorResourceId, &NodeQuota)> {
        self.0.iter().map(|(fr, quota)| (*fr, quota))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (FlavorResourceId, &mut NodeQuota)> {
        self.0.iter_mut().map(|(fr, quota)| (*fr, quota))
    }
}

#[cfg(test)]
mod tests {
    use super::super::FlavorResource;
    use super::super::flavor_resource::FlavorResourceInterner;
    use super::*;

    #[test]
    fn empty_node_quota_is_dropped() {
        let mut interner = FlavorResourceInterner::default();
        let ids =
            ["cpu", "gpu", "memory"].map(|resource| interner.intern(&FlavorResource::new("red", resource)));
        let mut quotas = NodeQuotas::default();
        let ids_of = |quotas: &NodeQuotas| quotas.iter().map(|(id, _)| id).collect::<Vec<_>>();
        for id in ids {
            quotas.update(id, |quota| quota.add_usage(UsageLayer::Current, 5));
        }
        let mut hint = 0;
        for id in [ids[0], ids[2]] {
            quotas.update_with_hint(&mut hint, id, |quota| quota.add_usage(UsageLayer::Current, -5));
        }
        assert_eq!(ids_of(&quotas), [ids[1]]);
        quotas.update(ids[1], |quota| quota.add_usage(UsageLayer::Projected, 5));
        quotas.update(ids[1], |quota| quota.add_usage(UsageLayer::Current, -5));
        assert_eq!(ids_of(&quotas), [ids[1]]);
        quotas.update(ids[1], |quota| quota.declared = true);
        quotas.update(ids[1], |quota| quota.add_usage(UsageLayer::Projected, -5));
        assert_eq!(ids_of(&quotas), [ids[1]]);
        quotas.update(ids[1], |quota| quota.declared = false);
        assert_eq!(ids_of(&quotas), []);
    }
}

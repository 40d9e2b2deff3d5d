//! The figures of one node, by flavor and resource.

use super::FlavorResourceId;
use crate::resources::UsageLayer;

/// Figures of one node for one flavor and resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeQuota {
    /// What the subtree owns and may use or lend.
    pub(super) subtree_quota: i128,
    /// The part of it that is never lent.
    pub(super) local_quota: i128,
    /// Most that may be used beyond `subtree`.
    pub(super) borrowing_limit: Option<i128>,
    /// Whether the node or one below has a quota for it, be it 0.
    pub(super) declared: bool,
    current_usage: i128,
    projected_usage: i128,
}

impl NodeQuota {
    /// What is in use; at inner nodes only what the children could not keep local.
    pub(super) const fn usage(&self, layer: UsageLayer) -> i128 {
        match layer {
            UsageLayer::Current => self.current_usage,
            UsageLayer::Projected => self.projected_usage,
        }
    }

    /// What the node asks of its parent.
    pub(super) fn usage_above_local_quota(&self, layer: UsageLayer) -> i128 {
        (self.usage(layer) - self.local_quota).max(0)
    }

    /// What is left of the part that is never lent.
    pub(super) fn local_quota_available(&self, layer: UsageLayer) -> i128 {
        (self.local_quota - self.usage(layer)).max(0)
    }

    /// What the parent may still give by the borrowing limit.
    pub(super) fn borrowable(&self, layer: UsageLayer) -> Option<i128> {
        let stored = self.subtree_quota - self.local_quota;
        self.borrowing_limit.map(|limit| stored - self.usage_above_local_quota(layer) + limit)
    }

    /// What is used beyond what the subtree owns.
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

    /// Takes in a change and answers with what of it the parent is asked for, or given back.
    pub(super) fn add_and_overflow(&mut self, layer: UsageLayer, delta: i128) -> i128 {
        let before = self.usage_above_local_quota(layer);
        self.add_usage(layer, delta);
        self.usage_above_local_quota(layer) - before
    }

    fn is_empty(&self) -> bool {
        !self.declared && self.current_usage == 0 && self.projected_usage == 0
    }
}

/// Cells in the order of their pairs: few, so that a search by halves in one piece of memory is fastest.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeQuotas(Vec<(FlavorResourceId, NodeQuota)>);

impl NodeQuotas {
    pub(super) fn get(&self, pair: FlavorResourceId) -> NodeQuota {
        let at = self.0.binary_search_by_key(&pair, |(id, _)| *id);
        at.ok().and_then(|at| self.0.get(at)).map(|(_, cell)| *cell).unwrap_or_default()
    }

    /// Changes a cell; one that says nothing afterwards is dropped.
    pub(super) fn update(&mut self, pair: FlavorResourceId, change: impl FnOnce(&mut NodeQuota)) {
        let mut anywhere = usize::MAX;
        self.update_with_hint(&mut anywhere, pair, change);
    }

    /// The same for a cell that is probably at a place, as when many are changed in order; the place moves on behind it.
    pub(super) fn update_with_hint(
        &mut self,
        place: &mut usize,
        pair: FlavorResourceId,
        change: impl FnOnce(&mut NodeQuota),
    ) {
        let there = self.0.get(*place).is_some_and(|(id, _)| *id == pair);
        let found = if there { Ok(*place) } else { self.0.binary_search_by_key(&pair, |(id, _)| *id) };
        let at = found.unwrap_or_else(|at| {
            self.0.insert(at, (pair, NodeQuota::default()));
            at
        });
        *place = at;
        if let Some((_, cell)) = self.0.get_mut(at) {
            change(cell);
            if cell.is_empty() {
                self.0.remove(at);
            } else {
                *place += 1;
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (FlavorResourceId, &NodeQuota)> {
        self.0.iter().map(|(pair, cell)| (*pair, cell))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (FlavorResourceId, &mut NodeQuota)> {
        self.0.iter_mut().map(|(pair, cell)| (*pair, cell))
    }
}

#[cfg(test)]
mod tests {
    use super::super::FlavorResource;
    use super::super::flavor_resource::FlavorResourceInterner;
    use super::*;

    #[test]
    fn empty_node_quota_is_dropped() {
        let mut pairs = FlavorResourceInterner::default();
        let ids =
            ["cpu", "gpu", "memory"].map(|resource| pairs.intern(&FlavorResource::new("red", resource)));
        let mut cells = NodeQuotas::default();
        let left = |cells: &NodeQuotas| cells.iter().map(|(id, _)| id).collect::<Vec<_>>();
        for id in ids {
            cells.update(id, |cell| cell.add_usage(UsageLayer::Current, 5));
        }
        let mut place = 0;
        for id in [ids[0], ids[2]] {
            cells.update_with_hint(&mut place, id, |cell| cell.add_usage(UsageLayer::Current, -5));
        }
        assert_eq!(left(&cells), [ids[1]]);
        cells.update(ids[1], |cell| cell.add_usage(UsageLayer::Projected, 5));
        cells.update(ids[1], |cell| cell.add_usage(UsageLayer::Current, -5));
        assert_eq!(left(&cells), [ids[1]]);
        cells.update(ids[1], |cell| cell.declared = true);
        cells.update(ids[1], |cell| cell.add_usage(UsageLayer::Projected, -5));
        assert_eq!(left(&cells), [ids[1]]);
        cells.update(ids[1], |cell| cell.declared = false);
        assert_eq!(left(&cells), []);
    }
}

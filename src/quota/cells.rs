//! The figures of one node, by flavor and resource.

use super::PairId;
use crate::resources::Layer;

/// Figures of one node for one flavor and resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    /// What the subtree owns and may use or lend.
    pub(super) subtree: i128,
    /// The part of it that is never lent.
    pub(super) local: i128,
    /// Most that may be used beyond `subtree`.
    pub(super) borrowing: Option<i128>,
    /// Whether the node or one below has a quota for it, be it 0.
    pub(super) declared: bool,
    held: i128,
    planned: i128,
}

impl Cell {
    /// What is in use; at inner nodes only what the children could not keep local.
    pub(super) const fn usage(&self, layer: Layer) -> i128 {
        match layer {
            Layer::Held => self.held,
            Layer::Planned => self.planned,
        }
    }

    /// What the node asks of its parent.
    pub(super) fn above_local(&self, layer: Layer) -> i128 {
        (self.usage(layer) - self.local).max(0)
    }

    /// What is left of the part that is never lent.
    pub(super) fn local_available(&self, layer: Layer) -> i128 {
        (self.local - self.usage(layer)).max(0)
    }

    /// What the parent may still give by the borrowing limit.
    pub(super) fn borrowable(&self, layer: Layer) -> Option<i128> {
        let stored = self.subtree - self.local;
        self.borrowing.map(|limit| stored - self.above_local(layer) + limit)
    }

    /// What is used beyond what the subtree owns.
    pub(super) fn borrowed(&self, layer: Layer) -> i128 {
        (self.usage(layer) - self.subtree).max(0)
    }

    pub(super) const fn add(&mut self, layer: Layer, delta: i128) {
        let side = match layer {
            Layer::Held => &mut self.held,
            Layer::Planned => &mut self.planned,
        };
        *side += delta;
    }

    /// Takes in a change and answers with what of it the parent is asked for, or given back.
    pub(super) fn pass(&mut self, layer: Layer, delta: i128) -> i128 {
        let before = self.above_local(layer);
        self.add(layer, delta);
        self.above_local(layer) - before
    }

    fn is_empty(&self) -> bool {
        !self.declared && self.held == 0 && self.planned == 0
    }
}

/// Cells in the order of their pairs: few, so that a search by halves in one piece of memory is fastest.
#[derive(Clone, Debug, Default)]
pub(super) struct Cells(Vec<(PairId, Cell)>);

impl Cells {
    pub(super) fn get(&self, pair: PairId) -> Cell {
        let at = self.0.binary_search_by_key(&pair, |(id, _)| *id);
        at.ok().and_then(|at| self.0.get(at)).map(|(_, cell)| *cell).unwrap_or_default()
    }

    /// Changes a cell; one that says nothing afterwards is dropped.
    pub(super) fn change(&mut self, pair: PairId, change: impl FnOnce(&mut Cell)) {
        let mut anywhere = usize::MAX;
        self.change_near(&mut anywhere, pair, change);
    }

    /// The same for a cell that is probably at a place, as when many are changed in order; the place moves on behind it.
    pub(super) fn change_near(&mut self, place: &mut usize, pair: PairId, change: impl FnOnce(&mut Cell)) {
        let there = self.0.get(*place).is_some_and(|(id, _)| *id == pair);
        let found = if there { Ok(*place) } else { self.0.binary_search_by_key(&pair, |(id, _)| *id) };
        let at = found.unwrap_or_else(|at| {
            self.0.insert(at, (pair, Cell::default()));
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

    pub(super) fn iter(&self) -> impl Iterator<Item = (PairId, &Cell)> {
        self.0.iter().map(|(pair, cell)| (*pair, cell))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (PairId, &mut Cell)> {
        self.0.iter_mut().map(|(pair, cell)| (*pair, cell))
    }
}

#[cfg(test)]
mod tests {
    use super::super::FlavorResource;
    use super::super::pairs::Pairs;
    use super::*;

    #[test]
    fn a_cell_that_says_nothing_is_dropped() {
        let mut pairs = Pairs::default();
        let ids =
            ["cpu", "gpu", "memory"].map(|resource| pairs.intern(&FlavorResource::new("red", resource)));
        let mut cells = Cells::default();
        let left = |cells: &Cells| cells.iter().map(|(id, _)| id).collect::<Vec<_>>();
        for id in ids {
            cells.change(id, |cell| cell.add(Layer::Held, 5));
        }
        let mut place = 0;
        for id in [ids[0], ids[2]] {
            cells.change_near(&mut place, id, |cell| cell.add(Layer::Held, -5));
        }
        assert_eq!(left(&cells), [ids[1]]);
        cells.change(ids[1], |cell| cell.add(Layer::Planned, 5));
        cells.change(ids[1], |cell| cell.add(Layer::Held, -5));
        assert_eq!(left(&cells), [ids[1]]);
        cells.change(ids[1], |cell| cell.declared = true);
        cells.change(ids[1], |cell| cell.add(Layer::Planned, -5));
        assert_eq!(left(&cells), [ids[1]]);
        cells.change(ids[1], |cell| cell.declared = false);
        assert_eq!(left(&cells), []);
    }
}

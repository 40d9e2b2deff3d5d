//! Placing the pods of a failed node anew, beside those that stay where they are.

use super::cluster::Cluster;
use super::place::{Found, Part, Party};
use super::pods::{Path, Placement};
use super::spots::{SpotId, SpotKey, View};
use super::terms::{Mode, Terms};
use super::tree::Shape;
use super::{Refusal, Rules};
use std::ops::Range;
use std::sync::Arc;

/// What remains of a placement.
struct Remains {
    shape: Arc<Shape>,
    terms: Terms,
    /// Leaves that stay in use with their pods.
    kept: Vec<(usize, i64)>,
    missing: i64,
}

impl Cluster {
    /// Places the pods that stood on the first failed node; everything else stays.
    pub(super) fn replace(
        &mut self,
        part: &Part,
        leader: Option<&Part>,
        view: View,
        rules: Rules,
    ) -> Result<Found, Refusal> {
        let (Some((before, failed)), None) = (&part.keeps, leader) else {
            return Err(Refusal::Group(2));
        };
        let Some(node) = failed.first() else {
            return Ok(Found { workers: before.clone(), leader: None });
        };
        let gone = |values: &Path| values.last().is_some_and(|value| **value == **node);
        let (lost, kept): (Vec<_>, Vec<_>) =
            before.domains.iter().cloned().partition(|(values, _)| gone(values));
        let missing = lost.iter().fold(0_i32, |sum, (_, pods)| sum.saturating_add(*pods));
        if missing == 0 {
            return Err(Refusal::NoReplacement(node.clone()));
        }
        let remains = self.remains(part, &kept, i64::from(missing), rules)?;
        let (within, terms) = remains.narrow();
        // One that is listed is no place for anybody until it is taken off the list, even if it takes pods again.
        let (count, barred) = (remains.missing, failed);
        let party = Party { workers: part, leader: None, count, within, barred, terms: Some(terms) };
        let mut found = self
            .place(&party, view, Rules { balanced: false, ..rules })
            .map_err(|_| Refusal::NoReplacement(node.clone()))?;
        if found.workers.pods() < missing {
            return Err(Refusal::NoReplacement(node.clone()));
        }
        found.workers = merge(kept, found.workers);
        Ok(found)
    }

    fn remains(
        &mut self,
        part: &Part,
        kept: &[(Path, i32)],
        missing: i64,
        rules: Rules,
    ) -> Result<Remains, Refusal> {
        let tree = self.trees.get_mut(&part.flavor).ok_or(Refusal::NoTopology)?;
        let terms = Terms::of(&part.pods, tree, rules)?;
        let shape = tree.shape();
        let mut leaves = Vec::new();
        for (values, pods) in kept {
            let host = values.last().map(|host| SpotKey::Host(Arc::clone(host)));
            let spot: Option<SpotId> = host.and_then(|key| self.spots.find(&key));
            let leaf = spot.and_then(|spot| shape.leaf_of(spot));
            let name = || values.last().map(ToString::to_string).unwrap_or_default();
            leaves.push((leaf.ok_or_else(|| Refusal::Stale(name()))?, i64::from(*pods)));
        }
        Ok(Remains { shape, terms, kept: leaves, missing })
    }
}

impl Remains {
    /// Where the missing pods have to go, and how they are sliced there.
    fn narrow(&self) -> (Option<Range<usize>>, Terms) {
        let terms = self.terms.clone();
        if !terms.layers.is_empty() && self.missing % terms.slice_size != 0 {
            let broken = terms.layers.iter().rev().find(|(_, size)| self.missing % size != 0);
            let home = broken.and_then(|(level, size)| self.incomplete(*level, *size));
            let whole = terms.layers.iter().rev().find(|(_, size)| self.missing % size == 0).copied();
            let lowest = self.shape.levels.len().saturating_sub(1);
            let (level, size) = whole.unwrap_or((lowest, 1));
            return (home, terms.with_slices(level, size));
        }
        let first = self.kept.first().filter(|_| terms.mode == Mode::Required);
        let home = first.and_then(|(leaf, _)| self.leaves_around(terms.level, *leaf));
        (home, terms)
    }

    fn leaves_around(&self, level: usize, leaf: usize) -> Option<Range<usize>> {
        Some(self.shape.domain(level, self.shape.above(level, leaf)?)?.leaves.clone())
    }

    /// The domain whose pods make whole slices again with those that are missing.
    fn incomplete(&self, level: usize, size: i64) -> Option<Range<usize>> {
        self.kept.iter().find_map(|(leaf, _)| {
            let around = self.leaves_around(level, *leaf)?;
            let here = self.kept.iter().filter(|(leaf, _)| around.contains(leaf));
            let pods: i64 = here.map(|(_, pods)| pods).sum();
            ((pods + self.missing) % size == 0).then_some(around)
        })
    }
}

/// Adds new domains to those that stay, in the order of values. New ones are named by host alone; so are all then.
fn merge(kept: Vec<(Path, i32)>, fresh: Placement) -> Placement {
    let host = |values: Path| values.last().cloned().into_iter().collect::<Path>();
    let mut domains: Vec<(Path, i32)> = kept.into_iter().map(|(values, pods)| (host(values), pods)).collect();
    for (values, pods) in fresh.domains {
        let values = host(values);
        match domains.iter().position(|(known, _)| *known == values) {
            Some(at) => {
                if let Some((_, sum)) = domains.get_mut(at) {
                    *sum = sum.saturating_add(pods);
                }
            }
            None => domains.push((values, pods)),
        }
    }
    domains.sort();
    let levels = Path::from([Arc::from(super::pods::HOSTNAME)]);
    Placement { levels, domains }
}

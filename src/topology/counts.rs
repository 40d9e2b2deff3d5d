//! How many pods each domain could take: counted at the narrowest domains, added up towards the widest.

use super::cluster::Cluster;
use super::filter::{Obstacle, obstacle, preference};
use super::pods::Pods;
use super::spots::{Spot, View};
use super::tally::Tally;
use super::terms::Terms;
use super::tree::{Shape, Tree};
use super::vector::{Parts, times_up_to};
use k8s_openapi::api::core::v1::Toleration;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// What one domain could take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) pods: i64,
    /// Beside a leader.
    pub(super) pods_with_leader: i64,
    pub(super) slices: i64,
    pub(super) slices_with_leader: i64,
    /// Whether it could take the leader.
    pub(super) leader: bool,
    /// How much the pods prefer its nodes.
    pub(super) score: i64,
}

/// Counts by level and domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) levels: Vec<Vec<Count>>,
}

impl Counts {
    pub(super) fn get(&self, level: usize, domain: usize) -> Count {
        self.level(level).get(domain).copied().unwrap_or_default()
    }

    /// All domains of a level.
    pub(super) fn level(&self, level: usize) -> &[Count] {
        self.levels.get(level).map(Vec::as_slice).unwrap_or_default()
    }

    /// Answers with the count before, if it was another.
    fn set(&mut self, level: usize, domain: usize, count: Count) -> Option<Count> {
        let place = self.levels.get_mut(level)?.get_mut(domain)?;
        let before = std::mem::replace(place, count);
        (before != count).then_some(before)
    }

    /// Nothing is counted in any domain.
    fn clear(&mut self, shape: &Shape) {
        self.levels.resize_with(shape.levels.len(), Vec::new);
        for (level, all) in self.levels.iter_mut().enumerate() {
            all.clear();
            all.resize(shape.width(level), Count::default());
        }
    }

    /// Leaves out domains of a level, and from what their parents could take.
    pub(super) fn leave_out(
        &mut self,
        shape: &Shape,
        level: usize,
        domains: impl Iterator<Item = usize>,
        terms: &Terms,
        has_leader: bool,
    ) {
        let changed =
            domains.filter_map(|domain| Some((domain, self.set(level, domain, Count::default())?))).collect();
        self.add_up(shape, level, changed, terms, has_leader);
    }

    /// Counts what is above domains of a level that have changed, which are in order and come with their counts before.
    fn add_up(
        &mut self,
        shape: &Shape,
        level: usize,
        mut changed: Vec<(usize, Count)>,
        terms: &Terms,
        has_leader: bool,
    ) {
        for level in (0..level).rev() {
            let unit = terms.units.get(level + 1).copied().unwrap_or(1);
            let mut above: Vec<(usize, Count)> = Vec::new();
            let mut rest = changed.as_slice();
            while let Some((first, _)) = rest.first() {
                let Some((at, domain)) = shape.parent(level, *first) else { break };
                let (here, others) =
                    rest.split_at(rest.partition_point(|(child, _)| *child < domain.children.end));
                rest = others;
                let children = self.level(level + 1);
                let moved = || {
                    let news = here.iter().map(|(child, before)| (before, children.get(*child)));
                    moved(self.get(level, at), news, unit)
                };
                let mut count = if has_leader { None } else { moved() }.unwrap_or_else(|| {
                    sum(children.get(domain.children.clone()).unwrap_or_default(), unit, has_leader)
                });
                finish(&mut count, level, terms);
                above.extend(self.set(level, at, count).map(|before| (at, before)));
            }
            changed = above;
        }
    }
}

/// A sum in which some children have changed; none where it cannot be told without the others. Leaders go where they cost
/// least, which all children have a say in.
fn moved<'a>(
    mut sum: Count,
    news: impl Iterator<Item = (&'a Count, Option<&'a Count>)>,
    unit: i64,
) -> Option<Count> {
    // Sums end at the largest number, and say no more how far beyond they are.
    let shift = |sum: i64, before: i64, after: i64| {
        sum.checked_sub(before)?.checked_add(after).filter(|_| sum < i64::MAX)
    };
    for (before, after) in news {
        let after = after?;
        sum.pods = shift(sum.pods, whole(before.pods, unit), whole(after.pods, unit))?;
        sum.slices = shift(sum.slices, before.slices, after.slices)?;
        sum.score = shift(sum.score, before.score, after.score)?;
    }
    (sum.pods_with_leader, sum.slices_with_leader) = (sum.pods, sum.slices);
    Some(sum)
}

/// Pods in whole units.
const fn whole(pods: i64, unit: i64) -> i64 {
    if unit > 1 { pods / unit * unit } else { pods }
}

/// A resource by number, what one pod needs of it, and what the leader.
pub(super) type Need = (usize, i128, i128);

/// What is asked of each domain.
pub(super) struct Ask<'a> {
    pub(super) pods: &'a Pods,
    /// Tolerations that the pods are given.
    pub(super) beside: &'a [Toleration],
    pub(super) needs: Arc<[Need]>,
    pub(super) has_leader: bool,
    pub(super) view: View,
    /// Whether preferences of the pods count.
    pub(super) scores: bool,
    /// Narrowest domains that may be used.
    pub(super) within: Option<Range<usize>>,
    /// Hosts that may not, whatever they say of themselves.
    pub(super) barred: &'a [String],
}

/// What pods and leader take by resource, side by side.
pub(super) fn needs(pod: &Parts, leader: Option<&Parts>) -> Arc<[Need]> {
    let mut needs: Vec<Need> = pod.iter().map(|(number, amount)| (*number, *amount, 0)).collect();
    for (number, amount) in leader.into_iter().flatten() {
        match needs.iter_mut().find(|(known, _, _)| known == number) {
            Some((_, _, leader)) => *leader = *amount,
            None => needs.push((*number, 0, *amount)),
        }
    }
    needs.into()
}

impl<'a> Ask<'a> {
    /// What the subject of a tally asks.
    pub(super) fn of(tally: &'a Tally, tree: &'a Tree) -> Self {
        let Tally { subject, needs, .. } = tally;
        Self {
            pods: &subject.pods,
            beside: &tree.flavor.tolerations,
            needs: Arc::clone(needs),
            has_leader: subject.leader.is_some(),
            view: subject.view,
            scores: subject.scores,
            within: None,
            barred: &[],
        }
    }

    /// What keeps the pods from a narrowest domain that is a host.
    pub(super) fn obstacle(&self, spot: &Spot) -> Option<Obstacle> {
        let pods = self.pods;
        if !spot.tainted && pods.node_selector.is_empty() && pods.required_affinity.is_empty() {
            return None;
        }
        let mut nodes = spot.nodes.iter();
        nodes.find_map(|(name, node)| obstacle(pods, self.beside, name, &node.labels, &node.taints))
    }

    /// Whether a narrowest domain is a host that may not be used.
    fn bars(&self, host: Option<&Arc<str>>) -> bool {
        host.is_some_and(|host| self.barred.iter().any(|barred| **barred == **host))
    }

    /// What a narrowest domain could take.
    fn count(&self, spot: &Spot) -> Count {
        let (mut pods, mut beside, mut leader) = (i64::MAX, i64::MAX, self.has_leader);
        for (number, need, of_leader) in &*self.needs {
            let free = spot.free(*number, self.view);
            pods = times_up_to(pods, free, *need);
            if self.has_leader {
                leader &= *of_leader <= free.max(0);
                beside = times_up_to(beside, free - of_leader, *need);
            } else if pods == 0 {
                break;
            }
        }
        let beside = if self.has_leader { if leader { beside } else { 0 } } else { pods };
        Count { pods, pods_with_leader: beside, leader, ..Count::default() }
    }

    fn score(&self, spot: &Spot) -> i64 {
        if !self.scores || self.pods.preferred_affinity.is_empty() {
            return 0;
        }
        let scores = spot.nodes.iter().map(|(name, node)| preference(self.pods, name, &node.labels));
        scores.fold(0, i64::saturating_add)
    }
}

impl Cluster {
    /// Counts what every domain could take, as far as that may have changed since the last time.
    pub(super) fn count(&self, tally: &mut Tally, tree: &Tree, shape: &Shape, ask: &Ask) {
        let Tally { subject, counts, closed, seen, chosen, .. } = tally;
        let lowest = shape.levels.len().saturating_sub(1);
        if *seen == 0 {
            counts.clear(shape);
            closed.clear();
            closed.resize(shape.spots.len(), false);
        }
        let by_host = tree.is_by_host();
        let mut changed = Vec::new();
        for leaf in self.leaves_to_count(*seen, shape, ask.within.clone()) {
            let Some(id) = shape.spots.get(leaf) else { continue };
            let news = self.spots.changed(*id);
            if news.any <= *seen {
                continue;
            }
            let (Some(spot), Some(closed)) = (self.spots.get(*id), closed.get_mut(leaf)) else { continue };
            if news.nodes > *seen {
                let host = || shape.paths.get(leaf).and_then(|path| path.last());
                *closed = by_host && (ask.obstacle(spot).is_some() || ask.bars(host()));
            }
            let mut count = Count::default();
            if !*closed {
                count = ask.count(spot);
                count.score = ask.score(spot);
                finish(&mut count, lowest, &subject.terms);
            }
            changed.extend(counts.set(lowest, leaf, count).map(|before| (leaf, before)));
        }
        *seen = self.spots.changes();
        if !changed.is_empty() {
            *chosen = None;
        }
        counts.add_up(shape, lowest, changed, &subject.terms, ask.has_leader);
    }

    /// Narrowest domains in order, those among them that have changed since.
    fn leaves_to_count(&self, seen: u64, shape: &Shape, within: Option<Range<usize>>) -> Vec<usize> {
        let latest = self.spots.changed_since(seen).filter(|_| seen > 0 && within.is_none());
        let Some(latest) = latest else {
            return within.unwrap_or(0..shape.spots.len()).collect();
        };
        let mut leaves: Vec<usize> = latest.filter_map(|spot| shape.leaf_of(spot)).collect();
        leaves.sort_unstable();
        leaves.dedup();
        leaves
    }

    /// Whether what was counted so far is what a count from nothing comes to.
    pub(super) fn tallies_are_right(&self) -> bool {
        self.tallies.iter().all(|tally| {
            let Some(shape) = tally.shape.upgrade() else { return true };
            let current = |tree: &&Tree| tree.has_shape(&shape);
            let Some(tree) = self.trees.values().find(current) else { return true };
            let ask = Ask::of(tally, tree);
            let (mut known, mut fresh) = (tally.clone(), Tally { seen: 0, chosen: None, ..tally.clone() });
            self.count(&mut known, tree, &shape, &ask);
            self.count(&mut fresh, tree, &shape, &ask);
            let chosen = known.chosen.as_ref();
            chosen.is_none_or(|known| fresh.choose(&shape, known.pods, known.rules) == known.outcome)
                && known.counts == fresh.counts
        })
    }
}

/// Slices are counted where they have to be in one domain, and below that as units of inner slices.
fn finish(count: &mut Count, level: usize, terms: &Terms) {
    let size = match level.cmp(&terms.slice_level) {
        Ordering::Less => return,
        Ordering::Equal => terms.slice_size,
        Ordering::Greater => terms.units.get(level).copied().unwrap_or(1).max(1),
    };
    count.slices = count.pods / size;
    count.slices_with_leader = count.pods_with_leader / size;
}

/// What children could take together; the leader goes where it costs least.
fn sum(children: &[Count], unit: i64, has_leader: bool) -> Count {
    let mut sum = Count::default();
    let (mut pods_lost, mut slices_lost) = (i64::MAX, i64::MAX);
    for child in children {
        let (pods, beside) = (whole(child.pods, unit), whole(child.pods_with_leader, unit));
        sum.pods = sum.pods.saturating_add(pods);
        sum.slices = sum.slices.saturating_add(child.slices);
        sum.score = sum.score.saturating_add(child.score);
        if child.leader {
            sum.leader = true;
            pods_lost = pods_lost.min(pods - beside);
            slices_lost = slices_lost.min(child.slices - child.slices_with_leader);
        }
    }
    if !has_leader {
        (sum.pods_with_leader, sum.slices_with_leader) = (sum.pods, sum.slices);
    } else if sum.leader {
        sum.pods_with_leader = sum.pods - pods_lost;
        sum.slices_with_leader = sum.slices - slices_lost;
    }
    sum
}

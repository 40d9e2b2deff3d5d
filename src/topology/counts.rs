//! How many pods each domain could take: counted at the narrowest domains, added up towards the widest.

use super::cluster::Cluster;
use super::filter::{Obstacle, obstacle, preference};
use super::pods::Pods;
use super::spots::{Spot, View};
use super::terms::Terms;
use super::tree::{Shape, Tree};
use super::vector::{Parts, times};
use k8s_openapi::api::core::v1::Toleration;
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

/// Counts by level and domain; kept between placements to spare the allocation.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) levels: Vec<Vec<Count>>,
}

impl Counts {
    pub(super) fn get(&self, level: usize, domain: usize) -> Count {
        self.levels.get(level).and_then(|counts| counts.get(domain)).copied().unwrap_or_default()
    }

    fn set(&mut self, level: usize, domain: usize, count: Count) {
        if let Some(place) = self.levels.get_mut(level).and_then(|counts| counts.get_mut(domain)) {
            *place = count;
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
        for domain in domains {
            self.set(level, domain, Count::default());
        }
        for above in (0..level).rev() {
            self.add_up(shape, above, terms, has_leader);
        }
    }

    /// Counts a level from the one below.
    fn add_up(&mut self, shape: &Shape, level: usize, terms: &Terms, has_leader: bool) {
        let unit = terms.units.get(level + 1).copied().unwrap_or(1);
        for at in 0..shape.width(level) {
            let Some(domain) = shape.domain(level, at) else { continue };
            let children = self.levels.get(level + 1).and_then(|all| all.get(domain.children.clone()));
            let mut count = sum(children.unwrap_or_default(), unit, has_leader);
            finish(&mut count, level, terms);
            self.set(level, at, count);
        }
    }

    /// Makes the domains of a level count in units of so many pods.
    pub(super) fn in_units(&mut self, level: usize, domains: Range<usize>, unit: i64) {
        for count in
            self.levels.get_mut(level).and_then(|counts| counts.get_mut(domains)).into_iter().flatten()
        {
            count.slices = count.pods / unit;
            count.slices_with_leader = count.pods_with_leader / unit;
        }
    }
}

/// What is asked of each domain.
pub(super) struct Ask<'a> {
    pub(super) pods: &'a Pods,
    /// Tolerations that the pods are given.
    pub(super) beside: &'a [Toleration],
    /// What one pod, and what the leader takes, by resource.
    pub(super) needs: Vec<(usize, i128, i128)>,
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
pub(super) fn needs(pod: &Parts, leader: Option<&Parts>) -> Vec<(usize, i128, i128)> {
    let mut needs: Vec<(usize, i128, i128)> =
        pod.iter().map(|(number, amount)| (*number, *amount, 0)).collect();
    for (number, amount) in leader.into_iter().flatten() {
        match needs.iter_mut().find(|(known, _, _)| known == number) {
            Some((_, _, leader)) => *leader = *amount,
            None => needs.push((*number, 0, *amount)),
        }
    }
    needs
}

impl Ask<'_> {
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
        for (number, need, of_leader) in &self.needs {
            let free = spot.free(*number, self.view);
            pods = pods.min(times(free, *need));
            if self.has_leader {
                leader &= *of_leader <= free.max(0);
                beside = beside.min(times(free - of_leader, *need));
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
    /// Counts what every domain could take.
    pub(super) fn count(&self, counts: &mut Counts, tree: &Tree, shape: &Shape, terms: &Terms, ask: &Ask) {
        let lowest = shape.levels.len().saturating_sub(1);
        counts.levels.resize_with(shape.levels.len(), Vec::new);
        for (level, all) in counts.levels.iter_mut().enumerate() {
            all.clear();
            all.resize(shape.width(level), Count::default());
        }
        let leaves = ask.within.clone().unwrap_or(0..shape.spots.len());
        let by_host = tree.is_by_host();
        let spots = shape.spots.get(leaves.clone()).unwrap_or_default();
        for (leaf, id) in leaves.zip(spots) {
            let Some(spot) = self.spots.get(*id) else { continue };
            let host = || shape.paths.get(leaf).and_then(|path| path.last());
            if by_host && (ask.obstacle(spot).is_some() || ask.bars(host())) {
                continue;
            }
            let mut count = ask.count(spot);
            count.score = ask.score(spot);
            finish(&mut count, lowest, terms);
            counts.set(lowest, leaf, count);
        }
        for level in (0..lowest).rev() {
            counts.add_up(shape, level, terms, ask.has_leader);
        }
    }
}

/// Slices are counted where they have to be in one domain.
fn finish(count: &mut Count, level: usize, terms: &Terms) {
    if level == terms.slice_level {
        count.slices = count.pods / terms.slice_size;
        count.slices_with_leader = count.pods_with_leader / terms.slice_size;
    }
}

/// What children could take together; the leader goes where it costs least.
fn sum(children: &[Count], unit: i64, has_leader: bool) -> Count {
    let whole = |pods: i64| if unit > 1 { pods / unit * unit } else { pods };
    let mut sum = Count::default();
    let (mut pods_lost, mut slices_lost) = (i64::MAX, i64::MAX);
    for child in children {
        let (pods, beside) = (whole(child.pods), whole(child.pods_with_leader));
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

//! Placing pod sets: one after the other, each beside those before it; nothing is decided and nothing stays.

use super::choose::Share;
use super::cluster::Cluster;
use super::counts::{Ask, needs};
use super::pods::{HOSTNAME, Occupancy, Path, Placement, Pods};
use super::spots::{Footprint, Spot, SpotId, View};
use super::tally::{Subject, Tally};
use super::terms::Terms;
use super::tree::{Shape, Tree};
use super::{Refusal, Rules};
use std::ops::Range;
use std::sync::Arc;

/// A pod set to be placed.
#[derive(Clone, Debug)]
pub struct Part {
    /// Name of the flavor that it has.
    pub flavor: Arc<str>,
    /// Its pods.
    pub pods: Arc<Pods>,
    /// How many.
    pub count: i32,
    /// Pod sets of one group are placed together.
    pub group: Option<Arc<str>>,
    /// Where its pods stand, if only those on failed nodes are to be placed.
    pub keeps: Option<(Placement, Vec<String>)>,
}

impl Part {
    /// What it takes in a placement.
    pub fn occupancy(&self, placement: Placement) -> Occupancy {
        Occupancy { flavor: Arc::clone(&self.flavor), placement, each: self.pods.requests.clone() }
    }
}

/// Pods that are placed in one go.
pub(super) struct Party<'a> {
    pub(super) workers: &'a Part,
    pub(super) leader: Option<&'a Part>,
    pub(super) count: i64,
    /// Level and leaf of the domain that may be used.
    pub(super) within: Option<Range<usize>>,
    /// Hosts that may not.
    pub(super) barred: &'a [String],
    /// What the request comes to, where it is not what it says.
    pub(super) terms: Option<Terms>,
}

impl<'a> Party<'a> {
    /// All pods of a part, beside a leader, anywhere.
    fn of(workers: &'a Part, leader: Option<&'a Part>) -> Self {
        let count = i64::from(workers.count);
        Self { workers, leader, count, within: None, barred: &[], terms: None }
    }
}

/// Where workers and leader go, as domains in order of their values.
pub(super) struct Found {
    pub(super) workers: Placement,
    pub(super) leader: Option<Placement>,
}

/// Which part was refused, and why.
pub type Refused = (usize, Refusal);

impl Cluster {
    /// Where all parts could go, by part. Each sees what those before it would take.
    ///
    /// # Errors
    /// The first part that cannot be placed, and why.
    pub fn place_all(&mut self, parts: &[Part], view: View, rules: Rules) -> Result<Vec<Placement>, Refused> {
        let mut placed: Vec<Option<Placement>> = vec![None; parts.len()];
        let mut trail = Vec::new();
        let mut outcome = Ok(());
        for at in 0..parts.len() {
            if placed.get(at).is_none_or(Option::is_some) {
                continue;
            }
            if let Err(refusal) = self.place_from(parts, at, view, rules, &mut placed, &mut trail) {
                outcome = Err((at, refusal));
                break;
            }
        }
        for footprint in trail.iter().rev() {
            self.spots.try_out(footprint, -1);
        }
        outcome.map(|()| placed.into_iter().flatten().collect())
    }

    /// Whether all parts could go somewhere.
    pub fn can_place(&mut self, parts: &[Part], view: View, rules: Rules) -> bool {
        match parts {
            [part] if part.keeps.is_none() => self.shares(&Party::of(part, None), view, rules).is_ok(),
            _ => self.place_all(parts, view, rules).is_ok(),
        }
    }

    /// Where all parts could go at once; where there is no such place, where they could go in the plan.
    ///
    /// # Errors
    /// The first part that cannot be placed in the plan, and why.
    pub fn place_soonest(&mut self, parts: &[Part], rules: Rules) -> Result<Vec<Placement>, Refused> {
        let found = self.place_all(parts, View::Both, rules);
        if found.is_err() && self.is_freed(parts) {
            self.place_all(parts, View::Planned, rules)
        } else {
            found
        }
    }

    /// Whether more is free in the plan than in fact anywhere on the nodes of these flavors.
    fn is_freed(&mut self, parts: &[Part]) -> bool {
        let Self { trees, spots, .. } = self;
        let mut flavors: Vec<&Arc<str>> = parts.iter().map(|part| &part.flavor).collect();
        flavors.dedup();
        let shapes = flavors.into_iter().filter_map(|flavor| Some(trees.get_mut(flavor)?.shape()));
        let freed = |id: &SpotId| spots.get(*id).is_some_and(Spot::is_freed);
        shapes.into_iter().any(|shape| shape.spots.iter().any(freed))
    }

    /// Places a part, and those of its group with it.
    fn place_from(
        &mut self,
        parts: &[Part],
        at: usize,
        view: View,
        rules: Rules,
        placed: &mut [Option<Placement>],
        trail: &mut Vec<Footprint>,
    ) -> Result<(), Refusal> {
        let Some(part) = parts.get(at) else {
            return Ok(());
        };
        let mates = parts
            .iter()
            .enumerate()
            .filter(|(other, p)| *other == at || (part.group.is_some() && p.group == part.group));
        let members: Vec<usize> = mates.map(|(other, _)| other).collect();
        let (workers, leader) = match *members {
            [one] => (one, None),
            [first, second] => {
                let count = |at: usize| parts.get(at).map_or(0, |part| part.count);
                if count(first) < count(second) { (second, Some(first)) } else { (first, Some(second)) }
            }
            _ => return Err(Refusal::Group(members.len())),
        };
        let Some(part) = parts.get(workers) else {
            return Ok(());
        };
        let found = if part.keeps.is_some() {
            self.replace(part, leader.and_then(|at| parts.get(at)), view, rules)?
        } else {
            self.place(&Party::of(part, leader.and_then(|at| parts.get(at))), view, rules)?
        };
        let mut taken = Vec::new();
        for (at, placement) in [(Some(workers), Some(found.workers)), (leader, found.leader)] {
            let Some(at) = at else { continue };
            let (Some(part), Some(place)) = (parts.get(at), placed.get_mut(at)) else { continue };
            taken.extend(placement.as_ref().map(|placement| part.occupancy(part.newly(placement))));
            *place = placement;
        }
        // Nobody comes after the last.
        if placed.iter().any(Option::is_none) {
            for occupancy in taken {
                let footprint = self.footprint(&[occupancy]);
                self.spots.try_out(&footprint, 1);
                trail.push(footprint);
            }
        }
        Ok(())
    }

    /// Where a party could go.
    pub(super) fn place(&mut self, party: &Party, view: View, rules: Rules) -> Result<Found, Refusal> {
        let (shape, shares) = self.shares(party, view, rules)?;
        let tree = self.trees.get(&party.workers.flavor).ok_or(Refusal::NoTopology)?;
        Ok(found(tree, &shape, shares, party.leader.is_some()))
    }

    /// What each of the narrowest domains of a shape would take of a party.
    fn shares(
        &mut self,
        party: &Party,
        view: View,
        rules: Rules,
    ) -> Result<(Arc<Shape>, Vec<Share>), Refusal> {
        let part = party.workers;
        let Some(tree) = self.trees.get_mut(&part.flavor) else {
            return Err(Refusal::NoTopology);
        };
        let terms = match &party.terms {
            Some(terms) => terms.clone(),
            None => Terms::of(&part.pods, tree, rules)?,
        };
        let shape = tree.shape();
        // What is asked of a part of the domains alone is hardly asked twice.
        let kept = party.within.is_none() && party.barred.is_empty();
        let leader = party.leader.map(|leader| Arc::clone(&leader.pods));
        let subject = Subject { pods: Arc::clone(&part.pods), leader, terms, view, scores: rules.affinity };
        let known = if kept { self.tallies.take(&subject, &shape) } else { None };
        let mut tally = known.unwrap_or_else(|| {
            let pod = self.names.pod(&part.pods.requests);
            let leader = party.leader.map(|leader| self.names.pod(&leader.pods.requests));
            Tally::new(subject, &shape, needs(&pod, leader.as_ref()))
        });
        let tree = self.trees.get(&part.flavor).ok_or(Refusal::NoTopology)?;
        let needs = Arc::clone(&tally.needs);
        let ask = Ask {
            pods: &part.pods,
            beside: &tree.flavor.tolerations,
            needs,
            has_leader: party.leader.is_some(),
            view,
            scores: rules.affinity,
            within: party.within.clone(),
            barred: party.barred,
        };
        self.count(&mut tally, tree, &shape, &ask);
        let shares = tally.choose(&shape, party.count, rules);
        if kept {
            self.tallies.put(tally);
        }
        Ok((shape, shares?))
    }
}

impl Part {
    /// Of a placement what its pods do not take already.
    pub fn newly(&self, placement: &Placement) -> Placement {
        let Some((kept, _)) = &self.keeps else {
            return placement.clone();
        };
        let before = |values: &Path| {
            let same = kept.domains.iter().filter(|(known, _)| known.last() == values.last());
            same.fold(0_i32, |sum, (_, pods)| sum.saturating_add(*pods))
        };
        let more = |(values, pods): &(Path, i32)| (Arc::clone(values), pods.saturating_sub(before(values)));
        let domains = placement.domains.iter().map(more).filter(|(_, pods)| *pods > 0).collect();
        Placement { levels: Arc::clone(&placement.levels), domains }
    }
}

/// Shares of the narrowest domains as placements.
fn found(tree: &Tree, shape: &Shape, mut shares: Vec<Share>, has_leader: bool) -> Found {
    shares.sort_unstable_by_key(|share| share.domain);
    let levels = levels_of(tree);
    let skip = tree.levels.len() - levels.len();
    let values = |leaf: usize| shape.paths.get(leaf).and_then(|path| path.get(skip..)).map(Arc::from);
    let domains = |pods: &dyn Fn(&Share) -> i64| {
        let taken = shares.iter().filter(|share| pods(share) > 0);
        let domain =
            |share: &Share| Some((values(share.domain)?, i32::try_from(pods(share)).unwrap_or(i32::MAX)));
        Placement { levels: Arc::clone(&levels), domains: taken.filter_map(domain).collect() }
    };
    Found {
        workers: domains(&|share| share.units),
        leader: has_leader.then(|| domains(&|share| i64::from(share.leader))),
    }
}

/// Labels of the levels that placements name: a host says all by itself.
fn levels_of(tree: &Tree) -> Path {
    if tree.is_by_host() { Arc::from([Arc::from(HOSTNAME)]) } else { Arc::clone(&tree.levels) }
}

//! The choice of victims with fair sharing, written down a second time in the plainest form: I18.
//!
//! All sums are made anew after every step, shares are exact fractions, and every choice of a queue begins at the root with
//! nothing remembered. The engine is not asked anything here.

use super::plain::{Amounts, Figures, PAIRS, Plain, Quota, node_of};
use super::shares::{Share, WEIGHTS};
use super::world::{COHORTS, RESOURCES};
use sluice::api::reason::PendingReason;
use sluice::api::v1beta2::{ReclaimPolicy, WithinClusterQueuePolicy};
use sluice::scheduler::{FairStrategy, PreemptionReason};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

/// A workload that holds quota.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) queue: usize,
    pub(super) amounts: Amounts,
    pub(super) priority: i64,
    pub(super) since: i64,
    /// Not known of one whose reservation is not confirmed.
    pub(super) reserved: Option<i64>,
    /// Whether it is on its way out.
    pub(super) evicted: bool,
    /// Which of the two LocalQueues of its queue it came by.
    pub(super) local: usize,
}

/// The workload that asks, and the rules of its queue.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) queue: usize,
    /// By flavor, of which each has pods of its own, and resource; none where it does not ask.
    pub(super) requests: [[Option<i64>; 2]; 2],
    pub(super) priority: i64,
    pub(super) since: i64,
    pub(super) within: WithinClusterQueuePolicy,
    pub(super) reclaim: ReclaimPolicy,
}

/// What the LocalQueues of a queue have used.
#[derive(Clone, Debug)]
pub(super) struct Past {
    /// Whether it counts in this queue.
    pub(super) counts: bool,
    pub(super) used: [u8; 2],
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) parents: Vec<Option<usize>>,
    /// By node and flavor; none where a node has no quota for the flavor.
    pub(super) quotas: Vec<[Option<[Quota; 2]>; 2]>,
    pub(super) weights: Vec<usize>,
    pub(super) holders: Vec<Holder>,
    pub(super) asker: Asker,
    pub(super) strategies: Vec<FairStrategy>,
    /// Whether a queue within what it owns takes back without regard to shares.
    pub(super) takes_back: bool,
    /// By queue, where past usage counts at all.
    pub(super) past: Option<Vec<Past>>,
}

/// Who goes, and why.
pub(super) type Victim = (usize, PreemptionReason);

/// What becomes of the one that asks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fate {
    Admitted,
    Waits(PendingReason),
    Preempts(Vec<Victim>),
}

/// Candidates that are left, by node of their queue.
type Left = BTreeMap<usize, Vec<usize>>;

/// The rules, over one world.
pub(super) struct Rules<'a> {
    world: &'a World,
    pub(super) plain: Plain,
    /// Whether a node or one below has a quota.
    declared: Vec<[bool; PAIRS]>,
    /// Most that children of a node could have, by resource.
    lendable: Vec<[i128; 2]>,
}

impl<'a> Rules<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        let mut plain = Plain::new();
        let mut declared = vec![[false; PAIRS]; plain.nodes.len()];
        for (at, flavors) in world.quotas.iter().enumerate().rev() {
            plain.nodes[at].parent = world.parents[at];
            for (pair, declared) in declared[at].iter_mut().enumerate() {
                if let Some(quotas) = &flavors[pair / 2] {
                    plain.nodes[at].quotas[pair] = quotas[pair % 2];
                    *declared = true;
                }
            }
            // Every parent has a smaller number: its turn comes later.
            if let Some(up) = world.parents[at] {
                let below = declared[at];
                declared[up].iter_mut().zip(below).for_each(|(above, below)| *above |= below);
            }
        }
        let mut rules = Self { world, plain, declared, lendable: Vec::new() };
        let sums = rules.sums(&[], None);
        rules.lendable = (0..world.parents.len()).map(|node| rules.lendable(&sums, node)).collect();
        rules
    }

    fn lendable(&self, sums: &Figures, node: usize) -> [i128; 2] {
        let root = *self.way(node).last().unwrap();
        [0, 1].map(|resource| {
            let known = (resource..PAIRS).step_by(RESOURCES.len()).filter(|pair| self.declared[root][*pair]);
            known.map(|pair| self.plain.potential(sums, node, pair)).sum()
        })
    }

    /// Sums of what is left, with or without the newcomer.
    pub(super) fn sums(&self, gone: &[Victim], newcomer: Option<&Amounts>) -> Figures {
        let stays = |at: usize| gone.iter().all(|(other, _)| *other != at);
        let holders = self.world.holders.iter().enumerate().filter(|(at, _)| stays(*at));
        let held = holders.map(|(_, holder)| (holder.queue, &holder.amounts));
        self.plain.figures(held.chain(newcomer.map(|usage| (self.world.asker.queue, usage))))
    }

    pub(super) fn fits(&self, gone: &[Victim], usage: &Amounts) -> bool {
        self.plain.fits(&self.sums(gone, None), self.world.asker.queue, usage)
    }

    fn own(&self) -> usize {
        node_of(self.world.asker.queue)
    }

    /// The way from a node to its root.
    fn way(&self, node: usize) -> Vec<usize> {
        std::iter::successors(Some(node), |at| self.world.parents[*at]).collect()
    }

    fn borrowed(&self, sums: &Figures, node: usize, pair: usize) -> i128 {
        let over = (sums.usage[node][pair] - sums.subtree[node][pair]).max(0);
        if self.declared[node][pair] { over } else { 0 }
    }

    /// Whether a node borrows from its parent, be it what nobody lends.
    pub(super) fn borrows(&self, sums: &Figures, node: usize) -> bool {
        self.world.parents[node].is_some() && (0..PAIRS).any(|pair| self.borrowed(sums, node, pair) > 0)
    }

    fn share(&self, sums: &Figures, node: usize) -> Share {
        let Some(up) = self.world.parents[node] else {
            return Share::Of(0, 1);
        };
        let part = |resource: usize| {
            let pairs = (resource..PAIRS).step_by(RESOURCES.len());
            (pairs.map(|pair| self.borrowed(sums, node, pair)).sum(), self.lendable[up][resource])
        };
        Share::of((0..RESOURCES.len()).map(part), WEIGHTS[self.world.weights[node]].1)
    }

    /// Whether the policies let it go for a lack of these.
    pub(super) fn may_go(&self, sums: &Figures, short: &[usize], at: usize) -> bool {
        let (asker, holder) = (&self.world.asker, &self.world.holders[at]);
        let lower = holder.priority < asker.priority;
        if short.iter().all(|pair| holder.amounts[*pair] == 0) {
            return false;
        }
        if holder.queue == asker.queue {
            return match asker.within {
                WithinClusterQueuePolicy::Never => false,
                WithinClusterQueuePolicy::LowerPriority => lower,
                WithinClusterQueuePolicy::LowerOrNewerEqualPriority => {
                    lower || (holder.priority == asker.priority && asker.since < holder.since)
                }
            };
        }
        let node = node_of(holder.queue);
        let over = short.iter().any(|pair| sums.usage[node][*pair] > sums.subtree[node][*pair]);
        let allowed = match asker.reclaim {
            ReclaimPolicy::Never => false,
            ReclaimPolicy::LowerPriority => lower,
            ReclaimPolicy::Any => true,
        };
        over && allowed && self.way(node).last() == self.way(self.own()).last()
    }

    /// Place among all candidates, past usage apart.
    fn place(&self, at: usize) -> impl Ord + use<> {
        let holder = &self.world.holders[at];
        let newest = holder.reserved.map_or((0, Reverse(0)), |at| (1, Reverse(at)));
        (!holder.evicted, holder.queue == self.world.asker.queue, holder.priority, newest, at)
    }

    /// What the LocalQueue of a holder has used, where that counts.
    fn past(&self, at: usize) -> u8 {
        let holder = &self.world.holders[at];
        let past = self.world.past.as_ref().map(|past| &past[holder.queue]).filter(|past| past.counts);
        past.map_or(0, |past| past.used[holder.local])
    }

    fn candidates(&self, short: &[usize]) -> Left {
        let (sums, everybody) = (self.sums(&[], None), 0..self.world.holders.len());
        let mut all: Vec<usize> = everybody.filter(|at| self.may_go(&sums, short, *at)).collect();
        all.sort_by_key(|at| (!self.world.holders[*at].evicted, Reverse(self.past(*at)), self.place(*at)));
        let mut left = Left::new();
        for at in all {
            left.entry(node_of(self.world.holders[at].queue)).or_default().push(at);
        }
        left
    }

    /// The queue to take from next.
    fn next(&self, sums: &Figures, left: &Left) -> Option<usize> {
        let own = self.own();
        if self.world.parents[own].is_none() {
            return first(left, own).map(|_| own);
        }
        self.next_below(sums, left, *self.way(own).last().unwrap())
    }

    fn next_below(&self, sums: &Figures, left: &Left, cohort: usize) -> Option<usize> {
        let path = self.way(self.own());
        let children = (0..self.world.parents.len()).filter(|at| self.world.parents[*at] == Some(cohort));
        let children = children.filter(|at| path.contains(at) || self.borrows(sums, *at));
        let (mut cohorts, queues): (Vec<_>, Vec<_>) =
            children.map(|at| (at, self.share(sums, at))).partition(|(at, _)| *at < COHORTS.len());
        let standing =
            queues.into_iter().filter_map(|(at, share)| Some((at, share, self.place(first(left, at)?))));
        let largest = standing.max_by(|(_, a, x), (_, b, y)| a.compare(*b).then_with(|| y.cmp(x)));
        cohorts.sort_by(|(x, a), (y, b)| b.compare(*a).then(y.cmp(x)));
        let no_smaller = |(_, share): &(usize, Share)| {
            largest.as_ref().is_none_or(|(_, most, _)| share.compare(*most) != Ordering::Less)
        };
        let deeper = cohorts.iter().take_while(|one| no_smaller(one));
        let found = deeper.map(|(inner, _)| self.next_below(sums, left, *inner)).find(Option::is_some);
        found.unwrap_or_else(|| largest.map(|(queue, ..)| queue))
    }

    /// The nodes right below the lowest cohort above the preemptor's queue and another: its side and the other's.
    fn sides(&self, queue: usize) -> (usize, usize) {
        let (mine, theirs) = (self.way(self.own()), self.way(queue));
        let top = mine.iter().find(|at| theirs.contains(at)).unwrap();
        let below = |way: &[usize]| *way.iter().take_while(|at| *at != top).last().unwrap();
        (below(&mine), below(&theirs))
    }

    /// Whether it may go for the sake of shares.
    fn is_fairer(&self, strategy: FairStrategy, usage: &Amounts, gone: &[Victim], at: usize) -> bool {
        let (mine, theirs) = self.sides(node_of(self.world.holders[at].queue));
        let before = self.sums(gone, Some(usage));
        let (share, initial) = (self.share(&before, mine), self.share(&before, theirs));
        match strategy {
            _ if share.is_boundless() && !initial.is_boundless() => false,
            FairStrategy::LessThanOrEqualToFinalShare => {
                let mut with = gone.to_vec();
                with.push((at, PreemptionReason::InCohortFairSharing));
                share.compare(self.share(&self.sums(&with, Some(usage)), theirs)) != Ordering::Greater
            }
            FairStrategy::LessThanInitialShare => share.compare(initial) == Ordering::Less,
        }
    }

    /// Whether the queue uses no more than it owns with the newcomer.
    pub(super) fn is_within_nominal(&self, usage: &Amounts, short: &[usize]) -> bool {
        let (sums, own) = (self.sums(&[], Some(usage)), self.own());
        short.iter().all(|pair| sums.usage[own][*pair] <= sums.subtree[own][*pair])
    }

    /// Who must go for a usage that is short of these, in the order in which it is said; nobody if that is no use.
    pub(super) fn victims(&self, usage: &Amounts, short: &[usize]) -> Vec<Victim> {
        let (mut gone, mut again) = (Vec::new(), Left::new());
        let first = self.world.strategies.first().copied();
        let first = first.unwrap_or(FairStrategy::LessThanOrEqualToFinalShare);
        let found = self.first_strategy(usage, short, first, &mut gone, &mut again)
            || (self.world.strategies.len() != 1 && self.second_strategy(usage, again, &mut gone));
        if !found {
            return Vec::new();
        }
        for at in (0..gone.len() - 1).rev() {
            let mut fewer = gone.clone();
            fewer.swap_remove(at);
            if self.fits(&fewer, usage) {
                gone = fewer;
            }
        }
        gone
    }

    fn first_strategy(
        &self,
        usage: &Amounts,
        short: &[usize],
        strategy: FairStrategy,
        gone: &mut Vec<Victim>,
        again: &mut Left,
    ) -> bool {
        let mut left = self.candidates(short);
        let takes_back = self.world.takes_back && self.is_within_nominal(usage, short);
        while let Some(queue) = self.next(&self.sums(gone, Some(usage)), &left) {
            let number = gone.len();
            while let Some(at) = pop(&mut left, queue) {
                let reason = if queue == self.own() {
                    PreemptionReason::InClusterQueue
                } else if takes_back {
                    PreemptionReason::InCohortReclamation
                } else if self.is_fairer(strategy, usage, gone, at) {
                    PreemptionReason::InCohortFairSharing
                } else {
                    again.entry(queue).or_default().push(at);
                    continue;
                };
                gone.push((at, reason));
                break;
            }
            if gone.len() > number && self.fits(gone, usage) {
                return true;
            }
        }
        false
    }

    fn second_strategy(&self, usage: &Amounts, mut left: Left, gone: &mut Vec<Victim>) -> bool {
        while let Some(queue) = self.next(&self.sums(gone, Some(usage)), &left) {
            let at = pop(&mut left, queue).unwrap();
            left.remove(&queue);
            if !self.is_fairer(FairStrategy::LessThanInitialShare, usage, gone, at) {
                continue;
            }
            gone.push((at, PreemptionReason::InCohortFairSharing));
            if self.fits(gone, usage) {
                return true;
            }
        }
        false
    }

    /// All that is asked for, and where somebody would have to go.
    ///
    /// # Errors
    /// Why no look for victims is worth while.
    pub(super) fn asks(&self) -> Result<(Amounts, Vec<usize>), PendingReason> {
        let (asker, sums, own) = (&self.world.asker, self.sums(&[], None), self.own());
        let (mut usage, mut short) = ([0; PAIRS], Vec::new());
        for (flavor, requests) in asker.requests.iter().enumerate() {
            let mut never = Ok(());
            for (resource, amount) in requests.iter().enumerate() {
                let Some(amount) = amount.map(i128::from) else { continue };
                let pair = flavor * RESOURCES.len() + resource;
                usage[pair] = amount;
                if amount > self.plain.potential(&sums, own, pair) {
                    never = Err(PendingReason::ExceedsMaxQuota);
                } else if amount > self.plain.available(&sums, own, pair).max(0) {
                    short.push(pair);
                    let worth_a_look = asker.reclaim != ReclaimPolicy::Never
                        || amount <= sums.subtree[own][pair]
                        || self.plain.may_reclaim(&sums, asker.queue, pair, amount);
                    never =
                        never.and(if worth_a_look { Ok(()) } else { Err(PendingReason::WaitingForQuota) });
                }
            }
            never?;
        }
        Ok((usage, short))
    }

    pub(super) fn fate(&self) -> Fate {
        let (usage, short) = match self.asks() {
            Ok(asks) => asks,
            Err(reason) => return Fate::Waits(reason),
        };
        if short.is_empty() {
            return Fate::Admitted;
        }
        let victims = self.victims(&usage, &short);
        if victims.is_empty() { Fate::Waits(PendingReason::WaitingForQuota) } else { Fate::Preempts(victims) }
    }
}

fn first(left: &Left, queue: usize) -> Option<usize> {
    left.get(&queue)?.first().copied()
}

fn pop(left: &mut Left, queue: usize) -> Option<usize> {
    let candidates = left.get_mut(&queue).filter(|candidates| !candidates.is_empty())?;
    Some(candidates.remove(0))
}

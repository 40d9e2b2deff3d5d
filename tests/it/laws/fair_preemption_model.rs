//! The choice of victims with fair sharing, written down a second time in the plainest form: I18.
//!
//! All sums are made anew after every step, shares are exact fractions, and every choice of a queue begins at the root with
//! nothing remembered. The engine is not asked anything here.

use super::builders::{COHORTS, RESOURCES};
use super::dominant_shares::{ExactShare, WEIGHTS};
use super::fast_model::{Amounts, FLAVOR_RESOURCES, FastModel, NodeSums, Quota, node_index};
use sluice::api::reason::PendingReason;
use sluice::api::v1beta2::{ReclaimPolicy, WithinClusterQueuePolicy};
use sluice::scheduler::{FairStrategy, PreemptionReason};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

/// A workload that holds quota.
#[derive(Clone, Debug)]
pub(super) struct ReservingWorkload {
    pub(super) queue: usize,
    pub(super) amounts: Amounts,
    pub(super) priority: i64,
    pub(super) since: i64,
    /// Not known of one whose reservation is not confirmed.
    pub(super) reserved: Option<i64>,
    /// Whether it is on its way out.
    pub(super) evicted: bool,
    /// Which of the two LocalQueues of its queue it came by.
    pub(super) local_queue: usize,
}

/// The workload that asks, and the rules of its queue.
#[derive(Clone, Debug)]
pub(super) struct PreemptorSpec {
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
pub(super) struct PastUsage {
    /// Whether it counts in this queue.
    pub(super) is_usage_based: bool,
    pub(super) used: [u8; 2],
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) parents: Vec<Option<usize>>,
    /// By node and flavor; none where a node has no quota for the flavor.
    pub(super) quotas: Vec<[Option<[Quota; 2]>; 2]>,
    pub(super) weights: Vec<usize>,
    pub(super) reserving: Vec<ReservingWorkload>,
    pub(super) preemptor: PreemptorSpec,
    pub(super) strategies: Vec<FairStrategy>,
    /// Whether a queue within what it owns takes back without regard to shares.
    pub(super) preempts_within_nominal: bool,
    /// By queue, where past usage counts at all.
    pub(super) past: Option<Vec<PastUsage>>,
}

/// Who goes, and why.
pub(super) type Victim = (usize, PreemptionReason);

/// What becomes of the one that asks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExpectedOutcome {
    Admitted,
    Pending(PendingReason),
    Preempts(Vec<Victim>),
}

/// Candidates that are left, by node of their queue.
type CandidatesByNode = BTreeMap<usize, Vec<usize>>;

/// The rules, over one world.
pub(super) struct FairSharingModel<'a> {
    world: &'a World,
    pub(super) model: FastModel,
    /// Whether a node or one below has a quota.
    declared: Vec<[bool; FLAVOR_RESOURCES]>,
    /// Most that children of a node could have, by resource.
    lendable: Vec<[i128; 2]>,
}

impl<'a> FairSharingModel<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        let mut plain = FastModel::new();
        let mut declared = vec![[false; FLAVOR_RESOURCES]; plain.nodes.len()];
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
        let mut rules = Self { world, model: plain, declared, lendable: Vec::new() };
        let sums = rules.sums(&[], None);
        rules.lendable = (0..world.parents.len()).map(|node| rules.lendable(&sums, node)).collect();
        rules
    }

    fn lendable(&self, sums: &NodeSums, node: usize) -> [i128; 2] {
        let root = *self.path_to_root(node).last().unwrap();
        [0, 1].map(|resource| {
            let known = (resource..FLAVOR_RESOURCES)
                .step_by(RESOURCES.len())
                .filter(|pair| self.declared[root][*pair]);
            known.map(|pair| self.model.potential_available(sums, node, pair)).sum()
        })
    }

    /// Sums of what is left, with or without the newcomer.
    pub(super) fn sums(&self, gone: &[Victim], newcomer: Option<&Amounts>) -> NodeSums {
        let stays = |at: usize| gone.iter().all(|(other, _)| *other != at);
        let holders = self.world.reserving.iter().enumerate().filter(|(at, _)| stays(*at));
        let held = holders.map(|(_, holder)| (holder.queue, &holder.amounts));
        self.model.sums(held.chain(newcomer.map(|usage| (self.world.preemptor.queue, usage))))
    }

    pub(super) fn fits(&self, gone: &[Victim], usage: &Amounts) -> bool {
        self.model.fits(&self.sums(gone, None), self.world.preemptor.queue, usage)
    }

    fn own_node(&self) -> usize {
        node_index(self.world.preemptor.queue)
    }

    /// The way from a node to its root.
    fn path_to_root(&self, node: usize) -> Vec<usize> {
        std::iter::successors(Some(node), |at| self.world.parents[*at]).collect()
    }

    fn borrowed_amount(&self, sums: &NodeSums, node: usize, pair: usize) -> i128 {
        let over = (sums.usage[node][pair] - sums.subtree_quota[node][pair]).max(0);
        if self.declared[node][pair] { over } else { 0 }
    }

    /// Whether a node borrows from its parent, be it what nobody lends.
    pub(super) fn borrows(&self, sums: &NodeSums, node: usize) -> bool {
        self.world.parents[node].is_some()
            && (0..FLAVOR_RESOURCES).any(|pair| self.borrowed_amount(sums, node, pair) > 0)
    }

    fn share(&self, sums: &NodeSums, node: usize) -> ExactShare {
        let Some(up) = self.world.parents[node] else {
            return ExactShare::Ratio(0, 1);
        };
        let part = |resource: usize| {
            let pairs = (resource..FLAVOR_RESOURCES).step_by(RESOURCES.len());
            (pairs.map(|pair| self.borrowed_amount(sums, node, pair)).sum(), self.lendable[up][resource])
        };
        ExactShare::from_parts((0..RESOURCES.len()).map(part), WEIGHTS[self.world.weights[node]].1)
    }

    /// Whether the policies let it go for a lack of these.
    pub(super) fn may_be_preempted(&self, sums: &NodeSums, short: &[usize], at: usize) -> bool {
        let (asker, holder) = (&self.world.preemptor, &self.world.reserving[at]);
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
        let node = node_index(holder.queue);
        let over = short.iter().any(|pair| sums.usage[node][*pair] > sums.subtree_quota[node][*pair]);
        let allowed = match asker.reclaim {
            ReclaimPolicy::Never => false,
            ReclaimPolicy::LowerPriority => lower,
            ReclaimPolicy::Any => true,
        };
        over && allowed && self.path_to_root(node).last() == self.path_to_root(self.own_node()).last()
    }

    /// Place among all candidates, past usage apart.
    fn candidate_order(&self, at: usize) -> impl Ord + use<> {
        let holder = &self.world.reserving[at];
        let newest = holder.reserved.map_or((0, Reverse(0)), |at| (1, Reverse(at)));
        (!holder.evicted, holder.queue == self.world.preemptor.queue, holder.priority, newest, at)
    }

    /// What the LocalQueue of a holder has used, where that counts.
    fn afs_usage(&self, at: usize) -> u8 {
        let holder = &self.world.reserving[at];
        let past =
            self.world.past.as_ref().map(|past| &past[holder.queue]).filter(|past| past.is_usage_based);
        past.map_or(0, |past| past.used[holder.local_queue])
    }

    fn candidates(&self, short: &[usize]) -> CandidatesByNode {
        let (sums, everybody) = (self.sums(&[], None), 0..self.world.reserving.len());
        let mut all: Vec<usize> = everybody.filter(|at| self.may_be_preempted(&sums, short, *at)).collect();
        all.sort_by_key(|at| {
            (!self.world.reserving[*at].evicted, Reverse(self.afs_usage(*at)), self.candidate_order(*at))
        });
        let mut left = CandidatesByNode::new();
        for at in all {
            left.entry(node_index(self.world.reserving[at].queue)).or_default().push(at);
        }
        left
    }

    /// The queue to take from next.
    fn next_queue(&self, sums: &NodeSums, left: &CandidatesByNode) -> Option<usize> {
        let own = self.own_node();
        if self.world.parents[own].is_none() {
            return first_candidate(left, own).map(|_| own);
        }
        self.next_queue_below(sums, left, *self.path_to_root(own).last().unwrap())
    }

    fn next_queue_below(&self, sums: &NodeSums, left: &CandidatesByNode, cohort: usize) -> Option<usize> {
        let path = self.path_to_root(self.own_node());
        let children = (0..self.world.parents.len()).filter(|at| self.world.parents[*at] == Some(cohort));
        let children = children.filter(|at| path.contains(at) || self.borrows(sums, *at));
        let (mut cohorts, queues): (Vec<_>, Vec<_>) =
            children.map(|at| (at, self.share(sums, at))).partition(|(at, _)| *at < COHORTS.len());
        let standing = queues
            .into_iter()
            .filter_map(|(at, share)| Some((at, share, self.candidate_order(first_candidate(left, at)?))));
        let largest = standing.max_by(|(_, a, x), (_, b, y)| a.compare(*b).then_with(|| y.cmp(x)));
        cohorts.sort_by(|(x, a), (y, b)| b.compare(*a).then(y.cmp(x)));
        let no_smaller = |(_, share): &(usize, ExactShare)| {
            largest.as_ref().is_none_or(|(_, most, _)| share.compare(*most) != Ordering::Less)
        };
        let deeper = cohorts.iter().take_while(|one| no_smaller(one));
        let found = deeper.map(|(inner, _)| self.next_queue_below(sums, left, *inner)).find(Option::is_some);
        found.unwrap_or_else(|| largest.map(|(queue, ..)| queue))
    }

    /// The nodes right below the lowest cohort above the preemptor's queue and another: its side and the other's.
    fn subtrees_below_common_cohort(&self, queue: usize) -> (usize, usize) {
        let (mine, theirs) = (self.path_to_root(self.own_node()), self.path_to_root(queue));
        let top = mine.iter().find(|at| theirs.contains(at)).unwrap();
        let below = |way: &[usize]| *way.iter().take_while(|at| *at != top).last().unwrap();
        (below(&mine), below(&theirs))
    }

    /// Whether it may go for the sake of shares.
    fn satisfies_strategy(
        &self,
        strategy: FairStrategy,
        usage: &Amounts,
        gone: &[Victim],
        at: usize,
    ) -> bool {
        let (mine, theirs) = self.subtrees_below_common_cohort(node_index(self.world.reserving[at].queue));
        let before = self.sums(gone, Some(usage));
        let (share, initial) = (self.share(&before, mine), self.share(&before, theirs));
        match strategy {
            _ if share.is_unlimited() && !initial.is_unlimited() => false,
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
        let (sums, own) = (self.sums(&[], Some(usage)), self.own_node());
        short.iter().all(|pair| sums.usage[own][*pair] <= sums.subtree_quota[own][*pair])
    }

    /// Who must go for a usage that is short of these, in the order in which it is said; nobody if that is no use.
    pub(super) fn victims(&self, usage: &Amounts, short: &[usize]) -> Vec<Victim> {
        let (mut gone, mut again) = (Vec::new(), CandidatesByNode::new());
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
        again: &mut CandidatesByNode,
    ) -> bool {
        let mut left = self.candidates(short);
        let takes_back = self.world.preempts_within_nominal && self.is_within_nominal(usage, short);
        while let Some(queue) = self.next_queue(&self.sums(gone, Some(usage)), &left) {
            let number = gone.len();
            while let Some(at) = pop_candidate(&mut left, queue) {
                let reason = if queue == self.own_node() {
                    PreemptionReason::InClusterQueue
                } else if takes_back {
                    PreemptionReason::InCohortReclamation
                } else if self.satisfies_strategy(strategy, usage, gone, at) {
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

    fn second_strategy(&self, usage: &Amounts, mut left: CandidatesByNode, gone: &mut Vec<Victim>) -> bool {
        while let Some(queue) = self.next_queue(&self.sums(gone, Some(usage)), &left) {
            let at = pop_candidate(&mut left, queue).unwrap();
            left.remove(&queue);
            if !self.satisfies_strategy(FairStrategy::LessThanInitialShare, usage, gone, at) {
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
    pub(super) fn request_and_shortfall(&self) -> Result<(Amounts, Vec<usize>), PendingReason> {
        let (asker, sums, own) = (&self.world.preemptor, self.sums(&[], None), self.own_node());
        let (mut usage, mut short) = ([0; FLAVOR_RESOURCES], Vec::new());
        for (flavor, requests) in asker.requests.iter().enumerate() {
            let mut never = Ok(());
            for (resource, amount) in requests.iter().enumerate() {
                let Some(amount) = amount.map(i128::from) else { continue };
                let pair = flavor * RESOURCES.len() + resource;
                usage[pair] = amount;
                if amount > self.model.potential_available(&sums, own, pair) {
                    never = Err(PendingReason::ExceedsMaxQuota);
                } else if amount > self.model.available(&sums, own, pair).max(0) {
                    short.push(pair);
                    let worth_a_look = asker.reclaim != ReclaimPolicy::Never
                        || amount <= sums.subtree_quota[own][pair]
                        || self.model.may_reclaim(&sums, asker.queue, pair, amount);
                    never =
                        never.and(if worth_a_look { Ok(()) } else { Err(PendingReason::WaitingForQuota) });
                }
            }
            never?;
        }
        Ok((usage, short))
    }

    pub(super) fn expected_outcome(&self) -> ExpectedOutcome {
        let (usage, short) = match self.request_and_shortfall() {
            Ok(asks) => asks,
            Err(reason) => return ExpectedOutcome::Pending(reason),
        };
        if short.is_empty() {
            return ExpectedOutcome::Admitted;
        }
        let victims = self.victims(&usage, &short);
        if victims.is_empty() {
            ExpectedOutcome::Pending(PendingReason::WaitingForQuota)
        } else {
            ExpectedOutcome::Preempts(victims)
        }
    }
}

fn first_candidate(left: &CandidatesByNode, queue: usize) -> Option<usize> {
    left.get(&queue)?.first().copied()
}

fn pop_candidate(left: &mut CandidatesByNode, queue: usize) -> Option<usize> {
    let candidates = left.get_mut(&queue).filter(|candidates| !candidates.is_empty())?;
    Some(candidates.remove(0))
}

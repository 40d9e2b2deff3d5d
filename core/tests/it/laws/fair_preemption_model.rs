//! I18: the choice of victims with fair sharing, restated in the plainest form.
//!
//! All sums are recomputed after every step, shares are exact fractions, and every search for a queue starts at the root
//! without memory. The engine is not used here.

use super::dominant_shares::{ExactShare, WEIGHTS};
use super::fast_model::{Amounts, FLAVOR_RESOURCES, FastModel, NodeSums, Quota, node_index};
use crate::fixtures::builders::{COHORTS, RESOURCES};
use sluice_core::api::reason::PendingReason;
use sluice_core::api::v1beta2::{ReclaimPolicy, WithinClusterQueuePolicy};
use sluice_core::scheduler::{FairStrategy, PreemptionReason};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(super) struct ReservingWorkload {
    pub(super) queue: usize,
    pub(super) amounts: Amounts,
    pub(super) priority: i64,
    pub(super) since: i64,
    /// Absent while the reservation is not confirmed.
    pub(super) reserved: Option<i64>,
    pub(super) evicted: bool,
    /// Index of its LocalQueue, one of two per queue.
    pub(super) local_queue: usize,
}

/// The preemptor, and the policies of its queue.
#[derive(Clone, Debug)]
pub(super) struct PreemptorSpec {
    pub(super) queue: usize,
    /// By flavor, each with a pod set of its own, and resource; `None` where nothing is requested.
    pub(super) requests: [[Option<i64>; 2]; 2],
    pub(super) priority: i64,
    pub(super) since: i64,
    pub(super) within: WithinClusterQueuePolicy,
    pub(super) reclaim: ReclaimPolicy,
}

/// Past usage of the LocalQueues of a queue.
#[derive(Clone, Debug)]
pub(super) struct PastUsage {
    /// Whether past usage counts in this queue.
    pub(super) is_usage_based: bool,
    pub(super) used: [u8; 2],
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) parents: Vec<Option<usize>>,
    /// By node and flavor; `None` where a node has no quota for the flavor.
    pub(super) quotas: Vec<[Option<[Quota; 2]>; 2]>,
    pub(super) weights: Vec<usize>,
    pub(super) reserving: Vec<ReservingWorkload>,
    pub(super) preemptor: PreemptorSpec,
    pub(super) strategies: Vec<FairStrategy>,
    /// Whether a queue within its nominal quota reclaims without regard to shares.
    pub(super) preempts_within_nominal: bool,
    /// By queue; `None` without admission fair sharing.
    pub(super) past: Option<Vec<PastUsage>>,
}

/// Index of the victim, and the reason.
pub(super) type Victim = (usize, PreemptionReason);

/// Decision on the preemptor.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExpectedOutcome {
    Admitted,
    Pending(PendingReason),
    Preempts(Vec<Victim>),
}

/// Remaining candidates, by node of their queue.
type CandidatesByNode = BTreeMap<usize, Vec<usize>>;

/// Victims so far, and candidates to try again with the second strategy.
#[derive(Default)]
struct FairSearch {
    victims: Vec<Victim>,
    retried: CandidatesByNode,
}

/// The rules applied to one world.
pub(super) struct FairSharingModel<'a> {
    world: &'a World,
    pub(super) model: FastModel,
    /// Whether a node, or a node below it, has a quota.
    declared: Vec<[bool; FLAVOR_RESOURCES]>,
    /// Most that children of a node could have, by resource.
    lendable: Vec<[i128; 2]>,
}

impl<'a> FairSharingModel<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        let mut model = FastModel::new();
        let mut declared = vec![[false; FLAVOR_RESOURCES]; model.nodes.len()];
        for (index, flavors) in world.quotas.iter().enumerate().rev() {
            model.nodes[index].parent = world.parents[index];
            for (fr, declared) in declared[index].iter_mut().enumerate() {
                if let Some(quotas) = &flavors[fr / 2] {
                    model.nodes[index].quotas[fr] = quotas[fr % 2];
                    *declared = true;
                }
            }
            // Every parent has a smaller number, so it is processed later.
            if let Some(parent) = world.parents[index] {
                let below = declared[index];
                declared[parent].iter_mut().zip(below).for_each(|(above, below)| *above |= below);
            }
        }
        let mut rules = Self { world, model, declared, lendable: Vec::new() };
        let sums = rules.sums(&[], None);
        rules.lendable = (0..world.parents.len()).map(|node| rules.lendable(&sums, node)).collect();
        rules
    }

    fn lendable(&self, sums: &NodeSums, node: usize) -> [i128; 2] {
        let root = *self.path_to_root(node).last().unwrap();
        [0, 1].map(|resource| {
            let declared =
                (resource..FLAVOR_RESOURCES).step_by(RESOURCES.len()).filter(|fr| self.declared[root][*fr]);
            declared.map(|fr| self.model.potential_available(sums, node, fr)).sum()
        })
    }

    /// Sums of the remaining usage, with or without the preemptor.
    pub(super) fn sums(&self, victims: &[Victim], preemptor_usage: Option<&Amounts>) -> NodeSums {
        let stays = |index: usize| victims.iter().all(|(victim, _)| *victim != index);
        let remaining = self.world.reserving.iter().enumerate().filter(|(index, _)| stays(*index));
        let charged = remaining.map(|(_, workload)| (workload.queue, &workload.amounts));
        self.model.sums(charged.chain(preemptor_usage.map(|usage| (self.world.preemptor.queue, usage))))
    }

    pub(super) fn fits(&self, victims: &[Victim], usage: &Amounts) -> bool {
        self.model.fits(&self.sums(victims, None), self.world.preemptor.queue, usage)
    }

    fn own_node(&self) -> usize {
        node_index(self.world.preemptor.queue)
    }

    /// Returns the nodes from a node to its root.
    fn path_to_root(&self, node: usize) -> Vec<usize> {
        std::iter::successors(Some(node), |node| self.world.parents[*node]).collect()
    }

    fn borrowed_amount(&self, sums: &NodeSums, node: usize, fr: usize) -> i128 {
        let over = (sums.usage[node][fr] - sums.subtree_quota[node][fr]).max(0);
        if self.declared[node][fr] { over } else { 0 }
    }

    /// Whether a node borrows from its parent, even more than can be lent.
    pub(super) fn borrows(&self, sums: &NodeSums, node: usize) -> bool {
        self.world.parents[node].is_some()
            && (0..FLAVOR_RESOURCES).any(|fr| self.borrowed_amount(sums, node, fr) > 0)
    }

    fn share(&self, sums: &NodeSums, node: usize) -> ExactShare {
        let Some(parent) = self.world.parents[node] else {
            return ExactShare::Ratio(0, 1);
        };
        let part = |resource: usize| {
            let flavor_resources = (resource..FLAVOR_RESOURCES).step_by(RESOURCES.len());
            (
                flavor_resources.map(|fr| self.borrowed_amount(sums, node, fr)).sum(),
                self.lendable[parent][resource],
            )
        };
        ExactShare::from_parts((0..RESOURCES.len()).map(part), WEIGHTS[self.world.weights[node]].1)
    }

    /// Whether the policies permit its eviction for a shortfall in these flavor-resources.
    pub(super) fn may_be_preempted(&self, sums: &NodeSums, shortfall: &[usize], index: usize) -> bool {
        let (preemptor, workload) = (&self.world.preemptor, &self.world.reserving[index]);
        let lower = workload.priority < preemptor.priority;
        if shortfall.iter().all(|fr| workload.amounts[*fr] == 0) {
            return false;
        }
        if workload.queue == preemptor.queue {
            return match preemptor.within {
                WithinClusterQueuePolicy::Never => false,
                WithinClusterQueuePolicy::LowerPriority => lower,
                WithinClusterQueuePolicy::LowerOrNewerEqualPriority => {
                    lower || (workload.priority == preemptor.priority && preemptor.since < workload.since)
                }
            };
        }
        let node = node_index(workload.queue);
        let over = shortfall.iter().any(|fr| sums.usage[node][*fr] > sums.subtree_quota[node][*fr]);
        let allowed = match preemptor.reclaim {
            ReclaimPolicy::Never => false,
            ReclaimPolicy::LowerPriority => lower,
            ReclaimPolicy::Any => true,
        };
        over && allowed && self.path_to_root(node).last() == self.path_to_root(self.own_node()).last()
    }

    /// Position among all candidates, past usage aside.
    fn candidate_order(&self, index: usize) -> impl Ord + use<> {
        let workload = &self.world.reserving[index];
        let newest = workload.reserved.map_or((0, Reverse(0)), |at| (1, Reverse(at)));
        (!workload.evicted, workload.queue == self.world.preemptor.queue, workload.priority, newest, index)
    }

    /// Returns the past usage of the workload's LocalQueue, or 0 where it does not count.
    fn afs_usage(&self, index: usize) -> u8 {
        let workload = &self.world.reserving[index];
        let past =
            self.world.past.as_ref().map(|past| &past[workload.queue]).filter(|past| past.is_usage_based);
        past.map_or(0, |past| past.used[workload.local_queue])
    }

    fn candidates(&self, shortfall: &[usize]) -> CandidatesByNode {
        let (sums, all_indexes) = (self.sums(&[], None), 0..self.world.reserving.len());
        let mut all: Vec<usize> =
            all_indexes.filter(|index| self.may_be_preempted(&sums, shortfall, *index)).collect();
        all.sort_by_key(|index| {
            (
                !self.world.reserving[*index].evicted,
                Reverse(self.afs_usage(*index)),
                self.candidate_order(*index),
            )
        });
        let mut by_node = CandidatesByNode::new();
        for index in all {
            by_node.entry(node_index(self.world.reserving[index].queue)).or_default().push(index);
        }
        by_node
    }

    /// Returns the queue of the next victim.
    fn next_queue(&self, sums: &NodeSums, candidates: &CandidatesByNode) -> Option<usize> {
        let own = self.own_node();
        if self.world.parents[own].is_none() {
            return first_candidate(candidates, own).map(|_| own);
        }
        self.next_queue_below(sums, candidates, *self.path_to_root(own).last().unwrap())
    }

    fn next_queue_below(
        &self,
        sums: &NodeSums,
        candidates: &CandidatesByNode,
        cohort: usize,
    ) -> Option<usize> {
        let path = self.path_to_root(self.own_node());
        let children = (0..self.world.parents.len()).filter(|node| self.world.parents[*node] == Some(cohort));
        let children = children.filter(|node| path.contains(node) || self.borrows(sums, *node));
        let (mut cohorts, queues): (Vec<_>, Vec<_>) =
            children.map(|node| (node, self.share(sums, node))).partition(|(node, _)| *node < COHORTS.len());
        let ranked = queues.into_iter().filter_map(|(node, share)| {
            Some((node, share, self.candidate_order(first_candidate(candidates, node)?)))
        });
        let largest = ranked.max_by(|(_, a, x), (_, b, y)| a.compare(*b).then_with(|| y.cmp(x)));
        cohorts.sort_by(|(x, a), (y, b)| b.compare(*a).then(y.cmp(x)));
        let no_smaller = |(_, share): &(usize, ExactShare)| {
            largest.as_ref().is_none_or(|(_, most, _)| share.compare(*most) != Ordering::Less)
        };
        let deeper = cohorts.iter().take_while(|entry| no_smaller(entry));
        let found_below =
            deeper.map(|(inner, _)| self.next_queue_below(sums, candidates, *inner)).find(Option::is_some);
        found_below.unwrap_or_else(|| largest.map(|(queue, ..)| queue))
    }

    /// Returns the two nodes right below the lowest common cohort of the preemptor's queue and `queue`.
    fn subtrees_below_common_cohort(&self, queue: usize) -> (usize, usize) {
        let (mine, theirs) = (self.path_to_root(self.own_node()), self.path_to_root(queue));
        let top = mine.iter().find(|node| theirs.contains(node)).unwrap();
        let below = |path: &[usize]| *path.iter().take_while(|node| *node != top).last().unwrap();
        (below(&mine), below(&theirs))
    }

    /// Whether the strategy permits the eviction.
    fn satisfies_strategy(
        &self,
        strategy: FairStrategy,
        usage: &Amounts,
        victims: &[Victim],
        index: usize,
    ) -> bool {
        let (mine, theirs) = self.subtrees_below_common_cohort(node_index(self.world.reserving[index].queue));
        let before = self.sums(victims, Some(usage));
        let (share, initial) = (self.share(&before, mine), self.share(&before, theirs));
        match strategy {
            _ if share.is_unlimited() && !initial.is_unlimited() => false,
            FairStrategy::LessThanOrEqualToFinalShare => {
                let mut with_this = victims.to_vec();
                with_this.push((index, PreemptionReason::InCohortFairSharing));
                share.compare(self.share(&self.sums(&with_this, Some(usage)), theirs)) != Ordering::Greater
            }
            FairStrategy::LessThanInitialShare => share.compare(initial) == Ordering::Less,
        }
    }

    /// Whether the queue, with the preemptor, stays within its nominal quota.
    pub(super) fn is_within_nominal(&self, usage: &Amounts, shortfall: &[usize]) -> bool {
        let (sums, own) = (self.sums(&[], Some(usage)), self.own_node());
        shortfall.iter().all(|fr| sums.usage[own][*fr] <= sums.subtree_quota[own][*fr])
    }

    /// Returns the victims for a usage with this shortfall, in order of preemption; none if the preemptor would still not fit.
    pub(super) fn victims(&self, usage: &Amounts, shortfall: &[usize]) -> Vec<Victim> {
        let mut search = FairSearch::default();
        let first = self.world.strategies.first().copied();
        let first = first.unwrap_or(FairStrategy::LessThanOrEqualToFinalShare);
        let found = self.first_strategy(usage, shortfall, first, &mut search)
            || (self.world.strategies.len() != 1 && self.second_strategy(usage, &mut search));
        if !found {
            return Vec::new();
        }
        let mut victims = search.victims;
        for index in (0..victims.len() - 1).rev() {
            let mut fewer = victims.clone();
            fewer.swap_remove(index);
            if self.fits(&fewer, usage) {
                victims = fewer;
            }
        }
        victims
    }

    fn first_strategy(
        &self,
        usage: &Amounts,
        shortfall: &[usize],
        strategy: FairStrategy,
        search: &mut FairSearch,
    ) -> bool {
        let FairSearch { victims, retried } = search;
        let mut candidates = self.candidates(shortfall);
        let reclaims = self.world.preempts_within_nominal && self.is_within_nominal(usage, shortfall);
        while let Some(queue) = self.next_queue(&self.sums(victims, Some(usage)), &candidates) {
            let number = victims.len();
            while let Some(index) = pop_candidate(&mut candidates, queue) {
                let reason = if queue == self.own_node() {
                    PreemptionReason::InClusterQueue
                } else if reclaims {
                    PreemptionReason::InCohortReclamation
                } else if self.satisfies_strategy(strategy, usage, victims, index) {
                    PreemptionReason::InCohortFairSharing
                } else {
                    retried.entry(queue).or_default().push(index);
                    continue;
                };
                victims.push((index, reason));
                break;
            }
            if victims.len() > number && self.fits(victims, usage) {
                return true;
            }
        }
        false
    }

    fn second_strategy(&self, usage: &Amounts, search: &mut FairSearch) -> bool {
        let FairSearch { victims, retried: candidates } = search;
        while let Some(queue) = self.next_queue(&self.sums(victims, Some(usage)), candidates) {
            let index = pop_candidate(candidates, queue).unwrap();
            candidates.remove(&queue);
            if !self.satisfies_strategy(FairStrategy::LessThanInitialShare, usage, victims, index) {
                continue;
            }
            victims.push((index, PreemptionReason::InCohortFairSharing));
            if self.fits(victims, usage) {
                return true;
            }
        }
        false
    }

    /// Returns the requested usage, and the flavor-resources that need victims.
    ///
    /// # Errors
    /// The pending reason if a search for victims cannot help.
    pub(super) fn request_and_shortfall(&self) -> Result<(Amounts, Vec<usize>), PendingReason> {
        let (preemptor, sums, own) = (&self.world.preemptor, self.sums(&[], None), self.own_node());
        let (mut usage, mut shortfall) = ([0; FLAVOR_RESOURCES], Vec::new());
        for (flavor, requests) in preemptor.requests.iter().enumerate() {
            let mut infeasible = Ok(());
            for (resource, amount) in requests.iter().enumerate() {
                let Some(amount) = amount.map(i128::from) else { continue };
                let fr = flavor * RESOURCES.len() + resource;
                usage[fr] = amount;
                if amount > self.model.potential_available(&sums, own, fr) {
                    infeasible = Err(PendingReason::ExceedsMaxQuota);
                } else if amount > self.model.available(&sums, own, fr).max(0) {
                    shortfall.push(fr);
                    let may_help = preemptor.reclaim != ReclaimPolicy::Never
                        || amount <= sums.subtree_quota[own][fr]
                        || self.model.may_reclaim(&sums, preemptor.queue, fr, amount);
                    infeasible =
                        infeasible.and(if may_help { Ok(()) } else { Err(PendingReason::WaitingForQuota) });
                }
            }
            infeasible?;
        }
        Ok((usage, shortfall))
    }

    pub(super) fn expected_outcome(&self) -> ExpectedOutcome {
        let (usage, shortfall) = match self.request_and_shortfall() {
            Ok(request) => request,
            Err(reason) => return ExpectedOutcome::Pending(reason),
        };
        if shortfall.is_empty() {
            return ExpectedOutcome::Admitted;
        }
        let victims = self.victims(&usage, &shortfall);
        if victims.is_empty() {
            ExpectedOutcome::Pending(PendingReason::WaitingForQuota)
        } else {
            ExpectedOutcome::Preempts(victims)
        }
    }
}

fn first_candidate(candidates: &CandidatesByNode, queue: usize) -> Option<usize> {
    candidates.get(&queue)?.first().copied()
}

fn pop_candidate(by_node: &mut CandidatesByNode, queue: usize) -> Option<usize> {
    let candidates = by_node.get_mut(&queue).filter(|candidates| !candidates.is_empty())?;
    Some(candidates.remove(0))
}

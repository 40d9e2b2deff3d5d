//! Dominant shares in exact fractions, and the tournament held over them by comparing everybody: I1, I9, I18.
//!
//! Weights are powers of two here, so that the engine's floating-point shares are equal where the fractions are.

use super::builders::{
    COHORTS, QUEUES, RESOURCES, charge, cohort, config, key, limits, pod_set, queue, workload,
};
use super::cluster::settings;
use super::fast_model::{Amounts, FLAVOR_RESOURCES, FastModel, NodeSums, Quota, node_index};
use jiff::Timestamp;
use proptest::prelude::*;
use sluice::api::v1beta2::{ClusterQueuePreemption, ReclaimPolicy, WithinClusterQueuePolicy};
use sluice::quota::{FlavorQuotas, ResourceGroup};
use sluice::scheduler::{ClusterQueue, Cohort, Engine, Flavor, NodeRef, Outcome};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Weights, and twice the weight as a whole number.
pub(super) const WEIGHTS: [(f64, i128); 5] = [(0.0, 0), (0.5, 1), (1.0, 2), (2.0, 4), (4.0, 8)];

/// One that waits: amounts of each resource, none where it does not ask.
#[derive(Clone, Debug)]
struct PendingRequest {
    requests: [Option<i64>; 2],
    priority: i64,
    since: i64,
}

#[derive(Clone, Debug)]
struct World {
    parents: Vec<Option<usize>>,
    quotas: Vec<[Quota; 2]>,
    weights: Vec<usize>,
    reserved: Vec<(usize, [i64; 2])>,
    /// By queue.
    pending: Vec<Option<PendingRequest>>,
}

/// A share as a fraction of whole numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExactShare {
    Ratio(i128, i128),
    /// Of a node without weight, by what it would be with one.
    Unlimited(i128, i128),
}

impl ExactShare {
    /// The largest of what is borrowed by what could be lent, and then by weight.
    pub(super) fn from_parts(parts: impl Iterator<Item = (i128, i128)>, twice_weight: i128) -> Self {
        let mut most = (0, 1);
        for (borrowed, lendable) in parts {
            if lendable > 0 && borrowed * most.1 > most.0 * lendable {
                most = (borrowed, lendable);
            }
        }
        match (most.0, twice_weight) {
            (0, _) => Self::Ratio(0, 1),
            (borrowed, 0) => Self::Unlimited(borrowed * 1000, most.1),
            (borrowed, twice) => Self::Ratio(borrowed * 2000, most.1 * twice),
        }
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Ratio(a, b), Self::Ratio(c, d)) | (Self::Unlimited(a, b), Self::Unlimited(c, d)) => {
                (a * d).cmp(&(c * b))
            }
            (Self::Ratio(..), Self::Unlimited(..)) => Ordering::Less,
            (Self::Unlimited(..), Self::Ratio(..)) => Ordering::Greater,
        }
    }

    /// Whether there is no limit to it.
    pub(super) const fn is_unlimited(self) -> bool {
        matches!(self, Self::Unlimited(..))
    }

    fn weighted_share(self) -> i64 {
        match self {
            Self::Ratio(a, b) => i64::try_from((a + b - 1).div_euclid(b)).unwrap(),
            Self::Unlimited(..) => i64::MAX,
        }
    }
}

fn to_amounts(amounts: [i64; 2]) -> Amounts {
    let mut wide = [0; FLAVOR_RESOURCES];
    wide[0] = i128::from(amounts[0]);
    wide[1] = i128::from(amounts[1]);
    wide
}

impl PendingRequest {
    fn amounts(&self) -> Amounts {
        to_amounts(self.requests.map(Option::unwrap_or_default))
    }
}

impl World {
    fn model(&self) -> FastModel {
        let mut plain = FastModel::new();
        for (at, node) in plain.nodes.iter_mut().enumerate() {
            node.parent = self.parents[at];
            node.quotas[..2].copy_from_slice(&self.quotas[at]);
        }
        plain
    }

    fn share(&self, plain: &FastModel, sums: &NodeSums, node: usize) -> ExactShare {
        let Some(up) = self.parents[node] else {
            return ExactShare::Ratio(0, 1);
        };
        let part = |pair: usize| {
            let borrowed = (sums.usage[node][pair] - sums.subtree_quota[node][pair]).max(0);
            (borrowed, plain.potential_available(sums, up, pair))
        };
        ExactShare::from_parts((0..RESOURCES.len()).map(part), WEIGHTS[self.weights[node]].1)
    }

    fn engine(&self) -> Engine {
        let mut engine = Engine::new(settings(Some(vec![])));
        engine.set_flavor("red", Some(Flavor::default()));
        engine.set_namespace("ns", Some(BTreeMap::new()));
        let small = |amount: i128| i64::try_from(amount).unwrap();
        let groups = |at: usize| {
            let quota = |(name, quota): (&&str, &Quota)| {
                let Quota { nominal, borrowing, lending } = *quota;
                let limits = limits(small(nominal), borrowing.map(small), lending.map(small));
                (Arc::from(*name), limits)
            };
            let limits = RESOURCES.iter().zip(&self.quotas[at]).map(quota).collect();
            vec![ResourceGroup::from_flavors(vec![FlavorQuotas { name: Arc::from("red"), limits }])]
        };
        let parent = |at: usize| self.parents[at].map(|up| COHORTS[up]);
        let weight = |at: usize| Some(WEIGHTS[self.weights[at]].0);
        for (at, name) in COHORTS.iter().enumerate() {
            engine.set_cohort(name, Some(Cohort { weight: weight(at), ..cohort(parent(at), groups(at)) }));
        }
        let preemption = ClusterQueuePreemption {
            within_cluster_queue: Some(WithinClusterQueuePolicy::Never),
            reclaim_within_cohort: Some(ReclaimPolicy::Never),
            ..ClusterQueuePreemption::default()
        };
        for (at, name) in QUEUES.iter().enumerate() {
            let (weight, preemption) = (weight(node_index(at)), preemption.clone());
            let plain = queue(parent(node_index(at)), groups(node_index(at)));
            engine.set_cluster_queue(name, Some(ClusterQueue { weight, preemption, ..plain }));
        }
        for (at, (queue, [cpu, gpu])) in self.reserved.iter().enumerate() {
            let usage = [("red", "cpu", *cpu), ("red", "gpu", *gpu)];
            engine.charge(&key(&format!("h{at}")), charge(QUEUES[*queue], &usage));
        }
        engine
    }

    fn sums(&self, plain: &FastModel, more: &[(usize, Amounts)]) -> NodeSums {
        let held: Vec<(usize, Amounts)> =
            self.reserved.iter().map(|(queue, held)| (*queue, to_amounts(*held))).collect();
        plain.sums(held.iter().chain(more).map(|(queue, amounts)| (*queue, amounts)))
    }

    /// The queue below a node whose head goes first, everybody compared with everybody.
    fn tournament_winner(
        &self,
        plain: &FastModel,
        given: &[(usize, Amounts)],
        left: &[usize],
        node: usize,
    ) -> Option<usize> {
        if node >= COHORTS.len() {
            return left.iter().copied().find(|queue| node_index(*queue) == node);
        }
        let children = (0..self.parents.len()).filter(|child| self.parents[*child] == Some(node));
        let winners =
            children.filter_map(|child| Some((child, self.tournament_winner(plain, given, left, child)?)));
        let compare = |a: &(usize, usize), b: &(usize, usize)| {
            let standing = |(child, queue): &(usize, usize)| {
                let asker = self.pending[*queue].as_ref().unwrap();
                let mut with = given.to_vec();
                with.push((*queue, asker.amounts()));
                let sums = self.sums(plain, &with);
                let over = |pair: usize| sums.usage[*child][pair] > sums.subtree_quota[*child][pair];
                let borrows = (0..RESOURCES.len()).any(|pair| asker.requests[pair].is_some() && over(pair));
                let is_queue = *child >= COHORTS.len();
                let last = (Reverse(asker.priority), asker.since, is_queue, *queue);
                (borrows, self.share(plain, &sums, *child), last)
            };
            let (a, b) = (standing(a), standing(b));
            a.0.cmp(&b.0).then_with(|| a.1.compare(b.1)).then_with(|| a.2.cmp(&b.2))
        };
        winners.min_by(compare).map(|(_, queue)| queue)
    }

    /// Heads in the order of their turns, and whether each is admitted.
    fn expected_order(&self, plain: &FastModel, mut left: Vec<usize>) -> Vec<(usize, bool)> {
        let (mut given, mut turns) = (Vec::new(), Vec::new());
        while let Some(first) = left.first() {
            let root = *plain.path_to_root(*first).last().unwrap();
            let queue = self.tournament_winner(plain, &given, &left, root).unwrap();
            let wanted = self.pending[queue].as_ref().unwrap().amounts();
            let fits = plain.fits(&self.sums(plain, &given), queue, &wanted);
            if fits {
                given.push((queue, wanted));
            }
            left.retain(|other| *other != queue);
            turns.push((queue, fits));
        }
        turns
    }
}

fn quota(most: i128) -> impl Strategy<Value = Quota> {
    let limit = || proptest::option::weighted(0.2, 0..most);
    (0..most, limit(), limit()).prop_map(|(nominal, borrowing, lending)| Quota {
        nominal,
        borrowing,
        lending,
    })
}

fn world() -> impl Strategy<Value = World> {
    let parent = |at: usize| if at == 0 { Just(None).boxed() } else { (0..at).prop_map(Some).boxed() };
    let cohorts: Vec<_> = (0..COHORTS.len()).map(parent).collect();
    let queues = prop::collection::vec(proptest::option::weighted(0.9, 0..COHORTS.len()), QUEUES.len());
    let of = |most, number| prop::collection::vec([quota(most), quota(most)], number);
    let quotas = (of(6, COHORTS.len()), of(10, QUEUES.len()));
    let weights = prop::collection::vec(0..WEIGHTS.len(), COHORTS.len() + QUEUES.len());
    let held = prop::collection::vec((0..QUEUES.len(), [0..9_i64, 0..9_i64]), 0..5);
    let request = || proptest::option::weighted(0.8, 1..6_i64);
    let asker = ([request(), request()], 0..3_i64, 0..3_i64)
        .prop_map(|(requests, priority, since)| PendingRequest { requests, priority, since });
    let askers = prop::collection::vec(proptest::option::weighted(0.9, asker), QUEUES.len());
    (cohorts, queues, quotas, weights, held, askers).prop_map(
        |(cohorts, queues, quotas, weights, held, askers)| World {
            parents: cohorts.into_iter().chain(queues).collect(),
            quotas: quotas.0.into_iter().chain(quotas.1).collect(),
            weights,
            reserved: held,
            pending: askers,
        },
    )
}

proptest! {
    #![proptest_config(config(3000))]

    #[test]
    fn i01_weighted_shares_equal_exact_fractions(world in world()) {
        let (plain, engine) = (world.model(), world.engine());
        let sums = world.sums(&plain, &[]);
        for node in 0..world.parents.len() {
            let name = match COHORTS.get(node) {
                Some(name) => NodeRef::Cohort(Arc::from(*name)),
                None => NodeRef::ClusterQueue(Arc::from(QUEUES[node - COHORTS.len()])),
            };
            let share = world.share(&plain, &sums, node);
            prop_assert_eq!(engine.weighted_share(&name), share.weighted_share(), "share of {}: {:?}", name, share);
        }
    }

    #[test]
    fn i09_tournament_order_equals_pairwise_comparison(world in world()) {
        let (plain, mut engine) = (world.model(), world.engine());
        let sums = world.sums(&plain, &[]);
        let fits = |queue: &usize| {
            world.pending[*queue].as_ref().is_some_and(|asker| plain.fits(&sums, *queue, &asker.amounts()))
        };
        let heads: Vec<usize> = (0..QUEUES.len()).filter(fits).collect();
        for queue in &heads {
            let asker = world.pending[*queue].as_ref().unwrap();
            let requests: Vec<(&str, i64)> =
                RESOURCES.iter().zip(asker.requests).filter_map(|(name, amount)| Some((*name, amount?))).collect();
            let sets = vec![pod_set("main", 1, &requests)];
            engine.enqueue(workload(&format!("w{queue}"), QUEUES[*queue], asker.priority, asker.since, sets));
        }
        let found: Vec<(usize, bool)> = engine
            .run_cycle(Timestamp::UNIX_EPOCH)
            .iter()
            .map(|decision| {
                let queue = decision.key.name.trim_start_matches('w').parse().unwrap();
                (queue, matches!(decision.outcome, Outcome::Admitted(_)))
            })
            .collect();
        prop_assert_eq!(found, world.expected_order(&plain, heads));
    }
}

//! Dominant resource shares in exact fractions, and the tournament over them by pairwise comparison: I1, I9, I18.
//!
//! Weights are powers of two here, so that the engine's floating-point shares are equal where the fractions are.

use super::cluster::settings;
use super::fast_model::{Amounts, FLAVOR_RESOURCES, FastModel, NodeSums, Quota, node_index};
use crate::fixtures::builders::{
    COHORTS, QUEUES, RESOURCES, charge, cohort, config, key, limits, pod_set, queue, workload,
};
use jiff::Timestamp;
use proptest::prelude::*;
use sluice_core::api::v1beta2::{ClusterQueuePreemption, ReclaimPolicy, WithinClusterQueuePolicy};
use sluice_core::quota::{FlavorQuotas, ResourceGroup};
use sluice_core::scheduler::{ClusterQueue, Cohort, Engine, Flavor, NodeRef, Outcome};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Weights, and twice the weight as a whole number.
pub(super) const WEIGHTS: [(f64, i128); 5] = [(0.0, 0), (0.5, 1), (1.0, 2), (2.0, 4), (4.0, 8)];

/// A pending workload; a resource that it does not request is `None`.
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
    /// Of a node without weight: its share before weighting.
    Unlimited(i128, i128),
}

impl ExactShare {
    /// The largest ratio of borrowed to lendable amounts, divided by the weight.
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
        let mut model = FastModel::new();
        for (index, node) in model.nodes.iter_mut().enumerate() {
            node.parent = self.parents[index];
            node.quotas[..2].copy_from_slice(&self.quotas[index]);
        }
        model
    }

    fn share(&self, model: &FastModel, sums: &NodeSums, node: usize) -> ExactShare {
        let Some(parent) = self.parents[node] else {
            return ExactShare::Ratio(0, 1);
        };
        let part = |fr: usize| {
            let borrowed = (sums.usage[node][fr] - sums.subtree_quota[node][fr]).max(0);
            (borrowed, model.potential_available(sums, parent, fr))
        };
        ExactShare::from_parts((0..RESOURCES.len()).map(part), WEIGHTS[self.weights[node]].1)
    }

    fn engine(&self) -> Engine {
        let mut engine = Engine::new(settings(Some(vec![])));
        engine.set_flavor("red", Some(Flavor::default()));
        engine.set_namespace("ns", Some(BTreeMap::new()));
        let small = |amount: i128| i64::try_from(amount).unwrap();
        let groups = |index: usize| {
            let quota = |(name, quota): (&&str, &Quota)| {
                let Quota { nominal, borrowing, lending } = *quota;
                let limits = limits(small(nominal), borrowing.map(small), lending.map(small));
                (Arc::from(*name), limits)
            };
            let limits = RESOURCES.iter().zip(&self.quotas[index]).map(quota).collect();
            vec![ResourceGroup::from_flavors(vec![FlavorQuotas { name: Arc::from("red"), limits }])]
        };
        let parent = |index: usize| self.parents[index].map(|parent| COHORTS[parent]);
        let weight = |index: usize| Some(WEIGHTS[self.weights[index]].0);
        for (index, name) in COHORTS.iter().enumerate() {
            engine.set_cohort(
                name,
                Some(Cohort { weight: weight(index), ..cohort(parent(index), groups(index)) }),
            );
        }
        let preemption = ClusterQueuePreemption {
            within_cluster_queue: Some(WithinClusterQueuePolicy::Never),
            reclaim_within_cohort: Some(ReclaimPolicy::Never),
            ..ClusterQueuePreemption::default()
        };
        for (index, name) in QUEUES.iter().enumerate() {
            let (weight, preemption) = (weight(node_index(index)), preemption.clone());
            let base = queue(parent(node_index(index)), groups(node_index(index)));
            engine.set_cluster_queue(name, Some(ClusterQueue { weight, preemption, ..base }));
        }
        for (index, (queue, [cpu, gpu])) in self.reserved.iter().enumerate() {
            let usage = [("red", "cpu", *cpu), ("red", "gpu", *gpu)];
            engine.charge(&key(&format!("h{index}")), charge(QUEUES[*queue], &usage));
        }
        engine
    }

    fn sums(&self, model: &FastModel, extra: &[(usize, Amounts)]) -> NodeSums {
        let charged: Vec<(usize, Amounts)> =
            self.reserved.iter().map(|(queue, charged)| (*queue, to_amounts(*charged))).collect();
        model.sums(charged.iter().chain(extra).map(|(queue, amounts)| (*queue, amounts)))
    }

    /// Returns the queue below a node whose head is next, by comparing all heads pairwise.
    fn tournament_winner(
        &self,
        model: &FastModel,
        admitted: &[(usize, Amounts)],
        heads: &[usize],
        node: usize,
    ) -> Option<usize> {
        if node >= COHORTS.len() {
            return heads.iter().copied().find(|queue| node_index(*queue) == node);
        }
        let children = (0..self.parents.len()).filter(|child| self.parents[*child] == Some(node));
        let winners = children
            .filter_map(|child| Some((child, self.tournament_winner(model, admitted, heads, child)?)));
        let compare = |a: &(usize, usize), b: &(usize, usize)| {
            let tournament_key = |(child, queue): &(usize, usize)| {
                let request = self.pending[*queue].as_ref().unwrap();
                let mut admitted_next = admitted.to_vec();
                admitted_next.push((*queue, request.amounts()));
                let sums = self.sums(model, &admitted_next);
                let over = |fr: usize| sums.usage[*child][fr] > sums.subtree_quota[*child][fr];
                let borrows = (0..RESOURCES.len()).any(|fr| request.requests[fr].is_some() && over(fr));
                let is_queue = *child >= COHORTS.len();
                let tie_break = (Reverse(request.priority), request.since, is_queue, *queue);
                (borrows, self.share(model, &sums, *child), tie_break)
            };
            let (a, b) = (tournament_key(a), tournament_key(b));
            a.0.cmp(&b.0).then_with(|| a.1.compare(b.1)).then_with(|| a.2.cmp(&b.2))
        };
        winners.min_by(compare).map(|(_, queue)| queue)
    }

    /// Returns heads in the order in which they are processed, and whether each is admitted.
    fn expected_order(&self, model: &FastModel, mut heads: Vec<usize>) -> Vec<(usize, bool)> {
        let (mut admitted, mut order) = (Vec::new(), Vec::new());
        while let Some(first) = heads.first() {
            let root = *model.path_to_root(*first).last().unwrap();
            let queue = self.tournament_winner(model, &admitted, &heads, root).unwrap();
            let requested = self.pending[queue].as_ref().unwrap().amounts();
            let fits = model.fits(&self.sums(model, &admitted), queue, &requested);
            if fits {
                admitted.push((queue, requested));
            }
            heads.retain(|other| *other != queue);
            order.push((queue, fits));
        }
        order
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
    let parent =
        |index: usize| if index == 0 { Just(None).boxed() } else { (0..index).prop_map(Some).boxed() };
    let cohorts: Vec<_> = (0..COHORTS.len()).map(parent).collect();
    let queues = prop::collection::vec(proptest::option::weighted(0.9, 0..COHORTS.len()), QUEUES.len());
    let node_quotas = |most, number| prop::collection::vec([quota(most), quota(most)], number);
    let quotas = (node_quotas(6, COHORTS.len()), node_quotas(10, QUEUES.len()));
    let weights = prop::collection::vec(0..WEIGHTS.len(), COHORTS.len() + QUEUES.len());
    let reserved = prop::collection::vec((0..QUEUES.len(), [0..9_i64, 0..9_i64]), 0..5);
    let request = || proptest::option::weighted(0.8, 1..6_i64);
    let request_spec = ([request(), request()], 0..3_i64, 0..3_i64)
        .prop_map(|(requests, priority, since)| PendingRequest { requests, priority, since });
    let pending = prop::collection::vec(proptest::option::weighted(0.9, request_spec), QUEUES.len());
    (cohorts, queues, quotas, weights, reserved, pending).prop_map(
        |(cohorts, queues, quotas, weights, reserved, pending)| World {
            parents: cohorts.into_iter().chain(queues).collect(),
            quotas: quotas.0.into_iter().chain(quotas.1).collect(),
            weights,
            reserved,
            pending,
        },
    )
}

proptest! {
    #![proptest_config(config(3000))]

    #[test]
    fn i01_weighted_shares_equal_exact_fractions(world in world()) {
        let (model, engine) = (world.model(), world.engine());
        let sums = world.sums(&model, &[]);
        for node in 0..world.parents.len() {
            let name = match COHORTS.get(node) {
                Some(name) => NodeRef::Cohort(Arc::from(*name)),
                None => NodeRef::ClusterQueue(Arc::from(QUEUES[node - COHORTS.len()])),
            };
            let share = world.share(&model, &sums, node);
            prop_assert_eq!(engine.weighted_share(&name), share.weighted_share(), "share of {}: {:?}", name, share);
        }
    }

    #[test]
    fn i09_tournament_order_equals_pairwise_comparison(world in world()) {
        let (model, mut engine) = (world.model(), world.engine());
        let sums = world.sums(&model, &[]);
        let fits = |queue: &usize| {
            world.pending[*queue].as_ref().is_some_and(|request| model.fits(&sums, *queue, &request.amounts()))
        };
        let heads: Vec<usize> = (0..QUEUES.len()).filter(fits).collect();
        for queue in &heads {
            let request = world.pending[*queue].as_ref().unwrap();
            let requests: Vec<(&str, i64)> =
                RESOURCES.iter().zip(request.requests).filter_map(|(name, amount)| Some((*name, amount?))).collect();
            let sets = vec![pod_set("main", 1, &requests)];
            engine.enqueue(workload(&format!("w{queue}"), QUEUES[*queue], request.priority, request.since, sets));
        }
        let decided: Vec<(usize, bool)> = engine
            .run_cycle(Timestamp::UNIX_EPOCH)
            .iter()
            .map(|decision| {
                let queue = decision.key.name.trim_start_matches('w').parse().unwrap();
                (queue, matches!(decision.outcome, Outcome::Admitted(_)))
            })
            .collect();
        prop_assert_eq!(decided, world.expected_order(&model, heads));
    }
}

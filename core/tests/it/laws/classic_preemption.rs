//! I18: the choice of victims without fair sharing, by brute force over all sets of candidates.
//!
//! The rules are restated here in the plainest form: all sums are recomputed after every step. In addition, every smaller set
//! than the chosen one is tried and, where no victims are chosen, every set that the rules permit.

use super::cluster::settings;
use super::fast_model::{Amounts, FLAVOR_RESOURCES, FastModel, NodeSums, Quota, node_index};
use crate::fixtures::builders::{
    COHORTS, QUEUES, charge, cohort, config, key, limits, pod_set, queue, single_flavor_group, workload,
};
use crate::fixtures::preemption_policies::preemption_policies;
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice_core::api::v1beta2::{
    BorrowPolicy, BorrowWithinCohort, ClusterQueuePreemption, ReclaimPolicy, WithinClusterQueuePolicy,
};
use sluice_core::scheduler::{
    Charge, ClusterQueue, Cohort, Engine, EngineSettings, Flavor, Outcome, PreemptionReason,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) struct ReservingWorkload {
    pub(super) queue: usize,
    pub(super) amount: i64,
    priority: i64,
    since: i64,
    /// Absent while the reservation is not confirmed.
    reserved: Option<i64>,
    evicted: bool,
}

/// The preemptor, and the policies of its queue.
#[derive(Clone, Debug)]
pub(super) struct PreemptorSpec {
    pub(super) queue: usize,
    pub(super) amount: i64,
    pub(super) priority: i64,
    pub(super) since: i64,
    pub(super) within_cluster_queue: WithinClusterQueuePolicy,
    reclaim_within_cohort: ReclaimPolicy,
    /// Highest priority that it may preempt while borrowing; `i32::MAX` means no threshold.
    pub(super) borrow_threshold: Option<i32>,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) parents: Vec<Option<usize>>,
    pub(super) quotas: Vec<Quota>,
    pub(super) reserving: Vec<ReservingWorkload>,
    pub(super) preemptor: PreemptorSpec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CandidateOrder {
    Hierarchical,
    Priority,
    Own,
}

#[derive(Clone, Debug)]
struct Candidate {
    at: usize,
    order: CandidateOrder,
    reason: PreemptionReason,
    /// Lowest node above both queues.
    common_node: usize,
    only_without_borrowing: bool,
}

/// Decision on the preemptor.
#[derive(Clone, Debug, PartialEq)]
enum ExpectedOutcome {
    Admitted,
    Pending,
    /// Victims with reasons, and whether the preemptor's queue may borrow.
    Preempts(Vec<(usize, PreemptionReason)>, bool),
}

fn cpu_amounts(amount: i64) -> Amounts {
    let mut amounts = [0; FLAVOR_RESOURCES];
    amounts[0] = i128::from(amount);
    amounts
}

impl World {
    fn model(&self) -> FastModel {
        let mut model = FastModel::new();
        for (index, node) in model.nodes.iter_mut().enumerate() {
            node.parent = self.parents[index];
            node.quotas[0] = self.quotas[index];
        }
        model
    }

    fn sums(&self, model: &FastModel, removed: &[usize]) -> NodeSums {
        let stays = self.reserving.iter().enumerate().filter(|(index, _)| !removed.contains(index));
        let charged: Vec<(usize, Amounts)> =
            stays.map(|(_, workload)| (workload.queue, cpu_amounts(workload.amount))).collect();
        model.sums(charged.iter().map(|(queue, amounts)| (*queue, amounts)))
    }

    fn fits(&self, model: &FastModel, removed: &[usize], borrowing: bool) -> bool {
        let (sums, requested) = (self.sums(model, removed), cpu_amounts(self.preemptor.amount));
        let fits = if borrowing { FastModel::fits } else { FastModel::fits_without_borrowing };
        fits(model, &sums, self.preemptor.queue, &requested)
    }

    fn own_candidates(&self) -> Vec<Candidate> {
        let preemptor = &self.preemptor;
        let allowed = |workload: &ReservingWorkload| match preemptor.within_cluster_queue {
            WithinClusterQueuePolicy::Never => false,
            WithinClusterQueuePolicy::LowerPriority => workload.priority < preemptor.priority,
            WithinClusterQueuePolicy::LowerOrNewerEqualPriority => {
                workload.priority < preemptor.priority
                    || (workload.priority == preemptor.priority && preemptor.since < workload.since)
            }
        };
        let mine =
            self.reserving.iter().enumerate().filter(|(_, h)| h.queue == preemptor.queue && h.amount > 0);
        mine.filter(|(_, workload)| allowed(workload))
            .map(|(at, _)| Candidate {
                at,
                order: CandidateOrder::Own,
                reason: PreemptionReason::InClusterQueue,
                common_node: node_index(preemptor.queue),
                only_without_borrowing: false,
            })
            .collect()
    }

    /// Whether every node from the queue up to, but not including, `top` uses more than its quota.
    fn is_above_quota_below(model: &FastModel, sums: &NodeSums, queue: usize, top: usize) -> bool {
        let below = model.path_to_root(queue).into_iter().take_while(|node| *node != top);
        below.into_iter().all(|node| sums.usage[node][0] > sums.subtree_quota[node][0])
    }

    fn cohort_candidates(&self, model: &FastModel) -> Vec<Candidate> {
        let (preemptor, sums) = (&self.preemptor, self.sums(model, &[]));
        let mut candidates = Vec::new();
        if preemptor.reclaim_within_cohort == ReclaimPolicy::Never {
            return candidates;
        }
        let path = model.path_to_root(preemptor.queue);
        let mut rest = i128::from(preemptor.amount);
        let mut advantage = false;
        for (below, top) in path.iter().zip(&path[1..]) {
            advantage |= sums.usage[*below][0] + rest <= sums.subtree_quota[*below][0];
            rest = (rest - (sums.local_quota[*below][0] - sums.usage[*below][0]).max(0)).max(0);
            for (at, workload) in self.reserving.iter().enumerate() {
                let ancestors = model.path_to_root(workload.queue);
                let meets = ancestors.contains(top) && !ancestors.contains(below);
                let lower = workload.priority < preemptor.priority;
                let allowed = preemptor.reclaim_within_cohort == ReclaimPolicy::Any || lower;
                if meets
                    && allowed
                    && workload.amount > 0
                    && Self::is_above_quota_below(model, &sums, workload.queue, *top)
                {
                    let threshold = preemptor.borrow_threshold.map(i64::from);
                    let borrows = lower && threshold.is_some_and(|most| workload.priority <= most);
                    let while_borrowing = !advantage && borrows;
                    candidates.push(Candidate {
                        at,
                        order: if advantage {
                            CandidateOrder::Hierarchical
                        } else {
                            CandidateOrder::Priority
                        },
                        reason: if while_borrowing {
                            PreemptionReason::InCohortReclaimWhileBorrowing
                        } else {
                            PreemptionReason::InCohortReclamation
                        },
                        common_node: *top,
                        only_without_borrowing: !advantage && !while_borrowing,
                    });
                }
            }
        }
        candidates
    }

    /// Whether a search for victims can help at all.
    fn may_preempt(&self, model: &FastModel) -> bool {
        let (preemptor, sums, amount) =
            (&self.preemptor, self.sums(model, &[]), i128::from(self.preemptor.amount));
        let own = node_index(preemptor.queue);
        amount <= model.potential_available(&sums, own, 0)
            && (amount <= sums.subtree_quota[own][0]
                || model.may_reclaim(&sums, preemptor.queue, 0, amount)
                || preemptor.borrow_threshold.is_some())
    }

    /// For each attempt, whether the queue may borrow.
    fn borrowing_attempts(&self, model: &FastModel, others: &[Candidate]) -> &'static [bool] {
        let hierarchical = others.iter().any(|candidate| candidate.order == CandidateOrder::Hierarchical);
        let own = node_index(self.preemptor.queue);
        let sums = self.sums(model, &[]);
        let below = sums.usage[own][0] < sums.subtree_quota[own][0];
        match (others.is_empty(), self.preemptor.borrow_threshold.is_some()) {
            (true, _) => &[true],
            (_, false) if !below => &[true],
            (_, false) if !hierarchical => &[false, true],
            _ => &[true, false],
        }
    }

    fn expected_outcome(&self, model: &FastModel) -> ExpectedOutcome {
        if self.fits(model, &[], true) {
            return ExpectedOutcome::Admitted;
        }
        if !self.may_preempt(model) {
            return ExpectedOutcome::Pending;
        }
        let others = self.cohort_candidates(model);
        let attempts = self.borrowing_attempts(model, &others);
        let mut all: Vec<Candidate> = others.into_iter().chain(self.own_candidates()).collect();
        all.sort_by_key(|candidate| {
            let workload = &self.reserving[candidate.at];
            let newest = workload.reserved.map_or((0, Reverse(0)), |at| (1, Reverse(at)));
            (!workload.evicted, candidate.order, workload.priority, newest, candidate.at)
        });
        for borrowing in attempts {
            if let Some(victims) = self.try_preempt(model, &all, *borrowing) {
                return ExpectedOutcome::Preempts(victims, *borrowing);
            }
        }
        ExpectedOutcome::Pending
    }

    fn try_preempt(
        &self,
        model: &FastModel,
        all: &[Candidate],
        borrowing: bool,
    ) -> Option<Vec<(usize, PreemptionReason)>> {
        let mut victims: Vec<(usize, PreemptionReason)> = Vec::new();
        let names = |victims: &[(usize, PreemptionReason)]| -> Vec<usize> {
            victims.iter().map(|(index, _)| *index).collect()
        };
        for candidate in all {
            let sums = self.sums(model, &names(&victims));
            let from_cohort = candidate.order != CandidateOrder::Own;
            let queue = self.reserving[candidate.at].queue;
            if (from_cohort && borrowing && candidate.only_without_borrowing)
                || (from_cohort && !Self::is_above_quota_below(model, &sums, queue, candidate.common_node))
            {
                continue;
            }
            victims.push((candidate.at, candidate.reason));
            if self.fits(model, &names(&victims), borrowing) {
                for index in (0..victims.len() - 1).rev() {
                    let mut fewer = victims.clone();
                    fewer.swap_remove(index);
                    if self.fits(model, &names(&fewer), borrowing) {
                        victims = fewer;
                    }
                }
                return Some(victims);
            }
        }
        None
    }

    /// Whether every candidate of another queue stays eligible whichever other candidates are evicted.
    fn has_independent_queues(&self, others: &[Candidate]) -> bool {
        let queues: Vec<usize> = others.iter().map(|candidate| self.reserving[candidate.at].queue).collect();
        let root = self.parents[node_index(self.preemptor.queue)];
        let below_root = |queue: &usize| self.parents[node_index(*queue)] == root;
        queues.iter().all(below_root)
            && root.is_none_or(|root| self.parents[root].is_none())
            && (1..queues.len()).all(|index| !queues[..index].contains(&queues[index]))
    }

    /// Returns an engine with the queues and their charges, but without the preemptor.
    pub(super) fn engine(&self, settings: EngineSettings) -> Engine {
        let mut engine = Engine::new(settings);
        engine.set_flavor("red", Some(Flavor::default()));
        engine.set_namespace("ns", Some(BTreeMap::new()));
        let small = |amount: i128| i64::try_from(amount).unwrap();
        let groups = |index: usize| {
            let Quota { nominal, borrowing, lending } = self.quotas[index];
            single_flavor_group(
                "red",
                "cpu",
                limits(small(nominal), borrowing.map(small), lending.map(small)),
            )
        };
        let parent = |index: usize| self.parents[index].map(|up| COHORTS[up]);
        for (index, name) in COHORTS.iter().enumerate() {
            engine.set_cohort(name, Some(Cohort { ..cohort(parent(index), groups(index)) }));
        }
        let preemptor = &self.preemptor;
        let preemption = ClusterQueuePreemption {
            within_cluster_queue: Some(preemptor.within_cluster_queue),
            reclaim_within_cohort: Some(preemptor.reclaim_within_cohort),
            borrow_within_cohort: preemptor.borrow_threshold.map(|most| BorrowWithinCohort {
                policy: Some(BorrowPolicy::LowerPriority),
                max_priority_threshold: Some(most).filter(|most| *most < i32::MAX),
            }),
        };
        for (index, name) in QUEUES.iter().enumerate() {
            let base = queue(parent(node_index(index)), groups(node_index(index)));
            let preemption = if index == preemptor.queue { preemption.clone() } else { <_>::default() };
            engine.set_cluster_queue(name, Some(ClusterQueue { preemption, ..base }));
        }
        for index in 0..self.reserving.len() {
            engine.charge(&key(&format!("h{index:02}")), self.charge_of(index));
        }
        engine
    }

    /// Returns the charge of a reserving workload.
    pub(super) fn charge_of(&self, index: usize) -> Charge {
        let workload = &self.reserving[index];
        let time = |second: i64| Timestamp::from_second(second).unwrap();
        Charge {
            uid: Arc::from(format!("{index:02}")),
            priority: workload.priority,
            queued_since: time(workload.since),
            reserved_at: workload.reserved.map(time),
            evicted: workload.evicted,
            ..charge(QUEUES[workload.queue], &[("red", "cpu", workload.amount)])
        }
    }

    /// Returns the engine's decision.
    fn engine_outcome(&self) -> ExpectedOutcome {
        let (mut engine, preemptor) = (self.engine(settings(None)), &self.preemptor);
        let sets = vec![pod_set("main", 1, &[("cpu", preemptor.amount)])];
        engine.enqueue(workload("asks", QUEUES[preemptor.queue], preemptor.priority, preemptor.since, sets));
        let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
        match decisions.into_iter().next().map(|decision| decision.outcome) {
            Some(Outcome::Admitted(_)) => ExpectedOutcome::Admitted,
            Some(Outcome::Preempting(_, victims)) => {
                let number = |name: &str| name.trim_start_matches('h').parse().unwrap();
                let victims = victims.iter().map(|victim| (number(&victim.key.name), victim.reason));
                ExpectedOutcome::Preempts(victims.collect(), false)
            }
            _ => ExpectedOutcome::Pending,
        }
    }
}

/// Returns all subsets.
pub(super) fn subsets(all: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    (0..1_usize << all.len()).map(|bits| {
        all.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1).map(|(_, item)| *item).collect()
    })
}

/// Checks I18 over all sets of victims.
fn check_world(world: &World) -> TestCaseResult {
    let model = world.model();
    let (expected, actual) = (world.expected_outcome(&model), world.engine_outcome());
    if let (ExpectedOutcome::Preempts(expected, borrowing), ExpectedOutcome::Preempts(actual, _)) =
        (&expected, &actual)
    {
        prop_assert_eq!(expected, actual, "I18: victims, their order and reasons");
        let all: Vec<usize> = actual.iter().map(|(index, _)| *index).collect();
        for fewer in subsets(&all).filter(|fewer| fewer.len() < all.len()) {
            let enough = world.fits(&model, &fewer, *borrowing);
            prop_assert!(!enough, "I18: {:?} would have been enough, of {:?}", fewer, all);
        }
    } else {
        prop_assert_eq!(&expected, &actual);
    }
    if actual == ExpectedOutcome::Pending && world.may_preempt(&model) {
        let others = world.cohort_candidates(&model);
        let flat = world.has_independent_queues(&others);
        let own: Vec<usize> = world.own_candidates().iter().map(|candidate| candidate.at).collect();
        for borrowing in world.borrowing_attempts(&model, &others).iter().copied() {
            let eligible = others.iter().filter(|candidate| !borrowing || !candidate.only_without_borrowing);
            let mut all: Vec<usize> =
                if flat { eligible.map(|candidate| candidate.at).collect() } else { Vec::new() };
            all.extend(&own);
            for removed in subsets(&all) {
                let fits = world.fits(&model, &removed, borrowing);
                prop_assert!(!fits, "I18: the preemptor fits without {:?}", removed);
            }
        }
    }
    Ok(())
}

fn quota(most: i128) -> impl Strategy<Value = Quota> {
    let limit = || proptest::option::weighted(0.25, 0..most);
    (0..most, limit(), limit()).prop_map(|(nominal, borrowing, lending)| Quota {
        nominal,
        borrowing,
        lending,
    })
}

fn reserving_workload() -> impl Strategy<Value = ReservingWorkload> {
    let reserved = proptest::option::weighted(0.8, 0..4_i64);
    let evicted = prop::bool::weighted(0.15);
    (0..QUEUES.len(), 0..8_i64, 0..4_i64, 0..4_i64, reserved, evicted).prop_map(
        |(queue, amount, priority, since, reserved, evicted)| ReservingWorkload {
            queue,
            amount,
            priority,
            since,
            reserved,
            evicted,
        },
    )
}

fn preemptor_spec() -> impl Strategy<Value = PreemptorSpec> {
    (0..QUEUES.len(), 1..9_i64, 1..6_i64, 0..4_i64, preemption_policies()).prop_map(
        |(queue, amount, priority, since, (within, reclaim, borrow))| PreemptorSpec {
            queue,
            amount,
            priority,
            since,
            within_cluster_queue: within,
            reclaim_within_cohort: reclaim,
            borrow_threshold: borrow,
        },
    )
}

/// A world in which the parent of each cohort precedes it, and queues hang anywhere or all below one cohort.
pub(super) fn world() -> impl Strategy<Value = World> {
    let parents =
        |index: usize| if index == 0 { Just(None).boxed() } else { (0..index).prop_map(Some).boxed() };
    let cohorts: Vec<_> = (0..COHORTS.len()).map(parents).collect();
    let deep = prop::collection::vec(proptest::option::weighted(0.9, 0..COHORTS.len()), QUEUES.len());
    let queues = prop_oneof![2 => deep, 1 => Just(vec![Some(0); QUEUES.len()])];
    let quotas =
        (prop::collection::vec(quota(4), COHORTS.len()), prop::collection::vec(quota(10), QUEUES.len()));
    let reserving = prop::collection::vec(reserving_workload(), 3..9);
    (cohorts, queues, quotas, reserving, preemptor_spec()).prop_map(
        |(cohorts, queues, quotas, reserving, preemptor)| World {
            parents: cohorts.into_iter().chain(queues).collect(),
            quotas: quotas.0.into_iter().chain(quotas.1).collect(),
            reserving,
            preemptor,
        },
    )
}

proptest! {
    #![proptest_config(config(4000))]

    #[test]
    fn i18_victims_match_model_and_are_minimal(world in world()) {
        check_world(&world)?;
    }
}

/// Random worlds must cover all three preemption reasons, and several victims at a time.
#[test]
fn generator_covers_all_preemption_reasons() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::new(config(1));
    let (mut reasons, mut several) = (std::collections::BTreeSet::new(), 0);
    for _ in 0..2000 {
        let world = world().new_tree(&mut runner).unwrap().current();
        if let ExpectedOutcome::Preempts(victims, _) = world.expected_outcome(&world.model()) {
            several += usize::from(victims.len() > 1);
            reasons.extend(victims.into_iter().map(|(_, reason)| reason));
        }
    }
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(several > 50, "{several}");
}

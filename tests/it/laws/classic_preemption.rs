//! The choice of victims without fair sharing, by brute force over all sets of them: I18.
//!
//! The rules are written down a second time here, in the plainest form: all sums are made anew after every step. Beside that,
//! every smaller set than the chosen one is tried, and where nobody is chosen, every set that the rules would let go.

use super::builders::{
    COHORTS, QUEUES, charge, cohort, config, key, limits, pod_set, queue, single_flavor_group, workload,
};
use super::cluster::settings;
use super::fast_model::{Amounts, FLAVOR_RESOURCES, FastModel, NodeSums, Quota, node_index};
use super::strategies::preemption_policies;
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice::api::v1beta2::{
    BorrowPolicy, BorrowWithinCohort, ClusterQueuePreemption, ReclaimPolicy, WithinClusterQueuePolicy,
};
use sluice::scheduler::{
    Charge, ClusterQueue, Cohort, Engine, EngineSettings, Flavor, Outcome, PreemptionReason,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A workload that holds quota.
#[derive(Clone, Debug)]
pub(super) struct ReservingWorkload {
    pub(super) queue: usize,
    pub(super) amount: i64,
    priority: i64,
    since: i64,
    /// Not known of one whose reservation is not confirmed.
    reserved: Option<i64>,
    evicted: bool,
}

/// The workload that asks, and the rules of its queue.
#[derive(Clone, Debug)]
pub(super) struct PreemptorSpec {
    pub(super) queue: usize,
    pub(super) amount: i64,
    pub(super) priority: i64,
    pub(super) since: i64,
    pub(super) within_cluster_queue: WithinClusterQueuePolicy,
    reclaim_within_cohort: ReclaimPolicy,
    /// Highest priority that it may take while it borrows; the largest number stands for no threshold.
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
    /// Lowest node above both.
    common_node: usize,
    only_without_borrowing: bool,
}

/// What becomes of the one that asks.
#[derive(Clone, Debug, PartialEq)]
enum ExpectedOutcome {
    Admitted,
    Pending,
    /// Victims with reasons, and whether its queue may borrow.
    Preempts(Vec<(usize, PreemptionReason)>, bool),
}

fn cpu_amounts(amount: i64) -> Amounts {
    let mut amounts = [0; FLAVOR_RESOURCES];
    amounts[0] = i128::from(amount);
    amounts
}

impl World {
    fn model(&self) -> FastModel {
        let mut plain = FastModel::new();
        for (at, node) in plain.nodes.iter_mut().enumerate() {
            node.parent = self.parents[at];
            node.quotas[0] = self.quotas[at];
        }
        plain
    }

    fn sums(&self, plain: &FastModel, gone: &[usize]) -> NodeSums {
        let stays = self.reserving.iter().enumerate().filter(|(at, _)| !gone.contains(at));
        let held: Vec<(usize, Amounts)> =
            stays.map(|(_, holder)| (holder.queue, cpu_amounts(holder.amount))).collect();
        plain.sums(held.iter().map(|(queue, amounts)| (*queue, amounts)))
    }

    fn fits(&self, plain: &FastModel, gone: &[usize], borrowing: bool) -> bool {
        let (sums, wanted) = (self.sums(plain, gone), cpu_amounts(self.preemptor.amount));
        let fits = if borrowing { FastModel::fits } else { FastModel::fits_without_borrowing };
        fits(plain, &sums, self.preemptor.queue, &wanted)
    }

    fn own_candidates(&self) -> Vec<Candidate> {
        let asker = &self.preemptor;
        let allowed = |holder: &ReservingWorkload| match asker.within_cluster_queue {
            WithinClusterQueuePolicy::Never => false,
            WithinClusterQueuePolicy::LowerPriority => holder.priority < asker.priority,
            WithinClusterQueuePolicy::LowerOrNewerEqualPriority => {
                holder.priority < asker.priority
                    || (holder.priority == asker.priority && asker.since < holder.since)
            }
        };
        let mine = self.reserving.iter().enumerate().filter(|(_, h)| h.queue == asker.queue && h.amount > 0);
        mine.filter(|(_, holder)| allowed(holder))
            .map(|(at, _)| Candidate {
                at,
                order: CandidateOrder::Own,
                reason: PreemptionReason::InClusterQueue,
                common_node: node_index(asker.queue),
                only_without_borrowing: false,
            })
            .collect()
    }

    /// Whether every node from a queue up to, but without, a node above it uses more than it owns.
    fn is_above_quota_below(plain: &FastModel, sums: &NodeSums, queue: usize, top: usize) -> bool {
        let below = plain.path_to_root(queue).into_iter().take_while(|node| *node != top);
        below.into_iter().all(|node| sums.usage[node][0] > sums.subtree_quota[node][0])
    }

    fn cohort_candidates(&self, plain: &FastModel) -> Vec<Candidate> {
        let (asker, sums) = (&self.preemptor, self.sums(plain, &[]));
        let mut found = Vec::new();
        if asker.reclaim_within_cohort == ReclaimPolicy::Never {
            return found;
        }
        let path = plain.path_to_root(asker.queue);
        let mut rest = i128::from(asker.amount);
        let mut advantage = false;
        for (below, top) in path.iter().zip(&path[1..]) {
            advantage |= sums.usage[*below][0] + rest <= sums.subtree_quota[*below][0];
            rest = (rest - (sums.local_quota[*below][0] - sums.usage[*below][0]).max(0)).max(0);
            for (at, holder) in self.reserving.iter().enumerate() {
                let way = plain.path_to_root(holder.queue);
                let meets = way.contains(top) && !way.contains(below);
                let lower = holder.priority < asker.priority;
                let allowed = asker.reclaim_within_cohort == ReclaimPolicy::Any || lower;
                if meets
                    && allowed
                    && holder.amount > 0
                    && Self::is_above_quota_below(plain, &sums, holder.queue, *top)
                {
                    let threshold = asker.borrow_threshold.map(i64::from);
                    let borrows = lower && threshold.is_some_and(|most| holder.priority <= most);
                    let while_borrowing = !advantage && borrows;
                    found.push(Candidate {
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
        found
    }

    /// Whether a look for victims is worth while at all.
    fn may_preempt(&self, plain: &FastModel) -> bool {
        let (asker, sums, amount) =
            (&self.preemptor, self.sums(plain, &[]), i128::from(self.preemptor.amount));
        let own = node_index(asker.queue);
        amount <= plain.potential_available(&sums, own, 0)
            && (amount <= sums.subtree_quota[own][0]
                || plain.may_reclaim(&sums, asker.queue, 0, amount)
                || asker.borrow_threshold.is_some())
    }

    /// Whether the queue may borrow, at each try.
    fn borrowing_attempts(&self, plain: &FastModel, others: &[Candidate]) -> &'static [bool] {
        let hierarchical = others.iter().any(|candidate| candidate.order == CandidateOrder::Hierarchical);
        let own = node_index(self.preemptor.queue);
        let sums = self.sums(plain, &[]);
        let below = sums.usage[own][0] < sums.subtree_quota[own][0];
        match (others.is_empty(), self.preemptor.borrow_threshold.is_some()) {
            (true, _) => &[true],
            (_, false) if !below => &[true],
            (_, false) if !hierarchical => &[false, true],
            _ => &[true, false],
        }
    }

    fn expected_outcome(&self, plain: &FastModel) -> ExpectedOutcome {
        if self.fits(plain, &[], true) {
            return ExpectedOutcome::Admitted;
        }
        if !self.may_preempt(plain) {
            return ExpectedOutcome::Pending;
        }
        let others = self.cohort_candidates(plain);
        let attempts = self.borrowing_attempts(plain, &others);
        let mut all: Vec<Candidate> = others.into_iter().chain(self.own_candidates()).collect();
        all.sort_by_key(|candidate| {
            let holder = &self.reserving[candidate.at];
            let newest = holder.reserved.map_or((0, Reverse(0)), |at| (1, Reverse(at)));
            (!holder.evicted, candidate.order, holder.priority, newest, candidate.at)
        });
        for borrowing in attempts {
            if let Some(victims) = self.try_preempt(plain, &all, *borrowing) {
                return ExpectedOutcome::Preempts(victims, *borrowing);
            }
        }
        ExpectedOutcome::Pending
    }

    fn try_preempt(
        &self,
        plain: &FastModel,
        all: &[Candidate],
        borrowing: bool,
    ) -> Option<Vec<(usize, PreemptionReason)>> {
        let mut gone: Vec<(usize, PreemptionReason)> = Vec::new();
        let names =
            |gone: &[(usize, PreemptionReason)]| -> Vec<usize> { gone.iter().map(|(at, _)| *at).collect() };
        for candidate in all {
            let sums = self.sums(plain, &names(&gone));
            let other = candidate.order != CandidateOrder::Own;
            let queue = self.reserving[candidate.at].queue;
            if (other && borrowing && candidate.only_without_borrowing)
                || (other && !Self::is_above_quota_below(plain, &sums, queue, candidate.common_node))
            {
                continue;
            }
            gone.push((candidate.at, candidate.reason));
            if self.fits(plain, &names(&gone), borrowing) {
                for at in (0..gone.len() - 1).rev() {
                    let mut fewer = gone.clone();
                    fewer.swap_remove(at);
                    if self.fits(plain, &names(&fewer), borrowing) {
                        gone = fewer;
                    }
                }
                return Some(gone);
            }
        }
        None
    }

    /// Whether no candidate of another queue depends on whether another one goes first.
    fn has_independent_queues(&self, others: &[Candidate]) -> bool {
        let queues: Vec<usize> = others.iter().map(|candidate| self.reserving[candidate.at].queue).collect();
        let root = self.parents[node_index(self.preemptor.queue)];
        let below_root = |queue: &usize| self.parents[node_index(*queue)] == root;
        queues.iter().all(below_root)
            && root.is_none_or(|root| self.parents[root].is_none())
            && (1..queues.len()).all(|at| !queues[..at].contains(&queues[at]))
    }

    /// An engine that knows the queues and what they hold, but not the workload that asks.
    pub(super) fn engine(&self, settings: EngineSettings) -> Engine {
        let mut engine = Engine::new(settings);
        engine.set_flavor("red", Some(Flavor::default()));
        engine.set_namespace("ns", Some(BTreeMap::new()));
        let small = |amount: i128| i64::try_from(amount).unwrap();
        let groups = |at: usize| {
            let Quota { nominal, borrowing, lending } = self.quotas[at];
            single_flavor_group(
                "red",
                "cpu",
                limits(small(nominal), borrowing.map(small), lending.map(small)),
            )
        };
        let parent = |at: usize| self.parents[at].map(|up| COHORTS[up]);
        for (at, name) in COHORTS.iter().enumerate() {
            engine.set_cohort(name, Some(Cohort { ..cohort(parent(at), groups(at)) }));
        }
        let asker = &self.preemptor;
        let preemption = ClusterQueuePreemption {
            within_cluster_queue: Some(asker.within_cluster_queue),
            reclaim_within_cohort: Some(asker.reclaim_within_cohort),
            borrow_within_cohort: asker.borrow_threshold.map(|most| BorrowWithinCohort {
                policy: Some(BorrowPolicy::LowerPriority),
                max_priority_threshold: Some(most).filter(|most| *most < i32::MAX),
            }),
        };
        for (at, name) in QUEUES.iter().enumerate() {
            let plain = queue(parent(node_index(at)), groups(node_index(at)));
            let preemption = if at == asker.queue { preemption.clone() } else { <_>::default() };
            engine.set_cluster_queue(name, Some(ClusterQueue { preemption, ..plain }));
        }
        for at in 0..self.reserving.len() {
            engine.charge(&key(&format!("h{at:02}")), self.charge_of(at));
        }
        engine
    }

    /// What one of the holders holds.
    pub(super) fn charge_of(&self, at: usize) -> Charge {
        let holder = &self.reserving[at];
        let time = |second: i64| Timestamp::from_second(second).unwrap();
        Charge {
            uid: Arc::from(format!("{at:02}")),
            priority: holder.priority,
            queued_since: time(holder.since),
            reserved_at: holder.reserved.map(time),
            evicted: holder.evicted,
            ..charge(QUEUES[holder.queue], &[("red", "cpu", holder.amount)])
        }
    }

    /// What the engine makes of it.
    fn engine_outcome(&self) -> ExpectedOutcome {
        let (mut engine, asker) = (self.engine(settings(None)), &self.preemptor);
        let sets = vec![pod_set("main", 1, &[("cpu", asker.amount)])];
        engine.enqueue(workload("asks", QUEUES[asker.queue], asker.priority, asker.since, sets));
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

/// All sets of these.
pub(super) fn subsets(all: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    (0..1_usize << all.len()).map(|bits| {
        all.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, one)| *one).collect()
    })
}

/// I18 over all sets of victims.
fn check_world(world: &World) -> TestCaseResult {
    let plain = world.model();
    let (wanted, found) = (world.expected_outcome(&plain), world.engine_outcome());
    if let (ExpectedOutcome::Preempts(wanted, borrowing), ExpectedOutcome::Preempts(found, _)) =
        (&wanted, &found)
    {
        prop_assert_eq!(wanted, found, "I18: who goes, in which order, and why");
        let all: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
        for fewer in subsets(&all).filter(|fewer| fewer.len() < all.len()) {
            let enough = world.fits(&plain, &fewer, *borrowing);
            prop_assert!(!enough, "I18: {:?} would have been enough of {:?}", fewer, all);
        }
    } else {
        prop_assert_eq!(&wanted, &found);
    }
    if found == ExpectedOutcome::Pending && world.may_preempt(&plain) {
        let others = world.cohort_candidates(&plain);
        let flat = world.has_independent_queues(&others);
        let own: Vec<usize> = world.own_candidates().iter().map(|candidate| candidate.at).collect();
        for borrowing in world.borrowing_attempts(&plain, &others).iter().copied() {
            let free = others.iter().filter(|other| !borrowing || !other.only_without_borrowing);
            let mut all: Vec<usize> = if flat { free.map(|other| other.at).collect() } else { Vec::new() };
            all.extend(&own);
            for gone in subsets(&all) {
                let fits = world.fits(&plain, &gone, borrowing);
                prop_assert!(!fits, "I18: with {:?} gone there would be room", gone);
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

/// A world in which each cohort hangs below one of the two before it, or all queues below one cohort.
pub(super) fn world() -> impl Strategy<Value = World> {
    let parents = |at: usize| if at == 0 { Just(None).boxed() } else { (0..at).prop_map(Some).boxed() };
    let cohorts: Vec<_> = (0..COHORTS.len()).map(parents).collect();
    let deep = prop::collection::vec(proptest::option::weighted(0.9, 0..COHORTS.len()), QUEUES.len());
    let queues = prop_oneof![2 => deep, 1 => Just(vec![Some(0); QUEUES.len()])];
    let quotas =
        (prop::collection::vec(quota(4), COHORTS.len()), prop::collection::vec(quota(10), QUEUES.len()));
    let holders = prop::collection::vec(reserving_workload(), 3..9);
    (cohorts, queues, quotas, holders, preemptor_spec()).prop_map(
        |(cohorts, queues, quotas, holders, asker)| World {
            parents: cohorts.into_iter().chain(queues).collect(),
            quotas: quotas.0.into_iter().chain(quotas.1).collect(),
            reserving: holders,
            preemptor: asker,
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

/// What the random worlds are made of must be worth the law: victims of every kind are found, and more than one at a time.
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

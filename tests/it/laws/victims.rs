//! The choice of victims without fair sharing, by brute force over all sets of them: I18.
//!
//! The rules are written down a second time here, in the plainest form: all sums are made anew after every step. Beside that,
//! every smaller set than the chosen one is tried, and where nobody is chosen, every set that the rules would let go.

use super::cluster::settings;
use super::draws::policies;
use super::plain::{Amounts, Figures, PAIRS, Plain, Quota, node_of};
use super::world::{COHORTS, QUEUES, charge, cohort, config, key, limits, one, pods, queue, workload};
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
pub(super) struct Holder {
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
pub(super) struct Asker {
    pub(super) queue: usize,
    pub(super) amount: i64,
    pub(super) priority: i64,
    pub(super) since: i64,
    pub(super) within: WithinClusterQueuePolicy,
    reclaim: ReclaimPolicy,
    /// Highest priority that it may take while it borrows; the largest number stands for no threshold.
    pub(super) borrow: Option<i32>,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) parents: Vec<Option<usize>>,
    pub(super) quotas: Vec<Quota>,
    pub(super) holders: Vec<Holder>,
    pub(super) asker: Asker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pool {
    Hierarchical,
    Priority,
    Own,
}

#[derive(Clone, Debug)]
struct Candidate {
    at: usize,
    pool: Pool,
    reason: PreemptionReason,
    /// Lowest node above both.
    top: usize,
    only_without_borrowing: bool,
}

/// What becomes of the one that asks.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Admitted,
    Waits,
    /// Victims with reasons, and whether its queue may borrow.
    Preempts(Vec<(usize, PreemptionReason)>, bool),
}

fn asked(amount: i64) -> Amounts {
    let mut amounts = [0; PAIRS];
    amounts[0] = i128::from(amount);
    amounts
}

impl World {
    fn plain(&self) -> Plain {
        let mut plain = Plain::new();
        for (at, node) in plain.nodes.iter_mut().enumerate() {
            node.parent = self.parents[at];
            node.quotas[0] = self.quotas[at];
        }
        plain
    }

    fn sums(&self, plain: &Plain, gone: &[usize]) -> Figures {
        let stays = self.holders.iter().enumerate().filter(|(at, _)| !gone.contains(at));
        let held: Vec<(usize, Amounts)> =
            stays.map(|(_, holder)| (holder.queue, asked(holder.amount))).collect();
        plain.figures(held.iter().map(|(queue, amounts)| (*queue, amounts)))
    }

    fn fits(&self, plain: &Plain, gone: &[usize], borrowing: bool) -> bool {
        let (sums, wanted) = (self.sums(plain, gone), asked(self.asker.amount));
        let fits = if borrowing { Plain::fits } else { Plain::fits_own };
        fits(plain, &sums, self.asker.queue, &wanted)
    }

    fn own(&self) -> Vec<Candidate> {
        let asker = &self.asker;
        let allowed = |holder: &Holder| match asker.within {
            WithinClusterQueuePolicy::Never => false,
            WithinClusterQueuePolicy::LowerPriority => holder.priority < asker.priority,
            WithinClusterQueuePolicy::LowerOrNewerEqualPriority => {
                holder.priority < asker.priority
                    || (holder.priority == asker.priority && asker.since < holder.since)
            }
        };
        let mine = self.holders.iter().enumerate().filter(|(_, h)| h.queue == asker.queue && h.amount > 0);
        mine.filter(|(_, holder)| allowed(holder))
            .map(|(at, _)| Candidate {
                at,
                pool: Pool::Own,
                reason: PreemptionReason::InClusterQueue,
                top: node_of(asker.queue),
                only_without_borrowing: false,
            })
            .collect()
    }

    /// Whether every node from a queue up to, but without, a node above it uses more than it owns.
    fn over(plain: &Plain, sums: &Figures, queue: usize, top: usize) -> bool {
        let below = plain.path(queue).into_iter().take_while(|node| *node != top);
        below.into_iter().all(|node| sums.usage[node][0] > sums.subtree[node][0])
    }

    fn others(&self, plain: &Plain) -> Vec<Candidate> {
        let (asker, sums) = (&self.asker, self.sums(plain, &[]));
        let mut found = Vec::new();
        if asker.reclaim == ReclaimPolicy::Never {
            return found;
        }
        let path = plain.path(asker.queue);
        let mut rest = i128::from(asker.amount);
        let mut advantage = false;
        for (below, top) in path.iter().zip(&path[1..]) {
            advantage |= sums.usage[*below][0] + rest <= sums.subtree[*below][0];
            rest = (rest - (sums.local[*below][0] - sums.usage[*below][0]).max(0)).max(0);
            for (at, holder) in self.holders.iter().enumerate() {
                let way = plain.path(holder.queue);
                let meets = way.contains(top) && !way.contains(below);
                let lower = holder.priority < asker.priority;
                let allowed = asker.reclaim == ReclaimPolicy::Any || lower;
                if meets && allowed && holder.amount > 0 && Self::over(plain, &sums, holder.queue, *top) {
                    let threshold = asker.borrow.map(i64::from);
                    let borrows = lower && threshold.is_some_and(|most| holder.priority <= most);
                    let while_borrowing = !advantage && borrows;
                    found.push(Candidate {
                        at,
                        pool: if advantage { Pool::Hierarchical } else { Pool::Priority },
                        reason: if while_borrowing {
                            PreemptionReason::InCohortReclaimWhileBorrowing
                        } else {
                            PreemptionReason::InCohortReclamation
                        },
                        top: *top,
                        only_without_borrowing: !advantage && !while_borrowing,
                    });
                }
            }
        }
        found
    }

    /// Whether a look for victims is worth while at all.
    fn is_worth_a_look(&self, plain: &Plain) -> bool {
        let (asker, sums, amount) = (&self.asker, self.sums(plain, &[]), i128::from(self.asker.amount));
        let own = node_of(asker.queue);
        amount <= plain.potential(&sums, own, 0)
            && (amount <= sums.subtree[own][0]
                || plain.may_reclaim(&sums, asker.queue, 0, amount)
                || asker.borrow.is_some())
    }

    /// Whether the queue may borrow, at each try.
    fn attempts(&self, plain: &Plain, others: &[Candidate]) -> &'static [bool] {
        let hierarchical = others.iter().any(|candidate| candidate.pool == Pool::Hierarchical);
        let own = node_of(self.asker.queue);
        let sums = self.sums(plain, &[]);
        let below = sums.usage[own][0] < sums.subtree[own][0];
        match (others.is_empty(), self.asker.borrow.is_some()) {
            (true, _) => &[true],
            (_, false) if !below => &[true],
            (_, false) if !hierarchical => &[false, true],
            _ => &[true, false],
        }
    }

    fn fate(&self, plain: &Plain) -> Fate {
        if self.fits(plain, &[], true) {
            return Fate::Admitted;
        }
        if !self.is_worth_a_look(plain) {
            return Fate::Waits;
        }
        let others = self.others(plain);
        let attempts = self.attempts(plain, &others);
        let mut all: Vec<Candidate> = others.into_iter().chain(self.own()).collect();
        all.sort_by_key(|candidate| {
            let holder = &self.holders[candidate.at];
            let newest = holder.reserved.map_or((0, Reverse(0)), |at| (1, Reverse(at)));
            (!holder.evicted, candidate.pool, holder.priority, newest, candidate.at)
        });
        for borrowing in attempts {
            if let Some(victims) = self.attempt(plain, &all, *borrowing) {
                return Fate::Preempts(victims, *borrowing);
            }
        }
        Fate::Waits
    }

    fn attempt(
        &self,
        plain: &Plain,
        all: &[Candidate],
        borrowing: bool,
    ) -> Option<Vec<(usize, PreemptionReason)>> {
        let mut gone: Vec<(usize, PreemptionReason)> = Vec::new();
        let names =
            |gone: &[(usize, PreemptionReason)]| -> Vec<usize> { gone.iter().map(|(at, _)| *at).collect() };
        for candidate in all {
            let sums = self.sums(plain, &names(&gone));
            let other = candidate.pool != Pool::Own;
            let queue = self.holders[candidate.at].queue;
            if (other && borrowing && candidate.only_without_borrowing)
                || (other && !Self::over(plain, &sums, queue, candidate.top))
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
    fn is_flat(&self, others: &[Candidate]) -> bool {
        let queues: Vec<usize> = others.iter().map(|candidate| self.holders[candidate.at].queue).collect();
        let root = self.parents[node_of(self.asker.queue)];
        let below_root = |queue: &usize| self.parents[node_of(*queue)] == root;
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
            one("red", "cpu", limits(small(nominal), borrowing.map(small), lending.map(small)))
        };
        let parent = |at: usize| self.parents[at].map(|up| COHORTS[up]);
        for (at, name) in COHORTS.iter().enumerate() {
            engine.set_cohort(name, Some(Cohort { ..cohort(parent(at), groups(at)) }));
        }
        let asker = &self.asker;
        let preemption = ClusterQueuePreemption {
            within_cluster_queue: Some(asker.within),
            reclaim_within_cohort: Some(asker.reclaim),
            borrow_within_cohort: asker.borrow.map(|most| BorrowWithinCohort {
                policy: Some(BorrowPolicy::LowerPriority),
                max_priority_threshold: Some(most).filter(|most| *most < i32::MAX),
            }),
        };
        for (at, name) in QUEUES.iter().enumerate() {
            let plain = queue(parent(node_of(at)), groups(node_of(at)));
            let preemption = if at == asker.queue { preemption.clone() } else { <_>::default() };
            engine.set_cluster_queue(name, Some(ClusterQueue { preemption, ..plain }));
        }
        for at in 0..self.holders.len() {
            engine.charge(&key(&format!("h{at:02}")), self.held(at));
        }
        engine
    }

    /// What one of the holders holds.
    pub(super) fn held(&self, at: usize) -> Charge {
        let holder = &self.holders[at];
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
    fn found(&self) -> Fate {
        let (mut engine, asker) = (self.engine(settings(None)), &self.asker);
        let sets = vec![pods("main", 1, &[("cpu", asker.amount)])];
        engine.enqueue(workload("asks", QUEUES[asker.queue], asker.priority, asker.since, sets));
        let decisions = engine.cycle(Timestamp::UNIX_EPOCH);
        match decisions.into_iter().next().map(|decision| decision.outcome) {
            Some(Outcome::Admitted(_)) => Fate::Admitted,
            Some(Outcome::Preempting(_, victims)) => {
                let number = |name: &str| name.trim_start_matches('h').parse().unwrap();
                let victims = victims.iter().map(|victim| (number(&victim.key.name), victim.reason));
                Fate::Preempts(victims.collect(), false)
            }
            _ => Fate::Waits,
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
fn judged(world: &World) -> TestCaseResult {
    let plain = world.plain();
    let (wanted, found) = (world.fate(&plain), world.found());
    if let (Fate::Preempts(wanted, borrowing), Fate::Preempts(found, _)) = (&wanted, &found) {
        prop_assert_eq!(wanted, found, "I18: who goes, in which order, and why");
        let all: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
        for fewer in subsets(&all).filter(|fewer| fewer.len() < all.len()) {
            let enough = world.fits(&plain, &fewer, *borrowing);
            prop_assert!(!enough, "I18: {:?} would have been enough of {:?}", fewer, all);
        }
    } else {
        prop_assert_eq!(&wanted, &found);
    }
    if found == Fate::Waits && world.is_worth_a_look(&plain) {
        let others = world.others(&plain);
        let flat = world.is_flat(&others);
        let own: Vec<usize> = world.own().iter().map(|candidate| candidate.at).collect();
        for borrowing in world.attempts(&plain, &others).iter().copied() {
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

fn holder() -> impl Strategy<Value = Holder> {
    let reserved = proptest::option::weighted(0.8, 0..4_i64);
    let evicted = prop::bool::weighted(0.15);
    (0..QUEUES.len(), 0..8_i64, 0..4_i64, 0..4_i64, reserved, evicted).prop_map(
        |(queue, amount, priority, since, reserved, evicted)| Holder {
            queue,
            amount,
            priority,
            since,
            reserved,
            evicted,
        },
    )
}

fn asker() -> impl Strategy<Value = Asker> {
    (0..QUEUES.len(), 1..9_i64, 1..6_i64, 0..4_i64, policies()).prop_map(
        |(queue, amount, priority, since, (within, reclaim, borrow))| Asker {
            queue,
            amount,
            priority,
            since,
            within,
            reclaim,
            borrow,
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
    let holders = prop::collection::vec(holder(), 3..9);
    (cohorts, queues, quotas, holders, asker()).prop_map(|(cohorts, queues, quotas, holders, asker)| World {
        parents: cohorts.into_iter().chain(queues).collect(),
        quotas: quotas.0.into_iter().chain(quotas.1).collect(),
        holders,
        asker,
    })
}

proptest! {
    #![proptest_config(config(4000))]

    #[test]
    fn i18_victims_are_those_of_the_rules_and_no_smaller_set_would_do(world in world()) {
        judged(&world)?;
    }
}

/// What the random worlds are made of must be worth the law: victims of every kind are found, and more than one at a time.
#[test]
fn the_worlds_of_i18_have_victims_of_every_kind() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::new(config(1));
    let (mut reasons, mut several) = (std::collections::BTreeSet::new(), 0);
    for _ in 0..2000 {
        let world = world().new_tree(&mut runner).unwrap().current();
        if let Fate::Preempts(victims, _) = world.fate(&world.plain()) {
            several += usize::from(victims.len() > 1);
            reasons.extend(victims.into_iter().map(|(_, reason)| reason));
        }
    }
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(several > 50, "{several}");
}

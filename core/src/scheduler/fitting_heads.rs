//! Which heads fit now and are still pending: a check of the queue that trusts neither parking nor wake-ups.
//!
//! A cycle takes only the heads that the queue offers, so a class that missed its wake-up waits without any sign of it.
//! This check evaluates the first classes in order, parked or not, as a cycle would. Invariants: it changes nothing; its
//! cost does not depend on the number of pending workloads.
//! Neighbours: `nominate` computes assignments, `entry_iterator` orders, `cycle` applies head claims, `head_state` compares
//! with both usage layers.

use super::cycle::CycleState;
use super::engine::Engine;
use super::entry_iterator::EntryIterator;
use super::granular_mode::PreemptionMode;
use super::nominate::{Entry, Evaluation, Head, NominatedAssignment, Nomination};
use crate::api::ObjectKey;
use crate::queue::FlavorCursor;
use crate::quota::UsageLayer;
use jiff::Timestamp;
use std::sync::Arc;

/// Maximum number of classes of a ClusterQueue that are evaluated. More than one: in a BestEffortFIFO ClusterQueue, the
/// first workload in order is often a large one that does not fit, and does not block the workloads behind it.
const MAX_CLASSES: usize = 4;

impl Engine {
    /// Returns a workload at the head of a ClusterQueue that fits now without preemption: of the first four classes in
    /// order the first one that fits, in a StrictFIFO ClusterQueue only the head or a workload with a capacity
    /// reservation. Returns `None` as well while the ClusterQueue is inactive or admissions wait for pods. Changes no
    /// state. After the last cycle that has work, no head fits.
    pub fn fitting_head(&mut self, cluster_queue: &str, now: Timestamp) -> Option<ObjectKey> {
        if self.is_admission_blocked() {
            return None;
        }
        let node = self.config.cluster_queue(cluster_queue)?.node;
        let first = self.pending.first_in_order(cluster_queue, MAX_CLASSES).into_iter();
        let heads: Vec<(Head, Option<FlavorCursor>)> = first
            .map(|head| {
                let workload = Arc::clone(head.workload);
                let queue = Arc::clone(&workload.cluster_queue);
                (Head { queue, node, class: head.class, workload }, head.cursor.cloned())
            })
            .collect();
        heads.into_iter().find_map(|(head, cursor)| {
            let key = head.key().clone();
            self.fits_now(head, cursor.as_ref(), now).then_some(key)
        })
    }

    /// Whether a cycle of this head and the blocked heads with claims would admit it.
    fn fits_now(&mut self, head: Head, cursor: Option<&FlavorCursor>, now: Timestamp) -> bool {
        // A variant beside one that holds quota is admitted only by preempting it, and a preemptor waits for its victims.
        if self.precheck_failure(&head.queue, &head.workload).is_some()
            || self.has_reserving_variant(&head)
            || self.has_victims(head.key())
        {
            return false;
        }
        let assignment = self.compute_assignment(&head.queue, &head.workload, cursor, None);
        let fits = assignment.filter(|(nominated, _)| nominated.assignment.mode == PreemptionMode::Fit);
        let Some((nominated, _)) = fits else { return false };
        let mut entries = self.blocked_heads_in_trees_of(std::slice::from_ref(&head.queue));
        entries.retain(|entry| entry.head.queue != head.queue);
        let (borrowing_level, usage) =
            (nominated.assignment.borrowing_level, nominated.assignment.usage.clone());
        let nomination = Nomination::Evaluated(Evaluation::Fits(Box::new(nominated)));
        entries.push(Entry { head, borrowing_level, usage, nomination });
        let mut order = EntryIterator::new(entries, &self.settings, &self.tree);
        let (mut cycle, mut fits) = (CycleState::new(now), false);
        while let Some(Entry { head, nomination, .. }) = self.next_entry(&mut order, &cycle) {
            match nomination {
                Nomination::ClaimOnly(claim) => self.apply_head_claim(&head, &claim, &mut cycle),
                Nomination::Evaluated(Evaluation::Fits(mut nominated)) => {
                    fits = self.fits_beside_claims(&head, &mut nominated, &cycle);
                    break;
                }
                Nomination::Evaluated(_) | Nomination::Parked(_) => {}
            }
        }
        for claim in &cycle.head_claims {
            self.shift_usage(claim, -1, UsageLayer::Projected);
        }
        fits
    }

    /// Whether projected usage has capacity beside the claims of a cycle, and current usage as well.
    fn fits_beside_claims(
        &mut self,
        head: &Head,
        nominated: &mut NominatedAssignment,
        cycle: &CycleState,
    ) -> bool {
        let projected = self.shortfall_after_move(head, nominated, cycle);
        projected.is_some_and(|shortfall| shortfall.is_empty())
            && self.current_shortfall_after_move(head, nominated).is_empty()
    }

    /// Makes parked classes miss the changes that wake them, or ends that.
    pub fn drop_wakeups(&mut self, drops: bool) {
        self.pending.drops_wakeups = drops;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::v1beta2::QueueingStrategy;
    use crate::quota::{FlavorQuotas, QuotaLimits, ResourceGroup};
    use crate::resources::Amount;
    use crate::scheduler::{ClusterQueue, Flavor, Outcome, PodSet, Workload};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use std::collections::BTreeMap;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const QUEUES: [&str; 3] = ["a", "b", "c"];
    const FLAVORS: [&str; 2] = ["x", "y"];
    /// Different requests of workloads: not more than the classes that the check evaluates.
    const SIZES: [i64; MAX_CLASSES] = [1, 2, 3, 5];

    /// Random numbers determined by a seed.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % end
        }
    }

    fn group(nominal: [i64; 2], borrowing: Option<i64>) -> Vec<ResourceGroup> {
        let flavor = |(name, nominal): (&&str, i64)| {
            let limits = QuotaLimits {
                nominal: Amount::new(nominal),
                borrowing_limit: borrowing.map(Amount::new),
                lending_limit: None,
            };
            FlavorQuotas { name: Arc::from(*name), limits: BTreeMap::from([(Arc::from("cpu"), limits)]) }
        };
        vec![ResourceGroup::from_flavors(FLAVORS.iter().zip(nominal).map(flavor).collect())]
    }

    /// Three ClusterQueues of one Cohort that borrow and do not preempt; the last one has this strategy.
    fn engine(random: &mut Random, last: QueueingStrategy) -> Engine {
        let mut engine = Engine::default();
        engine.set_namespace("ns", Some(BTreeMap::new()));
        for flavor in FLAVORS {
            engine.set_flavor(flavor, Some(Flavor::default()));
        }
        for name in QUEUES {
            let mut amount = || i64::try_from(random.below(6)).unwrap();
            let groups = group([amount(), amount()], (amount() > 2).then(&mut amount));
            let strategy = match name {
                "c" => last,
                _ => QueueingStrategy::BestEffortFIFO,
            };
            let namespace_selector = Some(LabelSelector::default());
            let cohort = Some(Arc::from("org"));
            let queue =
                ClusterQueue { cohort, strategy, groups, namespace_selector, ..ClusterQueue::default() };
            engine.set_cluster_queue(name, Some(queue));
        }
        engine
    }

    fn workload(number: usize, random: &mut Random) -> Workload {
        let requests = BTreeMap::from([(Arc::from("cpu"), Amount::new(SIZES[random.below(SIZES.len())]))]);
        let pods = PodSet { name: Arc::from("main"), count: 1, requests, ..PodSet::default() };
        Workload {
            key: ObjectKey::new("ns", &format!("w{number}")),
            uid: Arc::from(format!("w{number}")),
            cluster_queue: Arc::from(QUEUES[random.below(QUEUES.len())]),
            local_queue: Arc::from("lq"),
            queued_since: Timestamp::from_second(i64::try_from(number).unwrap()).unwrap(),
            pod_sets: vec![pods].into(),
            ..Workload::default()
        }
    }

    /// Runs cycles until none has work. Returns the admitted workloads.
    fn run_until_idle(engine: &mut Engine) -> Vec<ObjectKey> {
        let mut admitted = Vec::new();
        while engine.has_work() {
            let decisions = engine.run_cycle(NOW).into_iter();
            let admissions = decisions.filter(|decision| matches!(decision.outcome, Outcome::Admitted(_)));
            admitted.extend(admissions.map(|decision| decision.key));
        }
        admitted
    }

    fn fitting_heads(engine: &mut Engine) -> Vec<ObjectKey> {
        QUEUES.iter().filter_map(|queue| engine.fitting_head(queue, NOW)).collect()
    }

    /// The check finds a head exactly if a wake-up was lost that matters: if workloads are admitted once all are woken. A
    /// StrictFIFO head that missed its wake-up may hold an outdated claim; then only what holds before the loss is compared.
    #[test]
    fn lost_wakeups_are_found() {
        let mut lost = 0;
        for seed in 0..3000 {
            let strategies = [QueueingStrategy::BestEffortFIFO, QueueingStrategy::StrictFIFO];
            let strategy = strategies.into_iter().cycle().nth(usize::try_from(seed % 2).unwrap()).unwrap();
            let mut random = Random(seed);
            let mut engine = engine(&mut random, strategy);
            for number in 0..12 {
                engine.enqueue(workload(number, &mut random));
            }
            run_until_idle(&mut engine);
            assert_eq!(fitting_heads(&mut engine), [], "seed {seed}: nothing was lost");
            engine.drop_wakeups(true);
            let reserving: Vec<ObjectKey> = engine.charges().map(|(key, _)| key.clone()).collect();
            for key in reserving.iter().filter(|_| random.below(2) == 0) {
                engine.release(key);
            }
            run_until_idle(&mut engine);
            let found = fitting_heads(&mut engine);
            engine.drop_wakeups(false);
            for queue in QUEUES {
                engine.pending.config_changed(queue, None);
            }
            let admitted = run_until_idle(&mut engine);
            if strategy == QueueingStrategy::StrictFIFO {
                continue;
            }
            assert_eq!(
                found.is_empty(),
                admitted.is_empty(),
                "seed {seed}: {found:?}, admitted {admitted:?}"
            );
            lost += usize::from(!found.is_empty());
        }
        assert!(lost > 300, "a wake-up was lost in {lost} histories only");
    }

    #[test]
    fn head_that_no_cycle_takes_is_found() {
        let mut random = Random(1);
        let mut engine = engine(&mut random, QueueingStrategy::BestEffortFIFO);
        engine.set_cluster_queue(
            "a",
            engine
                .config
                .cluster_queue("b")
                .map(|queue| ClusterQueue { groups: group([5, 5], None), ..queue.config.clone() }),
        );
        let waiting = Workload { cluster_queue: Arc::from("a"), ..workload(1, &mut random) };
        engine.enqueue(waiting.clone());
        assert_eq!(engine.fitting_head("a", NOW), Some(waiting.key.clone()));
        engine.block_admission(true);
        assert_eq!(engine.fitting_head("a", NOW), None, "it waits for pods");
        engine.block_admission(false);
        engine.set_namespace("ns", None);
        assert_eq!(engine.fitting_head("a", NOW), None, "its namespace is not selected");
    }
}

//! Since when the head of each ClusterQueue fits and is not admitted.
//!
//! A head waits in one of two ways. Its admission was decided and the write does not land; or the scheduler does not
//! decide, although the head fits: a wake-up was lost, or no cycle takes it. The first follows from decisions and results
//! of writes, the second from a check that evaluates heads independently of how they are parked. Invariants: a decision
//! counts from when it was made until its write lands, its Workload is no longer queued, or it is queued again and does
//! not fit; the check costs a bounded time per round, and per minute a time in proportion to the number of
//! ClusterQueues.

use crate::api::ObjectKey;
use crate::cache::Cache;
use crate::scheduler::Engine;
use crate::snapshot::WaitingHead;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Maximum number of ClusterQueues checked in one round, so that a round stays short with any number of them.
const MAX_CHECKS_PER_ROUND: usize = 16;
/// Time after which a waiting head is reported with each check of its ClusterQueue.
const REPORT_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Decisions to admit Workloads of one ClusterQueue whose writes have not landed.
#[derive(Clone, Debug)]
struct Undelivered {
    /// Since when there is at least one and none has landed. It may be earlier than each decision: while all writes fail,
    /// another Workload gets the same quota each time.
    since: Timestamp,
    /// When each was made.
    workloads: BTreeMap<ObjectKey, Timestamp>,
}

/// Heads that fit and are not admitted, and the progress of the check.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingHeads {
    undelivered: BTreeMap<Arc<str>, Undelivered>,
    /// ClusterQueue of each undelivered decision.
    queue_of: BTreeMap<ObjectKey, Arc<str>>,
    /// Workloads with an undelivered decision that were queued again.
    requeued: BTreeSet<ObjectKey>,
    /// Heads found by the check, by ClusterQueue.
    found: BTreeMap<Arc<str>, WaitingHead>,
    /// ClusterQueues that the current pass of the check has left.
    to_check: VecDeque<Arc<str>>,
    /// Start of the current pass, or of the last one.
    pass_began: Option<Timestamp>,
}

impl WaitingHeads {
    /// Records a decision to admit.
    pub(crate) fn decide(&mut self, workload: &ObjectKey, cluster_queue: &Arc<str>, now: Timestamp) {
        if self.queue_of.get(workload) == Some(cluster_queue) {
            return;
        }
        self.forget(workload);
        let new = || Undelivered { since: now, workloads: BTreeMap::new() };
        let undelivered = self.undelivered.entry(Arc::clone(cluster_queue)).or_insert_with(new);
        undelivered.workloads.insert(workload.clone(), now);
        self.queue_of.insert(workload.clone(), Arc::clone(cluster_queue));
    }

    /// Records that a Workload holds quota. The other decisions of its ClusterQueue wait from now on: it makes progress.
    pub(crate) fn land(&mut self, workload: &ObjectKey, now: Timestamp) {
        if let Some(cluster_queue) = self.forget(workload)
            && let Some(undelivered) = self.undelivered.get_mut(&cluster_queue)
        {
            undelivered.since = now;
        }
    }

    /// Removes the decision on a Workload. Returns its ClusterQueue.
    pub(crate) fn forget(&mut self, workload: &ObjectKey) -> Option<Arc<str>> {
        self.requeued.remove(workload);
        let cluster_queue = self.queue_of.remove(workload)?;
        if let Some(undelivered) = self.undelivered.get_mut(&cluster_queue) {
            undelivered.workloads.remove(workload);
            if undelivered.workloads.is_empty() {
                self.undelivered.remove(&cluster_queue);
            }
        }
        Some(cluster_queue)
    }

    /// Records that a Workload was queued again, which ends the decision on it unless cycles repeat it.
    pub(crate) fn requeue(&mut self, workload: &ObjectKey) {
        if self.queue_of.contains_key(workload) {
            self.requeued.insert(workload.clone());
        }
    }

    /// Removes everything, when this replica starts or stops leading.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Records the result of the check of a ClusterQueue. A head waits from the first of consecutive checks that found it.
    fn record_check(&mut self, cluster_queue: &Arc<str>, fitting: Option<ObjectKey>, now: Timestamp) {
        let Some(workload) = fitting else {
            self.found.remove(cluster_queue);
            return;
        };
        if self.found.get(cluster_queue).is_none_or(|known| known.workload != workload) {
            self.found.insert(Arc::clone(cluster_queue), WaitingHead { workload, since: now });
        }
    }

    /// Returns the Workload of the oldest undelivered decision, with the time since when decisions do not land.
    fn oldest_undelivered(&self, cluster_queue: &str) -> Option<WaitingHead> {
        let undelivered = self.undelivered.get(cluster_queue)?;
        let (workload, since) = undelivered.workloads.iter().min_by_key(|(_, since)| **since)?;
        Some(WaitingHead { workload: workload.clone(), since: undelivered.since.min(*since) })
    }

    /// Returns the ClusterQueues to check in this round. A pass over `all` begins once per interval.
    fn next_batch(
        &mut self,
        all: impl FnOnce() -> VecDeque<Arc<str>>,
        interval: SignedDuration,
        now: Timestamp,
    ) -> Vec<Arc<str>> {
        self.pass_began.get_or_insert(now);
        if self.to_check.is_empty() && self.next_pass(interval).is_some_and(|due| due <= now) {
            self.pass_began = Some(now);
            self.to_check = all();
            self.found.retain(|name, _| self.to_check.contains(name));
        }
        let number = self.to_check.len().min(MAX_CHECKS_PER_ROUND);
        self.to_check.drain(..number).collect()
    }

    /// Returns when the next pass is due.
    fn next_pass(&self, interval: SignedDuration) -> Option<Timestamp> {
        self.pass_began?.checked_add(interval).ok()
    }
}

/// What a check of heads found.
#[derive(Debug)]
pub(crate) struct HeadCheck {
    /// Heads that wait for long, with their ClusterQueues.
    pub(crate) reported: Vec<(Arc<str>, WaitingHead)>,
    /// When the next check is due; `None` if nothing waits.
    pub(crate) next: Option<Timestamp>,
}

impl WaitingHeads {
    /// Returns the head of a ClusterQueue that fits and is not admitted.
    pub(crate) fn waiting_head(&self, cluster_queue: &str, engine: &Engine) -> Option<WaitingHead> {
        let found = self.found.get(cluster_queue);
        let found = found.filter(|head| engine.workload(&head.workload).is_some()).cloned();
        found.into_iter().chain(self.oldest_undelivered(cluster_queue)).min_by_key(|head| head.since)
    }

    /// Ends the decisions on Workloads that were queued again and that later cycles did not admit: they no longer fit.
    pub(crate) fn end_outdated_decisions(&mut self, engine: &Engine) {
        for key in std::mem::take(&mut self.requeued) {
            if engine.workload(&key).is_some() {
                self.forget(&key);
            }
        }
    }

    /// Checks the heads of all ClusterQueues once per interval, of some ClusterQueues per round.
    pub(crate) fn check(
        &mut self,
        cache: &Cache,
        engine: &mut Engine,
        interval: SignedDuration,
        now: Timestamp,
    ) -> HeadCheck {
        let mut reported = Vec::new();
        let all = || cache.cluster_queues().map(|(name, _)| Arc::clone(name)).collect();
        for name in self.next_batch(all, interval, now) {
            let fitting = engine.fitting_head(&name, now);
            self.record_check(&name, fitting, now);
            let head = self.waiting_head(&name, engine);
            let head = head.filter(|head| now.duration_since(head.since) >= REPORT_AFTER);
            reported.extend(head.map(|head| (name, head)));
        }
        let next = if self.to_check.is_empty() { self.next_pass(interval) } else { Some(now) };
        let needed = engine.has_pending() || !self.queue_of.is_empty();
        HeadCheck { reported, next: next.filter(|_| needed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(milliseconds).unwrap()
    }

    /// Ten minutes with a round every 5 ms: each of 1,000 ClusterQueues is checked once a minute, 16 in a round.
    #[test]
    fn number_of_checks_is_bounded() {
        let names: Vec<Arc<str>> = (0..1000).map(|n| Arc::from(format!("q{n}"))).collect();
        let (mut heads, mut checks) = (WaitingHeads::default(), BTreeMap::new());
        let minutes = 10;
        for time in (0..minutes * 60_000).step_by(5) {
            let all = || names.iter().cloned().collect();
            let batch = heads.next_batch(all, SignedDuration::from_mins(1), at(time));
            assert!(batch.len() <= MAX_CHECKS_PER_ROUND);
            for name in batch {
                *checks.entry(name).or_insert(0) += 1;
            }
        }
        assert_eq!(checks.len(), names.len());
        assert!(checks.values().all(|number| *number == minutes - 1), "the first pass begins after a minute");
    }

    #[test]
    fn check_counts_from_the_first_that_found_the_head() {
        let (mut heads, queue) = (WaitingHeads::default(), Arc::from("q"));
        let key = |name: &str| Some(ObjectKey::new("ns", name));
        let since = |heads: &WaitingHeads| heads.found.get("q").map(|head| head.since);
        for (time, fitting, expected) in [
            (1, key("a"), Some(at(1))),
            (2, key("a"), Some(at(1))),
            (3, key("b"), Some(at(3))),
            (4, None, None),
            (5, key("b"), Some(at(5))),
        ] {
            heads.record_check(&queue, fitting, at(time));
            assert_eq!(since(&heads), expected, "at {time}");
        }
    }

    #[test]
    fn landing_ends_one_decision_and_restarts_the_others() {
        let (mut heads, queue) = (WaitingHeads::default(), Arc::from("q"));
        let key = |name: &str| ObjectKey::new("ns", name);
        let oldest =
            |heads: &WaitingHeads| heads.oldest_undelivered("q").map(|head| (head.workload, head.since));
        heads.decide(&key("a"), &queue, at(1));
        heads.decide(&key("b"), &queue, at(2));
        heads.decide(&key("a"), &queue, at(3));
        assert_eq!(oldest(&heads), Some((key("a"), at(1))), "a repeated decision keeps its time");
        heads.forget(&key("a"));
        assert_eq!(oldest(&heads), Some((key("b"), at(1))), "none has landed since");
        heads.decide(&key("c"), &queue, at(4));
        heads.land(&key("b"), at(5));
        assert_eq!(oldest(&heads), Some((key("c"), at(4))), "it waits since its own decision");
        heads.land(&key("c"), at(6));
        assert_eq!(oldest(&heads), None);
        assert!(heads.undelivered.is_empty() && heads.queue_of.is_empty());
    }
}

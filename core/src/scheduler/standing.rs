//! Which pending workloads are not admitted even if all that holds quota ends, for readers outside the core.
//!
//! Invariants: a class is evaluated once for each state of configuration and nodes, and only a bounded number of them at a time; what is
//! not evaluated yet counts as what time ends.

use super::engine::Engine;
use super::obstacle::{BehindHead, Obstacle};
use crate::api::ObjectKey;
use crate::queue::{Alone, ClassBefore, PendingOrder, QueueStanding, Workload};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was found for a ClusterQueue, and for which state: that of configuration and nodes, and that of the queue.
type Known = ((u64, u64), Arc<QueueStanding>);

/// What was found, by ClusterQueue.
#[derive(Debug, Default)]
pub(super) struct Standings {
    /// Number of changes of configuration and nodes: for one number, what workloads would get if nothing were in use stays.
    pub(super) empty_state: u64,
    known: BTreeMap<Arc<str>, Known>,
}

impl Standings {
    /// Notes that configuration or nodes have changed.
    pub(super) const fn note_change(&mut self) {
        self.empty_state = self.empty_state.saturating_add(1);
    }
}

impl Obstacle {
    /// Returns the obstacle of a workload of a ClusterQueue, as far as it is the same for all of a class or follows from the order: what
    /// stays, and what the head of the queue waits for. A workload that waits for what others use has none here.
    pub fn in_queue(standing: &QueueStanding, workload: &Workload, order: &PendingOrder) -> Self {
        match standing.own(workload) {
            (Some(verdict), _) => return Self::Object(Arc::clone(verdict)),
            (None, Some(never)) => return Self::NeverFits(Arc::clone(never)),
            (None, None) => {}
        }
        let Some(head) = standing.behind(workload, order) else { return Self::None };
        let never = standing.barrier_before(workload, order);
        Self::Behind(Box::new(BehindHead {
            head: head.clone(),
            lacks: standing.lacks.clone(),
            never: never.map(|(key, never)| (key.clone(), Arc::clone(never))),
        }))
    }
}

impl Engine {
    /// Returns what keeps the workloads of ClusterQueues, and whether all of it is known: at most `most` classes are
    /// evaluated.
    pub fn standings(&mut self, most: usize) -> (BTreeMap<Arc<str>, Arc<QueueStanding>>, bool) {
        let (mut all, mut left, mut all_known) = (BTreeMap::new(), most, true);
        let mut known = std::mem::take(&mut self.standings.known);
        for queue in self.pending.queues() {
            let inactive = self.inactive.verdict(&queue).cloned().map(Arc::new);
            if inactive.is_some() {
                all.insert(queue, Arc::new(QueueStanding { inactive, ..QueueStanding::default() }));
                continue;
            }
            let state = (self.standings.empty_state, self.pending.last_change(&queue));
            let current = known.remove(&queue).filter(|(of, _)| *of == state);
            let (standing, is_complete) = match current {
                Some((_, standing)) => (standing, true),
                None => self.standing_of(&queue, &mut left),
            };
            all_known &= is_complete;
            if is_complete {
                self.standings.known.insert(Arc::clone(&queue), (state, Arc::clone(&standing)));
            }
            if *standing != QueueStanding::default() {
                all.insert(queue, standing);
            }
        }
        (all, all_known)
    }

    /// Returns what keeps the workloads of a ClusterQueue, and whether all of its classes were evaluated.
    fn standing_of(&mut self, queue: &Arc<str>, left: &mut usize) -> (Arc<QueueStanding>, bool) {
        let classes = self.pending.classes_of(queue);
        let head = self.pending.strict_head(queue).cloned();
        let mut found = QueueStanding { head, ..QueueStanding::default() };
        let mut is_complete = true;
        for before in &classes {
            if self.reservations.contains(&before.first.key) {
                found.apart.insert(before.first.key.clone());
                continue;
            }
            if let Some(verdict) = self.kept_out(&before.first) {
                found.add_kept_out(&before.first, verdict);
                continue;
            }
            let known = self.pending.alone(queue, before.class, self.standings.empty_state).is_some();
            if !known && *left == 0 {
                is_complete = false;
                continue;
            }
            *left = left.saturating_sub(usize::from(!known));
            if let Alone::Never(never) = &*self.alone_in_class(before.class, &before.first) {
                found.add_never(&before.first, never);
                Self::count_stuck(&mut found, before, before.count);
                if found.head.is_some() && found.barrier.is_none() {
                    found.barrier = Some((Arc::clone(&before.first), Arc::clone(never)));
                }
            }
        }
        if let Some(head) =
            found.head.clone().filter(|_| classes.iter().any(|class| class.count > 1) || classes.len() > 1)
        {
            is_complete &= self.add_lacking(&mut found, &head, left);
        }
        if let Some((barrier, _)) = found.barrier.clone() {
            for before in classes.iter().filter(|before| self.is_nominated(&before.first)) {
                let is_never = self
                    .pending
                    .alone(queue, before.class, self.standings.empty_state)
                    .is_some_and(|alone| alone.never().is_some());
                if !is_never {
                    let behind = self.pending.count_behind(queue, before.class, &barrier.key);
                    Self::count_stuck(&mut found, before, behind);
                }
            }
        }
        (Arc::new(found), is_complete)
    }

    /// Adds what the head of the queue lacks. Returns whether that is known.
    fn add_lacking(&mut self, found: &mut QueueStanding, head: &Arc<Workload>, left: &mut usize) -> bool {
        if !self.is_nominated(head) {
            return true;
        }
        let known = self.pending.verdict(&head.key).map(|verdict| verdict.blockers.clone());
        if let Some(known) = known.filter(|known| !known.is_empty()) {
            found.lacks = known;
            return true;
        }
        if *left == 0 {
            return false;
        }
        *left = left.saturating_sub(1);
        let evaluated = self.evaluate(head).and_then(Result::err);
        found.lacks = evaluated.map(|(_, blockers)| blockers).unwrap_or_default();
        true
    }

    fn count_stuck(found: &mut QueueStanding, class: &ClassBefore, number: usize) {
        if number == 0 {
            return;
        }
        let (namespace, name) =
            (Arc::clone(&class.first.key.namespace), Arc::clone(&class.first.local_queue));
        let count = found.stuck.entry(ObjectKey { namespace, name }).or_default();
        *count = count.saturating_add(number);
    }
}

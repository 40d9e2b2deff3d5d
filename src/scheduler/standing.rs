//! Which pending workloads are not admitted even if all that holds quota ends, for readers outside the core.
//!
//! Invariants: a class is evaluated once for each state of configuration and nodes, and only a bounded number of them at a time; what is
//! not evaluated yet counts as what time ends.

use super::engine::Engine;
use crate::api::ObjectKey;
use crate::queue::{Alone, ClassBefore, QueueStanding};
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

impl Engine {
    /// Returns what keeps the workloads of ClusterQueues that are active, and whether all of it is known: at most `most` classes are
    /// evaluated.
    pub fn standings(&mut self, most: usize) -> (BTreeMap<Arc<str>, Arc<QueueStanding>>, bool) {
        let (mut all, mut left, mut all_known) = (BTreeMap::new(), most, true);
        let mut known = std::mem::take(&mut self.standings.known);
        for queue in self.pending.queues() {
            if self.inactive.verdict(&queue).is_some() {
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
            if !self.is_nominated(&before.first) {
                continue;
            }
            let known = self.pending.alone(queue, before.class, self.standings.empty_state).is_some();
            if !known && *left == 0 {
                is_complete = false;
                continue;
            }
            *left = left.saturating_sub(usize::from(!known));
            if let Alone::Never(_) = &*self.alone_in_class(before.class, &before.first) {
                found.add_never(&before.first);
                Self::count_stuck(&mut found, before, before.count);
                if found.head.is_some() && found.barrier.is_none() {
                    found.barrier = Some(Arc::clone(&before.first));
                }
            }
        }
        if let Some(barrier) = found.barrier.clone() {
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

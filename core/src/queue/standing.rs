//! What keeps the pending workloads of a ClusterQueue even if all that holds quota ends, for readers outside the core.
//!
//! Invariants: it is the same for all workloads of a class, so that it costs what the classes cost, not what is queued; which workloads
//! are behind another one follows from their order when it is read.

use super::equivalence_hash::equivalence_hash;
use super::{Blocker, NeverFits, PendingOrder, Verdict, Workload};
use crate::api::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Namespace of a class, and what it asks for.
pub type ClassName = (Arc<str>, [u8; 32]);

/// What keeps the pending workloads of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueStanding {
    /// Why the ClusterQueue admits nothing.
    pub inactive: Option<Arc<Verdict>>,
    /// The head of a StrictFIFO ClusterQueue, that the others are behind.
    pub head: Option<Arc<Workload>>,
    /// What the head lacks.
    pub lacks: Vec<Blocker>,
    /// The first workload of a StrictFIFO ClusterQueue that can never be admitted: those behind it wait without end.
    pub barrier: Option<(Arc<Workload>, Arc<NeverFits>)>,
    /// Workloads with a capacity reservation: they wait for their victims, wherever they are.
    pub apart: BTreeSet<ObjectKey>,
    /// Number of workloads that can never be admitted or are behind one of these, by LocalQueue.
    pub stuck: BTreeMap<ObjectKey, usize>,
    /// Classes that can never be admitted.
    pub never: BTreeMap<ClassName, Arc<NeverFits>>,
    /// Classes that are not evaluated.
    pub kept_out: BTreeMap<ClassName, Arc<Verdict>>,
}

impl QueueStanding {
    /// Adds a class that can never be admitted.
    pub fn add_never(&mut self, first: &Workload, never: &Arc<NeverFits>) {
        self.never.insert(name_of(first), Arc::clone(never));
    }

    /// Adds a class that is not evaluated.
    pub fn add_kept_out(&mut self, first: &Workload, verdict: Verdict) {
        self.kept_out.insert(name_of(first), Arc::new(verdict));
    }

    /// Why a workload is not evaluated, or can never be admitted.
    pub fn own(&self, workload: &Workload) -> (Option<&Arc<Verdict>>, Option<&Arc<NeverFits>>) {
        if self.never.is_empty() && self.kept_out.is_empty() {
            return (self.inactive.as_ref(), None);
        }
        let name = name_of(workload);
        (self.inactive.as_ref().or_else(|| self.kept_out.get(&name)), self.never.get(&name))
    }

    /// The head that a workload of the queue is behind.
    pub fn behind(&self, workload: &Workload, order: &PendingOrder) -> Option<&ObjectKey> {
        let head = self.head.as_ref().filter(|_| !self.apart.contains(&workload.key))?;
        is_before(head, workload, order).then_some(&head.key)
    }

    /// The first workload before this one that can never be admitted.
    pub fn barrier_before(
        &self,
        workload: &Workload,
        order: &PendingOrder,
    ) -> Option<(&ObjectKey, &Arc<NeverFits>)> {
        let (barrier, never) = self.barrier.as_ref()?;
        is_before(barrier, workload, order).then_some((&barrier.key, never))
    }
}

fn name_of(workload: &Workload) -> ClassName {
    (Arc::clone(&workload.key.namespace), equivalence_hash(workload))
}

fn is_before(first: &Workload, second: &Workload, order: &PendingOrder) -> bool {
    let position = |workload: &Workload| order.position(workload).map(|(in_queue, _)| in_queue);
    first.key != second.key
        && position(first).zip(position(second)).is_some_and(|(first, second)| first < second)
}

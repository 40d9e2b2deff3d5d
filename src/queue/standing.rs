//! What keeps the pending workloads of a ClusterQueue even if all that holds quota ends, for readers outside the core.
//!
//! Invariants: it is the same for all workloads of a class, so that it costs what the classes cost, not what is queued; which workloads
//! are behind another one follows from their order when it is read.

use super::equivalence_hash::equivalence_hash;
use super::{PendingOrder, Workload};
use crate::api::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What keeps the pending workloads of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueStanding {
    /// The head of a StrictFIFO ClusterQueue, that the others are behind.
    pub head: Option<Arc<Workload>>,
    /// The first workload of a StrictFIFO ClusterQueue that can never be admitted: those behind it wait without end.
    pub barrier: Option<Arc<Workload>>,
    /// Classes that can never be admitted, by namespace and what they ask for.
    pub never: BTreeSet<(Arc<str>, [u8; 32])>,
    /// Number of workloads that are stuck, by LocalQueue.
    pub stuck: BTreeMap<ObjectKey, usize>,
}

impl QueueStanding {
    /// Adds a class that can never be admitted.
    pub fn add_never(&mut self, first: &Workload) {
        self.never.insert((Arc::clone(&first.key.namespace), equivalence_hash(first)));
    }

    /// The head that a workload of the queue is behind.
    pub fn behind(&self, workload: &Workload, order: &PendingOrder) -> Option<&ObjectKey> {
        self.head.as_ref().filter(|head| is_before(head, workload, order)).map(|head| &head.key)
    }

    /// Whether a workload of the queue is not admitted even if all that holds quota ends.
    pub fn stays(&self, workload: &Workload, order: &PendingOrder) -> bool {
        let is_behind = self.barrier.as_ref().is_some_and(|barrier| is_before(barrier, workload, order));
        let is_never = || {
            let name = (Arc::clone(&workload.key.namespace), equivalence_hash(workload));
            self.never.contains(&name)
        };
        is_behind || (!self.never.is_empty() && is_never())
    }
}

fn is_before(first: &Workload, second: &Workload, order: &PendingOrder) -> bool {
    let position = |workload: &Workload| order.position(workload).map(|(in_queue, _)| in_queue);
    first.key != second.key
        && position(first).zip(position(second)).is_some_and(|(first, second)| first < second)
}

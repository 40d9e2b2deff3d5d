//! What cycles did beside their decisions, for metrics.

use super::engine::Engine;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What came of choosing preemption targets again, because another workload of the cycle had chosen the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recomputation {
    /// Other targets that the workload fits in the place of.
    NewTargets,
    /// No target is needed: the workload fits once the preemptions of the cycle have ended.
    DeferredFit,
    /// Neither: the workload waits for another cycle.
    Skipped,
}

impl Recomputation {
    /// As in the label `result`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NewTargets => "new_targets",
            Self::DeferredFit => "deferred_fit",
            Self::Skipped => "skipped",
        }
    }
}

/// What the metrics of cycles are made of.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// By ClusterQueue of the preemptor, since they were last taken.
    recomputed: Vec<(Arc<str>, Recomputation)>,
    /// Preemptors that the cycle under way has skipped, by ClusterQueue.
    skipping: BTreeMap<Arc<str>, usize>,
    /// The same of the last cycle that skipped any of the ClusterQueue.
    skipped: BTreeMap<Arc<str>, usize>,
}

impl Observed {
    pub(super) fn recomputed(&mut self, queue: &Arc<str>, result: Recomputation) {
        self.recomputed.push((Arc::clone(queue), result));
    }

    /// A preemptor was skipped.
    pub(super) fn skip(&mut self, queue: &Arc<str>) {
        let number = self.skipping.entry(Arc::clone(queue)).or_default();
        *number = number.saturating_add(1);
    }

    pub(super) fn end_cycle(&mut self) {
        self.skipped.append(&mut self.skipping);
    }

    /// Forgets a ClusterQueue that was deleted.
    pub(super) fn forget(&mut self, queue: &str) {
        self.skipped.remove(queue);
    }
}

impl Engine {
    /// What came of choosing preemption targets again since the last call, with the preemptor's ClusterQueue.
    pub fn take_recomputed(&mut self) -> Vec<(Arc<str>, Recomputation)> {
        std::mem::take(&mut self.observed.recomputed)
    }

    /// How many preemptors of a ClusterQueue were skipped by the last cycle that skipped any.
    pub fn preemption_skips(&self, cluster_queue: &str) -> Option<usize> {
        self.observed.skipped.get(cluster_queue).copied()
    }
}

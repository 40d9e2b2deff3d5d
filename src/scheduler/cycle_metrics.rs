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
pub(super) struct CycleMetrics {
    /// By ClusterQueue of the preemptor, since they were last taken.
    recomputations: Vec<(Arc<str>, Recomputation)>,
    /// Preemptors that the cycle under way has skipped, by ClusterQueue.
    skipped_in_current_cycle: BTreeMap<Arc<str>, usize>,
    /// The same of the last cycle that skipped any of the ClusterQueue.
    skipped_in_last_cycle: BTreeMap<Arc<str>, usize>,
}

impl CycleMetrics {
    pub(super) fn record_recomputation(&mut self, queue: &Arc<str>, result: Recomputation) {
        self.recomputations.push((Arc::clone(queue), result));
    }

    /// A preemptor was skipped.
    pub(super) fn record_skip(&mut self, queue: &Arc<str>) {
        let number = self.skipped_in_current_cycle.entry(Arc::clone(queue)).or_default();
        *number = number.saturating_add(1);
    }

    pub(super) fn end_cycle(&mut self) {
        self.skipped_in_last_cycle.append(&mut self.skipped_in_current_cycle);
    }

    /// Forgets a ClusterQueue that was deleted.
    pub(super) fn forget(&mut self, queue: &str) {
        self.skipped_in_last_cycle.remove(queue);
    }
}

impl Engine {
    /// What came of choosing preemption targets again since the last call, with the preemptor's ClusterQueue.
    pub fn take_recomputations(&mut self) -> Vec<(Arc<str>, Recomputation)> {
        std::mem::take(&mut self.cycle_metrics.recomputations)
    }

    /// How many preemptors of a ClusterQueue were skipped by the last cycle that skipped any.
    pub fn preemption_skips(&self, cluster_queue: &str) -> Option<usize> {
        self.cycle_metrics.skipped_in_last_cycle.get(cluster_queue).copied()
    }
}

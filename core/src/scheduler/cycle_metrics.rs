//! Counters of scheduling cycles for metrics.

use super::engine::Engine;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Result of selecting preemption targets again because they overlapped with another workload's in the same cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recomputation {
    /// Other targets make the workload fit.
    NewTargets,
    /// No targets are needed: the workload fits once the cycle's preemptions are complete.
    DeferredFit,
    /// Neither; the workload waits for another cycle.
    Skipped,
}

impl Recomputation {
    /// Value of the label `result`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NewTargets => "new_targets",
            Self::DeferredFit => "deferred_fit",
            Self::Skipped => "skipped",
        }
    }
}

/// Counters of the current and earlier cycles.
#[derive(Debug, Default)]
pub(super) struct CycleMetrics {
    /// By the preemptor's ClusterQueue, since the last `take_recomputations`.
    recomputations: Vec<(Arc<str>, Recomputation)>,
    /// Preemptors skipped in the current cycle, by ClusterQueue.
    skipped_in_current_cycle: BTreeMap<Arc<str>, usize>,
    /// Preemptors skipped in the last cycle that skipped any of the ClusterQueue.
    skipped_in_last_cycle: BTreeMap<Arc<str>, usize>,
}

impl CycleMetrics {
    pub(super) fn record_recomputation(&mut self, queue: &Arc<str>, result: Recomputation) {
        self.recomputations.push((Arc::clone(queue), result));
    }

    /// Counts a skipped preemptor.
    pub(super) fn record_skip(&mut self, queue: &Arc<str>) {
        let number = self.skipped_in_current_cycle.entry(Arc::clone(queue)).or_default();
        *number = number.saturating_add(1);
    }

    pub(super) fn end_cycle(&mut self) {
        self.skipped_in_last_cycle.append(&mut self.skipped_in_current_cycle);
    }

    /// Removes a deleted ClusterQueue.
    pub(super) fn forget(&mut self, queue: &str) {
        self.skipped_in_last_cycle.remove(queue);
    }
}

impl Engine {
    /// Returns and clears the recomputations since the last call, with the preemptor's ClusterQueue.
    pub fn take_recomputations(&mut self) -> Vec<(Arc<str>, Recomputation)> {
        std::mem::take(&mut self.cycle_metrics.recomputations)
    }

    /// Number of the ClusterQueue's preemptors skipped in the last cycle that skipped any.
    pub fn preemption_skips(&self, cluster_queue: &str) -> Option<usize> {
        self.cycle_metrics.skipped_in_last_cycle.get(cluster_queue).copied()
    }
}

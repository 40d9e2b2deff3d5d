//! Sequential admission: where configured, no workload is admitted until the pods of all admitted workloads are
//! ready.
//!
//! Invariants: workloads that already hold quota are not affected. A workload that fits while admissions are blocked keeps its
//! position and is nominated again when the pods are ready.

use super::cycle::skipped;
use super::decision::Outcome;
use super::engine::Engine;
use super::nominate::{Head, NominatedAssignment};
use crate::api::reason::PendingReason;
use crate::queue::{Parked, Verdict, WakeConditions};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Message of a workload that fits and waits.
const WAITING_FOR_PODS_READY: &str = "waiting for all admitted workloads to be in PodsReady condition";

/// Whether admissions are blocked, and which ClusterQueues wait.
#[derive(Clone, Debug, Default)]
pub(super) struct PodsReadyGate {
    blocks_admission: bool,
    /// ClusterQueues with workloads that fit.
    waiting_queues: BTreeSet<Arc<str>>,
}

impl Engine {
    /// Blocks or unblocks admissions. Unblocking wakes the parked workloads of all waiting ClusterQueues.
    pub fn block_admission(&mut self, blocked: bool) {
        self.pods_ready_gate.blocks_admission = blocked;
        if !blocked {
            for queue in std::mem::take(&mut self.pods_ready_gate.waiting_queues) {
                self.pending.config_changed(&queue, None);
            }
        }
    }

    /// Whether no workload is admitted until pods are ready.
    pub(super) const fn is_admission_blocked(&self) -> bool {
        self.pods_ready_gate.blocks_admission
    }

    /// Admits a workload that fits, or parks it while admissions are blocked.
    pub(super) fn admit_unless_blocked(&mut self, head: &Head, nominated: &NominatedAssignment) -> Outcome {
        if !self.pods_ready_gate.blocks_admission {
            self.pods_ready_gate.blocks_admission = self.settings.block_admission;
            return self.admit(&head.workload, nominated);
        }
        if !self.config.has_cluster_queue(&head.queue) {
            return skipped("The ClusterQueue is gone");
        }
        let verdict =
            Arc::new(Verdict::without_blockers(PendingReason::WaitingForPodsReady, WAITING_FOR_PODS_READY));
        let parked =
            Parked { never_blocks_queue: false, claim: None, wake_conditions: WakeConditions::default() };
        self.pending.park(&head.queue, head.class, &verdict, parked);
        self.pods_ready_gate.waiting_queues.insert(Arc::clone(&head.queue));
        Outcome::Pending(verdict)
    }
}

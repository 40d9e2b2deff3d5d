//! Admissions one after the other: where it is configured, nobody is admitted before the pods of all who are admitted are
//! ready.
//!
//! Invariants: those who hold quota already are not asked, and lose nothing by it; who fits meanwhile waits at its place,
//! and is judged anew when pods are ready.

use super::cycle::skipped;
use super::decision::Outcome;
use super::engine::Engine;
use super::nominate::{Entry, NominatedAssignment};
use crate::api::reason::PendingReason;
use crate::queue::{Parked, Verdict, WakeConditions};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is said of one that fits and waits.
const WAITING_FOR_PODS_READY: &str = "waiting for all admitted workloads to be in PodsReady condition";

/// Whether somebody's pods are waited for, and who waits.
#[derive(Clone, Debug, Default)]
pub(super) struct PodsReadyGate {
    blocks_admission: bool,
    /// ClusterQueues with workloads that fit.
    waiting_queues: BTreeSet<Arc<str>>,
}

impl Engine {
    /// Says whether admissions wait for pods of those who are admitted. When they do no longer, those who fit are judged.
    pub fn block_admission(&mut self, held: bool) {
        self.pods_ready_gate.blocks_admission = held;
        if !held {
            for queue in std::mem::take(&mut self.pods_ready_gate.waiting_queues) {
                self.pending.config_changed(&queue, None);
            }
        }
    }

    /// Admits one that fits, unless pods of others are waited for.
    pub(super) fn admit_unless_blocked(&mut self, entry: &Entry, plan: &NominatedAssignment) -> Outcome {
        if !self.pods_ready_gate.blocks_admission {
            self.pods_ready_gate.blocks_admission = self.settings.block_admission;
            return self.admit(&entry.workload, plan);
        }
        if !self.queues.contains_key(&entry.queue) {
            return skipped("The ClusterQueue is gone");
        }
        let verdict =
            Arc::new(Verdict::without_blockers(PendingReason::WaitingForPodsReady, WAITING_FOR_PODS_READY));
        let parked =
            Parked { never_blocks_queue: false, claim: None, wake_conditions: WakeConditions::default() };
        self.pending.park(&entry.queue, entry.class, &verdict, parked);
        self.pods_ready_gate.waiting_queues.insert(Arc::clone(&entry.queue));
        Outcome::Pending(verdict)
    }
}

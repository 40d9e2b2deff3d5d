//! Admissions one after the other: where it is configured, nobody is admitted before the pods of all who are admitted are
//! ready.
//!
//! Invariants: those who hold quota already are not asked, and lose nothing by it; who fits meanwhile waits at its place,
//! and is judged anew when pods are ready.

use super::cycle::skipped;
use super::decision::Outcome;
use super::engine::Engine;
use super::nominate::{Entry, Plan};
use crate::api::reason::PendingReason;
use crate::queue::{Parked, Verdict, Waits};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is said of one that fits and waits.
const WAITS: &str = "waiting for all admitted workloads to be in PodsReady condition";

/// Whether somebody's pods are waited for, and who waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Readiness {
    held: bool,
    /// ClusterQueues with workloads that fit.
    waiting: BTreeSet<Arc<str>>,
}

impl Engine {
    /// Says whether admissions wait for pods of those who are admitted. When they do no longer, those who fit are judged.
    pub fn hold_admissions(&mut self, held: bool) {
        self.readiness.held = held;
        if !held {
            for queue in std::mem::take(&mut self.readiness.waiting) {
                self.pending.config_changed(&queue, None);
            }
        }
    }

    /// Admits one that fits, unless pods of others are waited for.
    pub(super) fn admit_in_turn(&mut self, entry: &Entry, plan: &Plan) -> Outcome {
        if !self.readiness.held {
            self.readiness.held = self.settings.one_at_a_time;
            return self.admit(&entry.workload, plan);
        }
        if !self.queues.contains_key(&entry.queue) {
            return skipped("The ClusterQueue is gone");
        }
        let verdict = Arc::new(Verdict::plain(PendingReason::WaitingForPodsReady, WAITS));
        let parked = Parked { aside: false, claim: None, waits: Waits::default() };
        self.pending.park(&entry.queue, entry.class, &verdict, parked);
        self.readiness.waiting.insert(Arc::clone(&entry.queue));
        Outcome::Pending(verdict)
    }
}

//! Workloads whose state this leader knows: it has written them, or read them from the API server.
//!
//! Watches are independent and may lag: after a start on a stale API server, the event that a job runs can arrive before the
//! event that its Workload was admitted, and the job would be stopped. Only a leader admits and starts, so from its first
//! write or read of a Workload on, what it knows is not older than the start of the job. Invariants: pods are started and
//! stopped only because of a confirmed Workload; a Workload that was deleted is not confirmed.

use super::in_flight::Writes;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::lifecycle::backoff;
use crate::reconciler::messages::Effect;
use crate::reconciler::work_queue::{ReconcileKey, WorkQueue};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Delay before a read is requested again whose answer has not arrived.
const REREAD: SignedDuration = SignedDuration::from_secs(1);

/// The confirmed Workloads, and the objects that wait for the read of another.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfirmedWorkloads {
    confirmed: BTreeSet<ObjectKey>,
    waiting: BTreeMap<ObjectKey, BTreeSet<ReconcileKey>>,
}

impl ConfirmedWorkloads {
    /// Records that a Workload was deleted.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.confirmed.remove(key);
    }
}

impl Writes {
    /// Returns whether the known state of a Workload, or its absence, is confirmed. Otherwise requests a read, after which
    /// `item` gets another step.
    pub(crate) fn is_confirmed(
        &mut self,
        workload: &ObjectKey,
        item: ReconcileKey,
        queue: &mut WorkQueue,
        now: Timestamp,
    ) -> bool {
        if self.confirmed.confirmed.contains(workload) {
            return true;
        }
        self.confirmed.waiting.entry(workload.clone()).or_default().insert(item.clone());
        queue.add_at(item, backoff::after(now, REREAD));
        self.emit(Effect::Refetch { kind: Kind::Workload, key: workload.clone() });
        false
    }

    /// Records that a Workload was written or read. What waits for it gets a step.
    pub(crate) fn confirm_workload(&mut self, key: &ObjectKey, queue: &mut WorkQueue) {
        self.confirmed.confirmed.insert(key.clone());
        queue.add_all(self.confirmed.waiting.remove(key).into_iter().flatten());
    }
}

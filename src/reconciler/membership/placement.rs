//! Puts each Workload where its object says that it belongs: charged, queued, or neither.

use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::checks::{self, CheckAction};
use crate::lifecycle::conditions;
use crate::lifecycle::workload::{self, QueueMembership};
use crate::reconciler::Reconciler;
use crate::scheduler::{Verdict, Workload};
use jiff::Timestamp;
use std::sync::Arc;

impl Reconciler {
    /// Charges, queues or removes a Workload, and releases what it held otherwise. Returns how it is pending.
    pub(crate) fn sync_queue_membership(&mut self, key: &ObjectKey, now: Timestamp) -> QueueMembership {
        let membership = self.apply_queue_membership(key, now);
        self.update_pods_ready_gate(key);
        #[cfg(feature = "failpoints")]
        self.step_unguarded_pass(key, now);
        membership
    }

    fn apply_queue_membership(&mut self, key: &ObjectKey, now: Timestamp) -> QueueMembership {
        let Some(record) = self.cache.workload(key) else {
            self.engine.release(key);
            self.engine.remove_pending(key);
            self.engine.drop_penalty(key);
            return QueueMembership::NotQueued;
        };
        if let Some(charge) = self.charge_from_admission(record) {
            let admitted = conditions::is_true(&record.status, ConditionType::Admitted);
            self.membership.assumed.remove(key);
            let charge = self.with_pending_result(key, charge);
            self.engine.charge(key, charge);
            self.sync_entry_penalty(key, admitted, false, now);
            self.schedule_second_pass(key, now);
            return QueueMembership::NotQueued;
        }
        self.second_passes.forget(key, &record.meta.uid);
        let facts = self.membership_facts(record);
        let input = self.workload_input(record);
        let membership = workload::queue_membership(&input, &facts, &self.settings.lifecycle, now);
        let pending =
            if membership == QueueMembership::Queued { self.to_pending_workload(key) } else { None };
        let assumed = self.membership.assumed.get(key);
        if assumed.is_some_and(|assumed| pending.is_some() && assumed.uid == record.meta.uid) {
            return QueueMembership::NotQueued;
        }
        self.membership.assumed.remove(key);
        self.engine.release(key);
        self.sync_entry_penalty(key, false, membership == QueueMembership::NotQueued, now);
        // A Workload whose write failed is not nominated before its backoff ends: until then it could not be written, and would
        // hold quota for nothing.
        let backs_off = self.writes.backoff_until(Kind::Workload, key).is_some_and(|until| until > now);
        match pending.filter(|_| !backs_off) {
            Some(workload) => self.engine.enqueue(workload),
            None => self.engine.remove_pending(key),
        }
        membership
    }

    /// The Workload as the scheduler sees it, without what belongs to features that are off.
    pub(crate) fn to_pending_workload(&self, key: &ObjectKey) -> Option<Workload> {
        let record = self.cache.workload(key)?;
        let cluster_queue = self.cache.cluster_queue_name(record)?;
        let gates = &self.settings.engine.gates;
        Some(Workload {
            key: key.clone(),
            uid: record.meta.uid.clone(),
            cluster_queue: self.cache.interned_cluster_queue_name(cluster_queue),
            local_queue: record.queue_name.clone()?,
            priority: i64::from(record.priority),
            queued_since: self.queued_since(record),
            pod_sets: record.effective_requests.pod_sets.clone()?,
            preemption_gated: gates.respects_preemption_gates() && record.is_preemption_gated(),
            variant: record.variant.clone().filter(|_| gates.concurrent_admission),
            replaces: self.replaced_slice(record).cloned(),
            precheck_failure: precheck_failure(record),
        })
    }

    /// The slice that a Workload replaces.
    pub(crate) fn replaced_slice<'a>(&self, record: &'a WorkloadRecord) -> Option<&'a ObjectKey> {
        record.replaces.as_deref().filter(|_| self.settings.engine.gates.elastic_slices)
    }
}

/// Why a Workload cannot be nominated: a failed admission check, or invalid requests.
fn precheck_failure(record: &WorkloadRecord) -> Option<Arc<Verdict>> {
    let (reason, text) =
        match (checks::required_action(&record.status), &record.effective_requests.misconfiguration) {
            (CheckAction::Retry(text) | CheckAction::Reject(text), _) => {
                (PendingReason::PendingEvaluation, text)
            }
            (CheckAction::None, Some(text)) => (PendingReason::Misconfigured, text.clone()),
            (CheckAction::None, None) => return None,
        };
    Some(Arc::new(Verdict::without_blockers(reason, &text)))
}

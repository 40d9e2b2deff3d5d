//! Publishing: updates the snapshot for readers outside the reconciler.

use super::Reconciler;
use super::queue_facts::queue_facts;
use super::queues::counts::QueueCounts;
use super::usage_sums::UsageSums;
use super::workload::events::is_local_queue_exported;
use crate::api::v1beta2::StopPolicy;
use crate::api::{ObjectKey, names};
use crate::cache::records::{LocalQueueRecord, WorkloadRecord};
use crate::quota::NodeRef;
use crate::scheduler::PendingCounts;
use crate::snapshot::{
    ClusterQueueView, CohortView, LocalQueueReference, LocalQueueView, QueueView, References, Snapshot,
};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of classes of pending workloads that are evaluated for one view: the next view gets the others.
const MAX_CLASSES: usize = 256;
/// Minimum interval between two rebuilds of the queue view, per queue. It takes effect with hundreds of queues.
const MIN_INTERVAL_PER_QUEUE: SignedDuration = SignedDuration::from_millis(1);

impl Reconciler {
    /// Returns the snapshot as of the last `apply`.
    pub fn snapshot(&self) -> Snapshot {
        // Only what is published shares the order: each clone makes the next change copy a path.
        Snapshot {
            pending: self.engine.pending_order().clone(),
            workloads: self.cache.workload_index().clone(),
            ..self.snapshot_builder.snapshot()
        }
    }

    /// Updates the parts of the snapshot that are out of date.
    pub(super) fn update_snapshot(&mut self, now: Timestamp) {
        let synced = self.is_synced();
        let reviews_synced = self.lists.is_complete_for_webhooks();
        self.snapshot_builder.set_readiness(self.leading, synced, reviews_synced);
        if self.snapshot_builder.are_references_stale() {
            let facts = queue_facts(&self.cache, &self.settings);
            self.snapshot_builder.set_references(self.build_references(), facts);
        }
        if !synced {
            return;
        }
        self.history.begin();
        self.history.sweep();
        // With many queues the view is rebuilt less often: the work per second stays the same.
        let queues = self.cache.cluster_queues().len().saturating_add(self.cache.local_queues().len());
        let minimum = MIN_INTERVAL_PER_QUEUE.saturating_mul(i32::try_from(queues).unwrap_or(i32::MAX));
        let intervals = self.settings.snapshot;
        let interval = intervals.queues.max(minimum);
        if self.snapshot_builder.are_queues_due(interval, now) {
            let (standings, is_complete) = self.engine.standings(MAX_CLASSES);
            self.snapshot_builder.set_queues(QueueView { standings, ..self.queue_view() }, now);
            if !is_complete {
                self.snapshot_builder.postpone_queues(interval);
            }
            self.snapshot_builder.set_history(self.history.stats());
        } else {
            self.snapshot_builder.postpone_queues(interval);
        }
        if self.snapshot_builder.is_drift_check_due(intervals.drift_check, now) {
            self.snapshot_builder.set_ledger_drift(self.ledger_drift(), now);
            let drift = self.history_drift();
            self.history.set_drift(drift);
        }
    }

    /// Returns the number of flavor-resources of ClusterQueues whose usage in the ledger differs from the sum over the objects,
    /// over objects that were removed while pods ran on their quota, and over assumed admissions. Returns 0 until all lists are
    /// complete, because nothing is charged before.
    pub fn ledger_drift(&self) -> usize {
        if !self.is_synced() {
            return 0;
        }
        let (input, assumed) = (self.scheduler_input(), &self.membership.assumed);
        let vanished = self.cache.vanished_workloads();
        let present = self.cache.workloads();
        let present = present.filter(|(_, record)| !input.is_charged_to_replacing(record, assumed));
        let of_present = |(key, record): (&ObjectKey, &Arc<WorkloadRecord>)| {
            let assumed = || self.engine.charge_of(key).filter(|_| assumed.contains(key)).cloned();
            input.charge_from_admission(record).or_else(assumed)
        };
        let mut sums = UsageSums::default();
        sums.add_charges(vanished.filter_map(|record| input.charge_from_admission(record)));
        sums.add_charges(present.filter_map(of_present));
        sums.drift(&self.cache, &self.engine)
    }

    /// Returns the number of flavor-resources of ClusterQueues whose open runs in the history, together with assumed admissions,
    /// differ from the usage in the ledger; 0 until all lists are complete, because nothing is charged before.
    pub fn history_drift(&mut self) -> usize {
        if self.is_synced() { self.history_feed().drift() } else { 0 }
    }

    fn build_references(&self) -> References {
        let is_remote = |target: &str| {
            self.cache.cluster_queue(target).is_some_and(|q| {
                let rules = q.object.spec.admission_checks_strategy.iter().flat_map(|s| &s.admission_checks);
                rules
                    .filter_map(|rule| self.cache.check(rule.name.as_str()))
                    .any(|check| check.object.spec.controller_name == names::MULTIKUEUE_CONTROLLER)
            })
        };
        References {
            namespaces: self.cache.namespaces().clone(),
            local_queues: self
                .cache
                .local_queues()
                .filter(|(_, q)| !q.meta.is_deleting())
                .map(|(key, q)| {
                    let cluster_queue = q.object.spec.cluster_queue.as_deref().unwrap_or_default();
                    let reference = LocalQueueReference {
                        cluster_queue: self.cache.interned_cluster_queue_name(cluster_queue),
                        stopped: q.object.spec.stop_policy.unwrap_or_default() != StopPolicy::None,
                        is_remote: is_remote(cluster_queue),
                    };
                    (key.clone(), reference)
                })
                .collect(),
            cluster_queues: self.cache.cluster_queues().map(|(name, _)| Arc::clone(name)).collect(),
            default_priority_class: self.cache.workload_priority(names::DEFAULT_NAME).is_some(),
            related: self.cache.related().in_reviews(),
        }
    }

    fn queue_view(&self) -> QueueView {
        let target =
            |key| self.cache.local_queue(key).and_then(|queue| queue.object.spec.cluster_queue.as_deref());
        let lacks_queue = |key| target(key).is_none_or(|target| self.cache.cluster_queue(target).is_none());
        QueueView {
            cluster_queues: self
                .cache
                .cluster_queues()
                .map(|(name, record)| {
                    let counts = self.queues.cluster_queue_counts(name);
                    let view = ClusterQueueView {
                        parent: record.object.spec.cohort_name.as_deref().map(Arc::from),
                        active: self.engine.inactive_reason(name).is_none(),
                        terminating: record.meta.is_deleting(),
                        pending: with_waiting(self.engine.pending(name), counts),
                        pending_hashes: self.engine.pending_hashes(name),
                        preemption_skips: self.engine.preemption_skips(name),
                        reserving: counts.reserving,
                        admitted: counts.admitted,
                        usage_by_flavor_resource: self.engine.usage(&NodeRef::ClusterQueue(name.clone())),
                        admitted_usage: counts.admitted_usage.clone(),
                        finished: counts.finished,
                        pending_requests: counts.pending_requests(),
                        unadmitted: counts.unadmitted.clone(),
                        weighted_share: self
                            .queue_statuses()
                            .weighted_share(&NodeRef::ClusterQueue(name.clone())),
                        waiting_head: self.queues.waiting_heads.waiting_head(name, &self.engine),
                    };
                    (name.clone(), view)
                })
                .collect(),
            local_queues: self
                .cache
                .local_queues()
                .map(|(key, r)| (key.clone(), self.local_queue_view(key, r)))
                .collect(),
            cohorts: self.cohort_views(),
            without_queue: self
                .queues
                .unadmitted()
                .filter(|(key, _)| lacks_queue(key))
                .map(|(key, counts)| (key.clone(), counts.clone()))
                .collect(),
            standings: BTreeMap::new(),
            inactive: self
                .cache
                .cluster_queues()
                .filter_map(|(name, _)| Some((Arc::clone(name), self.engine.inactive_reason(name)?)))
                .collect(),
        }
    }

    fn local_queue_view(&self, key: &ObjectKey, record: &LocalQueueRecord) -> LocalQueueView {
        let counts = self.queues.local_queue_counts(key);
        let target: Arc<str> = Arc::from(record.object.spec.cluster_queue.as_deref().unwrap_or_default());
        let stopped = record.object.spec.stop_policy.unwrap_or_default() != StopPolicy::None;
        // A Workload that waits for a missing ClusterQueue is in no queue.
        let lost = counts.unadmitted.iter().filter(|(why, _)| why.reason == "NoReservation");
        let pending = if self.cache.cluster_queue(&target).is_some() {
            with_waiting(self.engine.local_pending(&target, key), counts)
        } else {
            PendingCounts { active: 0, inadmissible: lost.map(|(_, number)| number).sum() }
        };
        LocalQueueView {
            active: !stopped
                && self.cache.cluster_queue(&target).is_some()
                && self.engine.inactive_reason(&target).is_none(),
            pending,
            cluster_queue: target,
            exported: is_local_queue_exported(&self.settings, record),
            finished: counts.finished,
            unadmitted: counts.unadmitted.clone(),
            reserving: counts.reserving,
            admitted: counts.admitted,
            reserved_usage: self.engine.local_usage(&key.namespace, &key.name),
            admitted_usage: counts.admitted_usage.clone(),
            past_usage: self.engine.weighted_past_usage(key),
        }
    }

    fn cohort_views(&self) -> BTreeMap<Arc<str>, CohortView> {
        let view = |(node, parent): (&NodeRef, Option<&NodeRef>)| {
            let NodeRef::Cohort(name) = node else { return None };
            let parent = parent.and_then(|p| match p {
                NodeRef::Cohort(name) => Some(name.clone()),
                NodeRef::ClusterQueue(_) => None,
            });
            let usage = self.engine.usage(node);
            Some((
                name.clone(),
                CohortView {
                    parent,
                    usage_by_flavor_resource: usage,
                    weighted_share: self.queue_statuses().weighted_share(node),
                },
            ))
        };
        self.engine.nodes().filter_map(view).collect()
    }
}

/// Adds workloads that wait outside the queue to the inadmissible ones.
fn with_waiting(pending: PendingCounts, counts: &QueueCounts) -> PendingCounts {
    PendingCounts { inadmissible: pending.inadmissible.saturating_add(counts.waiting), ..pending }
}

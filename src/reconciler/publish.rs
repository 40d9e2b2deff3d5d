//! Publishing: the snapshot that readers outside the reconciler see is brought up to date.

use super::Reconciler;
use super::queues::counts::QueueCounts;
use crate::api::{ObjectKey, names};

use crate::cache::records::LocalQueueRecord;
use crate::quota::{FlavorResource, NodeRef};
use crate::resources::Amount;
use crate::scheduler::PendingCounts;
use crate::snapshot::{ClusterQueueView, CohortView, LocalQueueView, QueueView, References, Snapshot};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Least time between two pictures for each queue in them, once there are hundreds.
const MIN_INTERVAL_PER_QUEUE: SignedDuration = SignedDuration::from_millis(1);

impl Reconciler {
    /// The snapshot as of the last `apply`.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_builder.snapshot()
    }

    /// Brings the snapshot up to date.
    pub(super) fn update_snapshot(&mut self, now: Timestamp) {
        let mut builder = std::mem::take(&mut self.snapshot_builder);
        let synced = self.is_synced();
        builder.set_readiness(self.leading, synced, self.lists.is_complete_for_webhooks());
        builder.update_references(|| self.build_references());
        if synced {
            // With many queues the view is rebuilt less often: the work per second stays the same.
            let queues =
                self.cache.cluster_queues().count().saturating_add(self.cache.local_queues().count());
            let pace = MIN_INTERVAL_PER_QUEUE.saturating_mul(i32::try_from(queues).unwrap_or(i32::MAX));
            builder.update_queues(self.settings.snapshot.queues.max(pace), now, || self.queue_view());
            builder.update_ledger_drift(self.settings.snapshot.drift_check, now, || self.ledger_drift());
        }
        self.snapshot_builder = builder;
    }

    /// Quotas of ClusterQueues whose use in the ledger is not the sum of what the objects say and of what is assumed.
    /// Before all lists are complete nothing is charged, and nothing has drifted.
    pub fn ledger_drift(&self) -> usize {
        if !self.is_synced() {
            return 0;
        }
        let mut sums: BTreeMap<Arc<str>, BTreeMap<FlavorResource, i128>> = BTreeMap::new();
        for (key, record) in self.cache.workloads() {
            let assumed =
                || self.engine.charge_of(key).filter(|_| self.membership.assumed.contains(key)).cloned();
            let Some(charge) = self.charge_from_admission(record).or_else(assumed) else { continue };
            let sum = sums.entry(charge.cluster_queue).or_default();
            for (cell, amount) in charge.usage {
                let slot = sum.entry(cell).or_default();
                *slot = slot.saturating_add(amount.to_i128());
            }
        }
        let mut drift = 0_usize;
        for name in self.cache.cluster_queues().map(|(name, _)| name) {
            let mut told = sums.remove(name).unwrap_or_default();
            for (cell, usage) in self.engine.usage(&NodeRef::ClusterQueue(name.clone())) {
                let objects = told.remove(&cell).unwrap_or_default();
                drift =
                    drift.saturating_add(usize::from(Amount::saturating_from_i128(objects) != usage.usage));
            }
            drift = drift.saturating_add(told.values().filter(|left| **left != 0).count());
        }
        drift
    }

    fn build_references(&self) -> References {
        let remote = |target: &str| {
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
                .filter(|(_, q)| !q.meta.deleting)
                .map(|(key, q)| {
                    (key.clone(), remote(q.object.spec.cluster_queue.as_deref().unwrap_or_default()))
                })
                .collect(),
            default_priority_class: self.cache.workload_priority(names::DEFAULT_NAME).is_some(),
        }
    }

    fn queue_view(&self) -> QueueView {
        QueueView {
            cluster_queues: self
                .cache
                .cluster_queues()
                .map(|(name, record)| {
                    let tally = self.queues.cluster_queue_counts(name);
                    let view = ClusterQueueView {
                        parent: record.object.spec.cohort_name.as_deref().map(Arc::from),
                        active: self.engine.inactive_reason(name).is_none(),
                        terminating: record.meta.deleting,
                        pending: with_waiting(self.engine.pending(name), tally),
                        pending_hashes: self.engine.pending_hashes(name),
                        preemption_skips: self.engine.preemption_skips(name),
                        reserving: tally.reserving,
                        admitted: tally.admitted,
                        usage_by_flavor_resource: self.engine.usage(&NodeRef::ClusterQueue(name.clone())),
                        admitted_usage: tally.admitted_usage.clone(),
                        finished: tally.finished,
                        pending_requests: tally.pending_requests(),
                        unadmitted: tally.unadmitted.clone(),
                        weighted_share: self.weighted_share(&NodeRef::ClusterQueue(name.clone())),
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
        }
    }

    fn local_queue_view(&self, key: &ObjectKey, record: &LocalQueueRecord) -> LocalQueueView {
        let tally = self.queues.local_queue_counts(key);
        let target: Arc<str> = Arc::from(record.object.spec.cluster_queue.as_deref().unwrap_or_default());
        let stopped =
            record.object.spec.stop_policy.unwrap_or_default() != crate::api::v1beta2::StopPolicy::None;
        LocalQueueView {
            active: !stopped
                && self.cache.cluster_queue(&target).is_some()
                && self.engine.inactive_reason(&target).is_none(),
            pending: with_waiting(self.engine.local_pending(&target, key), tally),
            cluster_queue: target,
            exported: self.is_local_queue_exported(record),
            finished: tally.finished,
            unadmitted: tally.unadmitted.clone(),
            reserving: tally.reserving,
            admitted: tally.admitted,
            reserved_usage: self.engine.local_usage(&key.namespace, &key.name),
            admitted_usage: tally.admitted_usage.clone(),
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
            let cells = self.engine.usage(node);
            Some((
                name.clone(),
                CohortView {
                    parent,
                    usage_by_flavor_resource: cells,
                    weighted_share: self.weighted_share(node),
                },
            ))
        };
        self.engine.nodes().filter_map(view).collect()
    }
}

/// Those that wait for something else than their turn count with those that are parked.
fn with_waiting(pending: PendingCounts, tally: &QueueCounts) -> PendingCounts {
    PendingCounts { inadmissible: pending.inadmissible.saturating_add(tally.waiting), ..pending }
}

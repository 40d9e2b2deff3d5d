//! Fair sharing in the objects: the past usage of LocalQueues, read from the status that the previous leader wrote and
//! written after each sample; the weighted shares of ClusterQueues and Cohorts, for their statuses.

use super::status::{Share, to_merge_patch};
use super::{QueueKey, QueueStatuses, QueueUpdates};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{
    self, AdmissionFairSharingStatus, CohortStatus, FairSharing, FairSharingStatus,
    LocalQueueFairSharingStatus, StopPolicy,
};
use crate::cache::Kind;
use crate::lifecycle::{backoff, conditions};
use crate::quota::NodeRef;
use crate::reconciler::ReconcileKey;
use crate::resources::Quantity;
use crate::scheduler::LocalQueue;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Converts a LocalQueue for admission fair sharing. Sampling starts from the stored past usage: time without a running
/// manager does not count.
pub(crate) fn to_afs_local_queue(object: &v1beta2::LocalQueue) -> LocalQueue {
    let status = object.status.fair_sharing.as_ref().and_then(|s| s.admission_fair_sharing_status.as_ref());
    let amount = |(resource, amount): (&String, &Text)| {
        Some((Arc::from(resource.as_str()), Quantity::parse(&amount.0).ok()?.to_f64()))
    };
    LocalQueue {
        cluster_queue: Arc::from(object.spec.cluster_queue.as_deref().unwrap_or_default()),
        weight: object.spec.fair_sharing.as_ref().and_then(FairSharing::number),
        consumed: status.into_iter().flat_map(|s| &s.consumed_resources).filter_map(amount).collect(),
        sampled_at: None,
        stored_at: status.map(|status| status.last_update.0),
    }
}

/// Change of the entry penalty of a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryPenalty {
    /// The penalty is added to past usage: the Workload is admitted.
    Commit,
    /// The penalty stays: the Workload may be admitted.
    Keep,
    /// The penalty is dropped: the Workload will not be admitted.
    Drop,
}

impl QueueUpdates<'_> {
    /// Samples the usage of an active LocalQueue if the sampling interval has passed, and schedules the next sample.
    pub(crate) fn sample_afs_usage(&mut self, key: &ObjectKey, now: Timestamp) {
        let Some(settings) = &self.settings.engine.admission_fair_sharing else { return };
        let interval = settings.sampling_interval;
        let Some(target) = self
            .cache
            .local_queue(key)
            .filter(|queue| queue.object.spec.stop_policy.unwrap_or_default() == StopPolicy::None)
        else {
            return;
        };
        let target = target.object.spec.cluster_queue.as_deref().unwrap_or_default();
        if self.cache.cluster_queue(target).is_none() || self.engine.inactive_reason(target).is_some() {
            return;
        }
        let last = self.engine.past_usage(key).and_then(|queue| queue.sampled_at);
        self.engine.begin_sampling(key, now);
        let due = backoff::after(last.unwrap_or(now), interval);
        if due > now {
            self.work_queue.add_at(ReconcileKey::Object(Kind::LocalQueue, key.clone()), due);
            return;
        }
        self.engine.sample_usage(key, &self.queues.local_queue_counts(key).admitted_usage, now);
        self.queues.mark_status_stale(QueueKey::LocalQueue(key.clone()));
        self.work_queue
            .add_at(ReconcileKey::Object(Kind::LocalQueue, key.clone()), backoff::after(now, interval));
    }

    /// Adds usage up to now to the past usage of a LocalQueue. Must be called before the usage changes.
    pub(crate) fn accrue_afs_usage(&mut self, key: &ObjectKey, now: Timestamp) {
        if self.settings.engine.admission_fair_sharing.is_some() {
            self.engine.accrue_usage(key, &self.queues.local_queue_counts(key).admitted_usage, now);
        }
    }

    /// Updates the entry penalty of a Workload. A Workload that has moved to another LocalQueue keeps none.
    pub(crate) fn sync_entry_penalty(&mut self, key: &ObjectKey, penalty: EntryPenalty, now: Timestamp) {
        self.restore_entry_penalty(key);
        let Some(local) = self.engine.penalized_local_queue(key) else { return };
        let moved = self.cache.workload(key).and_then(|record| record.local_queue()).as_ref() != Some(local);
        match penalty {
            EntryPenalty::Commit => {
                let local = local.clone();
                self.accrue_afs_usage(&local, now);
                self.engine.commit_penalty(key, self.admitted_since(key).unwrap_or(now));
            }
            EntryPenalty::Keep if !moved => {}
            EntryPenalty::Keep | EntryPenalty::Drop => self.engine.drop_penalty(key),
        }
    }

    /// Adds the penalty of a Workload that another manager has admitted, if the status of its LocalQueue does not contain it: the
    /// admission is not complete, or it was after the write of the status.
    fn restore_entry_penalty(&mut self, key: &ObjectKey) {
        if self.settings.engine.admission_fair_sharing.is_none()
            || self.engine.penalized_local_queue(key).is_some()
        {
            return;
        }
        let record = self.cache.workload(key).filter(|record| record.keeps_quota());
        let Some(local) = record.and_then(|record| record.local_queue()) else { return };
        let missing = match self.admitted_since(key) {
            None => true,
            Some(_) if self.queues.counts.counts_as_admitted(key) => false,
            Some(at) => {
                let stored = self.engine.past_usage(&local).and_then(|queue| queue.stored_at);
                stored.is_some_and(|stored| at > stored)
            }
        };
        if missing {
            self.engine.restore_entry_penalty(key);
        }
    }

    fn admitted_since(&self, key: &ObjectKey) -> Option<Timestamp> {
        conditions::true_since(&self.cache.workload(key)?.status, ConditionType::Admitted)
    }

    /// Marks the statuses of the cohorts above a ClusterQueue: their shares may have changed with its usage.
    pub(crate) fn mark_ancestor_cohorts(&mut self, cluster_queue: &str) {
        if self.settings.engine.fair_sharing.is_none() {
            return;
        }
        for name in self.cache.cohorts_above(cluster_queue) {
            if self.cache.cohort(name.as_str()).is_some() {
                self.queues.mark_status_stale(QueueKey::Cohort(Arc::from(name)));
            }
        }
    }
}

impl QueueStatuses<'_> {
    /// Returns the past usage of a LocalQueue for its status. The old status is kept, times included, while the usage
    /// in it is unchanged.
    pub(crate) fn past_usage_status(
        &self,
        key: &ObjectKey,
        old: Option<&LocalQueueFairSharingStatus>,
    ) -> Option<LocalQueueFairSharingStatus> {
        self.settings.engine.admission_fair_sharing.as_ref()?;
        let known = self.engine.past_usage(key)?;
        let Some(sampled_at) = known.sampled_at else { return old.cloned() };
        let text = |amount: f64| Quantity::parse(&format!("{amount:.3}")).ok().map(|q| Text(q.canonical()));
        let consumed =
            known.consumed.iter().filter_map(|(name, used)| Some((name.to_string(), text(*used)?)));
        let consumed: BTreeMap<String, Text> = consumed.collect();
        let published = old.and_then(|old| old.admission_fair_sharing_status.as_ref());
        if published.map_or(consumed.is_empty(), |published| published.consumed_resources == consumed) {
            return old.cloned();
        }
        Some(LocalQueueFairSharingStatus {
            weighted_share: old.map_or(0, |old| old.weighted_share),
            admission_fair_sharing_status: Some(AdmissionFairSharingStatus {
                consumed_resources: consumed,
                last_update: conditions::to_api_time(sampled_at),
            }),
        })
    }

    /// Returns the weighted share of a node, if fair sharing is enabled.
    pub(crate) fn weighted_share(&self, node: &NodeRef) -> Option<i64> {
        self.settings.engine.fair_sharing.as_ref().map(|_| self.engine.weighted_share(node))
    }

    /// Returns the weighted share of a node for its status, if fair sharing is enabled.
    pub(crate) fn weighted_share_status(&self, node: &NodeRef) -> Option<FairSharingStatus> {
        self.weighted_share(node).map(|weighted_share| FairSharingStatus { weighted_share })
    }

    /// Returns the new status of a Cohort; `None` if the object already has that status.
    pub(crate) fn cohort_status(&self, name: &Arc<str>) -> Option<Value> {
        let record = self.cache.cohort(name)?;
        let fair_sharing = self.weighted_share_status(&NodeRef::Cohort(Arc::clone(name)));
        let new = CohortStatus { fair_sharing };
        let share = if new.fair_sharing.is_some() { Share::Kept } else { Share::Dropped };
        (new != record.object.status).then(|| to_merge_patch(&record.meta, &new, share)).flatten()
    }
}

//! What admission fair sharing and fair sharing tell the outside: penalties, samples, shares.

use super::config::{Charge, LocalQueue};
use super::engine::Engine;
use crate::api::ObjectKey;
use crate::queue::Workload;
use crate::quota::{FlavorResource, NodeRef};
use crate::resources::Amount;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Engine {
    /// Counts the entry penalty of a workload that is being admitted in a queue where past usage counts.
    pub(super) fn add_entry_penalty(&mut self, workload: &Workload, charge: &Charge) {
        let Some(settings) = self.settings.admission_fair_sharing.clone() else {
            return;
        };
        if !self.queues.get(&charge.cluster_queue).is_some_and(|queue| queue.config.orders_by_past_usage) {
            return;
        }
        let local = local_queue_key(&workload.key, &charge.local_queue);
        self.afs_usage.add_penalty(&local, &workload.key, &charge.usage, &settings);
        self.update_usage_rank(&local, &charge.cluster_queue);
    }

    /// The workload's admission is complete: its penalty becomes part of what its LocalQueue used. That comes after
    /// `accrue_usage`, since the penalty must not decay for a time before it was added.
    pub fn commit_penalty(&mut self, workload: &ObjectKey) {
        if let Some(local) = self.afs_usage.commit_penalty(workload) {
            self.refresh_usage_rank(&local);
        }
    }

    /// What a LocalQueue has in use is about to change: until now it was this.
    pub fn accrue_usage(
        &mut self,
        key: &ObjectKey,
        usage: &BTreeMap<FlavorResource, Amount>,
        now: Timestamp,
    ) {
        let Some(settings) = self.settings.admission_fair_sharing.clone() else {
            return;
        };
        self.afs_usage.accrue(key, usage, &settings, now);
        self.refresh_usage_rank(key);
    }

    /// The workload will not be admitted after all, or is over.
    pub fn drop_penalty(&mut self, workload: &ObjectKey) {
        if let Some(local) = self.afs_usage.remove_penalty(workload) {
            self.refresh_usage_rank(&local);
        }
    }

    /// The LocalQueue that a workload counts in by its entry penalty, until its admission is complete.
    pub fn penalized_local_queue(&self, workload: &ObjectKey) -> Option<&ObjectKey> {
        self.afs_usage.penalized_local_queue(workload)
    }

    /// From now on what a LocalQueue uses counts, unless that has begun already.
    pub fn begin_sampling(&mut self, key: &ObjectKey, now: Timestamp) {
        self.afs_usage.begin_sampling(key, now);
    }

    /// Takes a sample of what a LocalQueue uses.
    pub fn sample_usage(
        &mut self,
        key: &ObjectKey,
        usage: &BTreeMap<FlavorResource, Amount>,
        now: Timestamp,
    ) {
        let Some(settings) = self.settings.admission_fair_sharing.clone() else {
            return;
        };
        self.afs_usage.sample(key, usage, &settings, now);
        self.refresh_usage_rank(key);
    }

    /// What a LocalQueue has used by its last sample.
    pub fn past_usage(&self, key: &ObjectKey) -> Option<&LocalQueue> {
        self.afs_usage.get(key)
    }

    /// What a LocalQueue has used with its penalties, by weight: what its place in the order follows.
    pub fn weighted_past_usage(&self, key: &ObjectKey) -> Option<f64> {
        self.afs_usage.weighted_usage(key, self.settings.admission_fair_sharing.as_ref()?)
    }

    fn refresh_usage_rank(&mut self, local: &ObjectKey) {
        if let Some(queue) = self.afs_usage.get(local).map(|config| Arc::clone(&config.cluster_queue)) {
            self.update_usage_rank(local, &queue);
        }
    }

    /// The weighted share of a node as its status shows it: rounded up, and the largest number without limit.
    pub fn weighted_share(&self, node: &NodeRef) -> i64 {
        let share = self.tree.find(node).map_or(0.0, |node| self.tree.share(node).weighted_share());
        if share.is_finite() { to_i64(share.ceil()) } else { Amount::UNLIMITED.get() }
    }
}

fn local_queue_key(workload: &ObjectKey, name: &Arc<str>) -> ObjectKey {
    ObjectKey { namespace: Arc::clone(&workload.namespace), name: Arc::clone(name) }
}

/// A number without fraction as an integer; numbers beyond its range have no share to show.
fn to_i64(number: f64) -> i64 {
    format!("{number:.0}").parse().unwrap_or(i64::MAX)
}

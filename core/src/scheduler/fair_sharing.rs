//! Fair sharing data for callers: entry penalties, usage samples and weighted shares.
//!
//! Neighbours: `afs_usage` keeps past usage, `quota::dominant_share` computes shares.

use super::config::{Charge, LocalQueue};
use super::engine::Engine;
use crate::api::ObjectKey;
use crate::quota::{FlavorResource, NodeRef};
use crate::resources::Amount;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Engine {
    /// Adds the entry penalty of a workload if its ClusterQueue orders LocalQueues by past usage.
    pub(super) fn add_entry_penalty(&mut self, workload: &ObjectKey, charge: &Charge) {
        let Some(settings) = self.settings.admission_fair_sharing.clone() else {
            return;
        };
        if !self
            .config
            .cluster_queue(&charge.cluster_queue)
            .is_some_and(|queue| queue.config.orders_by_past_usage)
        {
            return;
        }
        let local = local_queue_key(workload, &charge.local_queue);
        self.afs_usage.add_penalty(&local, workload, &charge.usage, &settings);
        self.update_usage_rank(&local, &charge.cluster_queue);
    }

    /// Adds the entry penalty of a workload with quota that another manager has decided on.
    pub fn restore_entry_penalty(&mut self, workload: &ObjectKey) {
        if let Some(charge) = self.charge_of(workload).cloned() {
            self.add_entry_penalty(workload, &charge);
        }
    }

    /// Adds the penalty of a completely admitted workload to its LocalQueue's past usage. Call after `accrue_usage`:
    /// the penalty must not decay for the time before it was added.
    pub fn commit_penalty(&mut self, workload: &ObjectKey, admitted_at: Timestamp) {
        if let Some(local) = self.afs_usage.commit_penalty(workload, admitted_at) {
            self.refresh_usage_rank(&local);
        }
    }

    /// Adds usage up to now to past usage. Call before the usage of a LocalQueue changes, with the old usage.
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

    /// Removes the penalty of a workload that finished or will not be admitted.
    pub fn drop_penalty(&mut self, workload: &ObjectKey) {
        if let Some(local) = self.afs_usage.remove_penalty(workload) {
            self.refresh_usage_rank(&local);
        }
    }

    /// The LocalQueue that a workload's entry penalty counts in, until its admission is complete.
    pub fn penalized_local_queue(&self, workload: &ObjectKey) -> Option<&ObjectKey> {
        self.afs_usage.penalized_local_queue(workload)
    }

    /// Starts sampling the usage of a LocalQueue, unless that has begun.
    pub fn begin_sampling(&mut self, key: &ObjectKey, now: Timestamp) {
        self.afs_usage.begin_sampling(key, now);
    }

    /// Takes a sample of a LocalQueue's usage.
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

    /// Configuration and past usage of a LocalQueue, as of its last update.
    pub fn past_usage(&self, key: &ObjectKey) -> Option<&LocalQueue> {
        self.afs_usage.get(key)
    }

    /// Weighted past usage of a LocalQueue with penalties, which determines its rank.
    pub fn weighted_past_usage(&self, key: &ObjectKey) -> Option<f64> {
        self.afs_usage.weighted_usage(key, self.settings.admission_fair_sharing.as_ref()?)
    }

    fn refresh_usage_rank(&mut self, local: &ObjectKey) {
        if let Some(queue) = self.afs_usage.get(local).map(|config| Arc::clone(&config.cluster_queue)) {
            self.update_usage_rank(local, &queue);
        }
    }

    /// Weighted share of a node as its status shows it: rounded up, and the maximum if infinite.
    pub fn weighted_share(&self, node: &NodeRef) -> i64 {
        let share = self.tree.find(node).map(|node| self.tree.share(node)).unwrap_or_default();
        let share = if share.borrows_without_weight() { f64::INFINITY } else { share.weighted_share() };
        if share.is_finite() { to_i64(share.ceil()) } else { Amount::UNLIMITED.get() }
    }
}

fn local_queue_key(workload: &ObjectKey, name: &Arc<str>) -> ObjectKey {
    ObjectKey { namespace: Arc::clone(&workload.namespace), name: Arc::clone(name) }
}

/// Converts a number without fraction; numbers out of range become `i64::MAX`.
fn to_i64(number: f64) -> i64 {
    format!("{number:.0}").parse().unwrap_or(i64::MAX)
}

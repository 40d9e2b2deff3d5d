//! What admission fair sharing and fair sharing tell the outside: penalties, samples, shares.

use super::config::{Charge, LocalQueue};
use super::engine::Engine;
use crate::api::ObjectKey;
use crate::queue::Workload;
use crate::quota::NodeRef;
use crate::resources::Amount;
use jiff::Timestamp;
use std::sync::Arc;

impl Engine {
    /// Counts the entry penalty of a workload that is being admitted in a queue where past usage counts.
    pub(super) fn penalise(&mut self, workload: &Workload, charge: &Charge) {
        let counts = self.queues.get(&charge.cluster_queue).is_some_and(|queue| queue.config.usage_based);
        let Some(settings) = self.settings.admission_fair_sharing.clone().filter(|_| counts) else {
            return;
        };
        let local = local_queue(&workload.key, &charge.local_queue);
        self.order.push(&local, &workload.key, &charge.usage, &settings);
        self.rank(&local, &charge.cluster_queue);
    }

    /// The workload's admission is complete: its penalty becomes part of what its LocalQueue used.
    pub fn settle_penalty(&mut self, key: &ObjectKey, now: Timestamp) {
        let Some(settings) = self.settings.admission_fair_sharing.clone() else {
            return;
        };
        let Some((local, queue)) = self.local_of(key) else {
            return;
        };
        if self.order.settle(&local, key, &settings, now) {
            self.rank(&local, &queue);
        }
    }

    /// The workload will not be admitted after all, or is over.
    pub fn drop_penalty(&mut self, key: &ObjectKey, local_queue: &ObjectKey, cluster_queue: &str) {
        if self.order.pop(local_queue, key) {
            self.rank(local_queue, cluster_queue);
        }
    }

    /// Whether a LocalQueue has penalties that are not settled.
    pub fn is_penalised(&self, local_queue: &ObjectKey) -> bool {
        self.order.is_penalised(local_queue)
    }

    /// Takes a sample of what a LocalQueue uses and answers with what it has used by now.
    pub fn sample_usage(
        &mut self,
        key: &ObjectKey,
        cluster_queue: &str,
        now: Timestamp,
    ) -> Option<&LocalQueue> {
        let settings = self.settings.admission_fair_sharing.clone()?;
        let usage = self.local_usage(&key.namespace, &key.name);
        self.order.sample(key, &usage, &settings, now);
        self.rank(key, cluster_queue);
        self.order.get(key)
    }

    fn local_of(&self, key: &ObjectKey) -> Option<(ObjectKey, Arc<str>)> {
        let charge = self.charge_of(key)?;
        Some((local_queue(key, &charge.local_queue), Arc::clone(&charge.cluster_queue)))
    }

    /// The weighted share of a node as its status shows it: rounded up, and the largest number without limit.
    pub fn weighted_share(&self, node: &NodeRef) -> i64 {
        let share = self.tree.find(node).map_or(0.0, |node| self.tree.share(node).value());
        if share.is_finite() { whole(share.ceil()) } else { Amount::UNLIMITED.get() }
    }
}

fn local_queue(workload: &ObjectKey, name: &Arc<str>) -> ObjectKey {
    ObjectKey { namespace: Arc::clone(&workload.namespace), name: Arc::clone(name) }
}

/// A number without fraction as an integer; numbers beyond its range have no share to show.
fn whole(number: f64) -> i64 {
    format!("{number:.0}").parse().unwrap_or(i64::MAX)
}

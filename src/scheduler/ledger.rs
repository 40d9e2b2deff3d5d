//! Who holds what: the charges from which all usage follows, with their sums per queue.

use super::config::Charge;
use crate::api::ObjectKey;
use crate::quota::FlavorResource;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of holders and what they hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) workloads: usize,
    pub(super) usage: BTreeMap<FlavorResource, i128>,
}

/// Charges by workload.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    charges: BTreeMap<ObjectKey, Charge>,
    by_queue: BTreeMap<Arc<str>, usize>,
    by_local_queue: BTreeMap<ObjectKey, Held>,
}

impl Holders {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Charge> {
        self.charges.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Charge)> {
        self.charges.iter()
    }

    pub(super) fn insert(&mut self, key: &ObjectKey, charge: Charge) -> Option<Charge> {
        let old = self.remove(key);
        *self
            .by_queue
            .entry(Arc::clone(&charge.cluster_queue))
            .or_default() += 1;
        let held = self.by_local_queue.entry(local(key, &charge)).or_default();
        held.workloads += 1;
        for (pair, amount) in &charge.usage {
            *held.usage.entry(pair.clone()).or_default() += amount.wide();
        }
        self.charges.insert(key.clone(), charge);
        old
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Charge> {
        let charge = self.charges.remove(key)?;
        if let Some(count) = self.by_queue.get_mut(&charge.cluster_queue) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_queue.remove(&charge.cluster_queue);
            }
        }
        let name = local(key, &charge);
        if let Some(held) = self.by_local_queue.get_mut(&name) {
            held.workloads = held.workloads.saturating_sub(1);
            for (pair, amount) in &charge.usage {
                *held.usage.entry(pair.clone()).or_default() -= amount.wide();
            }
            if held.workloads == 0 {
                self.by_local_queue.remove(&name);
            }
        }
        Some(charge)
    }

    pub(super) fn count(&self, queue: &str) -> usize {
        self.by_queue.get(queue).copied().unwrap_or_default()
    }

    pub(super) fn local(&self, namespace: &str, local_queue: &str) -> Option<&Held> {
        self.by_local_queue.get(&ObjectKey::new(namespace, local_queue))
    }
}

fn local(key: &ObjectKey, charge: &Charge) -> ObjectKey {
    ObjectKey {
        namespace: Arc::clone(&key.namespace),
        name: Arc::clone(&charge.local_queue),
    }
}

//! Charges by ClusterQueue, added up apart from the ledger, for a comparison with it.

use crate::cache::Cache;
use crate::quota::{FlavorResource, NodeRef};
use crate::resources::Amount;
use crate::scheduler::{Charge, Engine};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Amounts by ClusterQueue and flavor-resource.
#[derive(Default)]
pub(super) struct UsageSums(pub(super) BTreeMap<Arc<str>, BTreeMap<FlavorResource, i128>>);

impl UsageSums {
    /// Adds the charges of Workloads.
    pub(super) fn add_charges(&mut self, charges: impl IntoIterator<Item = Charge>) {
        for Charge { cluster_queue, usage, .. } in charges {
            self.add(cluster_queue, usage.into_iter().map(|(fr, amount)| (fr, amount.to_i128())));
        }
    }

    /// Adds amounts to the sums of a ClusterQueue.
    pub(super) fn add(
        &mut self,
        cluster_queue: Arc<str>,
        amounts: impl IntoIterator<Item = (FlavorResource, i128)>,
    ) {
        let sums = self.0.entry(cluster_queue).or_default();
        for (fr, amount) in amounts {
            let sum = sums.entry(fr).or_default();
            *sum = sum.saturating_add(amount);
        }
    }

    /// Returns the number of flavor-resources of existing ClusterQueues whose sum differs from the usage in the ledger.
    pub(super) fn drift(mut self, cache: &Cache, engine: &Engine) -> usize {
        let mut drift = 0_usize;
        for (name, _) in cache.cluster_queues() {
            let mut expected = self.0.remove(name).unwrap_or_default();
            for (fr, usage) in engine.usage(&NodeRef::ClusterQueue(Arc::clone(name))) {
                let sum = Amount::saturating_from_i128(expected.remove(&fr).unwrap_or_default());
                drift = drift.saturating_add(usize::from(sum != usage.usage));
            }
            drift = drift.saturating_add(expected.values().filter(|amount| **amount != 0).count());
        }
        drift
    }
}

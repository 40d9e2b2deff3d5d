//! Number of distinct scheduling hashes among the pending workloads of a ClusterQueue, for the metric.
//!
//! As in Kueue, a hash is priority and equivalence hash. Counts are updated with every class change: counting on each
//! scrape would visit every class once a second.

use super::equivalence_class::EquivalenceKey;
use super::pending_queue::PendingCounts;
use std::collections::BTreeMap;

/// Hash counts of one ClusterQueue.
#[derive(Debug, Default)]
pub(super) struct HashCounts {
    by_hash: BTreeMap<(i64, u64), ClassCounts>,
    /// Number of hashes with an active class, and of hashes with a parked class.
    counts: PendingCounts,
}

/// Classes of one hash.
#[derive(Debug, Default)]
struct ClassCounts {
    active: u32,
    parked: u32,
}

/// Priority and 64 bits of the equivalence hash, as long as Kueue's hash.
fn metric_hash(key: &EquivalenceKey) -> (i64, u64) {
    let start = key.equivalence_hash.first_chunk().copied().unwrap_or_default();
    (key.priority, u64::from_le_bytes(start))
}

impl HashCounts {
    /// Adds a class.
    pub(super) fn add(&mut self, key: &EquivalenceKey, parked: bool) {
        let classes = self.by_hash.entry(metric_hash(key)).or_default();
        let (own, all) = if parked {
            (&mut classes.parked, &mut self.counts.inadmissible)
        } else {
            (&mut classes.active, &mut self.counts.active)
        };
        *all = all.saturating_add(usize::from(*own == 0));
        *own = own.saturating_add(1);
    }

    /// Removes a class that was added with the same arguments.
    pub(super) fn remove(&mut self, key: &EquivalenceKey, parked: bool) {
        let Some(classes) = self.by_hash.get_mut(&metric_hash(key)) else { return };
        let (own, all) = if parked {
            (&mut classes.parked, &mut self.counts.inadmissible)
        } else {
            (&mut classes.active, &mut self.counts.active)
        };
        *own = own.saturating_sub(1);
        *all = all.saturating_sub(usize::from(*own == 0));
        if classes.active == 0 && classes.parked == 0 {
            self.by_hash.remove(&metric_hash(key));
        }
    }

    /// Number of active and parked hashes; all count as parked if the ClusterQueue is inactive.
    pub(super) fn counts(&self, queue_active: bool) -> PendingCounts {
        if queue_active { self.counts } else { PendingCounts { active: 0, inadmissible: self.by_hash.len() } }
    }
}

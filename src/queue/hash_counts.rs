//! How many different hashes the pending workloads of a ClusterQueue have, for the metric of that name.
//!
//! A hash is priority and shape, as in Kueue. The numbers are kept in step with the classes: counting when asked would look at
//! every class once a second.

use super::equivalence_class::EquivalenceKey;
use super::pending_queue::PendingCounts;
use std::collections::BTreeMap;

/// Hashes of the classes of one ClusterQueue.
#[derive(Debug, Default)]
pub(super) struct HashCounts {
    by_hash: BTreeMap<(i64, u64), ClassCounts>,
    /// Hashes with an active class, and hashes with a parked one.
    counts: PendingCounts,
}

/// Classes of one hash.
#[derive(Debug, Default)]
struct ClassCounts {
    active: u32,
    parked: u32,
}

/// 64 bits of the shape beside the priority, as long as a hash of Kueue.
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

    /// Removes a class that was added like this.
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

    /// How many different hashes are active and parked; all count as parked where the queue admits nothing.
    pub(super) fn counts(&self, open: bool) -> PendingCounts {
        if open { self.counts } else { PendingCounts { active: 0, inadmissible: self.by_hash.len() } }
    }
}

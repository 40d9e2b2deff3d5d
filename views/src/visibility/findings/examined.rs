//! The workloads that an audit examines: one for each group of which all have the same queue, state and requests.
//!
//! Invariant: what is found is the same as if each workload were examined. Where that does not follow from the group, each of its
//! workloads is: behind one that can never be admitted, and if some workloads of a LocalQueue are not in its order.

use super::Audit;
use crate::api::ObjectKey;
use crate::cache::records::WorkloadRecord;
use crate::visibility::selector::keeps_out;
use crate::visibility::views::WorkloadState;
use crate::visibility::workload_row::{reason_of, state_of};
use std::collections::BTreeMap;

/// Numbers of pending workloads of a LocalQueue: all, and all that no object keeps out by its state.
#[derive(Clone, Copy, Default)]
struct Counts {
    all: usize,
    evaluated: usize,
}

fn is_evaluated(record: &WorkloadRecord) -> bool {
    let state = state_of(record);
    state == WorkloadState::Pending && !keeps_out(reason_of(record, state))
}

impl Audit<'_> {
    /// Returns the workloads to examine, each with the number of workloads for which it is examined.
    pub(super) fn examined(&self) -> Vec<(&WorkloadRecord, usize)> {
        let index = &self.snapshot.workloads;
        let record_of = move |key: &ObjectKey| index.get(key).map(|record| &**record);
        let groups = index.alike();
        let mut counts: BTreeMap<ObjectKey, Counts> = BTreeMap::new();
        for group in &groups {
            let pending = record_of(group.first).filter(|record| state_of(record) == WorkloadState::Pending);
            if let Some((record, queue)) = pending.and_then(|record| Some((record, record.local_queue()?))) {
                let counts = counts.entry(queue).or_default();
                counts.all = counts.all.saturating_add(group.count());
                if is_evaluated(record) {
                    counts.evaluated = counts.evaluated.saturating_add(group.count());
                }
            }
        }
        let mut examined = Vec::new();
        for group in &groups {
            let Some(record) = record_of(group.first) else { continue };
            if group.count() == 1 || self.is_alike(record, &counts) {
                examined.push((record, group.count()));
            } else {
                examined.extend(group.keys().filter_map(record_of).map(|record| (record, 1)));
            }
        }
        examined
    }

    /// Returns whether all workloads of a group have the obstacle of its first one.
    fn is_alike(&self, first: &WorkloadRecord, counts: &BTreeMap<ObjectKey, Counts>) -> bool {
        if !is_evaluated(first) {
            return true;
        }
        let queue = self.rows.cluster_queue(first);
        let standing = self.snapshot.queues.standings.get(&queue);
        let Some((standing, local)) = standing.zip(first.local_queue()) else { return true };
        let in_order = self.snapshot.pending.local_len(&queue, &local);
        let known = counts.get(&local).copied().unwrap_or_default();
        standing.barrier.is_none() && (in_order == known.all || in_order == known.evaluated)
    }
}

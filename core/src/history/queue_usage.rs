//! Usage of each ClusterQueue: the sums of the open runs, and what of them is borrowed.
//!
//! Invariants: a sum follows from the runs alone, so that it can be compared with the ledger; its borrowed part follows the rule
//! of the quota tree, as in the status of the ClusterQueue.

use super::series::Millis;
use super::series_set::{Measure, SeriesSet};
use crate::quota;
use std::collections::BTreeMap;

/// Sums by ClusterQueue and flavor-resource, by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueUsage(BTreeMap<u32, BTreeMap<u32, Sum>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    used: i128,
    /// The nominal quota above which the ClusterQueue borrows, which may be 0; `None` if it cannot borrow: it is in no cohort,
    /// does not exist, or has no such flavor.
    nominal: Option<i128>,
}

impl Sum {
    fn borrowed(self) -> i128 {
        quota::borrowed(self.used, self.nominal.unwrap_or_default(), self.nominal.is_some())
    }
}

impl QueueUsage {
    /// Adds amounts, or subtracts them if `sign` is -1.
    pub(super) fn add(
        &mut self,
        queue: u32,
        amounts: &[(u32, i64)],
        sign: i128,
        (series, now): (&mut SeriesSet, Millis),
    ) {
        for (fr, amount) in amounts {
            let change = i128::from(*amount).saturating_mul(sign);
            let sum = self.0.entry(queue).or_default().entry(*fr).or_default();
            let borrowed = sum.borrowed();
            sum.used = sum.used.saturating_add(change);
            series.add_level(queue, Measure::Usage(*fr), change, now);
            let change = sum.borrowed().saturating_sub(borrowed);
            series.add_level(queue, Measure::Borrowed(*fr), change, now);
        }
        self.drop_empty(queue);
    }

    /// Sets the nominal quotas above which a ClusterQueue borrows; `None` if it cannot borrow.
    pub(super) fn set_nominal(
        &mut self,
        queue: u32,
        quotas: &BTreeMap<u32, i128>,
        (series, now): (&mut SeriesSet, Millis),
    ) {
        let sums = self.0.entry(queue).or_default();
        for fr in quotas.keys() {
            sums.entry(*fr).or_default();
        }
        for (fr, sum) in sums {
            let borrowed = sum.borrowed();
            sum.nominal = quotas.get(fr).copied();
            let change = sum.borrowed().saturating_sub(borrowed);
            series.add_level(queue, Measure::Borrowed(*fr), change, now);
        }
        self.drop_empty(queue);
    }

    fn drop_empty(&mut self, queue: u32) {
        if let Some(sums) = self.0.get_mut(&queue) {
            // A quota of 0 is known, too: all that is used of it is borrowed.
            sums.retain(|_, sum| sum.used != 0 || sum.nominal.is_some());
            if sums.is_empty() {
                self.0.remove(&queue);
            }
        }
    }

    /// Returns whether a ClusterQueue borrows one of these flavor-resources.
    pub(super) fn borrows(&self, queue: u32, amounts: &[(u32, i64)]) -> bool {
        let sums = self.0.get(&queue);
        let sum = |fr: &u32| sums.and_then(|sums| sums.get(fr)).copied().unwrap_or_default();
        amounts.iter().any(|(fr, amount)| *amount > 0 && sum(fr).borrowed() > 0)
    }

    /// Returns ClusterQueue, flavor-resource, and the used and borrowed amounts.
    pub(super) fn used(&self) -> impl Iterator<Item = (u32, u32, (i128, i128))> {
        let sums = |(queue, sums): (&u32, &BTreeMap<u32, Sum>)| {
            let queue = *queue;
            let amounts = |sum: &Sum| (sum.used, sum.borrowed());
            sums.iter().map(move |(fr, sum)| (queue, *fr, amounts(sum))).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(sums).filter(|(_, _, (used, _))| *used != 0)
    }

    /// Returns the bytes of the sums.
    pub(super) fn bytes(&self) -> usize {
        let sums: usize = self.0.values().map(BTreeMap::len).sum();
        sums.saturating_mul(size_of::<(u32, Sum)>().saturating_mul(2))
            .saturating_add(self.0.len().saturating_mul(64))
    }
}

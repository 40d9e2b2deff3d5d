//! A history at one instant, for answers that are made outside the core.

use super::record::Record;
use super::seen::millis;
use super::series::{Bucket, Millis, Width};
use super::series_set::{Measure, QueueNumber, SeriesSet};
use super::tracked::OpenRun;
use crate::quota::FlavorResource;
use jiff::Timestamp;
use std::sync::Arc;

/// A history at one instant.
#[derive(Clone, Debug)]
pub struct HistoryView {
    /// Start of the recorded time; `None` if nothing is recorded.
    pub from: Option<Timestamp>,
    /// Flavor-resources; the index is the number.
    pub flavor_resources: Vec<FlavorResource>,
    /// Records, the oldest first.
    pub records: Vec<Arc<Record>>,
    /// Whether older records were dropped.
    pub dropped: bool,
    /// Runs that have not ended.
    pub runs: Vec<Arc<OpenRun>>,
    pub(super) series: Arc<SeriesSet>,
    /// Names of ClusterQueues; the index is the number.
    pub(super) queues: Vec<Arc<str>>,
    /// Number of flavor-resources whose open runs differed from the usage in the ledger.
    pub drift: usize,
}

impl HistoryView {
    /// Returns the buckets of a series until `now`; none if it was always 0.
    pub fn buckets(&self, queue: QueueNumber, measure: Measure, now: Timestamp) -> Vec<Bucket> {
        // The first bucket began before this history: it covers only the time since then.
        let from = self.from.map_or(Millis::MIN, millis);
        let mut buckets = self.series.buckets(queue, measure, millis(now));
        for bucket in buckets.iter_mut().take_while(|bucket| bucket.start < from) {
            bucket.start = from.min(bucket.end);
        }
        buckets
    }

    /// Returns the number of a ClusterQueue, if it has one.
    pub fn queue(&self, name: &str) -> Option<QueueNumber> {
        let position = self.queues.iter().position(|known| **known == *name)?;
        u32::try_from(position).ok().map(QueueNumber::Own)
    }

    /// Returns the name of a ClusterQueue; `None` for the sum of all others.
    pub fn queue_name(&self, queue: QueueNumber) -> Option<&Arc<str>> {
        match queue {
            QueueNumber::Own(number) => self.queues.get(usize::try_from(number).ok()?),
            QueueNumber::Others => None,
        }
    }

    /// Returns the queues and measures that have series.
    pub fn series(&self) -> impl Iterator<Item = (QueueNumber, Measure)> {
        self.series.keys()
    }

    /// Returns the width of the newest buckets.
    pub fn width(&self) -> Width {
        self.series.width()
    }

    /// Returns from when on the records are complete.
    pub fn records_from(&self) -> Option<Timestamp> {
        let oldest = self.records.first().filter(|_| self.dropped);
        let oldest = oldest.and_then(|record| Timestamp::from_millisecond(record.at()).ok());
        oldest.into_iter().chain(self.from).max()
    }
}

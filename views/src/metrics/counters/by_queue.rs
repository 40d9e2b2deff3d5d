//! Families whose series belong to queues.
//!
//! Invariant: a series stays no longer than each queue and cohort that it counts for. Otherwise queues that come and go would make the
//! page, and the memory for it, longer without end.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use super::family::Buckets;
use crate::metrics::model::MetricLabels;

/// A family, and which of its series count for a queue.
#[derive(Debug)]
pub(super) struct ByQueue<M, C> {
    family: Family<MetricLabels, M, C>,
    series: Mutex<BTreeMap<String, BTreeSet<MetricLabels>>>,
}

pub(super) type QueueCounters = ByQueue<Counter, fn() -> Counter>;
pub(super) type QueueHistograms = ByQueue<Histogram, Buckets>;

impl Default for QueueCounters {
    fn default() -> Self {
        Self::new(Family::default())
    }
}

impl<M, C: MetricConstructor<M>> ByQueue<M, C> {
    /// Counts the series of a family, none of which exists yet.
    pub(super) fn new(family: Family<MetricLabels, M, C>) -> Self {
        Self { family, series: Mutex::default() }
    }

    /// Changes the series with these labels, which counts for these queues.
    pub(super) fn change(&self, queues: &[&str], labels: &MetricLabels, change: impl FnOnce(&M)) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for queue in queues {
            let known = series.get(*queue).is_some_and(|of_queue| of_queue.contains(labels));
            if !known {
                series.entry((*queue).to_owned()).or_default().insert(labels.clone());
            }
        }
        // Under the lock: a queue that is deleted meanwhile takes this series with it.
        change(&self.family.get_or_create(labels));
    }

    /// Removes the series that count for a queue.
    pub(super) fn forget(&self, queue: &str) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for labels in series.remove(queue).into_iter().flatten() {
            self.family.remove(&labels);
        }
    }
}

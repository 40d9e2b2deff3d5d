//! The ring: owns all parts of the history, and keeps them within their memory.

use super::log::RecordLog;
use super::names::Names;
use super::outbox::Outbox;
use super::queue_usage::QueueUsage;
use super::record::{Record, RecordEvent, RecordKey, RecordKind};
use super::seen::millis;
use super::series::{HOUR, Millis};
use super::series_set::SeriesSet;
use super::tracked::{OpenWait, Phase, Tracked};
use super::view::HistoryView;
use crate::quota::FlavorResource;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Interval between two checks of the memory.
const SWEEP_INTERVAL: Millis = HOUR / 60;

/// The history of one process.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Maximum number of bytes; 0 if nothing is recorded.
    limit: usize,
    /// When recording began: the first lists were complete.
    pub(super) from: Option<Millis>,
    pub(super) now: Millis,
    pub(super) names: Names,
    pub(super) workloads: BTreeMap<Arc<str>, Tracked>,
    pub(super) log: RecordLog,
    /// Evictions before the start, until the first lists are complete.
    pub(super) seeds: BTreeMap<RecordKey, Record>,
    pub(super) series: SeriesSet,
    pub(super) usage: QueueUsage,
    /// Entries that the recorder has not taken yet.
    pub(super) outbox: Outbox,
    /// Number of runs and waits that would have had a negative length.
    pub(super) cut: u64,
    /// Bytes of the tracked Workloads.
    pub(super) tracked_bytes: usize,
    swept_at: Millis,
    bytes: usize,
    drift: usize,
}

/// Numbers about a history, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryStats {
    /// Maximum number of bytes; 0 if nothing is recorded.
    pub limit_bytes: usize,
    /// Number of bytes at the last check.
    pub bytes: usize,
    /// Since when it is recorded.
    pub from: Option<Timestamp>,
    /// Time of the oldest record.
    pub oldest_record: Option<Timestamp>,
    /// Records ever made, by kind.
    pub records: BTreeMap<&'static str, u64>,
    /// Number of flavor-resources whose open runs differ from the usage in the ledger at the last comparison.
    pub drift: usize,
    /// Number of records with a known key and other content.
    pub conflicts: u64,
    /// Number of runs and waits that would have had a negative length and were cut to none.
    pub cut: u64,
}

impl Ring {
    /// Creates an empty history of at most `limit` bytes; with 0 it records nothing.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            from: None,
            now: Millis::MIN,
            names: Names::default(),
            workloads: BTreeMap::new(),
            log: RecordLog::default(),
            seeds: BTreeMap::new(),
            series: SeriesSet::default(),
            usage: QueueUsage::default(),
            outbox: Outbox::default(),
            cut: 0,
            tracked_bytes: 0,
            swept_at: 0,
            bytes: 0,
            drift: 0,
        }
    }

    /// Returns whether anything is recorded.
    pub const fn is_enabled(&self) -> bool {
        self.limit > 0
    }

    /// Sets the time of the next observations. A time before the present one changes nothing.
    pub fn set_time(&mut self, now: Timestamp) {
        self.now = self.now.max(millis(now));
        self.restore_left();
    }

    /// Begins recording when the first lists are complete. Evictions that the lists show become records.
    pub fn begin(&mut self) {
        if self.from.is_some() || !self.is_enabled() {
            return;
        }
        self.from = Some(self.now);
        let mut seeds: Vec<Record> = std::mem::take(&mut self.seeds).into_values().collect();
        seeds.sort_by_key(Record::at);
        for mut record in seeds {
            // The preemptor may have been listed after its victim.
            if let RecordEvent::Eviction(eviction) = &mut record.event
                && let Some(preemption) = &mut eviction.preemption
                && preemption.preemptor.is_none()
            {
                preemption.preemptor = self.preemptor(&preemption.preemptor_uid);
            }
            record.forget_present();
            self.keep(record);
        }
        self.end_unseen();
        self.fit_memory();
    }

    /// Sets the nominal quotas above which a ClusterQueue borrows; none if it is in no cohort or was deleted.
    pub fn set_nominal(
        &mut self,
        cluster_queue: &Arc<str>,
        quotas: impl IntoIterator<Item = (FlavorResource, i128)>,
    ) {
        if !self.is_enabled() {
            return;
        }
        let queue = self.names.queue(cluster_queue);
        let quotas = quotas.into_iter().map(|(fr, quota)| (self.names.flavor_resource(&fr), quota)).collect();
        self.usage.set_nominal(queue, &quotas, (&mut self.series, self.now));
    }

    /// Returns the amounts of all open runs by ClusterQueue and flavor-resource, without zeros. They must equal the usage in the
    /// ledger.
    pub fn open_usage(&self) -> BTreeMap<Arc<str>, BTreeMap<FlavorResource, i128>> {
        self.open_amounts(|(used, _)| used)
    }

    /// Returns the borrowed part of these amounts, without zeros. It must equal the statuses of the ClusterQueues.
    pub fn open_borrowed(&self) -> BTreeMap<Arc<str>, BTreeMap<FlavorResource, i128>> {
        self.open_amounts(|(_, borrowed)| borrowed)
    }

    fn open_amounts(
        &self,
        amount: impl Fn((i128, i128)) -> i128,
    ) -> BTreeMap<Arc<str>, BTreeMap<FlavorResource, i128>> {
        let mut all: BTreeMap<Arc<str>, BTreeMap<FlavorResource, i128>> = BTreeMap::new();
        let names = self.names.flavor_resources();
        for (queue, fr, amounts) in self.usage.used() {
            let name = usize::try_from(fr).ok().and_then(|fr| names.get(fr));
            if let Some(fr) = name.filter(|_| amount(amounts) != 0) {
                all.entry(self.names.queue_name(queue)).or_default().insert(fr.clone(), amount(amounts));
            }
        }
        all
    }

    /// Returns the amounts of the open run of a Workload.
    pub(crate) fn open_run(&self, uid: &str) -> Vec<(FlavorResource, i128)> {
        let names = self.names.flavor_resources();
        let Some(Phase::Running(run)) = self.workloads.get(uid).map(|tracked| &tracked.phase) else {
            return Vec::new();
        };
        let named = |(fr, amount): &(u32, i64)| {
            Some((names.get(usize::try_from(*fr).ok()?)?.clone(), i128::from(*amount)))
        };
        run.amounts.iter().filter_map(named).collect()
    }

    /// Returns the open wait of a Workload; `None` if it does not wait, or nothing is recorded.
    pub fn open_wait(&self, uid: &str) -> Option<OpenWait> {
        match &self.workloads.get(uid)?.phase {
            Phase::Pending(pending) => Some(pending.open()),
            Phase::Idle | Phase::Running(_) => None,
        }
    }

    /// Sets the result of the last comparison with the ledger.
    pub const fn set_drift(&mut self, drift: usize) {
        self.drift = drift;
    }

    /// Bounds the memory, once a minute: drops expired values first, then the oldest ones.
    pub fn sweep(&mut self) {
        if self.is_enabled() && self.now.saturating_sub(self.swept_at) >= SWEEP_INTERVAL {
            self.swept_at = self.now;
            self.series.sweep(self.now);
            self.names.sweep();
            self.fit_memory();
        }
    }

    fn fit_memory(&mut self) {
        let fixed = self.tracked_bytes.saturating_add(self.names.bytes()).saturating_add(self.usage.bytes());
        let mut series = self.series.bytes();
        while fixed.saturating_add(series).saturating_add(self.log.bytes()) > self.limit {
            if self.log.drop_oldest() {
                continue;
            }
            if !self.series.drop_oldest_hour() {
                break;
            }
            series = self.series.bytes();
        }
        self.bytes = fixed.saturating_add(series).saturating_add(self.log.bytes());
    }

    /// Returns numbers for metrics.
    pub fn stats(&self) -> HistoryStats {
        let time = |at: Millis| Timestamp::from_millisecond(at).ok();
        HistoryStats {
            limit_bytes: self.limit,
            bytes: self.bytes,
            from: self.from.and_then(time),
            oldest_record: self.log.records().front().and_then(|record| time(record.at())),
            records: RecordKind::ALL.into_iter().map(|kind| (kind.as_str(), self.log.made(kind))).collect(),
            drift: self.drift,
            conflicts: self.log.conflicts(),
            cut: self.cut,
        }
    }

    /// Returns a view of the history as of the last change. The view shares its values with the ring; a later change copies only
    /// what it changes.
    pub fn view(&self) -> HistoryView {
        let runs = self.workloads.values().filter_map(|tracked| match &tracked.phase {
            Phase::Running(run) => Some(Arc::clone(run)),
            Phase::Idle | Phase::Pending(_) => None,
        });
        HistoryView {
            from: self.from.and_then(|at| Timestamp::from_millisecond(at).ok()),
            flavor_resources: self.names.flavor_resources().to_vec(),
            records: self.log.records().iter().cloned().collect(),
            dropped: self.log.has_dropped(),
            runs: runs.collect(),
            series: Arc::new(self.series.clone()),
            queues: self.names.queues(),
            drift: self.drift,
        }
    }
}

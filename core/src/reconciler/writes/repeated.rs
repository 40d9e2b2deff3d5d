//! Writes that follow one another although nothing else changes the object.
//!
//! A write that lands without effect, or whose effect the API server reverts (a definition without the field, a webhook of
//! another project), leads to the same decision again. Such a series is backed off and reported instead of repeated at once.
//! Invariant: what another client changes, or what the scheduler decides, starts a new series.

use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::lifecycle::backoff;
use crate::reconciler::expiring::Expiring;
use jiff::{SignedDuration, Timestamp};

/// Number of writes in a series that are not backed off. The longest life of an object without another client's change
/// in between takes fewer.
const MAX_IMMEDIATE_WRITES: u32 = 8;
/// A series ends if the next write comes later than this after the last one, or after its backoff.
const SERIES_GAP: SignedDuration = SignedDuration::from_secs(1);

#[derive(Clone, Debug)]
struct Series {
    /// Version that the last write returned.
    version: String,
    /// When it landed, or the end of the backoff after it.
    ended: Timestamp,
    /// Number of writes.
    count: u32,
}

/// Number of times that the Workload of a job is replaced immediately; changes of the job alone lead to fewer.
const MAX_IMMEDIATE_REPLACEMENTS: u32 = 3;
/// First and longest wait before the Workload of a job is created again after that.
const MIN_REPLACEMENT_WAIT: SignedDuration = SignedDuration::from_secs(1);
const MAX_REPLACEMENT_WAIT: SignedDuration = SignedDuration::from_secs(60);
/// Replacements follow one another if the next comes within this time.
const REPLACEMENT_GAP: SignedDuration = SignedDuration::from_mins(10);

/// How often the Workload of a job was replaced by another of the same name, because it did not match the job.
#[derive(Clone, Debug)]
struct Replacement {
    /// Generation of the job: a change of its spec starts a new series. `None` if it was replaced for a reason outside the spec:
    /// the series continues.
    generation: Option<i64>,
    count: u32,
    /// When the next Workload may be created.
    until: Timestamp,
}

/// Repeated changes, by object, because an object does not stay as it was written. Each deletion of a Workload, and each change
/// by another client, ends a series of writes, so they are counted here.
#[derive(Clone, Debug)]
pub(crate) struct Replacements<K>(Expiring<K, Replacement>);

impl<K> Default for Replacements<K> {
    fn default() -> Self {
        Self(Expiring::default())
    }
}

impl<K: Clone + Ord> Replacements<K> {
    /// Records that a Workload is deleted to be replaced, because of this generation of its job if one is given. Returns whether the
    /// next one must wait.
    pub(crate) fn record(&mut self, key: &K, generation: Option<i64>, now: Timestamp) -> bool {
        let lasts = |known: &Replacement| now <= backoff::after(known.until, REPLACEMENT_GAP);
        let before = self.0.get(key).filter(|known| known.generation == generation && lasts(known));
        let count = before.map_or(0, |known| known.count).saturating_add(1);
        let excess = count.saturating_sub(MAX_IMMEDIATE_REPLACEMENTS);
        let until = match excess {
            0 => now,
            _ => {
                backoff::after(now, backoff::exponential(MIN_REPLACEMENT_WAIT, MAX_REPLACEMENT_WAIT, excess))
            }
        };
        self.0.insert(key.clone(), Replacement { generation, count, until }, lasts);
        excess > 0
    }

    /// Returns until when a Workload must not be created again; `None` if it may be, or if its job has changed.
    pub(crate) fn waits_until(&self, key: &K, generation: i64, now: Timestamp) -> Option<Timestamp> {
        let same = |known: &&Replacement| known.generation.is_none_or(|known| known == generation);
        let known = self.0.get(key).filter(|known| same(known) && known.until > now)?;
        Some(known.until)
    }
}

/// The series of all objects that were written recently.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteSeries(Expiring<(Kind, ObjectKey), Series>);

impl WriteSeries {
    /// Returns how many writes of a series precede a write that is decided on this version of the object.
    pub(super) fn preceding(
        &self,
        object: &(Kind, ObjectKey),
        decided_on: Option<&str>,
        now: Timestamp,
    ) -> u32 {
        let series = self.0.get(object).filter(|series| Some(series.version.as_str()) == decided_on);
        series
            .filter(|series| now <= backoff::after(series.ended, SERIES_GAP))
            .map_or(0, |series| series.count)
    }

    /// Records a write that has landed after `preceding` writes of its series. Returns whether the next one must wait.
    pub(super) fn record(
        &mut self,
        object: (Kind, ObjectKey),
        version: &str,
        preceding: u32,
        now: Timestamp,
    ) -> bool {
        let count = preceding.saturating_add(1);
        let lasts = |series: &Series| now <= backoff::after(series.ended, SERIES_GAP);
        self.0.insert(object, Series { version: version.to_owned(), ended: now, count }, lasts);
        count >= MAX_IMMEDIATE_WRITES
    }

    /// Extends the series of an object to the end of a backoff.
    pub(super) fn extend(&mut self, object: &(Kind, ObjectKey), until: Timestamp) {
        if let Some(series) = self.0.get_mut(object) {
            series.ended = series.ended.max(until);
        }
    }

    pub(super) fn remove(&mut self, object: &(Kind, ObjectKey)) {
        self.0.remove(object);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

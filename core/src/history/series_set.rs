//! All series, by ClusterQueue and measure.
//!
//! Invariants: the width of the buckets follows from the number of series, so that all series together stay within their part of
//! the memory; queues without series of their own are in one sum, `others`, so that no usage is lost; a measure that was always 0
//! has no series.

use super::series::{Bucket, HOUR, Millis, Mode, Series, Width};
use crate::api::reason::PendingReason;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of series with buckets of a minute.
const MAX_BY_MINUTE: usize = 700;
/// Maximum number of series with buckets of five minutes.
const MAX_BY_FIVE_MINUTES: usize = 3_600;
/// Maximum number of series with buckets of a quarter of an hour.
const MAX_SERIES: usize = 10_900;
/// Upper ends of the classes of waits, in seconds.
const WAIT_CLASSES: [i64; 20] = [
    1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 28_800, 57_600, 86_400,
    259_200, 604_800,
];

/// What a series measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Usage of a flavor-resource, given by its number: the integral over each bucket, in units × milliseconds.
    Usage(u32),
    /// Usage above the nominal quota of a flavor-resource, in the same unit.
    Borrowed(u32),
    /// Pending workloads with a reason: the integral over each bucket.
    Pending(PendingReason),
    /// Number of quota reservations.
    Admissions,
    /// Number of evictions.
    Evictions,
    /// Median of the waits that ended in the bucket, in seconds, by classes; 0 if none ended.
    WaitMedian,
    /// 99th percentile of these waits.
    WaitP99,
}

impl Measure {
    const fn mode(self) -> Mode {
        match self {
            Self::Usage(_) | Self::Borrowed(_) | Self::Pending(_) => Mode::Level,
            Self::Admissions | Self::Evictions => Mode::Sum,
            Self::WaitMedian | Self::WaitP99 => Mode::Latest,
        }
    }
}

/// A ClusterQueue with series of its own, by its number, or the sum of all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueNumber {
    /// A ClusterQueue.
    Own(u32),
    /// All ClusterQueues without series of their own.
    Others,
}

type SeriesKey = (QueueNumber, Measure);

/// All series.
#[derive(Clone, Debug)]
pub(super) struct SeriesSet {
    /// The series, shared with views of the history; a change copies the series that it changes.
    series: BTreeMap<SeriesKey, Arc<Series>>,
    width: Width,
    /// Maximum number of series.
    limit: usize,
    /// Levels of the queues that are in the sum, by queue and measure.
    folded: BTreeMap<u32, BTreeMap<Measure, i128>>,
    /// Number of changes of each queue: in this hour, and half of the number before.
    activity: BTreeMap<u32, u64>,
    /// The waits of the open bucket, by queue.
    waits: BTreeMap<u32, WaitClasses>,
    ranked_at: Millis,
}

#[derive(Clone, Debug)]
struct WaitClasses {
    bucket: Millis,
    counts: [u32; WAIT_CLASSES.len() + 1],
}

impl Default for SeriesSet {
    fn default() -> Self {
        Self {
            series: BTreeMap::new(),
            width: Width::Minute,
            limit: MAX_SERIES,
            folded: BTreeMap::new(),
            activity: BTreeMap::new(),
            waits: BTreeMap::new(),
            ranked_at: 0,
        }
    }
}

impl SeriesSet {
    /// Changes a level from `now` on.
    pub(super) fn add_level(&mut self, queue: u32, measure: Measure, change: i128, now: Millis) {
        if change == 0 {
            return;
        }
        self.count_change(queue);
        let to = self.target(queue, measure, now);
        if to == QueueNumber::Others {
            let level = self.folded.entry(queue).or_default().entry(measure).or_default();
            *level = level.saturating_add(change);
        }
        self.series_of(to, measure, now).add_to_level(change, now);
    }

    /// Counts something that happened at `now`.
    pub(super) fn count(&mut self, queue: u32, measure: Measure, now: Millis) {
        self.count_change(queue);
        let to = self.target(queue, measure, now);
        self.series_of(to, measure, now).add(1, now);
    }

    /// Records a wait that ended at `now`.
    pub(super) fn add_wait(&mut self, queue: u32, waited: Millis, now: Millis) {
        let bucket = now.saturating_sub(now.rem_euclid(self.width.millis()));
        let fresh = || WaitClasses { bucket, counts: [0; WAIT_CLASSES.len() + 1] };
        let classes = self.waits.entry(queue).or_insert_with(fresh);
        if classes.bucket != bucket {
            *classes = fresh();
        }
        let seconds = waited.max(0).checked_div(1_000).unwrap_or_default();
        let class = WAIT_CLASSES.partition_point(|end| *end < seconds);
        if let Some(count) = classes.counts.get_mut(class) {
            *count = count.saturating_add(1);
        }
        let (median, p99) = (classes.quantile(50), classes.quantile(99));
        for (measure, value) in [(Measure::WaitMedian, median), (Measure::WaitP99, p99)] {
            if let own @ QueueNumber::Own(_) = self.target(queue, measure, now) {
                self.series_of(own, measure, now).set(i128::from(value), now);
            }
        }
    }

    fn count_change(&mut self, queue: u32) {
        let changes = self.activity.entry(queue).or_default();
        *changes = changes.saturating_add(1);
    }

    /// Returns the queue whose series takes a value of a queue. A queue that would exceed the number of series is put into the
    /// sum.
    fn target(&mut self, queue: u32, measure: Measure, now: Millis) -> QueueNumber {
        let own = QueueNumber::Own(queue);
        if self.folded.contains_key(&queue) {
            return QueueNumber::Others;
        }
        if !self.series.contains_key(&(own, measure)) && self.series.len() >= self.limit {
            self.fold(queue, now);
            return QueueNumber::Others;
        }
        own
    }

    fn series_of(&mut self, queue: QueueNumber, measure: Measure, now: Millis) -> &mut Series {
        let key = (queue, measure);
        if !self.series.contains_key(&key) {
            self.series.insert(key, Arc::new(Series::new(measure.mode(), self.width, now)));
            self.fit_width();
        }
        let width = self.width;
        let series =
            self.series.entry(key).or_insert_with(|| Arc::new(Series::new(measure.mode(), width, now)));
        Arc::make_mut(series)
    }

    /// Widens the buckets if there are too many series for the width.
    fn fit_width(&mut self) {
        let number = self.series.len().saturating_mul(MAX_SERIES).checked_div(self.limit.max(1)).unwrap_or(0);
        let width = match number {
            few if few <= MAX_BY_MINUTE => Width::Minute,
            more if more <= MAX_BY_FIVE_MINUTES => Width::FiveMinutes,
            _ => Width::QuarterHour,
        };
        if width > self.width {
            self.width = width;
            for series in self.series.values_mut() {
                Arc::make_mut(series).widen(width);
            }
        }
    }

    /// Puts a queue into the sum.
    fn fold(&mut self, queue: u32, now: Millis) {
        let own = QueueNumber::Own(queue);
        let measures: Vec<Measure> = self.series_of_queue(own).map(|(measure, _)| measure).collect();
        let mut levels = BTreeMap::new();
        for measure in measures {
            let Some(series) = self.series.remove(&(own, measure)) else { continue };
            let mut series = Arc::unwrap_or_clone(series);
            if measure.mode() == Mode::Latest {
                continue;
            }
            series.advance(now);
            if series.level() != 0 {
                levels.insert(measure, series.level());
            }
            self.series_of(QueueNumber::Others, measure, now).absorb(series);
        }
        self.folded.insert(queue, levels);
    }

    /// Gives a queue its own series from `now` on.
    fn unfold(&mut self, queue: u32, now: Millis) {
        for (measure, level) in self.folded.remove(&queue).unwrap_or_default() {
            self.series_of(QueueNumber::Others, measure, now).add_to_level(level.saturating_neg(), now);
            self.series_of(QueueNumber::Own(queue), measure, now).add_to_level(level, now);
        }
    }

    fn series_of_queue(&self, queue: QueueNumber) -> impl Iterator<Item = (Measure, &Series)> {
        let first = (queue, Measure::Usage(0));
        self.series
            .range(first..)
            .take_while(move |((of, _), _)| *of == queue)
            .map(|((_, m), s)| (*m, s.as_ref()))
    }

    /// Drops series that were 0 for 24 hours; once an hour, gives the queues with most changes their own series.
    pub(super) fn sweep(&mut self, now: Millis) {
        if now.saturating_sub(self.ranked_at) < HOUR {
            return;
        }
        self.ranked_at = now;
        self.series.retain(|_, series| {
            let series = Arc::make_mut(series);
            series.advance(now);
            !series.is_zero()
        });
        let bucket = now.saturating_sub(now.rem_euclid(self.width.millis()));
        self.waits.retain(|_, classes| classes.bucket == bucket);
        if !self.folded.is_empty() {
            self.rank(now);
        }
        self.activity.retain(|_, changes| {
            *changes /= 2;
            *changes > 0
        });
    }

    fn rank(&mut self, now: Millis) {
        let mut ranked: Vec<(u64, u32)> =
            self.activity.iter().map(|(queue, changes)| (*changes, *queue)).collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        let mut number = 0_usize;
        let mut own = std::collections::BTreeSet::new();
        for (_, queue) in ranked {
            let series = match self.folded.get(&queue) {
                Some(levels) => levels.len(),
                None => self.series_of_queue(QueueNumber::Own(queue)).count(),
            };
            number = number.saturating_add(series);
            // Some series stay free for measures that are not in use yet.
            if number.saturating_mul(10) > self.limit.saturating_mul(9) {
                break;
            }
            own.insert(queue);
        }
        let with_series: std::collections::BTreeSet<u32> =
            self.series.keys().filter_map(|(queue, _)| own_number(*queue)).collect();
        for queue in with_series.difference(&own) {
            self.fold(*queue, now);
        }
        let promoted: Vec<u32> = self.folded.keys().filter(|queue| own.contains(queue)).copied().collect();
        for queue in promoted {
            self.unfold(queue, now);
        }
    }

    /// Drops the oldest hour of all series. Returns whether there was one.
    pub(super) fn drop_oldest_hour(&mut self) -> bool {
        let most = self.series.values().map(|series| series.hours()).max().unwrap_or_default();
        let oldest = self.series.values_mut().filter(|series| series.hours() == most);
        most > 1 && oldest.map(Arc::make_mut).all(Series::drop_oldest)
    }

    /// Returns the buckets of a series until `now`.
    pub(super) fn buckets(&self, queue: QueueNumber, measure: Measure, now: Millis) -> Vec<Bucket> {
        let Some(series) = self.series.get(&(queue, measure)) else { return Vec::new() };
        let mut series = Series::clone(series);
        series.advance(now);
        series.buckets()
    }

    /// Returns the keys of all series.
    pub(super) fn keys(&self) -> impl Iterator<Item = SeriesKey> {
        self.series.keys().copied()
    }

    /// Returns the width of the buckets.
    pub(super) const fn width(&self) -> Width {
        self.width
    }

    /// Returns the bytes of all series.
    pub(super) fn bytes(&self) -> usize {
        let slots = self.series.len().saturating_mul(size_of::<SeriesKey>().saturating_mul(2));
        let waits = self.waits.len().saturating_mul(size_of::<WaitClasses>().saturating_mul(2));
        let series: usize = self.series.values().map(|series| series.bytes()).sum();
        series.saturating_add(slots).saturating_add(waits)
    }
}

const fn own_number(queue: QueueNumber) -> Option<u32> {
    match queue {
        QueueNumber::Own(number) => Some(number),
        QueueNumber::Others => None,
    }
}

impl WaitClasses {
    /// Returns the upper end of the class of a percentile, in seconds.
    fn quantile(&self, percent: u64) -> i64 {
        let total: u64 = self.counts.iter().copied().map(u64::from).sum();
        let rank = total.saturating_mul(percent).div_ceil(100).max(1);
        let mut seen = 0_u64;
        let class = self.counts.iter().position(|count| {
            seen = seen.saturating_add(u64::from(*count));
            seen >= rank
        });
        let last = WAIT_CLASSES.last().copied().unwrap_or_default();
        class.and_then(|class| WAIT_CLASSES.get(class)).copied().unwrap_or(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Millis = 500_000 * HOUR;
    const USAGE: Measure = Measure::Usage(0);

    fn integral(set: &SeriesSet, queue: QueueNumber, now: Millis) -> i128 {
        set.buckets(queue, USAGE, now).iter().map(|bucket| bucket.value).sum()
    }

    #[test]
    fn the_width_follows_from_the_number_of_series() {
        let mut set = SeriesSet::default();
        for (queues, width) in
            [(700, Width::Minute), (3_600, Width::FiveMinutes), (10_900, Width::QuarterHour)]
        {
            for queue in 0..queues {
                set.add_level(queue, USAGE, 1, T);
            }
            assert_eq!((set.width(), set.series.len()), (width, usize::try_from(queues).unwrap()));
        }
        assert!(set.folded.is_empty());
    }

    #[test]
    fn queues_beyond_the_limit_are_in_one_sum_and_the_busy_ones_get_series() {
        let mut set = SeriesSet { limit: 10, ..SeriesSet::default() };
        for queue in 0..14 {
            set.add_level(queue, USAGE, 2, T);
        }
        assert_eq!(set.series.keys().filter(|(queue, _)| *queue == QueueNumber::Others).count(), 1);
        let hour = T + HOUR;
        assert_eq!(integral(&set, QueueNumber::Others, hour), 4 * 2 * i128::from(HOUR));
        for _ in 0..50 {
            set.add_level(13, USAGE, 1, hour);
            set.add_level(13, USAGE, -1, hour);
        }
        set.sweep(hour);
        assert!(
            set.series.contains_key(&(QueueNumber::Own(13), USAGE)),
            "the busiest queue has its own series"
        );
        let later = hour + HOUR;
        let total: i128 = set.keys().map(|(queue, _)| integral(&set, queue, later)).sum();
        assert_eq!(total, 14 * 2 * 2 * i128::from(HOUR), "no usage is lost");
        assert_eq!(integral(&set, QueueNumber::Own(13), later), 2 * i128::from(HOUR));
    }

    #[test]
    fn waits_are_read_from_classes() {
        let mut set = SeriesSet::default();
        for seconds in [1, 1, 50, 4_000] {
            set.add_wait(3, seconds * 1_000, T);
        }
        let last = |measure| set.buckets(QueueNumber::Own(3), measure, T + 1).last().unwrap().value;
        assert_eq!((last(Measure::WaitMedian), last(Measure::WaitP99)), (1, 7_200));
    }

    #[test]
    fn series_that_were_zero_for_a_day_are_dropped() {
        let mut set = SeriesSet::default();
        set.add_level(1, USAGE, 5, T);
        set.add_level(1, USAGE, -5, T + HOUR);
        set.sweep(T + 20 * HOUR);
        assert_eq!(set.series.len(), 1);
        set.sweep(T + 26 * HOUR);
        assert!(set.series.is_empty());
    }
}

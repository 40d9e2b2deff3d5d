//! One series of the last 24 hours: buckets of equal width, closed hours packed.
//!
//! Invariants: a bucket of a level holds the integral of the level over the bucket, in units × milliseconds, so that sums over
//! buckets are exact; times never run backwards; buckets are made when the series changes or is read, so that a constant series
//! costs nothing.

use super::chunk::Chunk;
use std::collections::VecDeque;

/// Milliseconds since the epoch, or a number of milliseconds.
pub(super) type Millis = i64;

/// Milliseconds of an hour.
pub const HOUR: Millis = 3_600_000;
/// Number of closed hours in memory: with the open hour they cover 24 hours at any time.
const HOURS: usize = 24;

/// Width of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// One minute.
    Minute,
    /// Five minutes.
    FiveMinutes,
    /// A quarter of an hour.
    QuarterHour,
}

impl Width {
    /// Returns the width in milliseconds.
    pub const fn millis(self) -> i64 {
        match self {
            Self::Minute => 60_000,
            Self::FiveMinutes => 300_000,
            Self::QuarterHour => 900_000,
        }
    }
}

/// What a bucket holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The integral of a level.
    Level,
    /// The sum of what was added.
    Sum,
    /// The last value that was set; of several buckets the greatest.
    Latest,
}

/// A series.
#[derive(Clone, Debug)]
pub(super) struct Series {
    mode: Mode,
    width: Width,
    /// Closed hours, the oldest first, up to the open hour.
    closed: VecDeque<Chunk>,
    /// Closed buckets of the open hour.
    open: Vec<i128>,
    /// The open bucket.
    bucket: i128,
    /// The level of a series of levels.
    level: i128,
    /// Up to when the buckets are complete.
    at: Millis,
}

impl Series {
    /// Creates a series that was 0 until `at`.
    pub(super) fn new(mode: Mode, width: Width, at: Millis) -> Self {
        let earlier = at.rem_euclid(HOUR).checked_div(width.millis()).unwrap_or_default();
        Self {
            mode,
            width,
            closed: VecDeque::new(),
            open: vec![0; usize::try_from(earlier).unwrap_or_default()],
            bucket: 0,
            level: 0,
            at,
        }
    }

    /// Returns the level.
    pub(super) const fn level(&self) -> i128 {
        self.level
    }

    /// Changes the level from `now` on.
    pub(super) fn add_to_level(&mut self, change: i128, now: Millis) {
        self.advance(now);
        self.level = self.level.saturating_add(change);
    }

    /// Adds to the bucket of `now`.
    pub(super) fn add(&mut self, number: i128, now: Millis) {
        self.advance(now);
        self.bucket = self.bucket.saturating_add(number);
    }

    /// Sets the bucket of `now`.
    pub(super) fn set(&mut self, value: i128, now: Millis) {
        self.advance(now);
        self.bucket = value;
    }

    /// Completes buckets until `now`. An earlier time than before changes nothing.
    pub(super) fn advance(&mut self, now: Millis) {
        if now.saturating_sub(self.at) > HOUR * 26 {
            // All buckets are older than 24 hours. Only the last hours of an unchanged level are made.
            self.closed.clear();
            self.open.clear();
            self.bucket = 0;
            let hours_ago = now.saturating_sub(now.rem_euclid(HOUR)).saturating_sub(HOUR * 24);
            self.at = hours_ago;
        }
        while self.at < now {
            let width = self.width.millis();
            let end = self.at.saturating_sub(self.at.rem_euclid(width)).saturating_add(width);
            let to = end.min(now);
            if self.mode == Mode::Level {
                let time = i128::from(to.saturating_sub(self.at));
                self.bucket = self.bucket.saturating_add(self.level.saturating_mul(time));
            }
            self.at = to;
            if to == end {
                self.close_bucket(end);
            }
        }
    }

    fn close_bucket(&mut self, end: Millis) {
        self.open.push(std::mem::take(&mut self.bucket));
        if end.rem_euclid(HOUR) == 0 {
            self.closed.push_back(Chunk::pack(&self.open));
            self.open.clear();
            while self.closed.len() > HOURS {
                self.closed.pop_front();
            }
        }
    }

    /// Merges buckets to a greater width.
    pub(super) fn widen(&mut self, width: Width) {
        let Some(factor) = width.millis().checked_div(self.width.millis()).filter(|factor| *factor > 1)
        else {
            return;
        };
        let factor = usize::try_from(factor).unwrap_or(1);
        let mode = self.mode;
        let merged = |part: &[i128]| part.iter().copied().fold(0, |sum, value| merge(mode, sum, value));
        for chunk in &mut self.closed {
            // Hours of an earlier, greater width stay as they are.
            if chunk.len() > usize::try_from(HOUR / width.millis()).unwrap_or(usize::MAX) {
                let values = chunk.values();
                *chunk = Chunk::pack(&values.chunks(factor).map(merged).collect::<Vec<_>>());
            }
        }
        let whole = self.open.len().checked_div(factor).unwrap_or_default().saturating_mul(factor);
        let (complete, rest) = self.open.split_at(whole.min(self.open.len()));
        self.bucket = merge(mode, merged(rest), self.bucket);
        self.open = complete.chunks(factor).map(merged).collect();
        self.width = width;
    }

    /// Adds the buckets and the level of a series of the same width.
    pub(super) fn absorb(&mut self, mut other: Self) {
        let now = self.at.max(other.at);
        self.advance(now);
        other.advance(now);
        let missing = other.closed.len().saturating_sub(self.closed.len());
        for _ in 0..missing {
            self.closed.push_front(Chunk::pack(&vec![
                0;
                usize::try_from(HOUR / self.width.millis())
                    .unwrap_or(1)
            ]));
        }
        let mode = self.mode;
        let sums = |left: &[i128], right: &[i128]| -> Vec<i128> {
            let number = left.len().max(right.len());
            let at = |values: &[i128], index: usize| values.get(index).copied().unwrap_or_default();
            (0..number).map(|index| merge(mode, at(left, index), at(right, index))).collect()
        };
        for (mine, theirs) in self.closed.iter_mut().rev().zip(other.closed.iter().rev()) {
            *mine = Chunk::pack(&sums(&mine.values(), &theirs.values()));
        }
        self.open = sums(&self.open, &other.open);
        self.bucket = merge(mode, self.bucket, other.bucket);
        self.level = self.level.saturating_add(other.level);
    }

    /// Returns whether all buckets are 0.
    pub(super) fn is_zero(&self) -> bool {
        self.level == 0
            && self.bucket == 0
            && self.open.iter().all(|value| *value == 0)
            && self.closed.iter().all(|chunk| matches!(chunk, Chunk::Same { value: 0, .. }))
    }

    /// Returns the number of closed hours.
    pub(super) fn hours(&self) -> usize {
        self.closed.len()
    }

    /// Drops the oldest closed hour. Returns whether there was one.
    pub(super) fn drop_oldest(&mut self) -> bool {
        self.closed.pop_front().is_some()
    }

    /// Returns the buckets from the oldest on: start and value. The last one is open.
    pub(super) fn buckets(&self) -> Vec<Bucket> {
        let hour = self.at.saturating_sub(self.at.rem_euclid(HOUR));
        let mut start =
            hour.saturating_sub(HOUR.saturating_mul(Millis::try_from(self.closed.len()).unwrap_or(0)));
        let mut all = Vec::new();
        for chunk in &self.closed {
            let number = Millis::try_from(chunk.len()).unwrap_or(1).max(1);
            let width = HOUR.checked_div(number).unwrap_or(HOUR);
            for (index, value) in (0..).zip(chunk.values()) {
                let start = start.saturating_add(width.saturating_mul(index));
                all.push(Bucket { start, end: start.saturating_add(width), value });
            }
            start = start.saturating_add(HOUR);
        }
        let width = self.width.millis();
        for value in &self.open {
            all.push(Bucket { start, end: start.saturating_add(width), value: *value });
            start = start.saturating_add(width);
        }
        if self.at > start {
            all.push(Bucket { start, end: self.at, value: self.bucket });
        }
        all
    }

    /// Returns the bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let chunks: usize = self.closed.iter().map(Chunk::heap_bytes).sum();
        let slots = self.closed.capacity().saturating_mul(size_of::<Chunk>());
        let open = self.open.capacity().saturating_mul(size_of::<i128>());
        size_of::<Self>().saturating_add(chunks).saturating_add(slots).saturating_add(open)
    }
}

/// A bucket of a series; `end` of the open one is the time up to which it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Start, in milliseconds since the epoch.
    pub start: i64,
    /// End.
    pub end: i64,
    /// The integral, sum or value.
    pub value: i128,
}

fn merge(mode: Mode, left: i128, right: i128) -> i128 {
    match mode {
        Mode::Level | Mode::Sum => left.saturating_add(right),
        Mode::Latest => left.max(right),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T: Millis = 500_000 * HOUR;
    const MINUTE: Millis = 60_000;

    fn total(series: &Series) -> i128 {
        series.buckets().iter().map(|bucket| bucket.value).sum()
    }

    #[test]
    fn buckets_of_a_level_hold_its_integral() {
        let mut series = Series::new(Mode::Level, Width::Minute, T + 90_000);
        series.add_to_level(8, T + 100_000);
        series.add_to_level(-8, T + 200_000);
        series.advance(T + 5 * MINUTE);
        let values: Vec<i128> = series.buckets().iter().map(|bucket| bucket.value).collect();
        assert_eq!(values, [0, 8 * 20_000, 8 * 60_000, 8 * 20_000, 0]);
        assert_eq!(series.buckets()[1].start, T + MINUTE);
    }

    #[test]
    fn only_the_last_24_hours_are_kept() {
        let mut series = Series::new(Mode::Sum, Width::Minute, T);
        series.add(1, T);
        series.advance(T + 24 * HOUR + 59 * MINUTE);
        assert_eq!(total(&series), 1, "the hour is kept while it reaches into the last 24 hours");
        series.advance(T + 25 * HOUR);
        assert!(series.is_zero());
        assert_eq!(series.buckets().first().unwrap().start, T + HOUR);
    }

    #[test]
    fn a_level_that_did_not_change_for_days_is_read_for_the_last_24_hours() {
        let mut series = Series::new(Mode::Level, Width::Minute, T);
        series.add_to_level(2, T);
        series.advance(T + 90 * HOUR);
        assert_eq!(total(&series), 2 * 24 * i128::from(HOUR));
        assert!(series.bytes() < 4_000, "{}", series.bytes());
    }

    #[test]
    fn a_clock_that_steps_back_changes_nothing() {
        let mut series = Series::new(Mode::Level, Width::Minute, T);
        series.add_to_level(2, T + MINUTE);
        series.add_to_level(0, T - HOUR);
        series.advance(T + 2 * MINUTE);
        assert_eq!(total(&series), 2 * i128::from(MINUTE));
    }

    #[test]
    fn wider_buckets_of_latest_values_hold_the_greatest() {
        let mut series = Series::new(Mode::Latest, Width::Minute, T);
        for (minute, value) in [(0, 3), (1, 9), (6, 4), (7, 2)] {
            series.set(value, T + minute * MINUTE);
        }
        series.widen(Width::FiveMinutes);
        series.advance(T + 15 * MINUTE);
        let values: Vec<i128> = series.buckets().iter().map(|bucket| bucket.value).collect();
        assert_eq!(values, [9, 4, 0]);
    }

    fn changes() -> impl Strategy<Value = Vec<(Millis, i128)>> {
        prop::collection::vec((0..40 * MINUTE, -50_i128..100), 1..80)
    }

    fn played(changes: &[(Millis, i128)], widen: Option<usize>) -> (Series, i128, Millis) {
        let (mut at, mut level, mut integral) = (T + 12_345, 0_i128, 0_i128);
        let mut series = Series::new(Mode::Level, Width::Minute, at);
        for (index, (after, change)) in changes.iter().enumerate() {
            integral += level * i128::from(*after);
            at += after;
            level += change;
            series.add_to_level(*change, at);
            if widen == Some(index) {
                series.widen(Width::FiveMinutes);
            }
        }
        series.advance(at);
        (series, integral, at)
    }

    proptest! {
        #[test]
        fn integrals_are_exact_at_every_width(changes in changes(), widen in 0_usize..80) {
            prop_assume!(changes.iter().map(|(after, _)| after).sum::<Millis>() < 23 * HOUR);
            for widen in [None, Some(widen)] {
                let (series, integral, _) = played(&changes, widen);
                prop_assert_eq!(total(&series), integral);
            }
        }

        #[test]
        fn an_absorbed_series_adds_its_integral(one in changes(), two in changes()) {
            prop_assume!(one.iter().chain(&two).map(|(after, _)| after).sum::<Millis>() < 20 * HOUR);
            let ((mut left, a, at_a), (right, b, at_b)) = (played(&one, None), played(&two, None));
            let rest = |level: i128, from: Millis| level * i128::from(at_a.max(at_b) - from);
            let expected = a + b + rest(left.level(), at_a) + rest(right.level(), at_b);
            left.absorb(right);
            prop_assert_eq!(total(&left), expected);
        }
    }
}

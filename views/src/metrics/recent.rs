//! What was decided in the last ten minutes: rates and times of cycles, for what users see of the manager itself.
//!
//! Invariants: the memory is fixed; time is an argument; with less than ten minutes behind it a rate is that of the time since the
//! start, of at least one minute.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::reconciler::Observation;
use crate::resources::to_f64;

/// Minutes that count.
const MINUTES: u64 = 10;
const MINUTE: Duration = Duration::from_mins(1);
/// Number of ranges of times; each is 2^(1/4) times as long as the one before, the first a microsecond.
const RANGES: usize = 96;
/// Ranges in an octave.
const PER_OCTAVE: f64 = 4.0;
/// Part of the cycles that are not longer than the time that is reported.
const PART: f64 = 0.99;

/// What was decided in the last ten minutes.
#[derive(Debug)]
pub struct RecentDecisions(Mutex<Window>);

/// Rates, and the time of a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecentRates {
    /// Admissions in a minute.
    pub admissions_per_minute: f64,
    /// Evictions in a minute.
    pub evictions_per_minute: f64,
    /// Conflicts of writes in a minute.
    pub conflicts_per_minute: f64,
    /// 99th percentile of the time of a cycle, rounded up by at most a fifth; absent without a cycle.
    pub cycle_p99: Option<Duration>,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    minutes: Vec<Minute>,
}

#[derive(Clone, Debug)]
struct Minute {
    /// Number of whole minutes between the start and this one.
    number: u64,
    admissions: u64,
    evictions: u64,
    conflicts: u64,
    cycles: Box<[u64; RANGES]>,
}

impl Minute {
    fn new(number: u64) -> Self {
        Self { number, admissions: 0, evictions: 0, conflicts: 0, cycles: Box::new([0; RANGES]) }
    }
}

impl RecentDecisions {
    /// Returns an empty record that begins now.
    pub const fn new(now: Instant) -> Self {
        Self(Mutex::new(Window { began: now, minutes: Vec::new() }))
    }

    /// Counts an observation of the core.
    pub fn observe(&self, observation: &Observation, now: Instant) {
        let count: fn(&mut Minute) -> &mut u64 = match observation {
            Observation::Admitted(..) => |minute| &mut minute.admissions,
            Observation::Evicted { .. } => |minute| &mut minute.evictions,
            _ => return,
        };
        self.count(now, count);
    }

    /// Counts a write that conflicted.
    pub fn count_conflict(&self, now: Instant) {
        self.count(now, |minute| &mut minute.conflicts);
    }

    /// Counts a cycle.
    pub fn observe_cycle(&self, took: Duration, now: Instant) {
        self.with(|window| {
            window.change(now, |minute| {
                if let Some(cycles) = minute.cycles.get_mut(range_of(took)) {
                    *cycles = cycles.saturating_add(1);
                }
            });
        });
    }

    /// Returns the rates of the last ten minutes.
    pub fn rates(&self, now: Instant) -> RecentRates {
        self.with(|window| window.rates(now))
    }

    fn count(&self, now: Instant, counter: fn(&mut Minute) -> &mut u64) {
        self.with(|window| {
            window.change(now, |minute| {
                let counter = counter(minute);
                *counter = counter.saturating_add(1);
            });
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut Window) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Window {
    fn number(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs().checked_div(MINUTE.as_secs()).unwrap_or_default()
    }

    /// Changes the current minute; drops minutes that no longer count.
    fn change(&mut self, now: Instant, act: impl FnOnce(&mut Minute)) {
        let number = self.number(now);
        if self.minutes.last().is_none_or(|minute| minute.number < number) {
            self.minutes.retain(|minute| minute.number.saturating_add(MINUTES) > number);
            self.minutes.push(Minute::new(number));
        }
        if let Some(minute) = self.minutes.last_mut() {
            act(minute);
        }
    }

    fn rates(&self, now: Instant) -> RecentRates {
        let number = self.number(now);
        let counted = || self.minutes.iter().filter(|minute| minute.number.saturating_add(MINUTES) > number);
        // The current minute is not over.
        let counted_from =
            MINUTE.saturating_mul(u32::try_from(number.saturating_sub(MINUTES - 1)).unwrap_or(u32::MAX));
        let elapsed = now.saturating_duration_since(self.began).saturating_sub(counted_from).max(MINUTE);
        let minutes = elapsed.as_secs_f64() / MINUTE.as_secs_f64();
        let rate =
            |counter: fn(&Minute) -> u64| to_f64(counted().map(counter).map(i128::from).sum()) / minutes;
        RecentRates {
            admissions_per_minute: rate(|minute| minute.admissions),
            evictions_per_minute: rate(|minute| minute.evictions),
            conflicts_per_minute: rate(|minute| minute.conflicts),
            cycle_p99: percentile(counted()),
        }
    }
}

/// Returns the time that a part of the cycles does not exceed.
fn percentile<'a>(minutes: impl Iterator<Item = &'a Minute>) -> Option<Duration> {
    let mut sums = [0_u64; RANGES];
    for minute in minutes {
        for (sum, cycles) in sums.iter_mut().zip(minute.cycles.iter()) {
            *sum = sum.saturating_add(*cycles);
        }
    }
    let all = sums.iter().copied().fold(0, u64::saturating_add);
    let wanted = to_f64(all.into()) * PART;
    let mut passed = 0_u64;
    let range = sums.iter().position(|sum| {
        passed = passed.saturating_add(*sum);
        let enough = to_f64(passed.into()) >= wanted;
        enough && passed > 0
    })?;
    Some(end_of(range))
}

/// Returns the range of a time: 0 up to a microsecond.
fn range_of(took: Duration) -> usize {
    let microseconds = took.as_secs_f64() * 1e6;
    (0..RANGES).find(|range| microseconds <= end_of(*range).as_secs_f64() * 1e6).unwrap_or(RANGES - 1)
}

/// Returns the longest time of a range.
fn end_of(range: usize) -> Duration {
    let exponent = f64::from(u32::try_from(range).unwrap_or_default()) / PER_OCTAVE;
    Duration::from_secs_f64(exponent.exp2() * 1e-6)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a point in time for tests; the times after it are computed")]
mod tests {
    use super::*;
    use crate::reconciler::ObservationLabels;

    fn after(began: Instant, seconds: u64) -> Instant {
        began + Duration::from_secs(seconds)
    }

    #[test]
    fn rates_are_of_ten_minutes() {
        let began = Instant::now();
        let recent = RecentDecisions::new(began);
        let admitted = Observation::Admitted(ObservationLabels::default(), Duration::ZERO);
        assert_eq!(recent.rates(began), RecentRates::default());
        for second in 0..30 {
            recent.observe(&admitted, after(began, second));
        }
        recent.count_conflict(after(began, 31));
        let early = recent.rates(after(began, 31));
        assert_eq!(
            (early.admissions_per_minute, early.conflicts_per_minute),
            (30.0, 1.0),
            "at least a minute"
        );
        let later = |seconds| recent.rates(after(began, seconds)).admissions_per_minute;
        assert!((later(299) - 30.0 / (299.0 / 60.0)).abs() < 1e-9);
        assert!(later(600).abs() < 1e-9, "the first minute is over");
        recent.observe(&admitted, after(began, 3_600));
        let late = recent.rates(after(began, 3_659)).admissions_per_minute;
        assert!((late - 1.0 / (599.0 / 60.0)).abs() < 1e-9, "{late}");
    }

    #[test]
    fn the_time_of_cycles_is_a_percentile() {
        let began = Instant::now();
        let recent = RecentDecisions::new(began);
        for _ in 0..990 {
            recent.observe_cycle(Duration::from_micros(200), began);
        }
        for _ in 0..10 {
            recent.observe_cycle(Duration::from_millis(80), began);
        }
        let reported = |recent: &RecentDecisions| recent.rates(began).cycle_p99.unwrap().as_secs_f64();
        assert!((0.0002..0.00024).contains(&reported(&recent)), "{}", reported(&recent));
        recent.observe_cycle(Duration::from_millis(80), began);
        assert!((0.08..0.096).contains(&reported(&recent)), "{}", reported(&recent));
        recent.observe_cycle(Duration::from_hours(1), began);
        assert_eq!(range_of(Duration::from_hours(1)), RANGES - 1);
    }
}

//! How long scheduling cycles took between two readings of the metrics page.

use super::scenario::to_f64;
use crate::manager::Manager;
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::time::Duration;

/// The histogram whose buckets are read.
const BUCKET: &str = "kueue_admission_attempt_duration_seconds_bucket{le=\"";

/// Number of cycles that took no longer than each bound of the histogram; the last bound is the longest duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CycleTimes(BTreeMap<Duration, u64>);

impl CycleTimes {
    /// Reads those of a manager since its start.
    pub(super) async fn of(manager: &Manager) -> Result<Self> {
        Self::parse(&manager.metrics().await?)
    }

    fn parse(metrics: &str) -> Result<Self> {
        let mut found = BTreeMap::new();
        for line in metrics.lines() {
            let Some(rest) = line.strip_prefix(BUCKET) else { continue };
            let (bound, rest) = rest.split_once('"').context("no bound")?;
            let count = rest.rsplit(' ').next().context("no count")?.parse::<u64>()?;
            let bound = Duration::try_from_secs_f64(bound.parse()?).unwrap_or(Duration::MAX);
            *found.entry(bound).or_default() += count;
        }
        ensure!(!found.is_empty(), "the metrics have no cycle");
        Ok(Self(found))
    }

    /// Returns those after an earlier reading.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for (bound, count) in &mut self.0 {
            *count -= before.0.get(bound).copied().unwrap_or_default();
        }
        self
    }

    /// Returns the number of cycles.
    pub(super) fn count(&self) -> u64 {
        self.0.values().max().copied().unwrap_or_default()
    }

    /// Returns the least bound that so many of a hundred cycles did not exceed.
    pub(super) fn bound(&self, percent: u64) -> Duration {
        let number = self.count();
        let found = self.0.iter().find(|(_, count)| **count * 100 >= number * percent);
        found.map(|(bound, _)| *bound).unwrap_or_default()
    }

    /// Returns the duration that so many of a hundred cycles did not exceed, interpolated within its bucket as Prometheus'
    /// `histogram_quantile` does; of a bucket without an upper bound, its lower one. Zero without a cycle.
    pub(super) fn percentile(&self, percent: u32) -> Duration {
        if self.count() == 0 {
            return Duration::ZERO;
        }
        let rank = float(self.count()) * f64::from(percent) / 100.0;
        let (mut lower, mut below) = (Duration::ZERO, 0_u64);
        for (bound, count) in &self.0 {
            if float(*count) >= rank && *count > below {
                if *bound == Duration::MAX {
                    return lower;
                }
                let part = (rank - float(below)) / float(count - below);
                return lower + bound.saturating_sub(lower).mul_f64(part);
            }
            (lower, below) = (*bound, *count);
        }
        lower
    }
}

fn float(count: u64) -> f64 {
    to_f64(usize::try_from(count).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::CycleTimes;
    use std::time::Duration;

    fn page(rows: [(&str, u64, u64); 4]) -> CycleTimes {
        let line = |result: &str, bound: &str, count: u64| {
            format!("{}{bound}\",result=\"{result}\",replica_role=\"leader\"}} {count}\n", super::BUCKET)
        };
        let lines =
            rows.map(|(bound, good, bad)| line("success", bound, good) + &line("inadmissible", bound, bad));
        CycleTimes::parse(&(lines.concat() + "kueue_admission_attempts_total 7\n")).unwrap()
    }

    #[test]
    fn percentiles_are_those_between_two_readings() {
        let before = page([("0.005", 90, 0), ("0.01", 90, 0), ("0.025", 90, 0), ("+Inf", 90, 0)]);
        let times = page([("0.005", 140, 10), ("0.01", 170, 20), ("0.025", 170, 30), ("+Inf", 170, 30)]);
        let times = times.since(&before);
        assert_eq!(times.count(), 110);
        // 60 of 110 took up to 5 ms, 100 up to 10, all up to 25.
        for (percent, bound, interpolated) in [(50, 5_000, 4_583), (90, 10_000, 9_875), (99, 25_000, 23_350)]
        {
            assert_eq!(times.bound(percent), Duration::from_micros(bound), "{percent}");
            let found = times.percentile(u32::try_from(percent).unwrap());
            assert_eq!(found.as_micros(), interpolated, "{percent}");
        }
        let slow = page([("0.005", 0, 0), ("0.01", 0, 0), ("0.025", 0, 0), ("+Inf", 3, 0)]);
        assert_eq!(slow.percentile(99), Duration::from_millis(25));
        let none = slow.clone().since(&slow);
        assert_eq!((none.count(), none.percentile(99)), (0, Duration::ZERO));
        assert!(CycleTimes::parse("up 1\n").is_err());
    }
}

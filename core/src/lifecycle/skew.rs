//! Clock skew: estimates how far the local clock is ahead of the clock of the API server, from the `Date` headers of
//! its responses.
//!
//! Invariants: a delayed response makes the local clock appear ahead, never behind, so the estimate is the minimum
//! over the last responses. If the local clock appears ahead by less than the one-second resolution of dates, the
//! estimate is zero.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

/// Maximum number of responses kept: about one minute of responses if only the lease is renewed.
const MAX_SAMPLES: usize = 32;
/// Resolution of a date: the second in which the API server wrote the response.
const DATE_RESOLUTION: SignedDuration = SignedDuration::from_secs(1);

/// Differences observed in the last responses.
#[derive(Clone, Debug, Default)]
pub struct ClockSkew {
    /// Local time at receipt minus the date of the response.
    samples: VecDeque<SignedDuration>,
}

impl ClockSkew {
    /// Records a response with this date, received when the local clock showed `now`.
    pub fn observe(&mut self, date: Timestamp, now: Timestamp) {
        if self.samples.len() >= MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(now.duration_since(date));
    }

    /// Returns how far the local clock is ahead: negative if it is behind, zero without a detectable difference.
    pub fn ahead(&self) -> SignedDuration {
        let minimum = self.samples.iter().min().copied().unwrap_or_default();
        if minimum.is_negative() {
            minimum
        } else {
            minimum.saturating_sub(DATE_RESOLUTION).max(SignedDuration::ZERO)
        }
    }

    /// Returns whether a response with a date has been observed.
    pub fn is_known(&self) -> bool {
        !self.samples.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + milliseconds).unwrap()
    }

    proptest! {
        /// The estimate differs from the true skew by at most one second plus the delay of the fastest response.
        #[test]
        fn estimate_is_close_to_true_skew(
            skew in -3_600_000..3_600_000_i64,
            answers in prop::collection::vec((0..60_000_i64, 0..5_000_i64), 1..MAX_SAMPLES),
        ) {
            let mut observed = ClockSkew::default();
            let mut server = 0;
            for (pause, late) in &answers {
                server += pause;
                // The date is truncated to the second; the response arrives later, by a local clock that is ahead.
                observed.observe(at(server - server % 1000), at(server + late + skew));
            }
            let quickest = answers.iter().map(|(_, late)| *late).min().unwrap();
            let estimate = i64::try_from(observed.ahead().as_millis()).unwrap();
            prop_assert!(estimate <= skew.max(0) + quickest, "{estimate} for {skew}");
            prop_assert!(estimate >= skew - 1000 - i64::from(skew < 0), "{estimate} for {skew}");
        }
    }

    #[test]
    fn corrected_clock_replaces_old_estimate() {
        let mut observed = ClockSkew::default();
        assert!(!observed.is_known());
        observed.observe(at(0), at(-600_000));
        assert_eq!(observed.ahead(), SignedDuration::from_secs(-600));
        for n in 0..32 {
            observed.observe(at(n * 1000), at(n * 1000 + 20));
        }
        assert_eq!(observed.ahead(), SignedDuration::ZERO);
    }
}

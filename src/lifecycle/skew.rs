//! How far this machine's clock is ahead of the API server's, estimated from the dates of the server's answers.
//!
//! Invariants: a delayed answer makes the local clock look ahead, never behind, so the minimum over the last answers counts;
//! a difference below the one-second resolution of dates counts as zero.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

/// Number of answers kept: about a minute's worth if only the lease is renewed.
const MAX_SAMPLES: usize = 32;
/// A date is the second in which the answer was written.
const DATE_RESOLUTION: SignedDuration = SignedDuration::from_secs(1);

/// Differences seen in the last answers.
#[derive(Clone, Debug, Default)]
pub struct ClockSkew {
    /// Own time less the date, when each came.
    samples: VecDeque<SignedDuration>,
}

impl ClockSkew {
    /// Takes in an answer that bore this date when the own clock showed `now`.
    pub fn observe(&mut self, date: Timestamp, now: Timestamp) {
        if self.samples.len() >= MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(now.duration_since(date));
    }

    /// How far the own clock is ahead; negative when it is behind, zero when no answer shows a difference.
    pub fn ahead(&self) -> SignedDuration {
        let least = self.samples.iter().min().copied().unwrap_or_default();
        if least.is_negative() {
            least
        } else {
            least.saturating_sub(DATE_RESOLUTION).max(SignedDuration::ZERO)
        }
    }

    /// Whether there has been an answer with a date.
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
        /// The estimate differs from the true skew by at most one second and the delay of the fastest answer.
        #[test]
        fn estimate_is_close_to_true_skew(
            skew in -3_600_000..3_600_000_i64,
            answers in prop::collection::vec((0..60_000_i64, 0..5_000_i64), 1..MAX_SAMPLES),
        ) {
            let mut observed = ClockSkew::default();
            let mut server = 0;
            for (pause, late) in &answers {
                server += pause;
                // The date is cut to its second; the answer comes a little later, by a clock that is ahead.
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

//! How far this machine's clock is ahead of the API server's, estimated from the dates of the server's answers.
//!
//! Invariants: a delayed answer makes the local clock look ahead, never behind, so the minimum over the last answers counts;
//! a difference below the one-second resolution of dates counts as zero.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

/// Number of answers kept: about a minute's worth if only the lease is renewed.
const ANSWERS: usize = 32;
/// A date is the second in which the answer was written.
const RESOLUTION: SignedDuration = SignedDuration::from_secs(1);

/// Differences seen in the last answers.
#[derive(Clone, Debug, Default)]
pub struct Skew {
    /// Own time less the date, when each came.
    leads: VecDeque<SignedDuration>,
}

impl Skew {
    /// Takes in an answer that bore this date when the own clock showed `now`.
    pub fn observe(&mut self, date: Timestamp, now: Timestamp) {
        if self.leads.len() >= ANSWERS {
            self.leads.pop_front();
        }
        self.leads.push_back(now.duration_since(date));
    }

    /// How far the own clock is ahead; negative when it is behind, zero when no answer shows a difference.
    pub fn ahead(&self) -> SignedDuration {
        let least = self.leads.iter().min().copied().unwrap_or_default();
        if least.is_negative() { least } else { least.saturating_sub(RESOLUTION).max(SignedDuration::ZERO) }
    }

    /// Whether there has been an answer with a date.
    pub fn known(&self) -> bool {
        !self.leads.is_empty()
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
        fn the_estimate_is_close_to_the_true_skew(
            skew in -3_600_000..3_600_000_i64,
            answers in prop::collection::vec((0..60_000_i64, 0..5_000_i64), 1..ANSWERS),
        ) {
            let mut observed = Skew::default();
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
    fn a_clock_that_is_set_right_is_forgotten_with_the_answers_before() {
        let mut observed = Skew::default();
        assert!(!observed.known());
        observed.observe(at(0), at(-600_000));
        assert_eq!(observed.ahead(), SignedDuration::from_secs(-600));
        for n in 0..32 {
            observed.observe(at(n * 1000), at(n * 1000 + 20));
        }
        assert_eq!(observed.ahead(), SignedDuration::ZERO);
    }
}

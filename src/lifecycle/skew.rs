//! How far this machine's clock is ahead of the API server's, from the dates that its answers carry.
//!
//! Invariants: a late answer makes the clock look ahead and never behind, so the least of the last answers counts; what
//! can be explained by dates being whole seconds is no skew.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

/// Answers that count: with the renewals of a lease alone, those of about a minute.
const ANSWERS: usize = 32;
/// A date is the second in which the answer was written.
const RESOLUTION: SignedDuration = SignedDuration::from_secs(1);

/// What the last answers said.
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
        /// Whatever answers need to arrive, a skew is told to within a second and the quickest of them, never beyond it.
        #[test]
        fn a_skew_is_never_told_larger_than_it_is_by_more_than_the_quickest_answer_took(
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
            let told = i64::try_from(observed.ahead().as_millis()).unwrap();
            prop_assert!(told <= skew.max(0) + quickest, "{told} told of {skew}");
            prop_assert!(told >= skew - 1000 - i64::from(skew < 0), "{told} told of {skew}");
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

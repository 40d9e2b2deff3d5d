//! Slewed wall clock for scheduling decisions. It follows the wall clock but absorbs its steps gradually: when the
//! system time is set, timeouts neither all fire at once nor stall.
//!
//! Invariants: the clock never goes back. Between two readings it advances by 0.5 to 2 times the elapsed monotonic
//! time, so a step of one hour is absorbed within two hours.

use super::lease::Monotonic;
use jiff::{SignedDuration, Timestamp};

/// A clock that follows the wall clock at half to double speed instead of stepping with it.
#[derive(Clone, Copy, Debug)]
pub struct SlewedClock {
    last_time: Timestamp,
    last_read: Monotonic,
}

impl SlewedClock {
    /// Creates a clock that reads `wall` at monotonic time `at`.
    pub const fn new(wall: Timestamp, at: Monotonic) -> Self {
        Self { last_time: wall, last_read: at }
    }

    /// Returns the slewed time, given the wall clock and the monotonic clock.
    pub fn read(&mut self, wall: Timestamp, at: Monotonic) -> Timestamp {
        let passed =
            SignedDuration::try_from(at.saturating_sub(self.last_read)).unwrap_or(SignedDuration::MAX);
        let (min_step, max_step) = (passed.checked_div(2).unwrap_or_default(), passed.saturating_mul(2));
        let step = wall.duration_since(self.last_time).clamp(min_step, max_step);
        self.last_time = super::backoff::after(self.last_time, step);
        self.last_read = self.last_read.max(at);
        self.last_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wall(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + milliseconds).unwrap()
    }

    #[test]
    fn clock_follows_wall_clock_without_steps() {
        let mut clock = SlewedClock::new(wall(0), Monotonic::ZERO);
        for n in 1..1000_i64 {
            let at = Monotonic::from_millis(n.unsigned_abs() * 7);
            assert_eq!(clock.read(wall(n * 7), at), wall(n * 7));
        }
    }

    proptest! {
        #[test]
        fn clock_steps_are_absorbed_gradually(
            readings in prop::collection::vec((1..100_000_u64, -7_200_000..7_200_000_i64), 1..50),
            last in -3_600_000..3_600_000_i64,
        ) {
            let (mut clock, mut at, mut shown) = (SlewedClock::new(wall(0), Monotonic::ZERO), 0, wall(0));
            for (pause, off) in readings {
                at += pause;
                let now = clock.read(wall(i64::try_from(at).unwrap() + off), Monotonic::from_millis(at));
                let pause = SignedDuration::from_millis(i64::try_from(pause).unwrap());
                let advanced = now.duration_since(shown);
                prop_assert!(advanced >= pause / 2 && advanced <= pause * 2, "{advanced} in {pause}");
                shown = now;
            }
            let off = wall(i64::try_from(at).unwrap() + last).duration_since(shown).unsigned_abs();
            at += u64::try_from(off.as_millis()).unwrap() * 2 + 1;
            let wall = wall(i64::try_from(at).unwrap() + last);
            prop_assert_eq!(clock.read(wall, Monotonic::from_millis(at)), wall);
        }
    }
}

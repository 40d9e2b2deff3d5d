//! The clock that decisions are made by. It follows the wall clock, but no step of it: waits neither end all at once nor
//! stand still when somebody sets the time.
//!
//! Invariants: never goes back; between two readings it advances by half to twice of what passed on a clock that nobody
//! sets, so that a step of an hour is made up for within two hours.

use super::lease::Monotonic;
use jiff::{SignedDuration, Timestamp};

/// A clock that follows another without its steps.
#[derive(Clone, Copy, Debug)]
pub struct SlewedClock {
    last_time: Timestamp,
    last_read: Monotonic,
}

impl SlewedClock {
    /// One that shows the wall clock's time at a moment.
    pub const fn new(wall: Timestamp, at: Monotonic) -> Self {
        Self { last_time: wall, last_read: at }
    }

    /// The time at a moment at which the wall clock shows this.
    pub fn read(&mut self, wall: Timestamp, at: Monotonic) -> Timestamp {
        let passed =
            SignedDuration::try_from(at.saturating_sub(self.last_read)).unwrap_or(SignedDuration::MAX);
        let (least, most) = (passed.checked_div(2).unwrap_or_default(), passed.saturating_mul(2));
        let step = wall.duration_since(self.last_time).clamp(least, most);
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
                let (went, pause) = (now.duration_since(shown), SignedDuration::from_millis(i64::try_from(pause).unwrap()));
                prop_assert!(went >= pause / 2 && went <= pause * 2, "{went} in {pause}");
                shown = now;
            }
            let off = wall(i64::try_from(at).unwrap() + last).duration_since(shown).unsigned_abs();
            at += u64::try_from(off.as_millis()).unwrap() * 2 + 1;
            let wall = wall(i64::try_from(at).unwrap() + last);
            prop_assert_eq!(clock.read(wall, Monotonic::from_millis(at)), wall);
        }
    }
}

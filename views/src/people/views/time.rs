//! Times and durations in texts.
//!
//! Invariant: a time has its zone, and its day unless that is today, so that two times of a table are never mistaken for one day.

use super::Look;
use crate::people::duration::human;
use jiff::Timestamp;
use jiff::tz::Offset;

/// Days before and after today on which the name of a weekday is unambiguous.
const WEEKDAYS: i64 = 6;
const DAY_HOURS: i64 = 24;
/// Seconds by which the clock of a writer may be ahead of that to which ages are counted without its being wrong.
const CLOCKS_DIFFER: i64 = 60;

/// Returns how long ago a time was; `-` if it is not known.
pub(in crate::people) fn since(time: Option<Timestamp>, look: Look) -> String {
    let seconds = |time: Timestamp| look.now.as_second().saturating_sub(time.as_second());
    let shown = |seconds: i64| if (-CLOCKS_DIFFER..0).contains(&seconds) { 0 } else { seconds };
    time.map_or_else(|| "-".to_owned(), |time| human(shown(seconds(time))))
}

/// Returns a time to the second: `19:08:56Z`, `Fri 19:08:56Z`, `2026-11-20 19:08:56Z`.
pub(super) fn at(time: Timestamp, look: Look) -> String {
    shown(time, "%H:%M:%S", look)
}

/// Returns a time to the minute: `19:08Z`, `Fri 19:08Z`, `2026-11-20 19:08Z`.
pub(super) fn at_minute(time: Timestamp, look: Look) -> String {
    shown(time, "%H:%M", look)
}

fn shown(time: Timestamp, clock: &str, look: Look) -> String {
    let zone = look.offset.to_time_zone();
    let (then, now) = (time.to_zoned(zone.clone()), look.now.to_zoned(zone));
    let days = then.date().duration_since(now.date()).as_hours() / DAY_HOURS;
    let day = match days.abs() {
        0 => "",
        1..=WEEKDAYS => "%a ",
        _ => "%Y-%m-%d ",
    };
    let suffix = if look.offset == Offset::UTC { "Z" } else { "%:z" };
    then.strftime(&format!("{day}{clock}{suffix}")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_its_zone_and_its_day_unless_that_is_today() {
        let look = |offset| Look {
            utf8: true,
            color: false,
            width: None,
            headings: true,
            wide: false,
            labels: false,
            csv: false,
            // A Thursday.
            now: "2026-11-26T14:05:12Z".parse().unwrap(),
            offset,
        };
        let (berlin, lima) = (Offset::constant(1), Offset::constant(-5));
        for (time, offset, expected, minute) in [
            ("2026-11-26T00:00:00Z", Offset::UTC, "00:00:00Z", "00:00Z"),
            ("2026-11-25T23:59:59Z", Offset::UTC, "Wed 23:59:59Z", "Wed 23:59Z"),
            ("2026-11-20T19:08:56Z", Offset::UTC, "Fri 19:08:56Z", "Fri 19:08Z"),
            ("2026-11-19T19:08:56Z", Offset::UTC, "2026-11-19 19:08:56Z", "2026-11-19 19:08Z"),
            ("2026-12-02T01:00:00Z", Offset::UTC, "Wed 01:00:00Z", "Wed 01:00Z"),
            ("2026-12-03T01:00:00Z", Offset::UTC, "2026-12-03 01:00:00Z", "2026-12-03 01:00Z"),
            ("2026-11-25T23:59:59Z", berlin, "00:59:59+01:00", "00:59+01:00"),
            ("2026-11-26T04:00:00Z", lima, "Wed 23:00:00-05:00", "Wed 23:00-05:00"),
        ] {
            let time: Timestamp = time.parse().unwrap();
            assert_eq!(at(time, look(offset)), expected);
            assert_eq!(at_minute(time, look(offset)), minute);
        }
        for time in [Timestamp::MIN, Timestamp::MAX] {
            assert!(at(time, look(berlin)).ends_with("+01:00"));
        }
        // Clocks differ by some seconds.
        let now = look(berlin).now.as_second();
        for (ago, expected) in [(90, "90s"), (0, "0s"), (-2, "0s"), (-60, "0s"), (-61, "<invalid>")] {
            let time = Timestamp::from_second(now - ago).unwrap();
            assert_eq!(since(Some(time), look(berlin)), expected);
        }
    }
}

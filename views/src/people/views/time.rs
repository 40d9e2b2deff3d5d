//! Times and durations in texts.

use super::Look;
use crate::people::duration::human;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Returns how long ago a time was; `-` if it is not known.
pub(in crate::people) fn since(time: Option<Timestamp>, look: Look) -> String {
    time.map_or_else(|| "-".to_owned(), |time| human(look.now.as_second() - time.as_second()))
}

/// Returns a time of day in UTC, with the day if it is not today.
pub(super) fn at(time: Timestamp, look: Look) -> String {
    let (then, now) = (time.to_zoned(TimeZone::UTC), look.now.to_zoned(TimeZone::UTC));
    let clock = time.strftime("%H:%M:%S");
    if then.date() == now.date() {
        clock.to_string()
    } else if now.date().yesterday().is_ok_and(|day| day == then.date()) {
        format!("yesterday {clock}")
    } else {
        time.strftime("%Y-%m-%d %H:%M:%S").to_string()
    }
}

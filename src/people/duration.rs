//! Durations as kubectl prints them, and as its flags take them.

use std::time::Duration;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Formats seconds as kubectl does: two units at most, fewer the longer it is. Clocks differ: up to a second below 0 is `0s`,
/// and less than that is `<invalid>`.
pub fn human(seconds: i64) -> String {
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two_units(seconds, (MINUTE, "m"), (1, "s")),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two_units(seconds, (HOUR, "h"), (MINUTE, "m")),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two_units(seconds, (DAY, "d"), (HOUR, "h")),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two_units(seconds, (YEAR, "y"), (DAY, "d")),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// Formats the greater unit, and the smaller one unless it is 0.
fn two_units(seconds: i64, greater: (i64, &str), smaller: (i64, &str)) -> String {
    let first = format!("{}{}", seconds / greater.0, greater.1);
    match seconds % greater.0 / smaller.0 {
        0 => first,
        rest => format!("{first}{rest}{}", smaller.1),
    }
}

/// The longest that something may take; `None` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit(pub Option<Duration>);

/// Parses a duration as kubectl's flags take it: a number of seconds, or numbers with the units `h`, `m`, `s` and `ms`. 0 is no
/// limit.
///
/// # Errors
/// The text is no such duration.
pub fn parse(text: &str) -> Result<TimeLimit, String> {
    let wrong = || format!("invalid duration {text:?}: use a number of seconds, or units as in 1m30s");
    let unlimited = |duration: Duration| TimeLimit((!duration.is_zero()).then_some(duration));
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(unlimited(Duration::from_secs(seconds.into())));
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit) = rest.split_at(digits);
        let end = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let (unit, next) = unit.split_at(end);
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let unit = match unit {
            "h" => Duration::from_hours(1),
            "m" => Duration::from_mins(1),
            "s" => Duration::from_secs(1),
            "ms" => Duration::from_millis(1),
            _ => return Err(wrong()),
        };
        total = unit.checked_mul(number).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        rest = next;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(unlimited(total)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_kubectls() {
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (62 * 60, "62m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 4 * 60, "3h4m"),
            (8 * 3600 - 1, "7h59m"),
            (30 * 3600, "30h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86_400 - 1, "7d23h"),
            (8 * 86_400, "8d"),
            (2 * 365 * 86_400, "2y"),
            (2 * 365 * 86_400 + 86_400, "2y1d"),
            (8 * 365 * 86_400 + 86_400, "8y"),
            (i64::MAX, "292471208677y"),
        ] {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn flags_take_seconds_and_units() {
        for (text, expected) in [
            ("0", None),
            ("0s", None),
            ("5", Some(5_000)),
            ("1m30s", Some(90_000)),
            ("2h", Some(7_200_000)),
            ("250ms", Some(250)),
        ] {
            assert_eq!(parse(text), Ok(TimeLimit(expected.map(Duration::from_millis))), "{text}");
        }
        for text in ["", "x", "5x", "m", "-5", "1.5s", "99999999999", "9999999999h"] {
            assert!(parse(text).unwrap_err().contains(&format!("{text:?}")), "{text}");
        }
    }
}

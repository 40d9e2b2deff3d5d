//! Durations as kubectl prints them, and as its flags take them.

use std::time::Duration;

pub use crate::visibility::age::human;

/// Time limit of an operation; `None` for no limit.
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

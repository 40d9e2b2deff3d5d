//! Durations in Go's notation: `5m`, `1h30m`, `1.5s`, `0`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;

/// A duration in nanoseconds as an `i64`, as in Go: at most about 292 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(i64);

const SECOND: i64 = 1_000_000_000;

impl Duration {
    /// Creates a duration from seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// Creates a duration from nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns the duration in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Converts to a duration that can be added to timestamps.
    pub const fn signed(self) -> jiff::SignedDuration {
        jiff::SignedDuration::from_nanos(self.0)
    }

    /// Parses a length of time: as `parse` does, and not negative.
    pub fn parse_length(text: &str) -> Option<jiff::SignedDuration> {
        Self::parse(text).map(Self::signed).filter(|length| !length.is_negative())
    }

    /// Parses Go's notation; returns `None` if the text is invalid or out of range.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Some(Self(0));
        }
        if rest.is_empty() {
            return None;
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let (whole, after) = digits(rest);
            let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
            let (unit, after) = unit(after)?;
            if whole.is_empty() && fraction.is_empty() {
                return None;
            }
            total = total.checked_add(part(whole, fraction, unit)?)?;
            rest = after;
        }
        let signed = if negative { total.checked_neg()? } else { total };
        i64::try_from(signed).ok().map(Self)
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns the unit at the start of a text in nanoseconds, and the rest of the text. Longer unit names are tried first.
fn unit(text: &str) -> Option<(i64, &str)> {
    const UNITS: [(&str, i64); 8] = [
        ("ns", 1),
        ("us", 1000),
        ("µs", 1000),
        ("μs", 1000),
        ("ms", 1_000_000),
        ("s", SECOND),
        ("m", 60 * SECOND),
        ("h", 3600 * SECOND),
    ];
    UNITS.iter().find_map(|(name, nanos)| text.strip_prefix(name).map(|rest| (*nanos, rest)))
}

fn part(whole: &str, fraction: &str, unit: i64) -> Option<i128> {
    let unit = i128::from(unit);
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(unit)?;
    let mut share = unit;
    for digit in fraction.chars().filter_map(|c| c.to_digit(10)) {
        // Fractions of a nanosecond are truncated, as in Go.
        nanos = nanos.checked_add(share.checked_mul(i128::from(digit))? / 10)?;
        share /= 10;
    }
    Some(nanos)
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, nanos) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let second = SECOND.unsigned_abs();
        let (seconds, rest) = (nanos / second, nanos % second);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        f.write_str(sign)?;
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        if rest == 0 {
            return write!(f, "{seconds}s");
        }
        let fraction = format!("{rest:09}");
        write!(f, "{seconds}.{}s", fraction.trim_end_matches('0'))
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Duration")
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "title": "Duration" })
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom(format!("not a duration: {text:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::Duration;

    #[test]
    fn parse_cases() {
        let table = [
            ("5m", Some(300 * 1_000_000_000)),
            ("1h30m", Some(5400 * 1_000_000_000)),
            ("1.5s", Some(1_500_000_000)),
            (".5s", Some(500_000_000)),
            ("300ms", Some(300_000_000)),
            ("1us", Some(1000)),
            ("-2s", Some(-2_000_000_000)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("", None),
            ("5", None),
            (".s", None),
            ("5 m", None),
            ("1d", None),
            ("9999999h", None),
        ];
        for (text, nanos) in table {
            assert_eq!(Duration::parse(text).map(Duration::as_nanos), nanos, "{text}");
        }
    }

    #[test]
    fn display_matches_go() {
        for text in ["30m0s", "1h0m0s", "1.5s", "0s", "-2s", "15s"] {
            assert_eq!(Duration::parse(text).unwrap().to_string(), text);
        }
    }
}

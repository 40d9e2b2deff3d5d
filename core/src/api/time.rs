//! Times of objects, as every reader of the API must take them: all that the API server stores as a time, and all that Go
//! reads as one.
//!
//! Invariants: a time beyond those that can be represented counts as the nearest that can; what is given up is at most the
//! last 26 hours of the year 9999, and digits below a nanosecond.

use jiff::{Timestamp, civil};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Digits of a fraction of a second that count.
const FRACTION_DIGITS: usize = 9;

/// Reads an RFC 3339 time: with any number of digits in the fraction of a second, up to the end of the year 9999 and beyond it,
/// and with the letters and signs that the format `date-time` of a definition permits.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| parse_leniently(text))
}

fn parse_leniently(text: &str) -> Option<Timestamp> {
    let (date, clock) = text.split_once(['T', 't', ' '])?;
    let (year, date) = date.split_once('-')?;
    let (month, day) = date.split_once('-')?;
    let (clock, offset_minutes) = split_offset(clock)?;
    let (hour, clock) = clock.split_once(':')?;
    let (minute, clock) = clock.split_once(':')?;
    let (second, fraction) = clock.split_at_checked(2)?;
    let hour = number(hour, 1, 2).filter(|hour| *hour < 24)?;
    let minute = number(minute, 2, 2).filter(|minute| *minute < 60)?;
    let second = number(second, 2, 2).filter(|second| *second <= 60)?;
    let nanosecond = nanoseconds(fraction)?;
    let (month, day) = (number(month, 2, 2)?, number(day, 2, 2)?);
    let Some(year) = number(year, 4, 4) else {
        // Kubernetes writes such a year for a grace period of centuries.
        return is_digits(year).then_some(Timestamp::MAX).filter(|_| year.len() > 4);
    };
    let date =
        civil::Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?);
    let days = i64::from(civil::date(1970, 1, 1).until(date.ok()?).ok()?.get_days());
    let minutes = days.saturating_mul(1440).saturating_add(hour.saturating_mul(60)).saturating_add(minute);
    let seconds = minutes.saturating_sub(offset_minutes).saturating_mul(60).saturating_add(second);
    let nearest = if seconds > 0 { Timestamp::MAX } else { Timestamp::MIN };
    Some(Timestamp::new(seconds, nanosecond).unwrap_or(nearest))
}

/// Splits the offset from UTC off a time of day, and returns it in minutes.
fn split_offset(clock: &str) -> Option<(&str, i64)> {
    if let Some(clock) = clock.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let (clock, offset) = clock.split_at_checked(clock.rfind(['+', '-'])?)?;
    let (sign, offset) = offset.split_at_checked(1)?;
    let (hours, minutes) = offset.split_once(':')?;
    let minutes = number(hours, 2, 2)?.saturating_mul(60).saturating_add(number(minutes, 2, 2)?);
    Some((clock, if *sign == *"-" { minutes.saturating_neg() } else { minutes }))
}

/// Returns the nanoseconds of a fraction of a second, which begins with any character; 0 if it is empty.
fn nanoseconds(fraction: &str) -> Option<i32> {
    let mut characters = fraction.chars();
    if characters.next().is_none() {
        return Some(0);
    }
    let digits = characters.as_str();
    if !is_digits(digits) {
        return None;
    }
    let counted: String = digits.chars().chain("000000000".chars()).take(FRACTION_DIGITS).collect();
    counted.parse().ok()
}

fn number(text: &str, least: usize, most: usize) -> Option<i64> {
    ((least..=most).contains(&text.len()) && is_digits(text)).then(|| text.parse().ok()).flatten()
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A time that is decoded as [`parse_time`] reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LenientTime(pub Timestamp);

impl<'de> Deserialize<'de> for LenientTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_time(&text)
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("{text:?} is not an RFC 3339 time")))
    }
}

impl Serialize for LenientTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Time(self.0).serialize(serializer)
    }
}

impl From<LenientTime> for Time {
    fn from(time: LenientTime) -> Self {
        Self(time.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_of_the_server_and_of_go_are_read() {
        for (text, expected) in [
            ("2026-06-01T00:00:00Z", "2026-06-01T00:00:00Z"),
            ("9999-12-30T22:00:00Z", "9999-12-30T22:00:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-30T22:00:00.999999999Z"),
            ("9999-12-31T23:59:59.123456789123+00:01", "9999-12-30T22:00:00.999999999Z"),
            ("12026-01-01T00:00:00Z", "9999-12-30T22:00:00.999999999Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("0000-01-01T00:00:00+24:00", "-000001-12-31T00:00:00Z"),
            ("2026-06-01T00:00:00.0123456789012345678901234567890Z", "2026-06-01T00:00:00.012345678Z"),
            ("2026-06-01T00:00:00,25Z", "2026-06-01T00:00:00.25Z"),
            ("2026-06-01T1:02:03-01:00", "2026-06-01T02:02:03Z"),
            ("2026-06-01t00:00:00z", "2026-06-01T00:00:00Z"),
            ("2026-06-01T00:00:00x5Z", "2026-06-01T00:00:00.5Z"),
            ("2026-06-01T00:00:00+99:99", "2026-05-27T19:21:00Z"),
        ] {
            assert_eq!(parse_time(text), Some(expected.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "T",
            "never",
            "2026",
            "2026-06-01",
            "2026-13-01T00:00:00Z",
            "2026-02-30T00:00:00.1234567890Z",
            "9999-12-31T24:00:00Z",
            "9999-12-31T23:60:00Z",
            "9999-12-31T23:59:61Z",
            "9999-12-31T23:59:59",
            "9999-12-31T23:59:59.Z",
            "9999-12-31T23:59:5\u{e9}Z",
            "999-12-31T23:59:59.1234567890Z",
            "9999-12-31T23:59:59+1:00",
            "\u{e9}9999-12-31T23:59:59Z",
            "9999-12-31T23:59:59.1\u{e9}Z",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    proptest! {
        /// The lenient reader agrees with the strict one wherever both read a time.
        #[test]
        fn lenient_and_strict_reader_agree(
            seconds in Timestamp::MIN.as_second()..=Timestamp::MAX.as_second(),
            nanoseconds in 0..1_000_000_000,
            offset in -1439..=1439_i64,
        ) {
            let year_zero = civil::date(0, 1, 2).to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp();
            let time = Timestamp::new(seconds, nanoseconds).unwrap_or(Timestamp::MAX).max(year_zero);
            let local = time.checked_add(jiff::SignedDuration::from_mins(offset)).unwrap_or(time);
            let offset = if local == time { 0 } else { offset };
            let sign = if offset < 0 { '-' } else { '+' };
            let zone = format!("{sign}{:02}:{:02}", offset.abs() / 60, offset.abs() % 60);
            let text = format!("{}{zone}", local.to_string().trim_end_matches('Z'));
            prop_assert_eq!(parse_leniently(&text), Some(time), "{}", text);
            prop_assert_eq!(text.parse::<Timestamp>().ok(), Some(time), "{}", text);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*|[0-9TZtz:.+-]{0,40}") {
            let _ = parse_time(&text);
        }
    }
}

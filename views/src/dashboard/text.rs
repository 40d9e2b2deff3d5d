//! Numbers, amounts and times as pages show them.
//!
//! Invariants: a number has the digits that it has in the JSON of the page, in groups of three; a duration is shown only inside a
//! `<time>` that names the point in time.

use crate::people::sentence::capitalized;
use crate::visibility::views::AmountView;
use jiff::{SignedDuration, Timestamp};

/// Text of a cell without a value.
pub(super) const NONE: &str = "–";

/// Writes the whole digits of a number in groups of three; other text as it is.
pub(super) fn grouped(digits: &str) -> String {
    let (sign, number) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let (number, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if number.len() < 4 || !is_number(number) || !is_number(fraction) {
        return digits.to_owned();
    }
    let mut text = sign.to_owned();
    for (index, digit) in number.chars().enumerate() {
        if index > 0 && (number.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// Returns a phrase as a sentence; empty for none.
pub(super) fn sentence(phrase: &str) -> String {
    let phrase = phrase.trim_end_matches('.');
    if phrase.is_empty() { String::new() } else { format!("{}.", capitalized(phrase)) }
}

/// Returns the item with the highest usage; of equal ones the one that borrows most, then the first.
pub(super) fn fullest<T>(
    all: impl IntoIterator<Item = T>,
    use_and_borrowed: impl Fn(&T) -> (f64, f64),
) -> Option<T> {
    let higher = |a: (f64, f64), b: (f64, f64)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).is_gt();
    all.into_iter().reduce(|first, next| {
        if higher(use_and_borrowed(&next), use_and_borrowed(&first)) { next } else { first }
    })
}

/// Writes names as in a sentence: `a, b and c`.
pub(super) fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Writes a count.
pub(super) fn count(number: u64) -> String {
    grouped(&number.to_string())
}

/// Writes a count with its noun: `1 pod`, `2 pods`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Returns in words how many need a change.
pub(super) fn changes(number: u64) -> String {
    match number {
        0 => "none needs a change".to_owned(),
        1 => "1 needs a change".to_owned(),
        number => format!("{} need a change", count(number)),
    }
}

/// Writes an amount in the unit of its quota.
pub(super) fn amount(amount: &AmountView) -> String {
    if amount.value == "unlimited" { "no limit".to_owned() } else { grouped(&amount.value) }
}

/// Returns whether an amount is 0.
pub(super) fn is_zero(amount: &AmountView) -> bool {
    value(amount).is_some_and(|number| number.abs() < f64::EPSILON)
}

/// Returns an amount as a number; `None` if it is unlimited, or too large for an exact number.
pub(super) fn value(amount: &AmountView) -> Option<f64> {
    amount.number.as_ref()?.as_f64()
}

/// A point in time, shown as the time since then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    /// RFC 3339, in UTC; empty if it is not known.
    pub(super) at: String,
    /// Text that is shown: `1 h 2 m`, or a time of the day.
    pub(super) shown: String,
}

impl Moment {
    /// Shows how long ago a time was.
    pub(super) fn ago(time: Option<Timestamp>, now: Timestamp) -> Self {
        time.map_or_else(Self::default, |time| Self {
            at: rfc3339(time),
            shown: elapsed(now.as_second().saturating_sub(time.as_second())),
        })
    }

    /// Shows a number of seconds.
    pub(super) fn lasting(seconds: i64) -> Self {
        Self { at: format!("PT{seconds}S"), shown: elapsed(seconds) }
    }

    /// Shows the time of the day, after the date unless it is that of `now`.
    pub(super) fn clock_on(time: Timestamp, now: Timestamp) -> Self {
        let date = |time: Timestamp| time.strftime("%b %-d").to_string();
        let is_today =
            now.duration_since(time).abs() < SignedDuration::from_hours(24) && date(time) == date(now);
        let day = if is_today { String::new() } else { format!("{}, ", date(time)) };
        Self { at: rfc3339(time), shown: format!("{day}{}", clock(time)) }
    }

    /// Shows the time of the day.
    pub(super) fn clock(time: Timestamp) -> Self {
        Self { at: rfc3339(time), shown: clock(time) }
    }
}

/// Writes a time as in objects.
pub(super) fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes the time of the day in UTC.
pub(super) fn clock(time: Timestamp) -> String {
    time.strftime("%H:%M:%S").to_string()
}

/// Writes a number of seconds by its two largest units: `3 d 4 h`, `22 h 40 m`, `48 m`, `38 s`.
pub(super) fn elapsed(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} m"),
        (0, _, 0) => format!("{hours} h"),
        (0, ..) => format!("{hours} h {minutes} m"),
        (_, 0, _) => format!("{days} d"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fullest_prefers_usage_then_borrowing_then_order() {
        for (all, expected) in [
            (&[("a", 0.5, 0.0), ("b", 0.5, 0.0)][..], Some("a")),
            (&[("a", 0.5, 0.0), ("b", 0.5, 2.0)], Some("b")),
            (&[("a", 0.5, 9.0), ("b", 0.6, 0.0), ("c", 0.6, 0.0)], Some("b")),
            (&[], None),
        ] {
            let found = fullest(all, |(_, use_of, borrowed)| (*use_of, *borrowed));
            assert_eq!(found.map(|(name, ..)| *name), expected);
        }
    }

    #[test]
    fn a_phrase_becomes_a_sentence() {
        for (phrase, expected) in [
            ("a nominal quota of 6 would be enough", "A nominal quota of 6 would be enough."),
            ("Topology \"t\" allows only 2.", "Topology \"t\" allows only 2."),
            ("sluice.dev/expected-run-time is ignored", "sluice.dev/expected-run-time is ignored."),
            ("", ""),
        ] {
            assert_eq!(sentence(phrase), expected);
        }
    }

    #[test]
    fn names_are_listed_as_in_a_sentence() {
        let names = ["a", "b", "c"].map(str::to_owned);
        for (count, expected) in [(0, ""), (1, "a"), (2, "a and b"), (3, "a, b and c")] {
            assert_eq!(listed(&names[..count]), expected);
        }
    }

    #[test]
    fn numbers_are_grouped() {
        for (digits, expected) in [
            ("0", "0"),
            ("999", "999"),
            ("1284", "1,284"),
            ("-41280", "-41,280"),
            ("1234567", "1,234,567"),
            ("38994.5", "38,994.5"),
            ("1234.5Gi", "1234.5Gi"),
            ("32Ti", "32Ti"),
            ("1500m", "1500m"),
            ("0.5", "0.5"),
            ("-8", "-8"),
        ] {
            assert_eq!(grouped(digits), expected);
        }
        assert_eq!((counted(1, "pod"), counted(1_200, "pod")), ("1 pod".to_owned(), "1,200 pods".to_owned()));
    }

    #[test]
    fn times_of_other_days_have_a_date() {
        let shown = |time: &str| {
            Moment::clock_on(time.parse().unwrap(), "2026-11-26T14:05:12Z".parse().unwrap()).shown
        };
        assert_eq!(shown("2026-11-26T00:00:01Z"), "00:00:01");
        assert_eq!(shown("2026-11-25T14:06:00Z"), "Nov 25, 14:06:00");
        assert_eq!(shown("2025-11-26T14:05:00Z"), "Nov 26, 14:05:00");
    }

    #[test]
    fn changes_are_in_the_right_number() {
        assert_eq!(
            [0, 1, 2_000].map(changes),
            ["none needs a change", "1 needs a change", "2,000 need a change"]
        );
    }

    #[test]
    fn durations_have_their_two_largest_units() {
        for (seconds, expected) in [
            (-5, "0 s"),
            (38, "38 s"),
            (60, "1 m"),
            (3_599, "59 m"),
            (3_600, "1 h"),
            (3_746, "1 h 2 m"),
            (81_600, "22 h 40 m"),
            (86_400, "1 d"),
            (273_600, "3 d 4 h"),
        ] {
            assert_eq!(elapsed(seconds), expected);
        }
    }

    #[test]
    fn amounts_without_end_say_so() {
        let amounts = |value: &str, number: Option<u64>| AmountView {
            value: value.to_owned(),
            number: number.map(Into::into),
        };
        assert_eq!(amount(&amounts("unlimited", None)), "no limit");
        assert_eq!(amount(&amounts("3072", Some(3072))), "3,072");
        assert!(is_zero(&amounts("0", Some(0))) && !is_zero(&amounts("unlimited", None)));
    }
}

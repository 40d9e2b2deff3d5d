//! Durations in tables, as kubectl prints them.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Formats the time since a moment; a moment in the future gives `0s`.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    human(now.duration_since(since).as_secs().max(0))
}

/// Formats seconds as kubectl does: two units at most, fewer the longer it is. Clocks differ: down to a second below 0 it is
/// `0s`, below that `<invalid>`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_agree_with_kubectl() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert_eq!(age(at(5), at(0)), "0s");
        assert_eq!(age(at(0), at(3_720)), "62m");
    }

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
}

//! Durations in tables, as kubectl prints them.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Formats the time since a moment: two units at most, fewer the longer it is.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    let in_units = |unit: i64, name: char| format!("{}{name}", seconds.checked_div(unit).unwrap_or(0));
    let both = |unit: i64, name: char, smaller: i64, smaller_name: char| {
        let rest = seconds.checked_rem(unit).unwrap_or(0).checked_div(smaller).unwrap_or(0);
        let first = in_units(unit, name);
        if rest == 0 { first } else { format!("{first}{rest}{smaller_name}") }
    };
    match seconds {
        i64::MIN..120 => in_units(1, 's'),
        120..600 => both(MINUTE, 'm', 1, 's'),
        600..10_800 => in_units(MINUTE, 'm'),
        10_800..28_800 => both(HOUR, 'h', MINUTE, 'm'),
        28_800..172_800 => in_units(HOUR, 'h'),
        172_800..691_200 => both(DAY, 'd', HOUR, 'h'),
        _ => in_units(DAY, 'd'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_those_of_kubectl() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        for (seconds, expected) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3_720, "62m"),
            (11_040, "3h4m"),
            (108_000, "30h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
        ] {
            assert_eq!(age(at(0), at(seconds)), expected);
        }
    }
}

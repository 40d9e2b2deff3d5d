//! Starts of periods, as users write them.

use jiff::{SignedDuration, Timestamp};

/// Parses the start of a period before `now`: a time as in RFC 3339, or a duration such as `24h`, `90m`, `7d` or `1h30m`.
///
/// # Errors
/// If the text is neither, or the time is after `now`; the text of the error names the mistake.
pub fn since(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let wrong = || format!("{text:?} is no time as 2026-11-26T09:00:00Z and no duration as 24h, 90m or 7d");
    if let Ok(time) = text.parse::<Timestamp>() {
        return if time <= now { Ok(time) } else { Err(format!("{text:?} is in the future")) };
    }
    let (mut rest, mut seconds) = (text, 0_i64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit) = rest.split_at(digits);
        let mut after = unit.chars();
        let unit = match after.next() {
            Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3_600,
            Some('d') => 86_400,
            Some('w') => 604_800,
            _ => return Err(wrong()),
        };
        let part = number.parse::<i64>().ok().and_then(|number| number.checked_mul(unit));
        seconds = part.and_then(|part| seconds.checked_add(part)).ok_or_else(wrong)?;
        rest = after.as_str();
    }
    if seconds == 0 {
        return Err(wrong());
    }
    now.checked_sub(SignedDuration::from_secs(seconds)).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations_are_read() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let ago = |text: &str| since(text, now).map(|time| now.as_second() - time.as_second());
        for (text, seconds) in
            [("24h", 86_400), ("90m", 5_400), ("7d", 604_800), ("1h30m", 5_400), ("2w", 1_209_600)]
        {
            assert_eq!(ago(text), Ok(seconds), "{text}");
        }
        assert_eq!(ago("2027-01-15T07:00:00Z"), Ok(3_600));
        assert!(ago("2027-01-15T09:00:00Z").unwrap_err().contains("future"));
        for text in
            ["", "x", "24", "h", "-1h", "0h", "1.5h", "24h ", "99999999999999999999h", "9999999999999h", "1y"]
        {
            assert!(ago(text).unwrap_err().contains(&format!("{text:?}")), "{text}");
        }
    }
}

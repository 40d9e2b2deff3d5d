//! For which time an answer of the history is complete, as a sentence.

use super::Look;
use crate::people::duration::human;
use crate::visibility::views::Recorded;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Returns since when an answer is recorded: `Recorded since 09:12 today, 4h53m of 24h`, without a full stop. `asked` is the start of
/// the period.
pub fn recorded(recorded: &Recorded, asked: Timestamp, look: Look) -> String {
    let Some(from) = recorded.from else {
        return "Nothing is recorded: the manager runs with --history-ring=0, or has just started".to_owned();
    };
    let until = recorded.until.unwrap_or(look.now).as_second();
    let length = |from: Timestamp| human((until - from.as_second()).max(0));
    if recorded.complete {
        format!("Recorded {} of {} (complete)", length(asked), length(asked))
    } else {
        format!("Recorded since {}, {} of {}", day_time(from, look), length(from), length(asked))
    }
}

/// Returns whether the open runs are the usage in the ledger. `unit` is the word for what is counted.
pub fn conservation(recorded: &Recorded, unit: &str) -> String {
    match recorded.drift {
        0 => format!("reservations and usage agree to 0 {unit}"),
        1 => "reservations and usage differ for 1 flavor-resource".to_owned(),
        drift => format!("reservations and usage differ for {drift} flavor-resources"),
    }
}

/// Returns a time to the minute, with its day.
fn day_time(time: Timestamp, look: Look) -> String {
    let (then, now) = (time.to_zoned(TimeZone::UTC), look.now.to_zoned(TimeZone::UTC));
    let clock = then.strftime("%H:%M");
    if then.date() == now.date() {
        format!("{clock} today")
    } else if now.date().yesterday().is_ok_and(|day| day == then.date()) {
        format!("{clock} yesterday")
    } else {
        then.strftime("%Y-%m-%d %H:%M").to_string()
    }
}

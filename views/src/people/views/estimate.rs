//! The lines of an estimate: a range, what it assumes, and where its run times come from.

use super::Look;
use super::usage::grouped;
use crate::people::duration::human;
use crate::visibility::views::Estimate;
use jiff::tz::TimeZone;
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

/// Returns the lines, each with its label.
pub(super) fn lines(estimate: &Estimate, look: Look) -> Vec<(&'static str, String)> {
    let range = match estimate {
        Estimate::Refused { refused } => return vec![("Estimate", refusal(refused))],
        Estimate::Range(range) => range,
    };
    // Rounded outwards, so that the shown range contains the computed one.
    let earliest =
        range.earliest.map_or_else(|| "unknown".to_owned(), |time| minute(time, RoundMode::Floor, look));
    let latest = minute(range.latest, RoundMode::Ceil, look);
    let width = earliest.len().max(latest.len());
    let early = match range.earliest {
        None => "a run may end at any time before its maximum execution time",
        Some(_) => "runs end as the quickest quarter of earlier runs did",
    };
    // Without a recorded run, runs are not mentioned.
    let late = if range.earliest.is_none() && range.from_history == 0 {
        "runs end at their maximum execution time"
    } else {
        "runs end as 9 of 10 earlier runs did, or at their maximum execution time"
    };
    let mut lines = vec![
        ("Earliest", format!("{earliest:width$}  {early}")),
        ("Latest", format!("{latest:width$}  {late}")),
    ];
    lines.extend(range.assumptions.iter().map(|text| ("Assumes", text.clone())));
    let number = |count: u64| grouped(&count.to_string());
    let running = range.declared.saturating_add(range.from_history).saturating_add(range.unknown);
    let noun = if running == 1 { "workload declares" } else { "workloads declare" };
    if running > 0 {
        let (declared, running) = (number(range.declared), number(running));
        lines.push(("Known", format!("{declared} of {running} running {noun} a maximum execution time")));
    }
    if range.from_history > 0 {
        let since = range.earlier_runs_since.map(|time| human(look.now.as_second() - time.as_second()));
        let since = since.map(|age| format!(" in the last {age}")).unwrap_or_default();
        let other = match range.of_other_shape {
            0 => String::new(),
            other if other == range.from_history => ", which ask for something else than they do".to_owned(),
            other => format!("; those of {} ask for something else", number(other)),
        };
        lines.push((
            "Guessed",
            format!(
                "{} from {} earlier runs of their LocalQueues{since}{other}",
                number(range.from_history),
                number(range.earlier_runs)
            ),
        ));
    }
    lines
}

/// Returns the text of a refusal: as it is if it names what is missing (`no ...`), else after `no estimate:`.
fn refusal(refused: &str) -> String {
    if refused.starts_with("no ") { refused.to_owned() } else { format!("no estimate: {refused}") }
}

/// Returns a time in UTC to the minute; seconds would pretend a precision that estimates lack.
fn minute(time: Timestamp, mode: RoundMode, look: Look) -> String {
    let rounded = time.round(TimestampRound::new().smallest(Unit::Minute).mode(mode)).unwrap_or(time);
    let (then, now) = (rounded.to_zoned(TimeZone::UTC), look.now.to_zoned(TimeZone::UTC));
    let clock = rounded.strftime("%H:%M UTC");
    if then.date() == now.date() {
        format!("{clock} today")
    } else if now.date().tomorrow().is_ok_and(|day| day == then.date()) {
        format!("{clock} tomorrow")
    } else {
        rounded.strftime("%Y-%m-%d %H:%M").to_string()
    }
}

//! The lines of an estimate: a likely range or a bound, what it assumes, and where its run times come from.

use super::Look;
use super::usage::grouped;
use crate::people::duration::human;
use crate::visibility::estimate::REMEDY;
use crate::visibility::views::{Estimate, EstimatedRange, RefusedEstimate};
use jiff::tz::TimeZone;
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

/// Most workloads that a line names.
const NAMED: usize = 5;

/// Returns the lines, each with its label.
pub(super) fn lines(estimate: &Estimate, look: Look) -> Vec<(&'static str, String)> {
    match estimate {
        Estimate::Refused(none) => refused_lines(none, look.now),
        Estimate::Range(range) => range_lines(range, look.now),
    }
}

/// Returns when a workload may be admitted as a sentence without a full stop: `likely between A and B`, `not before A`, or why that is
/// not known. Times are in UTC.
pub fn when(estimate: &Estimate, now: Timestamp) -> String {
    match estimate {
        Estimate::Range(range) => format!("likely {}", likely(range, now)),
        Estimate::Refused(none) => none
            .not_before
            .map_or_else(|| refusal(&none.refused), |time| not_before(time, &none.must_end, now)),
    }
}

/// Returns what an estimate takes as given, which run times it lacks, and how to make these known, as sentences without a full stop.
pub fn when_details(estimate: &Estimate) -> Vec<String> {
    let assumes = |texts: &[String]| -> Vec<String> {
        texts.iter().map(|text| format!("assumes that {text}")).collect()
    };
    match estimate {
        Estimate::Range(range) => {
            let mut details = assumes(&range.assumptions);
            details.extend(range.notes.iter().cloned());
            details
        }
        Estimate::Refused(none) => {
            let mut details = assumes(&none.assumptions);
            details.extend(none.not_before.map(|_| refusal(&none.refused)));
            details.extend(unknown(none).map(|names| format!("unknown: {names}")));
            details.extend(unknown(none).map(|_| REMEDY.to_owned()));
            details.extend(none.notes.iter().cloned());
            details
        }
    }
}

fn refused_lines(none: &RefusedEstimate, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    match none.not_before {
        Some(time) => {
            lines.push(("Estimate", not_before(time, &none.must_end, now)));
            lines.push(("No range", none.refused.clone()));
        }
        None => lines.push(("Estimate", refusal(&none.refused))),
    }
    lines.extend(none.assumptions.iter().map(|text| ("Assumes", text.clone())));
    lines.extend(unknown(none).map(|names| ("Unknown", names)));
    lines.extend(unknown(none).map(|_| ("Remedy", REMEDY.to_owned())));
    lines.extend(none.notes.iter().map(|text| ("Note", text.clone())));
    lines
}

fn range_lines(range: &EstimatedRange, now: Timestamp) -> Vec<(&'static str, String)> {
    // A time that annotations alone say is neither early nor late.
    let is_expected = range.expected > 0 && range.from_history == 0 && range.declared == 0;
    let or_expected = if range.expected > 0 { ", or when they are expected to" } else { "" };
    let early = match range.earliest {
        None => "a run may end at any time before its maximum execution time".to_owned(),
        Some(_) if is_expected => "runs end when they are expected to".to_owned(),
        Some(_) => format!("runs end as the quickest quarter of earlier runs did{or_expected}"),
    };
    // Without a recorded run, runs are not mentioned.
    let late = if is_expected {
        early.clone()
    } else if range.earliest.is_none() && range.from_history == 0 {
        format!("runs end at their maximum execution time{or_expected}")
    } else {
        format!("runs end as 9 of 10 earlier runs did, or at their maximum execution time{or_expected}")
    };
    let mut lines = vec![("Likely", likely(range, now)), ("Early", early), ("Late", late)];
    lines.extend(range.assumptions.iter().map(|text| ("Assumes", text.clone())));
    let number = |count: u64| grouped(&count.to_string());
    let known = range.declared.saturating_add(range.expected).saturating_add(range.from_history);
    let running = known.saturating_add(range.unknown);
    let noun = if running == 1 { "workload declares" } else { "workloads declare" };
    if running > 0 {
        let (declared, running) = (number(range.declared), number(running));
        let mut text = format!("{declared} of {running} running {noun} a maximum execution time");
        if range.expected > 0 {
            let expected = number(range.expected);
            text = format!("{text}, {expected} an expected one (annotation sluice.dev/expected-run-time)");
        }
        lines.push(("Known", text));
    }
    if range.from_history > 0 {
        let since = range.earlier_runs_since.map(|time| human(now.as_second() - time.as_second()));
        let since = since.map(|age| format!(" in the last {age}")).unwrap_or_default();
        let (guessed, runs) = (number(range.from_history), number(range.earlier_runs));
        lines.push((
            "Guessed",
            format!("{guessed} from {runs} earlier runs of their LocalQueues and shapes{since}"),
        ));
    }
    lines.extend(range.notes.iter().map(|text| ("Note", text.clone())));
    lines
}

/// Returns the range after `likely`. It is rounded outwards, so that the shown range contains the computed one.
fn likely(range: &EstimatedRange, now: Timestamp) -> String {
    let latest = minute(range.latest, RoundMode::Ceil, now);
    match (range.earliest, range.not_before) {
        (Some(time), _) => format!("between {} and {latest}", minute(time, RoundMode::Floor, now)),
        (None, Some(time)) => format!("before {latest}, and {}", not_before(time, &range.must_end, now)),
        (None, None) => format!("before {latest}"),
    }
}

fn not_before(time: Timestamp, must_end: &[String], now: Timestamp) -> String {
    let names = names(must_end).map(|names| format!(": {names} must end")).unwrap_or_default();
    format!("not before {}{names}", minute(time, RoundMode::Floor, now))
}

/// Returns the workloads whose run times are unknown; `None` if there are none.
fn unknown(none: &RefusedEstimate) -> Option<String> {
    names(&none.unknown)
}

/// Returns the first of some names, and how many more there are; `None` if there are none.
fn names(all: &[String]) -> Option<String> {
    let mut shown: Vec<String> = all.iter().take(NAMED).cloned().collect();
    let rest = all.len().saturating_sub(NAMED);
    if rest > 0 {
        shown.push(format!("{} more", grouped(&rest.to_string())));
    }
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// Returns the text of a refusal: as it is if it names what is missing (`no ...`), else after `no estimate:`.
fn refusal(refused: &str) -> String {
    if refused.starts_with("no ") { refused.to_owned() } else { format!("no estimate: {refused}") }
}

/// Returns a time in UTC to the minute; seconds would pretend a precision that estimates lack.
fn minute(time: Timestamp, mode: RoundMode, now: Timestamp) -> String {
    let rounded = time.round(TimestampRound::new().smallest(Unit::Minute).mode(mode)).unwrap_or(time);
    let (then, today) = (rounded.to_zoned(TimeZone::UTC).date(), now.to_zoned(TimeZone::UTC).date());
    let clock = rounded.strftime("%H:%M UTC");
    if then == today {
        format!("{clock} today")
    } else if today.tomorrow().is_ok_and(|day| day == then) {
        format!("{clock} tomorrow")
    } else {
        rounded.strftime("%Y-%m-%d %H:%M UTC").to_string()
    }
}

//! The time to which ages and run times are counted, also where the clock of this machine is wrong.
//!
//! Invariant: a difference to the manager's time counts only if it can be that of the clocks: a manager that has heard nothing for long
//! answers with the time of its state.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::cli::people::connection::Session;
use crate::cli::people::source::VIEWS;
use crate::visibility::views::SourceKind;

/// Least difference to the manager's time by which the clock of this machine is taken to be wrong.
const WRONG_CLOCK: SignedDuration = SignedDuration::from_mins(1);
/// Most of it: by more, the manager has heard nothing for long.
const SILENT: SignedDuration = SignedDuration::from_hours(1);

/// Longest time to wait for the manager only because of its clock.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the time to which the ages of objects count: now, by the clock of the manager if that of this machine is wrong, or the time of
/// a dump. `path`, below the version of the manager's group, is what the manager is asked for, because its answer has its time.
pub(in crate::cli::people) async fn of_manager(session: &Session, path: &str) -> Timestamp {
    if session.dump.is_some() {
        return session.now();
    }
    let path = format!("{VIEWS}/{path}");
    match tokio::time::timeout(CLOCK_TIMEOUT, session.caller.get(&path)).await {
        Ok(Ok(answer)) => time_of(&answer),
        _ => session.now(),
    }
}

/// Returns the time from which run times count: that of this machine, or that of the manager if they differ. The answer of the manager
/// is new, so that the difference is that of the clocks.
pub(super) fn corrected(now: Timestamp, (kind, time): (SourceKind, Option<Timestamp>)) -> Timestamp {
    let is_off = |time: &Timestamp| {
        let difference = now.duration_since(*time).abs();
        WRONG_CLOCK < difference && difference <= SILENT
    };
    time.filter(|_| kind == SourceKind::Manager).filter(is_off).unwrap_or(now)
}

/// Returns the time to which the ages in an answer are counted: now, by the clock of the manager if that of this machine is wrong, or
/// the time of a dump.
pub(super) fn time_of(answer: &Value) -> Timestamp {
    shown_at(answer, Timestamp::now())
}

fn shown_at(answer: &Value, now: Timestamp) -> Timestamp {
    let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str);
    let time = text("/source/time").and_then(|time| time.parse::<Timestamp>().ok());
    match text("/source/kind") {
        Some("file") => time.unwrap_or(now),
        Some("manager") => corrected(now, (SourceKind::Manager, time)),
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_clock_that_is_off_is_replaced_by_that_of_the_manager() {
        let at = |offset: i64| Timestamp::from_second(1_000_000 + offset).unwrap();
        for (kind, seconds, expected) in [
            ("manager", 30, 0),
            ("manager", 300, 300),
            ("manager", -300, -300),
            // A replica that has heard nothing for a day.
            ("manager", -86_400, 0),
            ("cluster", -300, 0),
            // Ages in a dump are as of the time of the dump.
            ("file", -300, -300),
            ("file", -86_400, -86_400),
        ] {
            let answer = json!({"source": {"kind": kind, "time": at(seconds).to_string()}});
            assert_eq!(shown_at(&answer, at(0)), at(expected), "{kind} {seconds}");
        }
        for answer in [json!({}), json!({"source": {"kind": "manager", "time": "yesterday"}})] {
            assert_eq!(shown_at(&answer, at(0)), at(0), "{answer}");
        }
        // The objects of a dump have no other clock than the dump.
        assert_eq!(corrected(at(0), (SourceKind::File, Some(at(300)))), at(0));
    }
}

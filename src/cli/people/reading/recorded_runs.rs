//! Earlier runs from the durable record, for estimates, because Workloads are often deleted soon after their end.
//!
//! Invariant: a bounded number of pages is read; without a record, or without the right to read it, there are no runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use super::{PAGE, read};
use crate::api::ObjectKey;
use crate::cli::people::connection::Session;
use crate::cli::people::pages::encoded;
use crate::cli::people::source::VIEWS;
use crate::simulate::estimate::RecordedRun;
use crate::simulate::estimate::run_times::{Amounts, Run};
use crate::visibility::views::{UsageRecordReport, UsageRecordView};

/// Starts of the periods that are read one after the other, in days before now. Each ends where the former one begins.
const PERIODS: [i64; 3] = [1, 7, 30];
/// Most pages of a period.
const MAX_PAGES: usize = 10;
/// End of runs that are used for estimates: the length of an evicted run proves nothing.
const ENDED: &str = "Finished";

/// Returns the ended runs of all periods before the first one with more than `MAX_PAGES` pages; of that one only if it is the
/// latest.
pub(super) async fn read_runs(session: &Session, now: Timestamp) -> Vec<RecordedRun> {
    let (mut found, mut until) = (Vec::new(), now);
    for days in PERIODS {
        let Some(since) = now.checked_sub(SignedDuration::from_hours(24 * days)).ok() else { break };
        let (rows, is_whole) = rows(session, (since, until)).await;
        // An incomplete period lacks its last runs.
        if is_whole || found.is_empty() {
            found.extend(rows);
        }
        if !is_whole {
            break;
        }
        until = since;
    }
    runs(&found)
}

/// Returns the rows of a period, and whether they are complete.
async fn rows(session: &Session, (since, until): (Timestamp, Timestamp)) -> (Vec<UsageRecordView>, bool) {
    let (mut rows, mut token) = (Vec::new(), String::new());
    for _ in 0..MAX_PAGES {
        let mut path =
            format!("{VIEWS}/clusterusagerecords?limit={PAGE}&since={}", encoded(&since.to_string()));
        // After the first page, the token contains the period.
        let (name, value) =
            if token.is_empty() { ("until", until.to_string()) } else { ("continue", token.clone()) };
        let _ = write!(path, "&{name}={}", encoded(&value));
        let Ok(page) = session.caller.get(&path).await else { return (rows, false) };
        let Ok(UsageRecordReport { metadata, items, .. }) = read(&page) else { return (rows, false) };
        rows.extend(items);
        if metadata.continue_token.is_empty() {
            return (rows, true);
        }
        token = metadata.continue_token;
    }
    (rows, false)
}

/// A run of which some rows were read.
struct Known {
    local_queue: ObjectKey,
    start: Timestamp,
    ended: Option<Timestamp>,
    /// What it had at first, by flavor and resource.
    amounts: BTreeMap<(String, String), i128>,
}

/// Joins the rows of a run: it has one for each flavor-resource, and for each change of its amounts. One without the amounts that it
/// began with is left out, as nothing says what it is like.
fn runs(rows: &[UsageRecordView]) -> Vec<RecordedRun> {
    let mut all: BTreeMap<(&str, u32), Known> = BTreeMap::new();
    for row in rows {
        let (Some(run), Some(start)) = (&row.run, row.start) else { continue };
        let known = all.entry((&run.uid, run.attempt)).or_insert_with(|| Known {
            local_queue: ObjectKey::new(&row.namespace, &row.local_queue),
            start,
            ended: None,
            amounts: BTreeMap::new(),
        });
        known.start = known.start.min(start);
        if run.result == ENDED {
            known.ended = known.ended.max(row.end);
        }
        if let Some(units) = run.units.parse().ok().filter(|units| run.part == 0 && *units != 0) {
            known.amounts.insert((row.flavor.clone(), row.resource.clone()), units);
        }
    }
    let ended = all.into_iter().filter_map(|((uid, _), known)| {
        let ended = known.ended?;
        let run = Run { ended, length: ended.duration_since(known.start) };
        let mut amounts = Amounts::new();
        for ((_, resource), units) in known.amounts {
            let sum: &mut i128 = amounts.entry(resource).or_default();
            *sum = sum.saturating_add(units);
        }
        Some(RecordedRun { uid: uid.to_owned(), local_queue: known.local_queue, amounts, run })
    });
    ended.filter(|known| !known.run.length.is_negative() && !known.amounts.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn row(uid: &str, (attempt, part): (u32, u32), (start, end): (i64, Option<i64>), result: &str) -> Value {
        let time = |minute: i64| Timestamp::from_second(60 * minute).unwrap().to_string();
        json!({"namespace": "ns", "localQueue": "q", "flavor": "f", "resource": "cpu", "start": time(start), "end": end.map(time),
            "run": {"uid": uid, "attempt": attempt, "part": part, "result": result, "units": (4 - part).to_string()}})
    }

    #[test]
    fn rows_of_a_run_are_joined() {
        let mut other_flavor = row("a", (0, 0), (1, Some(3)), "Resized");
        other_flavor["flavor"] = json!("g");
        let rows: Vec<UsageRecordView> = [
            row("a", (0, 0), (1, Some(3)), "Resized"),
            other_flavor,
            row("a", (0, 1), (3, Some(6)), "Finished"),
            row("a", (0, 1), (3, Some(6)), "Finished"),
            row("b", (0, 0), (1, Some(2)), "evicted:Preempted"),
            row("b", (1, 0), (4, Some(5)), "Finished"),
            row("c", (0, 0), (1, None), ""),
            row("d", (0, 0), (9, Some(8)), "Finished"),
            row("e", (0, 1), (3, Some(6)), "Finished"),
        ]
        .into_iter()
        .map(|row| serde_json::from_value(row).unwrap())
        .collect();
        let found: Vec<_> = runs(&rows)
            .into_iter()
            .map(|known| {
                let (length, ended) = (known.run.length.as_mins(), known.run.ended.as_second() / 60);
                (known.uid, known.amounts.get("cpu").copied(), length, ended)
            })
            .collect();
        assert_eq!(found, [("a".to_owned(), Some(8), 5, 6), ("b".to_owned(), Some(4), 1, 5)]);
    }
}

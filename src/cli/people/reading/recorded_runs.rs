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
use crate::simulate::estimate::run_times::Run;
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

/// Joins the rows of a run: it has one for each flavor-resource, and for each change of its amounts.
fn runs(rows: &[UsageRecordView]) -> Vec<RecordedRun> {
    let mut all: BTreeMap<(&str, u32), (ObjectKey, Timestamp, Option<Timestamp>)> = BTreeMap::new();
    for row in rows {
        let (Some(run), Some(start)) = (&row.run, row.start) else { continue };
        let known = all
            .entry((&run.uid, run.attempt))
            .or_insert_with(|| (ObjectKey::new(&row.namespace, &row.local_queue), start, None));
        known.1 = known.1.min(start);
        if run.result == ENDED {
            known.2 = known.2.max(row.end);
        }
    }
    let ended = all.into_iter().filter_map(|((uid, _), (local_queue, start, ended))| {
        let ended = ended?;
        let run = Run { ended, length: ended.duration_since(start) };
        Some(RecordedRun { uid: uid.to_owned(), local_queue, run })
    });
    ended.filter(|known| !known.run.length.is_negative()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn row(uid: &str, (attempt, part): (u32, u32), (start, end): (i64, Option<i64>), result: &str) -> Value {
        let time = |minute: i64| Timestamp::from_second(60 * minute).unwrap().to_string();
        json!({"namespace": "ns", "localQueue": "q", "start": time(start), "end": end.map(time),
            "run": {"uid": uid, "attempt": attempt, "part": part, "result": result}})
    }

    #[test]
    fn rows_of_a_run_are_joined() {
        let rows: Vec<UsageRecordView> = [
            row("a", (0, 0), (1, Some(3)), "Resized"),
            row("a", (0, 1), (3, Some(6)), "Finished"),
            row("a", (0, 1), (3, Some(6)), "Finished"),
            row("b", (0, 0), (1, Some(2)), "evicted:Preempted"),
            row("b", (1, 0), (4, Some(5)), "Finished"),
            row("c", (0, 0), (1, None), ""),
            row("d", (0, 0), (9, Some(8)), "Finished"),
        ]
        .into_iter()
        .map(|row| serde_json::from_value(row).unwrap())
        .collect();
        let found: Vec<_> = runs(&rows)
            .into_iter()
            .map(|known| (known.uid, known.run.length.as_mins(), known.run.ended.as_second() / 60))
            .collect();
        assert_eq!(found, [("a".to_owned(), 5, 6), ("b".to_owned(), 1, 5)]);
    }
}

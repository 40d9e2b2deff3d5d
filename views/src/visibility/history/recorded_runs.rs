//! Runs that have ended, from rows of the durable record.
//!
//! Invariant: a run counts once, with the amounts that it began with; one that was evicted does not count, because its length proves
//! nothing.

use crate::api::ObjectKey;
use crate::simulate::estimate::RecordedRun;
use crate::simulate::estimate::run_times::{Amounts, Run};
use crate::visibility::views::UsageRecordView;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// End of runs that count.
const ENDED: &str = "Finished";

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
pub fn ended_runs(rows: &[UsageRecordView]) -> Vec<RecordedRun> {
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
        let found: Vec<_> = ended_runs(&rows)
            .into_iter()
            .map(|known| {
                let (length, ended) = (known.run.length.as_mins(), known.run.ended.as_second() / 60);
                (known.uid, known.amounts.get("cpu").copied(), length, ended)
            })
            .collect();
        assert_eq!(found, [("a".to_owned(), Some(8), 5, 6), ("b".to_owned(), Some(4), 1, 5)]);
    }
}

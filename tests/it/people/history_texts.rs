//! The texts of `usage` and `list preemption`, compared with golden files (see `people::texts`).

use crate::people::texts::check;
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice::people::views::{self, Look};
use sluice::visibility::views::{PreemptionReport, Recorded, UsageReport};

fn hours(text: &str) -> Value {
    json!({"unitMilliseconds": "1", "hours": 1.0, "text": text})
}

fn usage_row(
    group: &str,
    resource: &str,
    jobs: u64,
    [used, borrowed, lost]: [&str; 3],
    waits: [i64; 2],
) -> Value {
    json!({
        "group": group, "resource": resource, "jobs": jobs, "used": hours(used), "borrowed": hours(borrowed), "lost": hours(lost),
        "waitP50Seconds": waits[0], "waitP99Seconds": waits[1],
    })
}

fn complete() -> Value {
    json!({"from": "2026-11-25T14:05:12Z", "until": "2026-11-26T14:05:12Z", "replica": "m-0", "complete": true, "drift": 0})
}

fn day_ago() -> Timestamp {
    "2026-11-25T14:05:12Z".parse().unwrap()
}

#[test]
fn expected_usage_of_one_resource() {
    let gpu = "nvidia.com/gpu";
    let report: UsageReport = serde_json::from_value(json!({
        "by": "namespace",
        "items": [
            usage_row("nlp-train", gpu, 812, ["9744", "2310", "412"], [1_560, 39_900]),
            usage_row("rank", gpu, 2_204, ["6018", "0", "3.0"], [33, 33_600]),
            json!({"group": "", "resource": gpu, "jobs": 1, "used": hours("0.250"), "borrowed": {}, "lost": hours("0")}),
        ],
        "sums": [usage_row("sum", gpu, 3_017, ["15762", "2310", "415"], [240, 33_600])],
        "recorded": complete(),
    }))
    .unwrap();
    check("usage", |look| views::usage(&report, day_ago(), look));
}

#[test]
fn expected_usage_of_several_resources_that_was_not_recorded_from_the_start() {
    let report: UsageReport = serde_json::from_value(json!({
        "by": "queue",
        "items": [
            usage_row("nlp", "cpu", 2, ["96.0", "0", "0"], [0, 5]),
            usage_row("nlp", "memory", 2, ["1024Gi", "0Gi", "0Gi"], [0, 5]),
        ],
        "sums": [usage_row("sum", "cpu", 2, ["96.0", "0", "0"], [0, 5]), usage_row("sum", "memory", 2, ["1024Gi", "0Gi", "0Gi"], [0, 5])],
        "recorded": {"from": "2026-11-26T09:12:00Z", "until": "2026-11-26T14:05:12Z", "replica": "m-0", "complete": false, "drift": 2},
    }))
    .unwrap();
    check("usage_incomplete", |look| views::usage(&report, day_ago(), look));
}

#[test]
fn expected_preemptions_of_one_namespace_and_of_all() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dashboard/preemptions.json");
    let report: PreemptionReport = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    check("preemptions", |look| views::preemptions(&report, false, look));
    check("preemptions_of_all_namespaces", |look| views::preemptions(&report, true, look));
}

#[test]
fn an_answer_says_since_when_it_is_recorded() {
    let now: Timestamp = "2026-11-26T14:05:12Z".parse().unwrap();
    let look = Look {
        utf8: true,
        color: false,
        width: None,
        headings: true,
        wide: false,
        csv: false,
        labels: false,
        now,
        offset: jiff::tz::Offset::UTC,
    };
    let text_until = |from: Option<&str>, until: &str, complete: bool| {
        let recorded = Recorded {
            from: from.map(|from| from.parse().unwrap()),
            until: Some(until.parse().unwrap()),
            complete,
            ..Recorded::default()
        };
        views::recorded(&recorded, day_ago(), look)
    };
    let text = |from: Option<&str>, complete: bool| text_until(from, "2026-11-26T14:05:12Z", complete);
    assert_eq!(text(Some("2026-11-25T14:05:12Z"), true), "Recorded 24h of 24h (complete)");
    assert_eq!(text(Some("2026-11-26T09:12:12Z"), false), "Recorded since 09:12Z, 4h53m of 24h");
    assert_eq!(text(Some("2026-11-25T20:00:12Z"), false), "Recorded since Wed 20:00Z, 18h of 24h");
    assert!(text(None, false).starts_with("Nothing is recorded"));
    assert_eq!(
        text_until(Some("2026-11-26T13:00:00Z"), "2026-11-26T09:00:00Z", false),
        "Nothing of the period is recorded: the record begins at 13:00Z"
    );
    // The first hour has not ended.
    assert_eq!(
        text_until(Some("2026-11-25T14:05:12Z"), "2026-11-25T14:05:12Z", true),
        "Nothing of the period is recorded yet"
    );
}

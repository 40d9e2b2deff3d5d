//! Past usage of LocalQueues, from the manager through JSON to the table.

use serde_json::{Value, json};
use sluice::people::views::{self, Look};
use sluice::visibility::views::{LocalQueueView, PastUsage};

/// The order is that of admission, through JSON, and fair sharing is on whenever a ClusterQueue has it on.
#[test]
fn the_localqueue_of_weight_zero_is_the_last() {
    let queue = |name: &str, usage: Value| -> LocalQueueView {
        serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": name}, "clusterQueue": "cq", "active": true,
            "pending": {"total": 0, "active": 0, "inadmissible": 0}, "reserving": 0, "admitted": 0, "quota": [],
            "pastUsage": usage, "byPastUsage": true}))
        .unwrap()
    };
    let sent = |usage: f64| serde_json::to_value(PastUsage::new(usage)).unwrap();
    let queues = [
        queue("unknown", Value::Null),
        queue("last", sent(f64::INFINITY)),
        queue("little", sent(0.13)),
        queue("none", sent(-0.0)),
        queue("much", sent(1e300)),
    ];
    let look = Look {
        utf8: false,
        color: false,
        width: None,
        headings: true,
        wide: false,
        labels: false,
        csv: false,
        now: jiff::Timestamp::UNIX_EPOCH,
        offset: jiff::tz::Offset::UTC,
    };
    let rows = |queues: &[LocalQueueView]| -> Vec<(String, String)> {
        let text = views::local_shares(queues, look);
        assert!(text.starts_with("admission fair sharing: on\n"), "{text}");
        let cells = |line: &str| line.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
        text.lines().skip(3).map(cells).map(|cells| (cells[1].clone(), cells[3].clone())).collect()
    };
    let found = rows(&queues);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["none", "little", "much", "last", "unknown"]);
    assert_eq!((found[0].1.as_str(), found[3].1.as_str(), found[4].1.as_str()), ("0.00", "inf", "-"));
    for alone in &queues {
        assert_eq!(rows(std::slice::from_ref(alone)).len(), 1);
    }
}

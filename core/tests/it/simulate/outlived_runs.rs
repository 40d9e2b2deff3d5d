//! Estimates say no more than earlier runs do: runs that outlived them, that failed, or that are of another shape.

use crate::fixtures::estimated_cluster::{Cluster, NAMESPACE, now, three_running, with_maximum};
use jiff::SignedDuration;
use serde_json::json;
use sluice_core::api::ObjectKey;
use sluice_core::simulate::estimate::run_times::{Amounts, Run};
use sluice_core::simulate::estimate::{RecordedRun, Refusal};

#[test]
fn a_run_that_is_longer_than_all_has_no_known_end() {
    let ask = |running: &[(&str, i64)]| {
        let mut cluster = three_running();
        for (number, (queue, age)) in running.iter().enumerate() {
            cluster.running(&format!("r{number}"), queue, 1, *age);
        }
        cluster.pending("w", "a", 1, 5);
        cluster
    };
    for (running, expected) in [
        (
            &[("a", 61), ("b", 0), ("b", 0)][..],
            "no latest: 1 of 3 running workloads has run longer than all 20 earlier runs",
        ),
        (
            &[("a", 61), ("b", 121), ("mixed", 0)],
            "no latest: 2 of 3 running workloads have run longer than all 40 earlier runs",
        ),
        // What is not known at all comes first: a durable record may know it.
        (
            &[("a", 61), ("none", 1), ("b", 0)],
            "1 of 3 running workloads has neither a maximum or expected run time nor 20 earlier runs of the same shape",
        ),
    ] {
        assert_eq!(ask(running).range("w"), Err(expected.to_owned()), "{running:?}");
    }
    let mut alone = three_running();
    alone.running("x", "a", 3, 61);
    alone.pending("w", "a", 1, 5);
    let expected = "no latest: 1 of 1 running workload has run longer than all 20 earlier runs";
    assert_eq!(alone.range("w"), Err(expected.to_owned()));
    // A maximum bounds it: it may end at any time before.
    with_maximum(alone.objects.iter_mut().rfind(|o| o["metadata"]["name"] == "x").unwrap(), 90);
    assert_eq!(alone.bounds("w"), Ok((None, 29)));
    assert_eq!(alone.ask("w").unwrap().open_ended, 1);
}

#[test]
fn runs_that_failed_say_nothing_about_an_end() {
    let mut cluster = three_running();
    for workload in cluster.objects.iter_mut().filter(|object| object["kind"] == "Workload") {
        if workload["spec"]["queueName"] == "a" {
            workload["status"]["conditions"][2]["reason"] = json!("Failed");
        }
    }
    cluster.running("x", "a", 3, 0);
    cluster.pending("w", "a", 1, 5);
    let unknown = "1 of 1 running workloads has neither a maximum or expected run time nor 20 earlier runs of the same shape";
    assert_eq!(cluster.range("w"), Err(unknown.to_owned()));
}

#[test]
fn runs_of_another_shape_say_nothing() {
    let mut cluster = Cluster::new(4, "BestEffortFIFO", "a");
    cluster.history("a", [60; 20]);
    cluster.running("other", "a", 4, 0);
    cluster.pending("w", "a", 1, 5);
    let unknown = "1 of 1 running workloads has neither a maximum or expected run time nor 20 earlier runs of the same shape";
    assert_eq!(cluster.range("w"), Err(unknown.to_owned()));
}

#[test]
fn runs_of_a_durable_record_are_earlier_runs() {
    let mut cluster = Cluster::new(2, "BestEffortFIFO", "q");
    cluster.history("q", (1..=10).map(|step| 10 * step));
    cluster.running("first", "q", 2, 0);
    cluster.pending("w", "q", 2, 5);
    let recorded = |number: i64, uid: String| RecordedRun {
        uid,
        local_queue: ObjectKey::new(NAMESPACE, "q"),
        amounts: Amounts::from([("cpu".to_owned(), 2_000)]),
        run: Run { ended: now(), length: SignedDuration::from_mins(10 * number) },
    };
    let refused = Err(Refusal::UnknownRunning(1, 1));
    assert_eq!(cluster.ask("w"), refused, "10 runs are too few");
    // What is stored does not count again.
    let stored: Vec<_> = (0..10).map(|number| recorded(1, format!("Workload-q-{number}"))).collect();
    assert_eq!(cluster.estimate_with("w", &stored), refused);
    let others: Vec<_> = (11..=20).map(|number| recorded(number, format!("gone-{number}"))).collect();
    let range = cluster.estimate_with("w", &others).unwrap();
    // Of runs of 10 to 200 minutes, the 25th and the 90th percentile.
    let minutes = [range.earliest.unwrap(), range.latest].map(|time| time.duration_since(now()).as_mins());
    assert_eq!(minutes, [50, 180]);
    assert_eq!(range.earlier_runs, 20);
}

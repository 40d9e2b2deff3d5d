//! When a pending Workload may be admitted: scenarios whose answers follow by hand, refusals, and laws against `simulate`.

use crate::fixtures::estimated_cluster::{
    Cluster, NAMESPACE, condition, minutes_ago, now, object, options, three_running, three_running_in,
    with_maximum,
};
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::simulate::estimate::{
    EstimateRequest, MAX_WORKLOADS, Refusal, estimate, is_finished, reduce_finished,
};
use sluice_core::simulate::{KeepGoing, Simulation, Until};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn answers_follow_by_hand() {
    // Queue and age of the three; what waits: queue, CPUs and age, oldest first; minutes until the last of those is admitted.
    type Row = (&'static str, [(&'static str, i64); 3], &'static [(&'static str, i64)], (i64, i64));
    let rows: [Row; 9] = [
        ("the first that ends", [("a", 10), ("a", 20), ("b", 0)], &[("a", 1)], (40, 40)),
        ("the second that ends", [("a", 10), ("a", 20), ("b", 0)], &[("a", 2)], (50, 50)),
        ("the last that ends", [("a", 10), ("a", 20), ("b", 0)], &[("a", 3)], (120, 120)),
        // The one before it takes the CPU at 40, the next is free at 50.
        ("one is before it", [("a", 10), ("a", 20), ("b", 0)], &[("b", 1), ("a", 1)], (50, 50)),
        // In strict order, what needs all CPUs runs from 120 to 180; otherwise the other one goes first.
        ("strict: one is before it", [("a", 10), ("a", 20), ("b", 0)], &[("a", 3), ("a", 2)], (180, 180)),
        (
            "one that does not fit is before it",
            [("a", 10), ("a", 20), ("b", 0)],
            &[("a", 3), ("a", 2)],
            (50, 50),
        ),
        ("a range", [("mixed", 0), ("b", 0), ("b", 0)], &[("a", 1)], (25, 90)),
        ("a range, as far as it has run", [("mixed", 20), ("b", 0), ("b", 0)], &[("a", 1)], (5, 70)),
        // 14 of 20 runs were longer than 30 minutes: a quarter of them took up to 50, and 9 of 10 up to 95.
        ("longer than the quick guess", [("mixed", 30), ("b", 0), ("b", 0)], &[("a", 1)], (20, 65)),
    ];
    for (what, running, waits, expected) in rows {
        let strategy = if what.starts_with("strict") { "StrictFIFO" } else { "BestEffortFIFO" };
        let mut cluster = three_running_in(strategy);
        for (name, (queue, age)) in ["x", "y", "z"].into_iter().zip(running) {
            cluster.running(name, queue, 1, age);
        }
        let mut last = String::new();
        for (number, (queue, cpu)) in waits.iter().enumerate() {
            last = format!("w{number}");
            cluster.pending(&last, queue, *cpu, 100 - i64::try_from(number).unwrap());
        }
        assert_eq!(cluster.range(&last), Ok(expected), "{what}");
    }
}

#[test]
fn a_declared_maximum_bounds_a_run() {
    let ask = |queue: &str, age: i64, maximum: i64| {
        let mut cluster = three_running();
        with_maximum(cluster.running("x", queue, 1, age), maximum);
        cluster.running("y", "b", 2, 0);
        cluster.pending("w", "a", 1, 5);
        let range = cluster.ask("w").unwrap();
        assert_eq!((range.declared, range.from_history), (1, 1));
        assert_eq!(range.open_ended, usize::from(queue == "none"));
        assert_eq!(
            (range.earlier_runs, range.earlier_runs_since),
            (20, Some(minutes_ago(2_000).parse().unwrap()))
        );
        cluster.bounds("w").unwrap()
    };
    assert_eq!(ask("mixed", 0, 40), (Some(25), 40), "above the quick guess");
    assert_eq!(ask("mixed", 0, 10), (Some(10), 10), "below both");
    assert_eq!(ask("mixed", 0, 1_000), (Some(25), 90), "above both");
    assert_eq!(ask("none", 10, 40), (None, 30), "without earlier runs it may end at any time");
}

#[test]
fn runs_before_an_eviction_count_against_the_maximum() {
    let mut cluster = three_running();
    let running = cluster.running("x", "none", 1, 10);
    with_maximum(running, 60);
    running["status"]["accumulatedPastExecutionTimeSeconds"] = json!(20 * 60);
    cluster.running("y", "b", 2, 0);
    cluster.pending("w", "a", 1, 5);
    assert_eq!(cluster.bounds("w"), Ok((None, 30)));
}

#[test]
fn runs_of_the_same_shape_count() {
    let mut cluster = three_running();
    for number in 0..20 {
        let conditions = json!([condition("Admitted", "True", 1_010), condition("Finished", "True", 1_000)]);
        let name = format!("own-{number}");
        cluster.workload(&name, "none", 1, json!({"conditions": conditions}));
    }
    cluster.running("x", "none", 1, 0);
    cluster.running("y", "a", 2, 0);
    cluster.pending("w", "a", 1, 5);
    assert_eq!(cluster.range("w"), Ok((10, 10)));
}

/// What waits in another ClusterQueue of the cohort comes first; what runs outside of the cohort is of no concern.
#[test]
fn the_cohort_tree_is_simulated() {
    let mut cluster = three_running();
    for name in ["q", "lender", "elsewhere"] {
        if name != "q" {
            cluster.cluster_queue(name, 0, &json!({}));
        }
        let cohort = if name == "elsewhere" { "other" } else { "leaf" };
        let queue =
            cluster.objects.iter_mut().find(|o| o["kind"] == "ClusterQueue" && o["metadata"]["name"] == name);
        queue.unwrap()["spec"]["cohortName"] = json!(cohort);
    }
    cluster.objects.push(object("Cohort", "leaf", &json!({"parentName": "root"})));
    cluster.local_queue("lent", "lender");
    cluster.local_queue("far", "elsewhere");
    cluster.running("x", "a", 3, 0);
    cluster.running("far-away", "far", 1, 5);
    cluster.pending("w", "a", 1, 5);
    let range = cluster.ask("w").unwrap();
    assert_eq!((cluster.range("w"), range.from_history), (Ok((60, 60)), 1));
    cluster.running("borrower", "lent", 1, 0);
    let unknown = "1 of 2 running workloads has neither a maximum or expected run time nor 20 earlier runs of the same shape";
    assert_eq!(cluster.range("w"), Err(unknown.to_owned()));
}

/// A job whose kind may not be listed is missing: its Workload runs without it.
#[test]
fn a_workload_runs_without_its_job() {
    let mut cluster = three_running();
    cluster.running("x", "a", 1, 10);
    cluster.running("y", "b", 2, 0);
    cluster.pending("w", "a", 1, 5);
    let with_jobs = cluster.range("w");
    cluster.objects.retain(|object| object["kind"] != "Job");
    assert_eq!((cluster.range("w"), with_jobs), (Ok((50, 50)), Ok((50, 50))));
}

#[test]
fn what_is_not_known_is_refused() {
    let full = || {
        let mut cluster = three_running();
        cluster.running("x", "a", 3, 0);
        cluster
    };
    let refused = |cluster: &Cluster, expected: &str| {
        assert_eq!(cluster.range("w"), Err(expected.to_owned()));
    };
    let mut cluster = full();
    cluster.pending("before", "none", 3, 10);
    cluster.pending("w", "a", 1, 5);
    refused(
        &cluster,
        "1 of 1 pending workloads that are admitted before it has neither a maximum or expected run time nor 20 earlier runs of the same shape",
    );
    // It is admitted later, so that its run time does not matter.
    let mut cluster = full();
    cluster.pending("w", "a", 1, 10);
    cluster.pending("behind", "none", 1, 5);
    assert_eq!(cluster.range("w"), Ok((60, 60)));
    let mut cluster = full();
    cluster.pending("w", "a", 4, 10);
    refused(&cluster, "in the simulation it is not admitted while quotas and nodes stay");
    let mut cluster = full();
    cluster.pending("w", "gone", 1, 10);
    refused(&cluster, "its ClusterQueue is not known");
    let mut cluster = full();
    cluster.running("w", "a", 1, 10);
    refused(&cluster, "it is not pending (Admitted)");
    let mut cluster = full();
    cluster.history("w", [1]);
    assert_eq!(cluster.range("w-0"), Err("it has finished".to_owned()));
    let mut cluster = full();
    cluster.pending("w", "a", 1, 10)["spec"]["active"] = json!(false);
    refused(&cluster, "it is deactivated: sluice resume workload lets it wait again");
    let mut cluster = full();
    cluster.pending("w", "a", 1, 10)["metadata"]["deletionTimestamp"] = json!(minutes_ago(0));
    refused(&cluster, "it has been deleted");
    refused(&full(), "it has been deleted");
    // Without finished Workloads nothing is known.
    let mut cluster = full();
    cluster.pending("w", "a", 1, 10);
    cluster.objects.retain(|object| !object["metadata"]["name"].as_str().unwrap().starts_with("a-"));
    refused(
        &cluster,
        "1 of 1 running workloads has neither a maximum or expected run time nor 20 earlier runs of the same shape",
    );
}

/// A manager that computes an estimate has no room for all that is stored of finished Workloads.
#[test]
fn of_a_finished_workload_its_run_alone_counts() {
    let mut cluster = three_running();
    cluster.running("x", "mixed", 3, 10);
    cluster.pending("w", "a", 1, 5);
    let ended = |object: &&mut Value| object["kind"] == "Workload" && is_finished(object);
    for workload in cluster.objects.iter_mut().filter(ended) {
        let count = json!([{"name": "main", "count": 1, "resourceUsage": {"cpu": "1"}}]);
        workload["status"]["admission"] = json!({"clusterQueue": "q", "podSetAssignments": count});
        workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "e"}]);
        workload["status"]["conditions"][0]["message"] = json!("quota is reserved");
    }
    let whole = cluster.ask("w").unwrap();
    assert!(whole.earlier_runs >= 20, "{whole:?}");
    let mut lengths = [0, 0];
    for workload in cluster.objects.iter_mut().filter(ended) {
        lengths[0] += workload.to_string().len();
        reduce_finished(workload);
        lengths[1] += workload.to_string().len();
    }
    assert_eq!(cluster.ask("w").unwrap(), whole);
    assert!(lengths[1] * 4 < lengths[0] * 3, "{lengths:?}");
}

/// Wherever it is stopped, within an instant as well, an estimate has no other range than without a limit.
#[test]
fn a_stopped_estimate_has_no_range_of_its_own() {
    let mut cluster = three_running();
    for (name, queue) in [("x", "mixed"), ("y", "b"), ("z", "b")] {
        cluster.running(name, queue, 1, 0);
    }
    cluster.pending("w", "a", 1, 5);
    let whole = cluster.ask("w").unwrap();
    let (key, objects) = (ObjectKey::new(NAMESPACE, "w"), cluster.typed());
    let request = EstimateRequest { workload: &key, objects: &objects, recorded: &[], sees: &|_| true };
    let ask = |times: usize| {
        let asked = AtomicUsize::new(0);
        let keep_going: KeepGoing = Arc::new(move || asked.fetch_add(1, Ordering::Relaxed) < times);
        estimate(&request, &options(None), Some(&keep_going)).map_err(|none| none.refusal)
    };
    let (mut times, mut stopped) = (1, 0);
    while let Err(refusal) = ask(times) {
        assert_eq!(refusal, Refusal::TooLong, "after {times} questions");
        (times, stopped) = (times + times / 3 + 1, stopped + 1);
    }
    assert!(stopped > 8, "{stopped}");
    assert_eq!(ask(times), Ok(whole));
}

#[test]
fn an_estimate_takes_bounded_work() {
    let mut cluster = three_running();
    cluster.running("x", "a", 3, 0);
    cluster.pending("w", "a", 1, 5);
    let (key, objects) = (ObjectKey::new(NAMESPACE, "w"), cluster.typed());
    let request = EstimateRequest { workload: &key, objects: &objects, recorded: &[], sees: &|_| true };
    let stop: KeepGoing = Arc::new(|| false);
    let stopped = estimate(&request, &options(None), Some(&stop)).map_err(|none| none.refusal);
    assert_eq!(stopped, Err(Refusal::TooLong));
    let (job, workload) = (cluster.objects.len() - 2, cluster.objects.last().unwrap().clone());
    cluster.objects.remove(job);
    for number in 0..MAX_WORKLOADS {
        let mut more = workload.clone();
        more["metadata"]["name"] = json!(format!("more-{number}"));
        cluster.objects.push(more);
    }
    assert_eq!(cluster.range("w"), Err("10,002 workloads are in its cohort (limit 10,000)".to_owned()));
}

/// Returns the time at which `simulate` admits a Workload of these objects.
fn simulated(cluster: &Cluster, name: &str, run_for: SignedDuration) -> Option<f64> {
    let mut simulation = Simulation::new(options(Some(run_for))).unwrap();
    for (kind, object) in cluster.typed() {
        simulation.load_stored(kind, object);
    }
    simulation.run(Until::Settled);
    let report = serde_json::to_value(simulation.report()).unwrap();
    let is_admission =
        |entry: &&Value| entry["event"] == "admitted" && entry["workload"] == format!("{NAMESPACE}/{name}");
    report["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .find(is_admission)
        .map(|entry| entry["seconds"].as_f64().unwrap())
}

/// CPUs and ages in minutes.
fn some(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(i64, i64)>> {
    prop::collection::vec((1..4_i64, 0..60_i64), count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// With one run time, the range is a point: the one at which `simulate` admits.
    #[test]
    fn one_run_time_gives_the_time_of_simulate(running in some(1..6), pending in some(1..6), is_strict: bool) {
        let used: i64 = running.iter().map(|(cpu, _)| cpu).sum();
        let strategy = if is_strict { "StrictFIFO" } else { "BestEffortFIFO" };
        let mut cluster = Cluster::new(used.max(3), strategy, "a");
        cluster.history("a", [60; 20]);
        for (number, (cpu, age)) in running.iter().enumerate() {
            cluster.running(&format!("r{number}"), "a", *cpu, *age);
        }
        for (number, (cpu, age)) in pending.iter().enumerate() {
            cluster.pending(&format!("p{number}"), "a", *cpu, *age);
        }
        for number in 0..pending.len() {
            let name = format!("p{number}");
            let range = cluster.ask(&name).unwrap();
            prop_assert_eq!(range.earliest, Some(range.latest));
            let found = range.latest.duration_since(now()).as_secs_f64();
            prop_assert_eq!(Some(found), simulated(&cluster, &name, SignedDuration::from_mins(60)), "{}", name);
        }
    }

    /// In a queue in strict order, nothing is admitted earlier because another runs for longer.
    #[test]
    fn longer_runs_admit_nothing_earlier(
        running in some(1..5), pending in some(2..6), longer in any::<prop::sample::Index>(), minutes in 1..200_i64,
    ) {
        let used: i64 = running.iter().map(|(cpu, _)| cpu).sum();
        let total = running.len() + pending.len();
        let longer = longer.index(total - 1);
        let ask = |more: i64| {
            let queues: Vec<String> = (0..total).map(|number| format!("q{number}")).collect();
            let mut cluster = Cluster::new(used.max(3), "StrictFIFO", &queues.join(" "));
            for (number, (cpu, age)) in running.iter().chain(&pending).enumerate() {
                let (queue, name) = (format!("q{number}"), format!("w{number}"));
                let length = 60 + if number == longer { more } else { 0 };
                cluster.history(&queue, (0..20).map(|step| length + step));
                if number < running.len() {
                    cluster.running(&name, &queue, *cpu, *age);
                } else {
                    // Oldest first.
                    cluster.pending(&name, &queue, *cpu, 100 - i64::try_from(number).unwrap());
                }
            }
            cluster.ask(&format!("w{}", total - 1)).unwrap()
        };
        let (before, after) = (ask(0), ask(minutes));
        prop_assert!(before.earliest <= Some(before.latest));
        prop_assert!(before.earliest <= after.earliest && before.latest <= after.latest, "{:?} {:?}", before, after);
    }
}

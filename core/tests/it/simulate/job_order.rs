//! The order of Jobs and Workloads in a simulation is that in which a cluster created them: by creation time, else as they
//! stand in the files.

use crate::fixtures::simulate_cluster::{
    bare_workload, empty_simulation, flavor, history, job, manifests, options, queue, report,
};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::simulate::{Simulation, Until};

/// The start of the simulation; creation times are given in minutes before it.
const START: i64 = 1_800_000_000;

/// Names, and creation times in minutes before the start.
type Entries = &'static [(&'static str, Option<i64>)];

/// A Job or Workload that needs the whole quota for a minute.
fn entry(name: &str, created: Option<i64>) -> Value {
    let annotations = json!({"sluice.dev/run-for": "1m"});
    let mut object = match name.strip_prefix("w-") {
        Some(_) => bare_workload(name, "q", &annotations),
        None => job(name, "q", 1, &annotations),
    };
    if let Some(minutes) = created {
        let at = jiff::Timestamp::from_second(START - 60 * minutes).unwrap();
        object["metadata"]["creationTimestamp"] = json!(at.to_string());
    }
    object
}

fn queues() -> Vec<Value> {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "1", &json!({"queueingStrategy": "StrictFIFO"})));
    objects
}

/// The names in the order in which they are admitted.
fn admission_order(simulation: &mut Simulation) -> Vec<String> {
    simulation.run(Until::Settled);
    let history = history(&report(simulation));
    let admitted = history.iter().filter_map(|line| line.split_once(" admitted team/"));
    admitted.map(|(_, name)| name.to_owned()).collect()
}

#[test]
fn creation_time_then_order_of_files() {
    let table: [(&str, Entries, &str); 6] = [
        (
            "times, also against the order of the file",
            &[("b", Some(5)), ("a", Some(9)), ("c", Some(7))],
            "a c b",
        ),
        ("no times", &[("zeta", None), ("alpha", None), ("mid", None)], "zeta alpha mid"),
        ("equal times", &[("zeta", Some(3)), ("alpha", Some(3)), ("mid", Some(3))], "zeta alpha mid"),
        (
            "an object without a time is created at the start",
            &[("z", None), ("a", Some(1)), ("y", None)],
            "a z y",
        ),
        ("a time in the future is the start", &[("z", Some(-5)), ("y", Some(-9)), ("a", Some(1))], "a z y"),
        (
            "Jobs and bare Workloads",
            &[("z", None), ("w-b", None), ("a", None), ("w-a", Some(2)), ("b", Some(1))],
            "w-a b z w-b a",
        ),
    ];
    for (case, entries, expected) in table {
        let mut simulation = empty_simulation();
        let mut objects = queues();
        objects.extend(entries.iter().map(|(name, created)| entry(name, *created)));
        simulation.apply_all(manifests(&objects));
        assert_eq!(admission_order(&mut simulation).join(" "), expected, "{case}");
        // The same in two files and in a list: the list has its place in the order.
        let mut parts = manifests(&objects[..4]);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects[4..]});
        parts.parse("second", &list.to_string(), "team");
        let mut simulation = empty_simulation();
        simulation.apply_all(parts);
        assert_eq!(admission_order(&mut simulation).join(" "), expected, "{case}, in two files");
    }
}

#[test]
fn later_changes_keep_creation_times_of_the_past() {
    let mut simulation = empty_simulation();
    let mut objects = queues();
    objects.extend([entry("running", Some(9)), entry("m", Some(5))]);
    simulation.apply_all(manifests(&objects));
    simulation.run_until_stable();
    simulation.apply_change(
        "more",
        manifests(&[entry("z", None), entry("y", None), entry("old", Some(7)), entry("a", Some(-1))]),
    );
    assert_eq!(admission_order(&mut simulation).join(" "), "running old m z y a");
}

#[test]
fn arriving_objects_are_created_when_they_arrive() {
    let arriving = |name: &str, after: &str| {
        let mut object = entry(name, Some(30));
        object["metadata"]["annotations"]["sluice.dev/arrives-after"] = json!(after);
        object
    };
    let mut objects = queues();
    objects.extend([arriving("z", "10s"), arriving("b", "10s"), entry("first", None), entry("second", None)]);
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    assert_eq!(admission_order(&mut simulation).join(" "), "first second z b");
}

/// Jobs that were exported without their Workloads.
#[test]
fn exported_jobs_keep_their_order() {
    let mut objects = queues();
    for (index, (name, minutes)) in [("a", 1), ("z", 9), ("m", 5)].into_iter().enumerate() {
        let mut object = entry(name, Some(minutes));
        object["metadata"]["uid"] = json!(format!("u{index}"));
        object["spec"]["suspend"] = json!(true);
        objects.push(object);
    }
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    assert_eq!(admission_order(&mut simulation).join(" "), "z m a");
}

/// A Workload that is created because a Job got a queue later is as old as that change.
#[test]
fn later_queue_name_does_not_take_the_creation_time() {
    let mut late = entry("late", Some(60));
    late["metadata"]["labels"] = json!({});
    late["spec"]["suspend"] = json!(true);
    let mut objects = queues();
    objects.extend([entry("running", None), entry("waiting", None), late.clone()]);
    let mut simulation = Simulation::new(options()).unwrap();
    simulation.apply_all(manifests(&objects));
    simulation.run(Until::After(SignedDuration::from_secs(10)));
    late["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "q"});
    simulation.apply_change("label", manifests(&[late]));
    assert_eq!(admission_order(&mut simulation).join(" "), "running waiting late");
}

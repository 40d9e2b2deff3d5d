//! Before when a pending workload is not admitted: scenarios whose answers follow by hand, and what a reader of a namespace gets.

use crate::fixtures::estimated_cluster;
use crate::fixtures::estimated_cluster::{Cluster, NAMESPACE};
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::simulate::estimate::Refusal;

const ANNOTATION: &str = "sluice.dev/expected-run-time";

/// Two CPUs with queues in which runs take 60 minutes (`a`), 20 to 39 minutes (`mixed`) or an unknown time (`none`).
fn cluster(cpu: i64) -> Cluster {
    let mut cluster = Cluster::new(cpu, "BestEffortFIFO", "a mixed none");
    cluster.history("a", [60; 20]);
    cluster.history("mixed", 20..40);
    cluster
}

/// The Job of the Workload that was added last.
fn job(cluster: &mut Cluster) -> &mut Value {
    let place = cluster.objects.len() - 2;
    &mut cluster.objects[place]
}

#[test]
fn bounds_follow_by_hand() {
    let ending = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    // Queue and age of each that runs, the CPUs that are asked for, and the bound in minutes.
    for (what, running, cpu, expected) in [
        (
            "one may end at any time, the other may not",
            &[("none", 5), ("a", 10)][..],
            2,
            Some((50, ending(&["r1"]))),
        ),
        ("the one that may end at any time is enough", &[("none", 5), ("a", 10)], 1, None),
        ("nothing is known", &[("none", 5), ("none", 5)], 2, None),
        ("the shortest of its earlier runs", &[("none", 5), ("mixed", 5)], 2, Some((15, ending(&["r1"])))),
        ("as long as the shortest", &[("none", 5), ("mixed", 25)], 2, None),
        ("longer than all", &[("none", 5), ("a", 61)], 2, None),
        ("both at once", &[("none", 5), ("a", 10), ("a", 10)], 3, Some((50, ending(&["r1", "r2"])))),
        ("a clock that is 5 minutes behind", &[("none", 5), ("a", -5)], 2, Some((65, ending(&["r1"])))),
    ] {
        let mut cluster = cluster(i64::try_from(running.len()).unwrap());
        for (number, (queue, age)) in running.iter().enumerate() {
            cluster.running(&format!("r{number}"), queue, 1, *age);
        }
        // What else waits may only delay it.
        cluster.pending("before", "none", 1, 9);
        cluster.pending("w", "a", cpu, 5);
        assert_eq!(cluster.not_before("w"), expected, "{what}");
    }
}

#[test]
fn an_annotation_is_expected_and_an_unreadable_one_is_named() {
    let ask = |text: &str, on_job: bool| {
        let mut cluster = cluster(2);
        cluster.running("unknown", "none", 1, 5);
        cluster.running("r", "none", 1, 10);
        let object = if on_job { job(&mut cluster) } else { cluster.objects.last_mut().unwrap() };
        object["metadata"]["annotations"] = json!({(ANNOTATION): text});
        cluster.pending("w", "a", 2, 5);
        let none = cluster.without_range(&ObjectKey::new(NAMESPACE, "w"), None);
        let unknown: Vec<String> = none.unknown.iter().map(|key| key.name.to_string()).collect();
        let ignored: Vec<String> =
            none.ignored.into_iter().map(|(key, why)| format!("{}: {why}", key.name)).collect();
        (none.not_before.map(|bound| estimated_cluster::minutes_of(&bound).0), unknown, ignored)
    };
    for on_job in [false, true] {
        assert_eq!(ask("1h30m", on_job), (Some(80), vec!["unknown".to_owned()], vec![]));
        for (text, why) in [
            ("90 minutes", "\"90 minutes\" is not a duration such as 2h30m"),
            ("5m", "it has run for longer than 5m"),
        ] {
            let (bound, unknown, ignored) = ask(text, on_job);
            assert_eq!((bound, unknown), (None, vec!["unknown".to_owned(), "r".to_owned()]), "{text}");
            assert_eq!(ignored, [format!("r: {why}")]);
        }
    }
    // It changes no decision: with all times known, the range is that of `simulate`.
    let mut cluster = cluster(1);
    cluster.running("r", "none", 1, 10)["metadata"]["annotations"] = json!({(ANNOTATION): "1h"});
    cluster.pending("w", "a", 1, 5);
    assert_eq!(cluster.range("w"), Ok((50, 50)));
    assert_eq!(cluster.ask("w").unwrap().expected, 1);
}

#[test]
fn what_may_be_preempted_bounds_nothing() {
    let ask = |policy: Value, priority: i64| {
        let mut cluster = cluster(2);
        let queue = cluster.objects.iter_mut().find(|object| object["kind"] == "ClusterQueue").unwrap();
        queue["spec"]["preemption"] = policy;
        cluster.running("unknown", "none", 1, 5)["spec"]["priority"] = json!(5);
        cluster.running("r", "a", 1, 10)["spec"]["priority"] = json!(5);
        cluster.pending("w", "a", 2, 5)["spec"]["priority"] = json!(priority);
        cluster.not_before("w").map(|(minutes, _)| minutes)
    };
    let lower = json!({"withinClusterQueue": "LowerPriority"});
    assert_eq!(ask(json!({}), 9), Some(50));
    assert_eq!(ask(lower.clone(), 5), Some(50));
    assert_eq!(ask(lower, 9), None);
}

#[test]
fn where_a_maximum_leaves_the_earliest_open_there_is_a_bound() {
    let mut cluster = cluster(2);
    estimated_cluster::with_maximum(cluster.running("open", "none", 1, 5), 90);
    cluster.running("r", "a", 1, 10);
    cluster.pending("w", "a", 2, 5);
    assert_eq!(cluster.bounds("w"), Ok((None, 85)));
    let bound = cluster.ask("w").unwrap().not_before.unwrap();
    assert_eq!(estimated_cluster::minutes_of(&bound), (50, vec!["r".to_owned()]));
}

/// Moves a Workload and its Job to the namespace of another tenant.
fn move_to_others(cluster: &mut Cluster, name: &str) {
    let of_name = cluster.objects.iter_mut().filter(|object| object["metadata"]["name"] == name);
    for object in of_name.filter(|object| object["kind"] == "Job" || object["kind"] == "Workload") {
        object["metadata"]["namespace"] = json!("others");
    }
}

#[test]
fn each_of_two_tenants_gets_a_bound_from_its_own_workloads() {
    let mut cluster = cluster(4);
    let mut queue = cluster.objects.iter().find(|o| o["kind"] == "LocalQueue").unwrap().clone();
    queue["metadata"]["namespace"] = json!("others");
    queue["metadata"]["uid"] = json!("LocalQueue-of-others");
    cluster.objects.push(queue);
    cluster.objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "others"}}));
    cluster.running("mine", "a", 3, 10);
    cluster.running("theirs", "none", 1, 5)["metadata"]["annotations"] =
        json!({(ANNOTATION): "theirs in 2h"});
    move_to_others(&mut cluster, "theirs");
    cluster.pending("w", "a", 2, 5);
    cluster.pending("their-next", "a", 2, 9);
    move_to_others(&mut cluster, "their-next");
    let ask = |namespace: &str, name: &str, reader: Option<&str>| {
        cluster.without_range(&ObjectKey::new(namespace, name), reader)
    };
    let own = ask(NAMESPACE, "w", Some(NAMESPACE));
    assert_eq!(
        estimated_cluster::minutes_of(own.not_before.as_ref().unwrap()),
        (50, vec!["mine".to_owned()])
    );
    assert_eq!((&own.refusal, own.unknown.len(), own.ignored.len()), (&Refusal::Hidden, 0, 0));
    assert!(!format!("{own:?} {}", own.refusal).contains("their"), "{own:?}");
    // What the other one runs may end at any time for all that it knows.
    let other = ask("others", "their-next", Some("others"));
    assert_eq!((&other.refusal, &other.not_before), (&Refusal::Hidden, &None));
    assert!(!format!("{other:?}").contains("mine"), "{other:?}");
    // A reader of both knows which one is unknown, and why.
    let all = ask(NAMESPACE, "w", None);
    assert_eq!(estimated_cluster::minutes_of(&all.not_before.unwrap()).0, 50);
    assert_eq!(all.unknown, [ObjectKey::new("others", "theirs")]);
    assert_eq!(all.ignored.len(), 1);
}

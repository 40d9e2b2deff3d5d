//! Messages in reports of `sluice simulate` name the field by its path, the value as it is written, and no empty names.

use crate::fixtures::simulate_cluster::{bare_workload, job, manifests, queue, report};
use crate::simulate::refusals::{problems_of, with_queues};
use serde_json::{Value, json};

#[test]
fn errors_name_path_value_and_range() {
    let minimum =
        |min: &str, pods: u32| job("j", "q", pods, &json!({"kueue.x-k8s.io/job-min-parallelism": min}));
    let path = "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]";
    let cases = [
        (minimum("0", 3), format!("{path}: Invalid value: 0: should be between 1 and 2")),
        (minimum("3", 3), format!("{path}: Invalid value: 3: should be between 1 and 2")),
        (
            minimum("1", 1),
            format!("{path}: Invalid value: 1: should be less than the parallelism, which is 1"),
        ),
    ];
    for (object, expected) in cases {
        let problems = problems_of(&object);
        assert!(
            problems.iter().all(|problem| problem.ends_with(&expected)) && problems.len() == 1,
            "{problems:?}"
        );
    }
    let mut negative = bare_workload("w", "q", &json!({}));
    negative["spec"]["podSets"][0]["count"] = json!(-3);
    let problems = problems_of(&negative);
    let expected = "spec.podSets[0].count: Invalid value: -3: should be greater than or equal to 0";
    assert!(problems[0].ends_with(expected), "{problems:?}");
    let weight = |weight: Value| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "c"},
            "spec": {"fairSharing": {"weight": weight}}})
    };
    for (value, shown) in
        [(json!("0.00000000001"), "\"0.00000000001\""), (json!(-2), "-2"), (json!("1n"), "\"1n\"")]
    {
        let problems = problems_of(&weight(value));
        assert!(problems[0].contains(&format!("spec.fairSharing: Invalid value: {shown}: ")), "{problems:?}");
    }
}

/// A Job that leaves its queue, and a LocalQueue without ClusterQueue: no message has an empty name.
#[test]
fn missing_queue_names_are_said() {
    let mut left = job("left", "q", 1, &json!({}));
    let mut simulation = with_queues();
    let mut full = job("full", "q", 9, &json!({}));
    full["metadata"]["name"] = json!("full");
    simulation.apply_all(manifests(&[full, left.clone()]));
    simulation.run_until_stable();
    left["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = Value::Null;
    simulation.apply_change("left", manifests(&[left]));
    simulation.run_until_stable();
    let end = report(&mut simulation);
    assert!(!end.to_string().contains("LocalQueue  "), "{end}");
    let mut nowhere = bare_workload("nowhere", "q", &json!({}));
    nowhere["spec"].as_object_mut().unwrap().shift_remove("queueName");
    let mut unset = queue("unset", "1", &json!({}))[1].clone();
    unset["spec"] = json!({});
    let lost = bare_workload("lost", "unset", &json!({}));
    let mut simulation = with_queues();
    simulation.apply_all(manifests(&[unset, nowhere, lost]));
    simulation.run_until_stable();
    let end = report(&mut simulation);
    let messages: Vec<&str> =
        end["pending"].as_array().unwrap().iter().map(|row| row["message"].as_str().unwrap()).collect();
    assert_eq!(
        messages,
        ["LocalQueue unset names no ClusterQueue", "The workload names no LocalQueue"],
        "{end}"
    );
}

//! Jobs for which no Workload exists: pending with the reason of their event, or not managed with the reason.

use crate::fixtures::simulate_cluster;
use crate::fixtures::simulate_cluster::{empty_simulation, flavor, job, manifests, options, queue, report};
use serde_json::{Value, json};
use sluice_core::simulate::{Changes, Start, Until, WhatIf};

/// A Job without a Workload: what makes it so, and the reason and message of the report.
type Case = (&'static str, fn(&mut Value), &'static str, &'static str);

fn label(job: &mut Value, key: &str, value: &str) {
    job["metadata"]["labels"][format!("kueue.x-k8s.io/{key}")] = json!(value);
}

#[test]
fn queued_job_without_workload_is_pending_with_its_reason() {
    let cases: [Case; 4] = [
        (
            "priority class",
            |job| label(job, "priority-class", "nosuch"),
            "WorkloadPriorityClassNotFound",
            "WorkloadPriorityClass \"nosuch\" not found",
        ),
        (
            "priority class of pods",
            |job| job["spec"]["template"]["spec"]["priorityClassName"] = json!("nosuch"),
            "ErrWorkloadCompose",
            "PriorityClass nosuch not found",
        ),
        (
            "prebuilt Workload",
            |job| label(job, "prebuilt-workload-name", "nosuch"),
            "PrebuiltWorkloadNotFound",
            "Workload team/nosuch doesn't exist",
        ),
        (
            "prebuilt Workload of another Job",
            |job| label(job, "prebuilt-workload-name", "taken"),
            "WorkloadNameConflict",
            "Workload team/taken belongs to another object",
        ),
    ];
    for (case, change, reason, message) in cases {
        let mut objects = vec![flavor()];
        objects.extend(queue("q", "2", &json!({})));
        let mut taken = simulate_cluster::bare_workload("taken", "q", &json!({}));
        taken["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "other",
            "uid": "other", "controller": true}]);
        let mut waiting = job("waiting", "q", 1, &json!({}));
        change(&mut waiting);
        objects.extend([taken, waiting]);
        let mut simulation = empty_simulation();
        simulation.apply_all(manifests(&objects));
        simulation.run_until_stable();
        let end = report(&mut simulation);
        let pending = end["pending"].as_array().unwrap();
        let row = pending.iter().find(|row| row["job"] == "team/waiting");
        let row = row.unwrap_or_else(|| panic!("{case}: {end}"));
        assert_eq!((&row["reason"], &row["message"]), (&json!(reason), &json!(message)), "{case}");
        assert_eq!((&row["clusterQueue"], &row["localQueue"]), (&json!("q"), &json!("q")), "{case}");
        assert!(row.get("workload").is_none() && row.get("position").is_none(), "{case}: {row}");
        assert_eq!(end["unqueued"], json!([]), "{case}");
        let tables = simulation.report().tables(10);
        assert!(
            tables.contains(&format!("{reason}  {message}")) && !tables.contains("Unmanaged"),
            "{tables}"
        );
    }
}

/// Lists know Workloads alone: what a change is said to leave pending must be the same number.
#[test]
fn a_comparison_counts_no_job_without_a_workload() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "1", &json!({})));
    objects.extend(["runs", "waits"].map(|name| job(name, "q", 1, &json!({}))));
    objects.push(job("large", "q", 2, &json!({})));
    let bad = |name: &str| {
        let mut bad = job(name, "q", 1, &json!({}));
        label(&mut bad, "priority-class", "nosuch");
        bad
    };
    objects.push(bad("bad"));
    let start = Start {
        options: options(),
        stored: Vec::new(),
        problems: Vec::new(),
        manifests: manifests(&objects),
    };
    let changes =
        Changes { files: vec![("worse".to_owned(), manifests(&[bad("worse")]))], edits: Vec::new() };
    let what_if =
        WhatIf { changes, namespace: "team".to_owned(), until: Until::Settled, watched: Vec::new() };
    let (found, report) = what_if.compare(start, None).unwrap();
    assert_eq!(report.pending.len(), 4, "{report:?}");
    for totals in [&found.without, &found.with] {
        let counts = totals.as_ref().map(|totals| (totals.pending, totals.stuck));
        assert_eq!(counts, Some((2, 1)), "{found:?}");
    }
    assert_eq!(found.stays_stuck.len(), 1, "{found:?}");
    let note = "team/worse has no Workload: WorkloadPriorityClass \"nosuch\" not found".to_owned();
    assert!(found.notes.contains(&note), "{:?}", found.notes);
    assert!(!found.notes.iter().any(|note| note.starts_with("team/bad ")), "{:?}", found.notes);
}

#[test]
fn missing_class_is_created_later() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "2", &json!({})));
    let mut waiting = job("waiting", "q", 1, &json!({}));
    label(&mut waiting, "priority-class", "late");
    objects.push(waiting);
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run_until_stable();
    let class = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "late"}, "value": 7});
    simulation.apply_change("class", manifests(&[class]));
    simulation.run_until_stable();
    let end = report(&mut simulation);
    assert_eq!((&end["pending"], &end["admitted"][0]["priority"]), (&json!([]), &json!(7)), "{end}");
}

#[test]
fn job_of_another_controller_is_not_managed() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "2", &json!({})));
    let mut other = job("other", "q", 1, &json!({}));
    other["spec"]["managedBy"] = json!("example.com/controller");
    objects.push(other);
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run_until_stable();
    let end = report(&mut simulation);
    let expected = "Job team/other: spec.managedBy names another controller, example.com/controller";
    assert_eq!((&end["notManaged"], &end["unqueued"]), (&json!([expected]), &json!([])));
}

/// Objects that their webhooks accept without a queue although no Workload could be made of them: they are listed as not subject to
/// quota. In a queue they are refused, or listed as not managed with the reason.
#[test]
fn what_is_in_no_queue_is_not_read_as_if_it_were_charged() {
    let ray = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "ray", "labels": {}},
        "spec": {"entrypoint": "a", "clusterSelector": {"ray.io/cluster": "shared"}}});
    let spark = json!({"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication",
        "metadata": {"name": "spark", "labels": {}}, "spec": {"type": "Scala", "mode": "cluster", "sparkVersion": "3.5",
        "image": "i", "mainClass": "M", "mainApplicationFile": "local:///a.jar", "dynamicAllocation": {"enabled": true},
        "driver": {"cores": 1, "memory": "4g"}, "executor": {"cores": 1, "memory": "4g"}}});
    let wrapper = json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": "wrapper", "labels": {}}, "spec": {"components": [{"podSets": [{"path": "template.spec.nowhere"}],
        "template": {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "foo"}, "spec": {}}}]}});
    // With a cluster beside the one that it selects, its webhook refuses it in a queue.
    let mut both = ray.clone();
    both["metadata"]["name"] = json!("both");
    both["spec"]["rayClusterSpec"] = json!({"headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [
        {"name": "c", "image": "i"}]}}}});
    for (object, rule) in [
        (both, "spec.clusterSelector: Invalid value"),
        (ray, "exists already"),
        (spark, "dynamicAllocation"),
        (wrapper, "is not the path of a pod template"),
    ] {
        let run = |object: &Value| {
            let mut objects = vec![flavor()];
            objects.extend(queue("q", "2", &json!({})));
            objects.push(object.clone());
            let mut simulation = empty_simulation();
            simulation.apply_all(manifests(&objects));
            simulation.run_until_stable();
            simulation.report()
        };
        let end = run(&object);
        let name = object["metadata"]["name"].as_str().unwrap();
        assert!(end.problems.is_empty(), "{name}: {:?}", end.problems);
        let listed = serde_json::to_value(&end).unwrap()["unqueued"].to_string();
        assert!(listed.contains(&format!("team/{name}")), "{name}: {listed}");
        let mut queued = object.clone();
        label(&mut queued, "queue-name", "q");
        let end = run(&queued);
        let said: Vec<String> = end.problems.iter().map(ToString::to_string).chain(end.not_managed).collect();
        assert!(said.iter().any(|text| text.contains(rule)), "{name}: {said:?}");
    }
}

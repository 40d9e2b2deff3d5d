//! What `simulate` refuses: fields, rules and annotations that a cluster would refuse or read differently, kinds that a server
//! does not have, and objects that are created twice; and what it names as not managed.

use crate::fixtures::simulate_cluster::{
    bare_workload, empty_simulation, flavor, job, manifests, queue, report,
};
use serde_json::{Value, json};
use sluice_core::simulate::{Manifests, Simulation};

/// The problems of a JSON document after the queues of these tests, as printed, without their location.
pub(crate) fn problems_of(object: &Value) -> Vec<String> {
    let mut simulation = with_queues();
    let mut manifests = Manifests::default();
    manifests.parse("m", &object.to_string(), "team");
    simulation.apply_all(manifests);
    simulation.run_until_stable();
    reasons(&mut simulation)
}

fn reasons(simulation: &mut Simulation) -> Vec<String> {
    simulation.report().problems.iter().map(|problem| problem.reason.clone()).collect()
}

pub(crate) fn with_queues() -> Simulation {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "9", &json!({})));
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation
}

/// A queued Job, changed at a pointer.
fn changed(pointer: &str, value: Value) -> Value {
    let mut object = job("j", "q", 1, &json!({}));
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

#[test]
fn unknown_and_mistyped_fields_of_jobs() {
    let container = "/spec/template/spec/containers/0";
    let table = [
        ("/spec/paralelism", json!(4), "spec.paralelism: Invalid value: unknown field"),
        ("/extra", json!({}), "extra: Invalid value: unknown field"),
        ("/metadata/lables", json!({}), "metadata.lables: Invalid value: unknown field"),
        (
            "/metadata/creationTimestamp",
            json!("yesterday"),
            "metadata.creationTimestamp: Invalid value: \"yesterday\": must be of type date-time",
        ),
        ("/metadata/labels/a", json!(1), "metadata.labels[a]: Invalid value: 1: must be of type string"),
        ("/spec/parallelism", json!("4"), "spec.parallelism: Invalid value: \"4\": must be of type int32"),
        ("/spec/parallelism", json!(1.5), "spec.parallelism: Invalid value: 1.5: must be of type int32"),
        ("/spec/suspend", json!("yes"), "spec.suspend: Invalid value: \"yes\": must be of type boolean"),
        (
            "/spec/template/spec/containers",
            json!({}),
            "spec.template.spec.containers: Invalid value: {}: must be of type array",
        ),
        (
            &format!("{container}/resources/limit"),
            json!({}),
            "spec.template.spec.containers[0].resources.limit: Invalid value: unknown field",
        ),
        (
            &format!("{container}/imagepull"),
            json!("x"),
            "spec.template.spec.containers[0].imagepull: Invalid value: unknown field",
        ),
        (
            "/spec/template/metadata",
            json!({"labels": {"a": "b"}, "anotations": {}}),
            "spec.template.metadata.anotations: Invalid value: unknown field",
        ),
    ];
    for (pointer, value, expected) in table {
        assert_eq!(problems_of(&changed(pointer, value)), [expected], "{pointer}");
    }
    let accepted = [
        ("/spec/template/metadata", json!({"creationTimestamp": null})),
        ("/spec/ttlSecondsAfterFinished", json!(null)),
        // Known to newer servers only.
        ("/spec/template/spec/hostnameOverride", json!("h")),
        ("/status", json!({"newer": true})),
    ];
    for (pointer, value) in accepted {
        assert_eq!(problems_of(&changed(pointer, value)), Vec::<String>::new(), "{pointer}");
    }
}

#[test]
fn unknown_and_mistyped_fields_of_other_kinds() {
    let others = [
        (
            "v1",
            "Node",
            json!({"spec": {"unschedulabel": true}}),
            "spec.unschedulabel: Invalid value: unknown field",
        ),
        (
            "v1",
            "LimitRange",
            json!({"spec": {"limits": [{"type": "Container", "maximum": {}}]}}),
            "spec.limits[0].maximum: Invalid value: unknown field",
        ),
        (
            "node.k8s.io/v1",
            "RuntimeClass",
            json!({"handler": 1}),
            "handler: Invalid value: 1: must be of type string",
        ),
        (
            "scheduling.k8s.io/v1",
            "PriorityClass",
            json!({"value": "1"}),
            "value: Invalid value: \"1\": must be of type int32",
        ),
        (
            "v1",
            "Namespace",
            json!({"spec": {"finalizer": []}}),
            "spec.finalizer: Invalid value: unknown field",
        ),
        ("v1", "Pod", json!({"spec": {"nodename": "n"}}), "spec.nodename: Invalid value: unknown field"),
        (
            "kueue.x-k8s.io/v1beta2",
            "ClusterQueue",
            json!({"metadata": {"name": "x", "label": {}}}),
            "metadata.label: Invalid value: unknown field",
        ),
    ];
    for (version, kind, rest, expected) in others {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}});
        for (field, value) in rest.as_object().unwrap() {
            object[field] = value.clone();
        }
        assert_eq!(problems_of(&object), [expected], "{kind}");
    }
}

#[test]
fn annotations_of_the_simulation_are_checked() {
    let table = [
        ("sluice.dev/run-for", json!("10 minutes"), "must be a duration"),
        ("sluice.dev/run-for", json!("-5m"), "must be a duration"),
        ("sluice.dev/run-for", json!("5"), "must be a duration"),
        ("sluice.dev/ready-after", json!("soon"), "must be a duration"),
        ("sluice.dev/terminate-after", json!("-1s"), "must be a duration"),
        ("sluice.dev/arrives-after", json!("late"), "must be a duration"),
        ("sluice.dev/exit-code", json!("abc"), "must be an exit code, 0 to 255"),
        ("sluice.dev/exit-code", json!("256"), "must be an exit code, 0 to 255"),
        ("sluice.dev/runs-for", json!("1m"), "unknown annotation of simulate"),
    ];
    for (name, value, detail) in table {
        let annotations = json!({name: value});
        let expected = format!("metadata.annotations[{name}]: Invalid value: {value}: {detail}");
        assert_eq!(problems_of(&job("j", "q", 1, &annotations)), [expected.as_str()]);
        assert_eq!(problems_of(&bare_workload("w", "q", &annotations)), [expected.as_str()]);
        let template = changed("/spec/template/metadata", json!({"annotations": annotations}));
        let detail =
            if name.ends_with("arrives-after") { "has an effect only on the object itself" } else { detail };
        let expected =
            format!("spec.template.metadata.annotations[{name}]: Invalid value: {value}: {detail}");
        assert_eq!(problems_of(&template), [expected.as_str()]);
    }
}

#[test]
fn same_object_is_not_created_twice() {
    let (first, mut second) = (job("same", "q", 1, &json!({})), job("same", "q", 2, &json!({})));
    second["spec"]["template"]["spec"]["containers"][0]["image"] = json!("y");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [first, second]});
    assert_eq!(problems_of(&list), ["jobs.batch \"same\" already exists"]);
    let mut simulation = with_queues();
    simulation.apply_all(manifests(&[flavor(), flavor()]));
    assert_eq!(reasons(&mut simulation), ["resourceflavors.kueue.x-k8s.io \"f\" already exists"]);
    // A change of what is there is an update, for which fields are immutable.
    let mut simulation = with_queues();
    simulation.apply_all(manifests(&[first]));
    simulation.run_until_stable();
    simulation.apply_change("change", manifests(&[second]));
    let expected = "[spec.completions: Invalid value: 2: field is immutable, spec.template: Invalid value: field is immutable]";
    assert_eq!(reasons(&mut simulation), [expected]);
    let mut moved = queue("q", "9", &json!({}))[1].clone();
    moved["spec"]["clusterQueue"] = json!("elsewhere");
    simulation.apply_change("moved", manifests(&[moved]));
    assert!(
        reasons(&mut simulation).contains(&"spec.clusterQueue: Invalid value: field is immutable".to_owned())
    );
}

#[test]
fn kinds_that_no_server_has_are_refused() {
    let object =
        |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}});
    let unknown = [
        ("kueue.x-k8s.io/v1beta2", "ClusterQueu"),
        ("kueue.x-k8s.io/v1beta2", "clusterQueue"),
        ("batch/v1", "job"),
        ("batch/v1", "Jobs"),
        ("v1", "Job"),
        ("v1", "Deployment"),
        ("apps/v1", "Deploymnt"),
        ("node.k8s.io/v1", "Runtimeclass"),
    ];
    for (version, kind) in unknown {
        let expected = format!("no matches for kind {kind:?} in version {version:?}");
        assert_eq!(problems_of(&object(version, kind)), [expected]);
    }
    let configuration = problems_of(&object("config.kueue.x-k8s.io/v1beta2", "Configuration"));
    assert!(configuration[0].contains("pass the configuration with --config"), "{configuration:?}");
    let mut simulation = empty_simulation();
    let known = [
        ("v1", "ConfigMap"),
        ("apps/v1", "DaemonSet"),
        ("kueue.x-k8s.io/v1beta2", "MultiKueueConfig"),
        ("example.com/v1", "Any"),
    ];
    simulation.apply_all(manifests(&known.map(|(version, kind)| object(version, kind))));
    let end = report(&mut simulation);
    let ignored = json!({"Any.example.com": 1, "ConfigMap": 1, "DaemonSet.apps": 1, "MultiKueueConfig.kueue.x-k8s.io": 1});
    assert_eq!((&end["ignored"], &end["notManaged"]), (&ignored, &json!([])));
}

#[test]
fn queued_objects_of_other_kinds_are_named() {
    let labels = json!({"kueue.x-k8s.io/queue-name": "q"});
    let object = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x", "labels": labels}});
    let objects = [object("batch/v1", "CronJob"), object("example.com/v1", "Render")];
    let mut simulation = with_queues();
    simulation.apply_all(manifests(&objects));
    let end = report(&mut simulation);
    let expected = json!([
        "CronJob team/x: a CronJob is not queued, and its Jobs are not simulated; they are queued if spec.jobTemplate has the label",
        "Render team/x: this version does not manage Render; it runs without quota",
    ]);
    assert_eq!((&end["notManaged"], &end["ignored"]), (&expected, &json!({})));
    let tables = simulation.report().tables(10);
    assert!(
        tables.contains("Not managed (a queue name without effect; not subject to quota)\n  CronJob team/x"),
        "{tables}"
    );
}

/// A number that is not finite is refused with its field; the other objects of the document are used.
#[test]
fn numbers_that_are_not_finite_name_object_and_field() {
    let quota = |number: &str| {
        format!(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {{name: c}}\nspec:\n  fairSharing:\n    weight: {number}\n"
        )
    };
    for number in [".nan", ".NaN", ".inf", "+.INF", "-.Inf"] {
        let mut simulation = empty_simulation();
        let mut manifests = Manifests::default();
        manifests.parse("m", &quota(number), "team");
        simulation.apply_all(manifests);
        let problems: Vec<String> = simulation.report().problems.iter().map(ToString::to_string).collect();
        let expected = format!(
            "m:6: Cohort c: spec.fairSharing.weight: Invalid value: {number:?}: must be a finite number"
        );
        assert_eq!(problems, [expected], "{number}");
    }
    // YAML beyond a double is a text, as for kubectl. JSON has no such number.
    let mut manifests = Manifests::default();
    manifests.parse("m", &quota("1e1000"), "team");
    assert_eq!(
        (manifests.problems, &manifests.objects[0].object["spec"]["fairSharing"]["weight"]),
        (vec![], &json!("1e1000"))
    );
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 1e1000}}]}"#;
    let mut manifests = Manifests::default();
    manifests.parse("m", list, "team");
    assert_eq!(manifests.objects.len(), 1);
    let problem = &manifests.problems[0];
    let expected = ("Job j", "spec.parallelism: Invalid value: \"1e1000\": must be a finite number");
    assert_eq!((problem.subject.as_str(), problem.reason.as_str()), expected);
}

/// In a list on one line, the line does not tell which item is meant.
#[test]
fn unnamed_items_of_a_list_are_named_by_their_place() {
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [1, {"kind": "Job"}, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}}, {"apiVersion": "v1", "kind": "List", "items": ["x"]}]}"#;
    let mut manifests = Manifests::default();
    manifests.parse("m", list, "team");
    let problems: Vec<String> = manifests.problems.iter().map(ToString::to_string).collect();
    let expected = [
        "m:1: items[0]: must be an object",
        "m:1: Job: items[1].apiVersion: Required value",
        "m:1: Job: items[2].metadata.name: Required value",
        "m:1: items[3].items[0]: must be an object",
    ];
    assert_eq!(problems, expected);
}

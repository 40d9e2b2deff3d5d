//! Manifests as users write them, valid and invalid: valid objects are used, and invalid ones are reported with their location.

use sluice_core::simulate::{Manifests, Simulation};

use crate::fixtures::simulate_cluster::{empty_simulation, options};

const FLAVOR: &str = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata:\n  name: f\n";

fn read(text: &str) -> Manifests {
    let mut manifests = Manifests::default();
    manifests.parse("m.yaml", text, "team");
    manifests
}

/// Problems that are reported for a text, as printed.
fn reported_problems(text: &str) -> Vec<String> {
    let mut simulation = empty_simulation();
    simulation.apply_all(read(text));
    simulation.report().problems.iter().map(ToString::to_string).collect()
}

#[test]
fn documents_lists_and_json_are_read() {
    let text = r#"# two documents and a list
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "a"}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: b, namespace: other}}
- {apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d}}
---
apiVersion: batch/v1
kind: JobList
items:
- {apiVersion: batch/v1, kind: Job, metadata: {generateName: j-}}
"#;
    let manifests = read(text);
    let actual: Vec<String> = manifests
        .objects
        .iter()
        .map(|m| {
            let text = |p: &str| m.object.pointer(p).and_then(|v| v.as_str()).unwrap_or("-").to_owned();
            format!(
                "{} {} {}/{}",
                m.location,
                text("/kind"),
                text("/metadata/namespace"),
                text("/metadata/name")
            )
        })
        .collect();
    let expected = [
        "m.yaml:2 Namespace -/other",
        "m.yaml:6 LocalQueue team/a",
        "m.yaml:8 LocalQueue other/b",
        "m.yaml:14 Job team/-",
    ];
    assert_eq!(actual, expected);
    assert!(manifests.problems.is_empty(), "{:?}", manifests.problems);
    assert_eq!(manifests.ignored.into_iter().collect::<Vec<_>>(), [("DaemonSet.apps".to_owned(), 1)]);
}

#[test]
fn invalid_documents_report_line_path_and_reason() {
    let table = [
        ("a: [1\nb: 2\n", "m.yaml:2: not YAML: "),
        ("---\nb: 0\na: 1\na: 2\n", "m.yaml:4: not YAML: duplicate mapping key: a not allowed here"),
        ("\n\n{\"a\": 1,\n \"b\": }\n", "m.yaml:4: not JSON: expected value"),
        ("- 1\n", "m.yaml:1: must be an object"),
        ("apiVersion: v1\nmetadata: {name: x}\n", "m.yaml:1: kind: Required value"),
        (
            "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {name: x}\n",
            "m.yaml:1: Cohort x: apiVersion: Unsupported value: \"kueue.x-k8s.io/v1beta1\"",
        ),
        (
            "kind: Cohort\nmetadata: {}\napiVersion: kueue.x-k8s.io/v1beta2\n",
            "m.yaml:2: Cohort: metadata.name: Required value",
        ),
        (
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata:\n  name: A_b\n",
            "m.yaml:4: ResourceFlavor A_b: metadata.name: Invalid value",
        ),
        (
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: x}\nspec:\n  nodeLabels: {}\n  colour: red\n",
            "m.yaml:6: ResourceFlavor x: spec.colour: Invalid value: unknown field",
        ),
        (
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec:\n  completions: 1\n  parallelism: many\n",
            "m.yaml:6: Job team/x: spec.parallelism: ",
        ),
        (
            "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: x\n  annotations:\n    sluice.dev/arrives-after: soon\n",
            "m.yaml:6: Job team/x: metadata.annotations[sluice.dev/arrives-after]: Invalid value: \"soon\": must be a duration",
        ),
    ];
    for (text, expected) in table {
        let problems = reported_problems(text);
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        assert!(problems[0].starts_with(expected), "{text}: {} instead of {expected}", problems[0]);
    }
}

/// The types of Kubernetes' own kinds accept any text as a quantity; a server does not.
#[test]
fn unparsable_quantity_is_refused() {
    let job = |amount: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j, labels: {{limits: one}}}}\nspec:\n  template:\n    spec:\n      \
             containers:\n      - name: c\n        resources:\n          requests: {{cpu: {amount}}}\n        image: x\n      restartPolicy: Never\n"
        )
    };
    for valid in ["1", "1.5", "\"1\"", "100m", "1e3", "~"] {
        assert_eq!(reported_problems(&job(valid)), Vec::<String>::new(), "{valid}");
    }
    let field = "spec.template.spec.containers[0].resources.requests[cpu]";
    for invalid in ["one", "1Qi", "[]", "true"] {
        let problems = reported_problems(&job(invalid));
        assert!(
            problems[0].starts_with(&format!("m.yaml:10: Job team/j: {field}: Invalid value")),
            "{problems:?}"
        );
    }
    let problems_of = |kind: &str, rest: &str| {
        reported_problems(&format!("apiVersion: {kind}\nmetadata: {{name: x}}\n{rest}\n"))
    };
    let node = problems_of("v1\nkind: Node", "status: {allocatable: {cpu: lots}}");
    assert!(
        node[0].starts_with("m.yaml:4: Node x: status.allocatable[cpu]: Invalid value: \"lots\""),
        "{node:?}"
    );
    let class = "handler: h\noverhead: {podFixed: {cpu: lots}}";
    let class = problems_of("node.k8s.io/v1\nkind: RuntimeClass", class);
    assert!(class[0].contains("overhead.podFixed[cpu]: Invalid value: \"lots\""), "{class:?}");
    let range = problems_of("v1\nkind: LimitRange", "spec: {limits: [{type: Container, max: {cpu: lots}}]}");
    assert!(range[0].contains("spec.limits[0].max[cpu]: Invalid value: \"lots\""), "{range:?}");
}

/// kubectl sends `2.0` and `1e1` as 2 and 10.
#[test]
fn whole_numbers_in_every_notation_are_read() {
    let pods = "{spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}";
    let job = |counts: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j}}\nspec: {{{counts}, template: {pods}}}\n"
        )
    };
    let workload = format!(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\nmetadata: {{name: w}}\n\
         spec: {{queueName: q, priority: -4.0, podSets: [{{name: main, count: 3.0, template: {pods}}}]}}\n"
    );
    let queued = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: q}\nspec: {clusterQueue: none}\n";
    let mut simulation = empty_simulation();
    simulation
        .apply_all(read(&[&job("parallelism: 2.0, completions: 1e1"), queued, &workload].join("---\n")));
    let report = simulation.report();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(report.pending[0].priority, -4);
    for (counts, field) in [("parallelism: 2.5", "parallelism"), ("completions: 1e10", "completions")] {
        let problems = reported_problems(&job(counts));
        assert!(
            problems.len() == 1
                && problems[0].contains(&format!("spec.{field}: Invalid value: "))
                && problems[0].ends_with(": must be of type int32"),
            "{problems:?}"
        );
    }
}

#[test]
fn non_string_name_is_refused() {
    let problems = reported_problems("apiVersion: v1\nkind: Node\nmetadata: {name: 5}\n");
    assert_eq!(problems, ["m.yaml:3: Node: metadata.name: Invalid value: must be a string"]);
}

#[test]
fn nested_field_error_names_line() {
    let text = "apiVersion: v1
kind: List
items:
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: Cohort
  metadata: {name: fine}
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: ClusterQueue
  metadata:
    name: q
  spec:
    namespaceSelector: {}
    resourceGroups:
    - coveredResources: [cpu]
      flavors:
      - name: f
        resources:
        - name: cpu
          nominalQuota: -4
";
    let problems = reported_problems(text);
    let path = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota";
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].starts_with(&format!("m.yaml:19: ClusterQueue q: {path}: Invalid value")),
        "{problems:?}"
    );
}

/// As at a server: a webhook defaults a new ClusterQueue before its schema is validated; a Cohort has no such webhook.
#[test]
fn missing_quota_is_zero_only_for_cluster_queue() {
    let manifest = |kind: &str, resource: &str| {
        format!(
            "apiVersion: kueue.x-k8s.io/v1beta2
kind: {kind}
metadata: {{name: x}}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {{name: f, resources: [{resource}]}}
"
        )
    };
    assert_eq!(reported_problems(&manifest("ClusterQueue", "{name: cpu}")), Vec::<String>::new());
    let mut simulation = empty_simulation();
    simulation.apply_all(read(&manifest("ClusterQueue", "{name: cpu}")));
    simulation.run_until_stable();
    assert_eq!(simulation.report().queues.len(), 1);
    let problems = reported_problems(&manifest("Cohort", "{name: cpu}"));
    let path = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota";
    assert!(problems[0].ends_with(&format!("Cohort x: {path}: Required value")), "{problems:?}");
}

#[test]
fn valid_documents_apply_beside_invalid_documents() {
    let text = format!("{FLAVOR}---\nkind: [\n---\n{}", FLAVOR.replace("name: f", "name: g"));
    let mut simulation = Simulation::new(options()).unwrap();
    simulation.apply_all(read(&text));
    simulation.run_until_stable();
    let report = simulation.report();
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    let repeated = read(FLAVOR);
    simulation.apply_change("again", repeated);
    assert_eq!(simulation.report().problems.len(), 1);
}

#[test]
fn exported_objects_load_or_report_location() {
    let stored = |spec: &str| {
        format!(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {{name: x, uid: abc}}\nspec: {spec}\n"
        )
    };
    assert_eq!(reported_problems(&stored("{}")), Vec::<String>::new());
    let problems = reported_problems(&stored("many"));
    assert!(problems[0].starts_with("m.yaml:4: Cohort x: spec: Invalid value"), "{problems:?}");
}

/// A Workload that a cluster has stored holds 3 of 4 CPU, whatever the rest of its status says.
#[test]
fn stored_workload_keeps_quota_with_any_status() {
    let objects = |status: &str| {
        format!(
            "{FLAVOR}---
{{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {{name: cq}}, spec: {{namespaceSelector: {{}}, resourceGroups: [
  {{coveredResources: [cpu], flavors: [{{name: f, resources: [{{name: cpu, nominalQuota: 4}}]}}]}}]}}}}
---
{{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {{name: q, namespace: team}}, spec: {{clusterQueue: cq}}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {{name: running, namespace: team, uid: u1}}
spec:
  queueName: q
  podSets: [&set {{name: main, count: 1, template: {{spec: {{restartPolicy: Never, containers: [
    {{name: c, image: i, resources: {{requests: {{cpu: 3}}}}}}]}}}}}}]
status:
  admission:
    clusterQueue: cq
    podSetAssignments: [{{name: main, count: 1, flavors: {{cpu: f}}, resourceUsage: {{cpu: 3}}}}]
  conditions:
  - {{type: QuotaReserved, status: 'True', reason: a, message: m, lastTransitionTime: '9999-12-31T23:59:59Z'}}
  - {{type: Admitted, status: 'True', reason: a, message: m, lastTransitionTime: '2026-01-01T00:00:00.0123456789Z'}}
  {status}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {{name: next, namespace: team}}
spec:
  queueName: q
  podSets: [{{name: main, count: 1, template: {{spec: {{restartPolicy: Never, containers: [
    {{name: c, image: i, resources: {{requests: {{cpu: 3}}}}}}]}}}}}}]
"
        )
    };
    let time = "9999-12-31T23:59:59.0123456789Z";
    for status in [
        String::new(),
        format!("requeueState: {{count: 1, requeueAt: '{time}'}}"),
        format!("admissionChecks: [{{name: c, state: Later, message: '', lastTransitionTime: '{time}'}}]"),
        format!("preemptionGates: [{{name: g, position: Ajar, lastTransitionTime: '{time}'}}]"),
        "later: {a: b}".to_owned(),
        "unhealthyNodes: many".to_owned(),
    ] {
        let mut simulation = empty_simulation();
        simulation.apply_all(read(&objects(&status)));
        simulation.run_until_stable();
        let report = serde_json::to_value(simulation.report()).unwrap();
        let admitted = report["admitted"].as_array().unwrap();
        let names: Vec<&str> = admitted.iter().map(|row| row["workload"].as_str().unwrap()).collect();
        assert_eq!(names, ["team/running"], "{status}: {report:#}");
    }
}

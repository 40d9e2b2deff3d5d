//! Changes of single fields in `simulate`, comparisons of two runs, and reports about few workloads.

use crate::fixtures::simulate_command::{QUEUES, TestFolder, run_simulate};
use serde_json::Value;

fn job(name: &str, pods: u32) -> String {
    format!(
        "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, labels: {{kueue.x-k8s.io/queue-name: q}}}}\nspec:\n  parallelism: {pods}\n  completions: {pods}\n  template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: x, resources: {{requests: {{cpu: 1}}}}}}]}}}}\n"
    )
}

/// A quota of one CPU, a job that has it, and a job that waits for it.
fn jobs() -> String {
    format!("{QUEUES}{}{}", job("first", 1), job("second", 1))
}

/// Nodes of 4 CPU in a flavor with a topology, and a job of 2 pods of 2 CPU on one of them.
fn nodes() -> String {
    let node = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}}\nstatus: {{allocatable: {{cpu: 4, pods: 10}}, conditions: [{{type: Ready, status: \"True\"}}]}}\n"
        )
    };
    let topology = "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata: {name: t}\nspec: {levels: [{nodeLabel: kubernetes.io/hostname}]}\n";
    let queues = QUEUES
        .replace(
            "metadata: {name: f}",
            "metadata: {name: f}\nspec: {topologyName: t, nodeLabels: {kubernetes.io/os: linux}}",
        )
        .replace("nominalQuota: 1", "nominalQuota: 8");
    let job = job("placed", 2).replace("cpu: 1", "cpu: 2").replace(
        "template: {",
        "template: {metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: kubernetes.io/hostname}}, ",
    );
    let node = |name| node(name).replace("labels: {", "labels: {kubernetes.io/os: linux, ");
    format!("{queues}{topology}{}{}{job}", node("n1"), node("n2"))
}

#[test]
fn comparison_shows_what_a_change_does() {
    let run = |format: &str| {
        let change = ["--quota", "q:f:cpu=2", "--compare", "--run-for", "10m", "-o", format, "-"];
        run_simulate(&change, &jobs())
    };
    let expected = "
                  WITHOUT    WITH
admitted in 20m         2       2
evicted                 0       0
  preempted             0       0
finished in 20m         2       2
pending                 0       0
  stuck                 0       0
default/second     at 10m   at 0s   earlier
1 workload fares differently: 1 earlier.

        NODES    QUOTA
f cpu       -   1 -> 2

Assumed:
  nothing else arrives, and nothing else changes
";
    let (code, table, errors) = run("table");
    assert_eq!((code, format!("\n{table}").as_str(), errors.as_str()), (0, expected, ""));
    let (_, json, _) = run("json");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["without"]["seconds"], &json["with"]["seconds"]), (&1200.0.into(), &600.0.into()));
    assert_eq!(json["workloads"].as_array().unwrap().len(), 1);
    assert_eq!(json["workloads"][0]["job"], "default/second");
    assert_eq!(json["workloads"][0]["without"]["admittedAt"], 600.0);
    assert_eq!(json["workloads"][0]["with"]["admittedAt"], 0.0);
}

#[test]
fn comparison_names_the_preemptor_and_the_blocker() {
    let preemption = "spec.preemption={\"withinClusterQueue\": \"LowerPriority\"}";
    let change = ["--set", preemption, "cq/q", "--priority", "job/second=300", "--compare", "-"];
    let (code, table, errors) = run_simulate(&change, &jobs());
    let expected = "
                 WITHOUT              WITH
admitted in 0s         1                 2
evicted                0                 1
  preempted            0                 1
finished in 0s         0                 0
pending                1                 1
  stuck                0                 0
default/first      at 0s   preempted at 0s   evicted; preempted by default/second; blocked by ClusterQueue q: 0 of 1 cpu
default/second   pending             at 0s   earlier
2 workloads fare differently: 1 earlier, 1 evicted.

Assumed:
  1 running job has no known end and goes on; --run-for gives one
  nothing else arrives, and nothing else changes
";
    assert_eq!((code, format!("\n{table}").as_str(), errors.as_str()), (0, expected, ""));
    // A change that changes nothing for anyone; a watched workload is shown all the same.
    let (_, table, _) = run_simulate(&["--quota", "q:f:cpu=1", "--compare", "-"], &jobs());
    assert!(
        table.contains("No workload fares differently.\n\nAssumed:\n  1 running job has no known end"),
        "{table}"
    );
    let watched = ["--quota", "q:f:cpu=1", "--compare", "--watch-for", "job/second", "-"];
    let (_, table, _) = run_simulate(&watched, &jobs());
    assert!(
        table.contains("default/second   pending   pending   blocked by ClusterQueue q: 0 of 1 cpu\n"),
        "{table}"
    );
}

#[test]
fn watched_workloads_come_first_and_alone() {
    let input = format!("{}{}", jobs(), job("third", 1));
    let watch = ["--stop", "job/first", "--watch-for", "job/second", "--watch-for", "job/first", "-"];
    let (code, text, errors) = run_simulate(&watch, &input);
    assert_eq!((code, errors.as_str()), (0, ""));
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("default/first is stuck after 0s: Deactivated: ")
            && lines[1] == "default/second is admitted after 0s in ClusterQueue q",
        "{text}"
    );
    assert!(text.contains("  0s    evicted         default/first   q"), "{text}");
    assert!(!text.contains("third"), "{text}");
    let (code, _, errors) = run_simulate(&["--watch-for", "job/fist", "-"], &input);
    assert_eq!((code, errors.as_str()), (1, "sluice: Job default/fist not found; similar: first\n"));
}

#[test]
fn short_forms_equal_files() {
    let report = |arguments: &[&str], then: &str| {
        let folder = TestFolder::new("short-forms");
        let input = folder.write(
            "input.yaml",
            jobs().replace("metadata: {name: q}\nspec:\n", "metadata: {name: q}\nspec:\n  cohortName: c\n"),
        );
        let file = folder.write("then.yaml", then);
        let mut all = vec![input.as_str(), "-o", "json"];
        all.extend(if then.is_empty() { arguments.to_vec() } else { vec!["--then", &file] });
        let (code, output, errors) = run_simulate(&all, "");
        assert_eq!((code, errors.as_str()), (0, ""), "{arguments:?} {then}");
        let mut report: Value = serde_json::from_str(&output).unwrap();
        report["timeline"].as_array_mut().unwrap().retain(|entry| entry["event"] != "changed");
        report
    };
    let queue = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: q}\nspec: ";
    let amounts = |text: &str| {
        format!(
            "{queue}{{resourceGroups: [{{coveredResources: [cpu], flavors: [{{name: f, resources: [{{name: cpu, nominalQuota: {text}}}]}}]}}]}}"
        )
    };
    let workload = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: second, namespace: default, labels: {kueue.x-k8s.io/priority-class: p}}\n---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: p}\nvalue: 7\n";
    for (arguments, then) in [
        (["--quota", "q:f:cpu=2", ""], amounts("2")),
        (["--borrow", "cq/q:f:cpu=5", ""], amounts("1, borrowingLimit: 5")),
        (["--lend", "ClusterQueue.kueue.x-k8s.io/q:f:cpu=0", ""], amounts("1, lendingLimit: 0")),
        (["--stop", "clusterqueues/q", ""], format!("{queue}{{stopPolicy: HoldAndDrain}}")),
        (["--set", "spec.stopPolicy=Hold", "cq/q"], format!("{queue}{{stopPolicy: Hold}}")),
        (["--set", "metadata.labels['example.com/a']=\"1\"", "lq/q"], "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: q, namespace: default, labels: {example.com/a: \"1\"}}".to_owned()),
    ] {
        let given: Vec<&str> = arguments.iter().copied().filter(|word| !word.is_empty()).collect();
        assert_eq!(report(&given, ""), report(&[], &then), "{arguments:?}");
    }
    // The class has another name.
    assert_eq!(report(&["--priority", "job/second=7"], "")["pending"][0]["priority"], 7);
    assert_eq!(report(&[], workload)["pending"][0]["priority"], 7);
}

#[test]
fn drained_nodes_are_replaced_or_missed() {
    let place = |arguments: &[&str]| {
        let mut all = vec!["-o", "json", "--until", "10m", "-"];
        all.extend(arguments);
        let (code, output, errors) = run_simulate(&all, &nodes());
        assert_eq!((code, errors.as_str()), (0, ""), "{arguments:?}");
        let report: Value = serde_json::from_str(&output).unwrap();
        let set = &report["admitted"][0]["podSets"][0];
        let host = &set["topologyAssignment"]["slices"][0]["valuesPerLevel"][0]["universal"];
        (host.as_str().unwrap_or_default().to_owned(), report)
    };
    let (first, _) = place(&[]);
    let other = if first == "n1" { "n2" } else { "n1" };
    assert_eq!(place(&["--drain-node", &first]).0, other, "its pods go to the node that is left");
    assert_eq!(place(&["--drain-node", other]).0, first);
    let (_, report) = place(&["--drain-node", "n1", "--drain-node", "node/n2"]);
    assert_eq!(report["admitted"].as_array().unwrap().len(), 0, "{report}");
    assert_eq!(report["pending"][0]["reason"], "TopologyPlacementFailed", "{report}");
}

/// The pods of a group move to the node that is left; a single pod cannot, and its node stays listed as failed. Both settle.
#[test]
fn pod_groups_leave_drained_nodes() {
    let folder = TestFolder::new("drained-pods");
    let config = folder.write(
        "config.yaml",
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {frameworks: [batch/job, pod]}\n",
    );
    let pod = |annotations: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p, labels: {{kueue.x-k8s.io/queue-name: q}}, annotations: {{kueue.x-k8s.io/podset-unconstrained-topology: \"true\"{annotations}}}}}\nspec: {{containers: [{{name: c, image: x, resources: {{requests: {{cpu: 1}}}}}}]}}\n"
        )
    };
    let group = ", kueue.x-k8s.io/pod-group-name: g, kueue.x-k8s.io/pod-group-total-count: \"1\"";
    let nodes = nodes();
    let nodes = nodes.split("---\napiVersion: batch/v1").next().unwrap();
    for (annotations, moves) in [(group, true), ("", false)] {
        let place = |drained: &[&str]| {
            let mut arguments = vec!["--config", &config, "-o", "json", "--until", "1h", "-"];
            arguments.extend(drained);
            let (code, output, errors) = run_simulate(&arguments, &format!("{nodes}{}", pod(annotations)));
            assert_eq!(code, 0, "{annotations}: {errors}");
            let report: Value = serde_json::from_str(&output).unwrap();
            let set = &report["admitted"][0]["podSets"][0];
            let host = &set["topologyAssignment"]["slices"][0]["valuesPerLevel"][0]["universal"];
            assert_eq!(report["end"]["settled"], true, "{annotations}: {report}");
            host.as_str().unwrap_or_default().to_owned()
        };
        let first = place(&[]);
        let other = if first == "n1" { "n2" } else { "n1" };
        assert_eq!(place(&["--drain-node", &first]), if moves { other } else { &first }, "{annotations}");
    }
}

#[test]
fn wrong_changes_are_refused() {
    for (arguments, code, error) in [
        (["--set", "spec.x=1", "cq/q"], 1, "--set spec.x=1 cq/q: spec.x: Invalid value: unknown field"),
        (["--set", "spec.x=1", "cq/r"], 1, "--set spec.x=1 cq/r: ClusterQueue r not found"),
        (["--set", "status.pendingWorkloads=1", "cq/q"], 1, "its status is written by controllers alone"),
        (
            ["--set", "spec.resourceGroups[1].flavors[2]=1", "cq/q"],
            1,
            "spec.resourceGroups[1].flavors[2]: the list has 0 items",
        ),
        (["--set", "spec.stopPolicy=Halt", "cq/q"], 1, "spec.stopPolicy"),
        (["--set", "spec", "cq/q"], 2, "'spec cq/q' for '--set': FIELD=VALUE is expected, not \"spec\""),
        (["--set", "a..b=1", "cq/q"], 2, "\"a..b\": the name of a field is expected (column 2)"),
        (["--set", "a=1", "q"], 2, "KIND/NAME is expected, not \"q\""),
        (["--set", "a=1", "cq/Q"], 2, "\"Q\" is no name"),
        (["--quota", "q:f:cpu=many", ""], 2, "\"many\" is no quantity"),
        (["--quota", "q:f:cpu=none", ""], 2, "\"none\" is no quantity"),
        (["--quota", "q:cpu=1", ""], 2, "QUEUE:FLAVOR:RESOURCE=QUANTITY is expected"),
        (["--quota", "lq/q:f:cpu=1", ""], 2, "a ClusterQueue or Cohort is expected"),
        (
            ["--quota", "q:f:memory=1", ""],
            1,
            "ClusterQueue q has no quota for memory in flavor f; it has f:cpu",
        ),
        (["--quota", "q:f:cpu=-1", ""], 1, "nominalQuota"),
        (["--borrow", "q:f:cpu=1", ""], 1, "borrowingLimit"),
        (["--drain-node", "n", ""], 1, "--drain-node n: Node n not found"),
        (["--stop", "rf/f", ""], 2, "a job, a Workload, a ClusterQueue or a LocalQueue is expected"),
        (["--stop", "jop/x", ""], 2, "\"jop\" is no kind; similar: job"),
        (["--priority", "job/first", ""], 2, "KIND/NAME=CLASS is expected"),
        (["--priority", "job/first=9999999999", ""], 2, "a priority is at most 2147483647"),
        (["--priority", "job/first=high", ""], 1, "WorkloadPriorityClass high not found"),
        (["--compare", "", ""], 2, "--quota"),
    ] {
        let mut given: Vec<&str> = arguments.into_iter().filter(|word| !word.is_empty()).collect();
        given.push("-");
        let (status, output, errors) = run_simulate(&given, &jobs());
        assert_eq!((status, output.as_str()), (code, ""), "{arguments:?}: {errors}");
        assert!(errors.contains(error), "{arguments:?}: {errors}");
    }
}

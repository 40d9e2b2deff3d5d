//! `sluice what-if` on a dump: what each change does, what nodes and quotas have, bad input, and the texts of all that, which
//! `make expected` writes.

use crate::fixtures::estimated_cluster::Cluster;
use crate::fixtures::people_server::PeopleServer;
use crate::fixtures::root;
use crate::fixtures::simulate_command::{QUEUES, TestFolder, run_simulate};
use crate::fixtures::written_files::{Written, check_or_write};
use crate::people::when::server_of;
use serde_json::{Value, json};
use std::process::Command;

const HEADER: &str =
    "apiVersion: sluice.dev/v1\nkind: Dump\ntime: \"2026-11-26T14:00:00Z\"\nversion: test\n---";

fn job(name: &str, pods: u32, cpu: u32) -> String {
    format!(
        "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, namespace: default, labels: {{kueue.x-k8s.io/queue-name: q}}}}\nspec:\n  suspend: true\n  parallelism: {pods}\n  completions: {pods}\n  template: {{metadata: {{annotations: {{kueue.x-k8s.io/podset-required-topology: kubernetes.io/hostname}}}}, spec: {{restartPolicy: Never, containers: [{{name: c, image: x, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}\n"
    )
}

/// A quota of one CPU, a job that gets it, and one that waits for it.
fn jobs() -> String {
    let plain = |name: &str| {
        job(name, 1, 1).replace(
            "metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: kubernetes.io/hostname}}, ",
            "",
        )
    };
    let queues = QUEUES.replace(
        "namespaceSelector: {}",
        "namespaceSelector: {}\n  preemption: {withinClusterQueue: LowerPriority}",
    );
    format!("{queues}{}{}", plain("first"), plain("second"))
}

/// A node of 4 CPU in a flavor with a topology and a quota of 8, a job that fills the node, and one that waits for it.
fn nodes() -> String {
    let topology = "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata: {name: t}\nspec: {levels: [{nodeLabel: kubernetes.io/hostname}]}\n";
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {kubernetes.io/os: linux, kubernetes.io/hostname: n1}}\nstatus: {allocatable: {cpu: 4, pods: 10}, conditions: [{type: Ready, status: \"True\"}]}\n";
    let queues = QUEUES
        .replace(
            "metadata: {name: f}",
            "metadata: {name: f}\nspec: {topologyName: t, nodeLabels: {kubernetes.io/os: linux}}",
        )
        .replace("nominalQuota: 1", "nominalQuota: 8");
    format!("{queues}{topology}{node}{}{}", job("first", 2, 2), job("second", 2, 2))
}

/// Returns exit status, standard output and standard error.
fn what_if(name: &str, objects: &str, arguments: &[&str]) -> (i32, String, String) {
    let folder = TestFolder::new(&format!("what-if-{name}"));
    let dump = folder.write("dump.yaml", format!("{HEADER}{objects}"));
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["what-if", "--source", &dump, "-n", "default"])
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn answer(name: &str, objects: &str, arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.extend(["-o", "json"]);
    let (code, output, errors) = what_if(name, objects, &all);
    assert_eq!(code, 0, "{arguments:?}: {errors}");
    serde_json::from_str(&output).unwrap()
}

/// Effect and job of each workload.
fn effects(answer: &Value) -> Vec<String> {
    let rows = answer["workloads"].as_array().unwrap().iter();
    rows.map(|row| format!("{} {}", row["job"].as_str().unwrap(), row["effect"].as_str().unwrap())).collect()
}

#[test]
fn each_change_has_its_effect() {
    let submitted = TestFolder::new("what-if-submitted");
    let file = submitted.write("third.yaml", job("third", 1, 1).replace("suspend: true", "suspend: false"));
    for (name, arguments, expected) in [
        ("quota", vec!["--quota", "q:f:cpu=2"], vec!["default/second earlier"]),
        (
            "priority",
            vec!["--priority", "job/second=300"],
            vec!["default/first evicted", "default/second earlier"],
        ),
        ("stop", vec!["--stop", "job/first"], vec!["default/first evicted", "default/second earlier"]),
        ("delete", vec!["--delete", "job/first"], vec!["default/second earlier", "default/first deleted"]),
        ("submit", vec!["--submit", file.as_str()], vec!["default/third created"]),
        (
            "two",
            vec!["--delete", "job/first", "--quota", "q:f:cpu=5"],
            vec!["default/second earlier", "default/first deleted"],
        ),
    ] {
        assert_eq!(effects(&answer(name, &jobs(), &arguments)), expected, "{arguments:?}");
    }
}

/// `why` names a nominal quota of the cohort, which is asked as it is named, also if the Cohort has no object or no quota.
#[test]
fn a_cohort_gets_the_quota_that_it_does_not_have() {
    let implied = jobs().replace("namespaceSelector: {}", "namespaceSelector: {}\n  cohortName: team");
    let stored =
        format!("{implied}---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {{name: team}}\n");
    for (name, objects) in [("implied", &implied), ("stored", &stored)] {
        let found = answer(name, objects, &["--quota", "cohort/team:f:cpu=1"]);
        assert_eq!(effects(&found), ["default/second earlier"], "{name}: {found}");
        let note = "Cohort team gets a quota of its own, which it does not have";
        assert_eq!(found["notes"], json!([note]), "{name}: {found}");
        for (value, refused) in [
            ("cohort/team:g:cpu=1", "Cohort team has no quota for cpu in flavor g; it has no quota"),
            ("cohort/taem:f:cpu=1", "Cohort taem not found"),
        ] {
            let (code, _, errors) = what_if("no-cohort-quota", objects, &["--quota", value]);
            assert!(code == 1 && errors.contains(refused), "{name}: {errors}");
        }
    }
}

#[test]
fn nodes_add_no_quota_and_drains_evict() {
    let added = answer("added", &nodes(), &["--add-nodes", "1", "--like", "n1"]);
    assert_eq!(effects(&added), ["default/second earlier"], "{added}");
    let flavor = &added["flavors"][0];
    assert_eq!((&flavor["nodesWithout"], &flavor["nodesWith"]), (&"4".into(), &"8".into()), "{flavor}");
    assert_eq!((&flavor["quotaWithout"], &flavor["quotaWith"]), (&"8".into(), &"8".into()), "{flavor}");
    assert_eq!(flavor["remark"], "adding nodes adds no quota: --quota raises it");
    let raised = answer("raised", &nodes(), &["--quota", "q:f:cpu=16"]);
    assert_eq!(effects(&raised), [""; 0], "no node, no place: {raised}");
    let remark = raised["flavors"][0]["remark"].as_str().unwrap();
    assert_eq!(remark, "a quota adds no nodes: 12 of it have none, so admitted pods may find no place");
    let drained = answer("drained", &nodes(), &["--drain", "n1", "--until", "10m"]);
    assert!(effects(&drained).contains(&"default/first evicted".to_owned()), "{drained}");
    assert_eq!((&drained["without"]["evicted"], &drained["without"]["preempted"]), (&0.into(), &0.into()));
    assert!(drained["with"]["evicted"].as_u64() >= Some(1), "{drained}");
    assert_eq!(drained["with"]["preempted"], 0, "an eviction by a drain is no preemption: {drained}");
}

/// Whether they are evicted or not: their pods there are deleted, and what they have done is lost.
#[test]
fn a_drain_names_the_workloads_on_the_node() {
    let one = nodes();
    let node = one.split("---\n").find(|object| object.contains("kind: Node\n")).unwrap();
    let objects = format!("{one}---\n{}---\n{}", node.replace("n1", "n2"), node.replace("n1", "n3"));
    let notes = |node: &str| {
        let (code, table, errors) = what_if(&format!("on-{node}"), &objects, &["--drain", node]);
        assert_eq!((code, errors.as_str()), (0, ""));
        let notes = table.split("\nNote:\n").nth(1).unwrap_or_else(|| panic!("{table}"));
        notes.lines().next().unwrap().trim().to_owned()
    };
    let mut all = ["n1", "n2", "n3"].map(|node| notes(node).replace(node, "N"));
    all.sort();
    let on = |job: &str| {
        format!(
            "Node N has pods of default/{job} (2): they are deleted, and begin again on other nodes where there is room"
        )
    };
    assert_eq!(all, [on("first"), on("second"), "no workload is known to be on Node N".to_owned()]);
    // A change that is named twice is made once.
    let (code, _, errors) = what_if("twice", &objects, &["--drain", "n3", "--drain", "n3"]);
    assert_eq!((code, errors.as_str()), (0, ""));
}

#[test]
fn nodes_in_use_are_named_as_what_blocks() {
    let folder = TestFolder::new("what-if-third");
    let file = folder.write("third.yaml", job("third", 2, 2));
    let found = answer("nodes-in-use", &nodes(), &["--submit", &file]);
    let row = &found["workloads"][0];
    assert_eq!((&row["job"], &row["with"]["state"]), (&"default/third".into(), &"pending".into()), "{found}");
    let blocker = row["with"]["blockedBy"].as_str().unwrap();
    assert!(blocker.contains("topology \"t\""), "a reason is no blocker: {blocker}");
}

#[test]
fn assumptions_and_quotas_below_usage_are_named() {
    let (code, table, errors) = what_if("assumed", &jobs(), &["--quota", "q:f:cpu=0"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    for line in [
        "\nNote:\n  ClusterQueue q uses 1 cpu of f, more than 0: what runs goes on, borrowing what it can\n",
        "  1 running job has no known end and goes on; --run-for gives one\n",
        "  nothing else arrives, and nothing else changes\n",
    ] {
        assert!(table.contains(line), "{line}: {table}");
    }
    let (_, table, _) = what_if("known", &jobs(), &["--quota", "q:f:cpu=2", "--run-for", "1h"]);
    assert!(!table.contains("no known end"), "{table}");
}

#[test]
fn bad_input_is_refused_with_its_flag() {
    let folder = TestFolder::new("what-if-files");
    let short = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\n---\n";
    let many = folder.write("many.yaml", short.repeat(100_000));
    let large = folder.write("large.yaml", format!("# {}", "x".repeat(10_000_000)));
    for (arguments, status, named) in [
        (
            vec!["--add-nodes", "0", "--like", "n1"],
            2,
            "invalid value '0' for '--add-nodes <N>': a number from 1 to 5000 is expected",
        ),
        (vec!["--add-nodes", "-1", "--like", "n1"], 2, "invalid value '-1' for '--add-nodes <N>'"),
        (vec!["--add-nodes", "1000000", "--like", "n1"], 2, "invalid value '1000000' for '--add-nodes <N>'"),
        (vec!["--add-nodes", "1", "--like", "n2"], 1, "error: --add-nodes 1 --like n2: Node n2 not found"),
        (vec!["--drain", "n"], 1, "error: --drain n: Node n not found"),
        (
            vec!["--quota", "q:g:cpu=1"],
            1,
            "error: --quota q:g:cpu=1: ClusterQueue q has no quota for cpu in flavor g; it has f:cpu",
        ),
        (vec!["--delete", "job/third"], 1, "error: --delete job/third: Job default/third not found"),
        (
            vec!["--priority", "job/first=high"],
            1,
            "error: --priority job/first=high: WorkloadPriorityClass high not found",
        ),
        (vec!["--submit", many.as_str()], 2, ": 100000 objects are too many: at most 10000 are simulated"),
        (vec!["--submit", large.as_str()], 2, ": the file is larger than 8 MiB"),
        (vec!["--submit", "/nonexistent.yaml"], 1, "error: --submit /nonexistent.yaml: No such file"),
        (vec![], 2, "--add-nodes <N>"),
    ] {
        let (code, output, errors) = what_if("bad", &nodes(), &arguments);
        assert_eq!((code, output.as_str()), (status, ""), "{arguments:?}: {errors}");
        assert!(errors.contains(named), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    }
}

/// The clock of this machine differs from the server's: a run that has 10 minutes left there would have ended, or not begun, here.
#[test]
fn run_times_count_by_the_clock_of_the_server() {
    let mut cluster = Cluster::new(1, "BestEffortFIFO", "lq");
    cluster.running("runs", "lq", 1, 50);
    cluster.pending("waits", "lq", 1, 5);
    let server = server_of(&cluster);
    let folder = TestFolder::new("what-if-clock");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": server.address()}}], "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    });
    let kubeconfig = folder.write("kubeconfig", kubeconfig.to_string());
    for (date, begins) in [
        ("Thu, 26 Nov 2026 14:00:00 GMT", 600.0),
        ("Thu, 26 Nov 2026 14:05:00 GMT", 300.0),
        ("Thu, 26 Nov 2026 13:55:00 GMT", 900.0),
    ] {
        server.state.lock().unwrap().date = Some(date);
        let asked = server.run("sluice", "what-if -n team --quota q:f:cpu=2 --run-for 1h -o json");
        let found: Value = serde_json::from_str(&asked.out).unwrap_or_default();
        assert_eq!(effects(&found), ["team/waits earlier"], "{date}: {asked:?}");
        assert_eq!(found["workloads"][0]["without"]["admittedAt"], begins, "{date}: {asked:?}");
        let simulated = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["simulate", "--from-cluster", "--compare", "--kubeconfig", &kubeconfig, "-n", "team"])
            .args(["--quota", "q:f:cpu=2", "--run-for", "1h", "-o", "json"])
            .output()
            .unwrap();
        let found: Value = serde_json::from_slice(&simulated.stdout).unwrap_or_default();
        assert_eq!(found["workloads"][0]["without"]["admittedAt"], begins, "{date}: {simulated:?}");
    }
}

/// A server whose user may list all but ClusterQueues.
fn without_right() -> PeopleServer {
    let server = PeopleServer::start();
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "spec": {"namespaceSelector": {}}});
    server.put("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q", queue);
    server.state.lock().unwrap().forbidden = Some("clusterqueues");
    server
}

#[test]
fn a_kind_that_may_not_be_listed_is_named_instead_of_an_answer() {
    let server = without_right();
    for line in ["what-if --delete job/train -n team", "what-if --add-nodes 2 --like h1 -o json"] {
        let outcome = server.run("sluice", line);
        assert_eq!((outcome.code, outcome.out.as_str()), (1, ""), "{line}: {outcome:?}");
        let says = "error: cannot list clusterqueues in the whole cluster, which what-if simulates: clusterqueues is forbidden: ";
        assert!(outcome.err.contains(says), "{line}: {outcome:?}");
        assert!(outcome.err.contains("the page /what-if of the dashboard"), "{line}: {outcome:?}");
    }
    let writes = server.requests().into_iter().filter(|(method, _)| method != "GET");
    assert_eq!(writes.count(), 0, "nothing is written");
}

/// Returns the tables of changes, each below its command line.
fn tables(name: &str, objects: &str, changes: &[&[&str]]) -> String {
    let table = |(number, change): (usize, &&[&str])| {
        let (code, output, errors) = what_if(&format!("table-{name}-{number}"), objects, change);
        assert_eq!(code, 0, "{change:?}: {errors}");
        format!("$ sluice what-if {}\n{output}", change.join(" "))
    };
    changes.iter().enumerate().map(table).collect::<Vec<_>>().join("\n")
}

/// Returns the tables of simulations without and with a change.
fn simulated(objects: &str, changes: &[&[&str]]) -> String {
    let table = |change: &&[&str]| {
        let arguments = [*change, &["--compare", "-"]].concat();
        let (code, output, errors) = run_simulate(&arguments, objects);
        assert_eq!(code, 0, "{change:?}: {errors}");
        format!("$ sluice simulate {}\n{output}", arguments.join(" "))
    };
    changes.iter().map(table).collect::<Vec<_>>().join("\n")
}

#[test]
fn expected_comparisons() {
    let (jobs, nodes) = (jobs(), nodes());
    let of_quotas: [&[&str]; 3] =
        [&["--quota", "q:f:cpu=2"], &["--quota", "q:f:cpu=2", "--run-for", "1h"], &["--quota", "q:f:cpu=0"]];
    let of_jobs: [&[&str]; 4] = [
        &["--priority", "job/second=300"],
        &["--stop", "job/first"],
        &["--delete", "job/first"],
        &["--delete", "job/first", "--quota", "q:f:cpu=5"],
    ];
    let of_nodes: [&[&str]; 3] = [
        &["--add-nodes", "1", "--like", "n1"],
        &["--drain", "n1", "--until", "10m"],
        &["--quota", "q:f:cpu=16"],
    ];
    let watched: &[&str] = &["--quota", "q:f:cpu=1", "--watch-for", "job/second"];
    let refused = without_right().run("sluice", "what-if --delete job/train -n team");
    let texts = [
        ("what-if-quotas", tables("quotas", &jobs, &of_quotas)),
        ("what-if-jobs", tables("jobs", &jobs, &of_jobs)),
        ("what-if-nodes", tables("nodes", &nodes, &of_nodes)),
        ("what-if-none", tables("none", &jobs, &[&["--quota", "q:f:cpu=1"]])),
        ("what-if-refused", refused.err),
        ("simulate-compare", simulated(&jobs, &[of_quotas[1], of_jobs[0], watched])),
    ];
    let golden = root().join("tests/it/golden");
    let files = texts.map(|(name, text)| (golden.join(format!("{name}.txt")), text));
    check_or_write(Written::Expected, files);
}

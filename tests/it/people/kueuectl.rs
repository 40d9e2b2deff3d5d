//! The faults of kueuectl that must not appear under its name, and the texts that must stay.

use crate::fixtures::people_server::{Outcome, PeopleServer, ServerState};
use serde_json::{Value, json};

const GROUP: &str = "/apis/kueue.x-k8s.io/v1beta2";
const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn workload(job: Option<&str>) -> Value {
    let owners = job.map(|name| json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": format!("uid-{name}"), "controller": true}));
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"ownerReferences": owners.into_iter().collect::<Vec<_>>()},
        "spec": {"queueName": "main", "active": true},
    })
}

/// A server with three jobs and a Workload without one, all pending in one LocalQueue.
fn server() -> PeopleServer {
    let server = PeopleServer::start();
    server.put(
        &format!("{GROUP}/clusterqueues/team-a"),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "spec": {}}),
    );
    server.put(
        &format!("{GROUP}/namespaces/default/localqueues/main"),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": {"clusterQueue": "team-a"}}),
    );
    for name in ["a", "b", "c"] {
        server.put(&format!("{JOBS}/{name}"), json!({"apiVersion": "batch/v1", "kind": "Job"}));
        server.put(&format!("{WORKLOADS}/job-{name}"), workload(Some(name)));
    }
    server.put(&format!("{WORKLOADS}/bare"), workload(None));
    server
}

fn run(server: &PeopleServer, line: &str) -> Outcome {
    server.run("kubectl-kueue", line)
}

fn rows(outcome: &Outcome) -> Vec<Vec<String>> {
    outcome.out.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn fault_1_every_list_is_read_in_pages() {
    let server = server();
    for (line, output) in
        [("list workload", 5), ("list workload -o name", 4), ("delete workload --all --dry-run=client", 4)]
    {
        server.requests();
        let outcome = server.run_with("kueuectl", line, "", &[("KUEUECTL_LIST_REQUEST_LIMIT", "2")]);
        assert_eq!((outcome.code, outcome.out.lines().count()), (0, output), "{line}: {outcome:?}");
        let lists: Vec<String> = server
            .requests()
            .into_iter()
            .map(|(_, path)| path)
            .filter(|path| path.starts_with(&format!("{WORKLOADS}?")))
            .collect();
        assert_eq!(lists.len(), 2, "{lists:?}");
        assert!(lists.iter().all(|path| path.contains("limit=2")), "{lists:?}");
    }
    let outcome = server.run_with("kueuectl", "list workload", "", &[("KUEUECTL_LIST_REQUEST_LIMIT", "x")]);
    assert_eq!((outcome.code, outcome.err.as_str()), (1, "Error: invalid list request limit\n"));
}

/// The job is deleted and created again between the question and the deletion.
#[test]
fn fault_2_a_job_that_was_created_again_is_left_alone() {
    let server = server();
    let path = format!("{JOBS}/a");
    server.state.lock().unwrap().before_write =
        Some((path.clone(), |state: &mut ServerState, path: &str| {
            state.put(path, json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"uid": "another"}}));
        }));
    let outcome = run(&server, "delete workload job-a job-b --yes");
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "jobs.batch/b deleted\n"), "{outcome:?}");
    assert_eq!(outcome.err, "skipped: jobs.batch/a was created again since it was read\n");
    assert_eq!(server.get(&path).unwrap()["metadata"]["uid"], "another");
    assert_eq!(server.get(&format!("{JOBS}/b")), None);
}

#[test]
fn fault_3_a_dry_run_holds_for_every_verb_and_kind() {
    let server = server();
    let before = server.state.lock().unwrap().objects.clone();
    let verbs = [
        "create clusterqueue x",
        "create localqueue x -c team-a",
        "create resourceflavor x",
        "stop clusterqueue team-a",
        "stop localqueue main --keep-already-running",
        "stop workload bare",
        "resume clusterqueue team-a",
        "resume localqueue main",
        "resume workload bare",
        "delete workload bare",
        "delete workload job-a job-b",
        "delete workload --all",
    ];
    for verb in verbs {
        for (strategy, suffix) in [("client", "(client dry run)"), ("server", "(server dry run)")] {
            server.requests();
            let outcome = run(&server, &format!("{verb} --dry-run={strategy}"));
            assert_eq!(outcome.code, 0, "{verb}: {outcome:?}");
            assert!(
                outcome.out.lines().all(|line| line.ends_with(suffix)) && !outcome.out.is_empty(),
                "{verb}: {outcome:?}"
            );
            let writes: Vec<_> =
                server.requests().into_iter().filter(|(method, _)| method != "GET").collect();
            if strategy == "client" {
                assert_eq!(writes, [], "{verb}");
            } else {
                assert!(
                    !writes.is_empty() && writes.iter().all(|(_, path)| path.ends_with("?dryRun=All")),
                    "{verb}: {writes:?}"
                );
            }
        }
    }
    assert_eq!(server.state.lock().unwrap().objects, before, "nothing is stored");
    let outcome = run(&server, "stop workload bare --dry-run=maybe");
    assert_eq!(
        (outcome.code, outcome.err.as_str()),
        (1, "Error: invalid dry-run value (maybe). Must be \"none\", \"server\", or \"client\"\n")
    );
}

#[test]
fn fault_4_a_format_prints_no_table_for_any_verb() {
    let server = server();
    let verbs = [
        "list workload",
        "list clusterqueue",
        "list localqueue",
        "stop workload bare",
        "stop lq main",
        "create cq x --dry-run=client",
        "list pods --for job/a",
    ];
    server.put(
        "/api/v1/namespaces/default/pods/p",
        json!({"metadata": {"labels": {"batch.kubernetes.io/job-name": "a"}}}),
    );
    for verb in verbs {
        for (format, expected) in [
            ("json", "{\n"),
            ("yaml", "apiVersion: "),
            ("name", ""),
            ("jsonpath={.kind}", ""),
            ("jsonpath-as-json={.kind}", "[\n"),
        ] {
            let outcome = run(&server, &format!("{verb} -o {format}"));
            assert_eq!(outcome.code, 0, "{verb} {format}: {outcome:?}");
            assert!(
                outcome.out.starts_with(expected) && !outcome.out.contains("NAME"),
                "{verb} {format}: {outcome:?}"
            );
        }
        for format in ["foo", "jsonpath", "jsonpath={..a}"] {
            let outcome = run(&server, &format!("{verb} -o {format}"));
            assert_eq!((outcome.code, outcome.out.as_str()), (1, ""), "{verb} {format}");
        }
    }
}

#[test]
fn fault_5_quotas_are_read_as_they_are_written() {
    let server = server();
    let line = "create cq x --nominal-quota 'a:cpu=1.5;memory=0,b:cpu=500m;memory=1Gi' --nominal-quota c:gpu=0,d:vgpu=2 --borrowing-limit 'a:cpu=0;memory=0'";
    let outcome = run(&server, line);
    assert_eq!(outcome.out, "clusterqueue.kueue.x-k8s.io/x created\n", "{outcome:?}");
    let groups = server.get(&format!("{GROUP}/clusterqueues/x")).unwrap()["spec"]["resourceGroups"].clone();
    assert_eq!(groups.as_array().unwrap().len(), 3);
    assert_eq!(
        groups[0]["flavors"][0]["resources"][0],
        json!({"name": "cpu", "nominalQuota": "1500m", "borrowingLimit": "0"})
    );
    assert_eq!(groups[2]["flavors"][0]["resources"][0], json!({"name": "vgpu", "nominalQuota": "2"}));
    let outcome = run(&server, "create cq y --nominal-quota 'a:cpu=9;cpu=8'");
    assert_eq!(
        (outcome.code, outcome.err.as_str()),
        (1, "Error: --nominal-quota: \"a:cpu=9;cpu=8\": resource cpu is given twice for flavor a\n")
    );
}

fn put_positions(server: &PeopleServer, before: usize) {
    let row = |name: &str, position: usize| json!({"metadata": {"namespace": "default", "name": name}, "positionInLocalQueue": position});
    let mut rows: Vec<Value> = (0..before).map(|number| row(&format!("other-{number}"), number)).collect();
    rows.extend(["job-c", "job-a"].into_iter().enumerate().map(|(number, name)| row(name, before + number)));
    let queue = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/team-a";
    server.state.lock().unwrap().objects.insert(queue.to_owned(), json!({"rows": rows}));
}

/// All rows of a queue are positions of one read, with one page of Workloads or several.
#[test]
fn faults_6_and_8_positions_come_from_one_read_of_the_whole_queue() {
    let server = server();
    put_positions(&server, 1_500);
    for limit in ["1", "100"] {
        server.requests();
        let outcome =
            server.run_with("kueuectl", "list workload", "", &[("KUEUECTL_LIST_REQUEST_LIMIT", limit)]);
        let found: Vec<(String, bool)> = rows(&outcome)
            .iter()
            .map(|row| (row[0].clone(), row.iter().any(|cell| cell == "1501" || cell == "1500")))
            .collect();
        let expected = [("NAME", false), ("bare", false), ("job-a", true), ("job-b", false), ("job-c", true)];
        assert_eq!(found, expected.map(|(name, shown)| (name.to_owned(), shown)), "{outcome:?}");
        let reads =
            server.requests().into_iter().filter(|(_, path)| path.contains("pendingworkloads")).count();
        assert_eq!(reads, 2, "two pages of one queue, read once");
    }
}

#[test]
fn fault_7_pending_workloads_of_a_cluster_queue_are_listed() {
    let server = server();
    let outcome = run(&server, "list workload -c team-a -o name");
    assert_eq!(outcome.out.lines().count(), 4, "{outcome:?}");
    let outcome = run(&server, "list workload -c other");
    assert_eq!((outcome.code, outcome.err.as_str()), (0, "No resources found in default namespace.\n"));
}

#[test]
fn fault_9_help_and_errors_name_every_status() {
    let server = server();
    let outcome = run(&server, "list workload --status nope");
    assert!(outcome.code == 1 && outcome.err.contains("\"quotareserved\""), "{outcome:?}");
    let outcome = run(&server, "list workload --help");
    assert!(outcome.code == 0 && outcome.out.contains("quotareserved"), "{outcome:?}");
}

#[test]
fn fault_10_positions_are_read_only_for_tables() {
    let server = server();
    put_positions(&server, 0);
    for (format, reads) in
        [("", 1), ("-o json", 0), ("-o name", 0), ("-o yaml", 0), ("-o jsonpath={.kind}", 0)]
    {
        server.requests();
        run(&server, &format!("list workload {format}"));
        let found =
            server.requests().into_iter().filter(|(_, path)| path.contains("pendingworkloads")).count();
        assert_eq!(found, reads, "{format}");
    }
}

#[test]
fn fault_11_delete_all_says_what_before_it_asks() {
    let server = server();
    let outcome = server.run_with("kueuectl", "delete workload --all", "n\n", &[]);
    let expected = "This operation will also delete:\n  - jobs.batch/a associated with the default/job-a workload\n  - jobs.batch/b associated with the default/job-b workload\n  - jobs.batch/c associated with the default/job-c workload\n4 workloads and 3 jobs.\nDo you want to proceed (y/n)? Deletion is canceled\n";
    assert_eq!((outcome.code, outcome.out.as_str()), (0, expected));
    assert_eq!(server.state.lock().unwrap().count("DELETE"), 0);
    let outcome = server.run_with("kueuectl", "delete workload --all", "Y\n", &[]);
    assert!(outcome.out.ends_with("workload.kueue.x-k8s.io/bare deleted\njobs.batch/a deleted\njobs.batch/b deleted\njobs.batch/c deleted\n"), "{outcome:?}");
    let outcome = server.run_with("kueuectl", "delete workload job-a", "", &[]);
    assert!(
        outcome.out.ends_with("Do you want to proceed (y/n)? Deletion is canceled\n"),
        "the end of the input is no yes: {outcome:?}"
    );
}

#[test]
fn fault_12_the_manager_is_found_by_its_labels() {
    let server = server();
    let manager = json!({
        "metadata": {"labels": {"control-plane": "controller-manager", "app.kubernetes.io/name": "kueue"}},
        "spec": {"template": {"spec": {"containers": [{"name": "proxy", "image": "p"}, {"name": "manager", "image": "registry/sluice:1"}]}}},
    });
    server.put("/apis/apps/v1/namespaces/elsewhere/deployments/any-name", manager);
    for line in ["version", "version --manager-namespace elsewhere"] {
        let outcome = run(&server, line);
        assert!(
            outcome.out.starts_with("Client Version: ")
                && outcome.out.ends_with("Kueue Controller Manager Image: registry/sluice:1\n"),
            "{outcome:?}"
        );
    }
    let outcome = run(&server, "version --manager-namespace kueue-system");
    assert_eq!((outcome.code, outcome.out.lines().count()), (0, 1), "{outcome:?}");
}

#[test]
fn fault_13_stop_and_resume_do_not_overwrite_a_change() {
    let server = server();
    for (line, path) in [
        ("stop workload bare", format!("{WORKLOADS}/bare")),
        ("resume clusterqueue team-a", format!("{GROUP}/clusterqueues/team-a")),
        ("stop lq main", format!("{GROUP}/namespaces/default/localqueues/main")),
    ] {
        server.state.lock().unwrap().before_write =
            Some((path.clone(), |state: &mut ServerState, path: &str| {
                let mut object = state.objects[path].clone();
                object["spec"]["other"] = json!("changed");
                state.put(path, object);
            }));
        let outcome = run(&server, line);
        assert_eq!(
            (outcome.code, outcome.err.as_str()),
            (1, "Error: the object has been modified\n"),
            "{line}"
        );
        assert_eq!(server.get(&path).unwrap()["spec"]["other"], "changed");
        assert_eq!(run(&server, line).code, 0, "{line}");
    }
}

/// kueuectl selects all namespaces without a word; that stays.
#[test]
fn fault_14_an_empty_namespace_selector_selects_all() {
    let server = server();
    let outcome = run(&server, "create cq x");
    assert_eq!((outcome.out.as_str(), outcome.err.as_str()), ("clusterqueue.kueue.x-k8s.io/x created\n", ""));
    assert_eq!(
        server.get(&format!("{GROUP}/clusterqueues/x")).unwrap()["spec"]["namespaceSelector"],
        json!({})
    );
}

#[test]
fn more_faults_do_not_appear() {
    let server = server();
    let outcome = run(&server, "list workload --for job/none");
    assert_eq!(
        (outcome.out.as_str(), outcome.err.as_str()),
        ("", "No resources found in default namespace.\n")
    );
    let mut unqueued = workload(None);
    unqueued["spec"] = json!({});
    server.put(&format!("{WORKLOADS}/unqueued"), unqueued);
    assert_eq!(rows(&run(&server, "list workload")).len(), 6, "a Workload without a queue is a row");
}

/// The texts are those that kueuectl prints.
#[test]
fn texts_and_exit_status_are_kueuectls() {
    let server = server();
    for (line, code, out, err) in [
        (
            "foo",
            1,
            "",
            "Error: unknown command \"foo\" for \"kueuectl\"\nRun 'kueuectl --help' for usage.\n\n",
        ),
        ("create cq", 1, "", "Error: accepts 1 arg(s), received 0\n"),
        ("create lq x", 1, "", "Error: required flag(s) \"clusterqueue\" not set\n"),
        ("create lq x -c nope", 1, "", "Error: clusterqueues.kueue.x-k8s.io \"nope\" not found\n"),
        ("create lq x -c nope -i", 0, "localqueue.kueue.x-k8s.io/x created\n", ""),
        (
            "create rf r --node-taints k:Foo",
            1,
            "",
            "Error: invalid taint effect: Foo, unsupported taint effect\n",
        ),
        ("stop workload bare", 0, "workload.kueue.x-k8s.io/bare stopped\n", ""),
        ("resume workload bare", 0, "workload.kueue.x-k8s.io/bare resumed\n", ""),
        ("stop cq team-a", 0, "clusterqueue.kueue.x-k8s.io/team-a\n", ""),
        (
            "resume cq team-a --dry-run=server",
            0,
            "clusterqueue.kueue.x-k8s.io/team-a  (server dry run)\n",
            "",
        ),
        ("stop lq gone", 1, "", "Error: localqueues.kueue.x-k8s.io \"gone\" not found\n"),
        ("delete workload", 1, "", "Error: requires at least 1 arg(s), only received 0\n"),
        ("delete workload --all x", 1, "", "Error: name cannot be provided when a selector is specified\n"),
        (
            "delete workload -A x",
            1,
            "",
            "Error: a resource cannot be retrieved by name across all namespaces\n",
        ),
        ("list workload -n other", 0, "", "No resources found in other namespace.\n"),
        ("list cq -l a=b", 0, "", "No resources found\n"),
        ("list pods --for cq/x", 1, "", "Error: no matches for /, Resource=cq\n"),
        (
            "list pods --for job",
            1,
            "",
            "Error: invalid value 'job' used in --for flag; value must be in the format TYPE[.API-GROUP]/NAME\n",
        ),
        ("list pods --for workload/bare", 1, "", "Error: unsupported kind: Workload\n"),
    ] {
        let outcome = run(&server, line);
        assert_eq!((outcome.code, outcome.out.as_str(), outcome.err.as_str()), (code, out, err), "{line}");
    }
    for line in ["list workload --foo", "list workload -x", "list workload -o", "version extra"] {
        let outcome = run(&server, line);
        assert!(
            outcome.code == 1 && outcome.err.starts_with("Error: ") && outcome.err.contains("\nUsage:\n  "),
            "{outcome:?}"
        );
    }
}

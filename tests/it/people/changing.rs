//! Verbs that change objects: what they write, what they refuse, and their exit status.

use crate::fixtures::people_server::{Outcome, PeopleServer, ServerState};
use serde_json::{Value, json};

const GROUP: &str = "/apis/kueue.x-k8s.io/v1beta2";
const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn server() -> PeopleServer {
    let server = PeopleServer::start();
    let kueue =
        |kind: &str, spec: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "spec": spec});
    for (name, queue) in [("train", "nlp"), ("night", "interns")] {
        server.put(&format!("{GROUP}/clusterqueues/{queue}"), kueue("ClusterQueue", json!({})));
        server.put(
            &format!("{GROUP}/namespaces/default/localqueues/{name}"),
            kueue("LocalQueue", json!({"clusterQueue": queue})),
        );
    }
    let class =
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": 300});
    server.put(&format!("{GROUP}/workloadpriorityclasses/high"), class);
    for name in ["a", "b", "c"] {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "train"}}});
        server.put(&format!("{JOBS}/{name}"), job);
        let mut workload = kueue("Workload", json!({"queueName": "train", "active": true, "priority": 100}));
        workload["metadata"] = json!({
            "labels": {"kueue.x-k8s.io/job-uid": format!("uid-{name}")},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": format!("uid-{name}")}],
        });
        server.put(&format!("{WORKLOADS}/job-{name}"), workload);
    }
    server.put(&format!("{WORKLOADS}/bare"), kueue("Workload", json!({"queueName": "train"})));
    server.put(&format!("{JOBS}/unmanaged"), json!({"apiVersion": "batch/v1", "kind": "Job"}));
    server
}

fn run(server: &PeopleServer, line: &str) -> Outcome {
    server.run("sluice", line)
}

fn is_active(server: &PeopleServer, name: &str) -> Value {
    server.get(&format!("{WORKLOADS}/{name}")).unwrap()["spec"]["active"].clone()
}

#[test]
fn a_workload_is_named_by_itself_or_by_its_job() {
    let server = server();
    for (line, name, note) in [
        ("stop workload job-a", "job-a", ""),
        ("stop workload job/b", "job-b", ""),
        ("stop wl jobs.batch/c", "job-c", ""),
        ("resume workload c", "job-c", "c is no workload: taken as job/c\n"),
    ] {
        let outcome = run(&server, line);
        let done = if line.starts_with("stop") { "stopped" } else { "resumed" };
        assert_eq!((outcome.code, outcome.err.as_str()), (0, note), "{line}");
        assert_eq!(outcome.out, format!("workload.kueue.x-k8s.io/{name} {done}\n"), "{line}");
        assert_eq!(is_active(&server, name), done == "resumed");
    }
    for (line, error) in [
        (
            "stop workload jb-a",
            "error: workload \"jb-a\" not found in namespace default; similar: job-a, job-b, job-c\n",
        ),
        ("stop workload job/none", "error: job/none not found in namespace default\n"),
        (
            "stop workload job/unmanaged",
            "error: job/unmanaged has no Workload: it has no label kueue.x-k8s.io/queue-name\n",
        ),
        ("stop workload a/b/c", "error: arguments in resource/name form may not have more than one slash\n"),
        ("stop workload foo/a", "error: the server has no kind \"foo\"\n"),
        ("stop clusterqueue nlpx", "error: clusterqueue \"nlpx\" not found; similar: nlp\n"),
        (
            "stop localqueue nigth",
            "error: localqueue \"nigth\" not found in namespace default; similar: night\n",
        ),
        ("create localqueue x -c nlq", "error: clusterqueue \"nlq\" not found; similar: nlp\n"),
        ("stop workload", "error: name a workload, or use --all or --selector\n"),
    ] {
        let outcome = run(&server, line);
        assert_eq!((outcome.code, outcome.err.as_str(), outcome.out.as_str()), (1, error, ""), "{line}");
    }
}

#[test]
fn wrong_command_lines_end_with_2() {
    let server = server();
    for line in [
        "stop",
        "stop workloadx a",
        "stop workload a --all",
        "move workload a",
        "reprioritize workload a",
        "create clusterqueue",
        "stop workload a --dry-run=maybe",
        "stop clusterqueue",
        "delete clusterqueue x",
        "list nothing",
        "stop workload --foo",
    ] {
        assert_eq!(run(&server, line).code, 2, "{line}");
    }
}

/// Every verb that writes keeps to `--dry-run`: writes are counted.
#[test]
fn a_dry_run_holds_for_every_verb() {
    let server = server();
    let before = server.state.lock().unwrap().objects.clone();
    for verb in [
        "create clusterqueue x",
        "create localqueue x -c nlp",
        "create resourceflavor x",
        "stop clusterqueue nlp",
        "stop localqueue train",
        "stop workload bare",
        "stop workload --all",
        "resume clusterqueue nlp",
        "resume localqueue train",
        "resume workload bare",
        "move workload job/a --to night",
        "move workload bare --to night",
        "reprioritize workload job/a --class high",
        "reprioritize workload --all --class high",
        "delete workload job/a",
        "delete workload --all",
        "delete workload --all -A",
    ] {
        for (flag, suffix) in [("--dry-run", "(client dry run)"), ("--dry-run=server", "(server dry run)")] {
            server.requests();
            let outcome = run(&server, &format!("{verb} {flag}"));
            assert_eq!(outcome.code, 0, "{verb}: {outcome:?}");
            assert!(
                !outcome.out.is_empty() && outcome.out.lines().all(|line| line.ends_with(suffix)),
                "{verb}: {outcome:?}"
            );
            let writes: Vec<_> =
                server.requests().into_iter().filter(|(method, _)| method != "GET").collect();
            assert_eq!(writes.is_empty(), flag == "--dry-run", "{verb}: {writes:?}");
            assert!(writes.iter().all(|(_, path)| path.ends_with("?dryRun=All")), "{verb}: {writes:?}");
        }
    }
    assert_eq!(server.state.lock().unwrap().objects, before);
}

#[test]
fn several_objects_take_a_confirmation() {
    let server = server();
    for (line, what) in [
        ("stop workload --all", "stop 4 workloads"),
        ("stop workload job-a job-b", "stop 2 workloads"),
        ("stop clusterqueue nlp interns", "stop 2 clusterqueues"),
        ("move workload --all --to night", "move 4 workloads"),
        ("reprioritize workload -l kueue.x-k8s.io/job-uid=uid-a --class high", "reprioritize 1 workload"),
        ("delete workload job-a", "delete 1 job"),
        ("delete workload --all", "delete 3 jobs and 1 workload"),
        ("delete workload --all -A", "delete 3 jobs and 1 workload"),
    ] {
        server.requests();
        let outcome = run(&server, line);
        assert_eq!(outcome.code, 1, "{line}");
        assert!(
            outcome.err.ends_with(&format!("error: refusing to {what} without confirmation: use --yes\n")),
            "{line}: {outcome:?}"
        );
        let writes = ["PATCH", "DELETE"].map(|verb| server.state.lock().unwrap().count(verb));
        assert_eq!(writes, [0, 0], "{line}");
    }
    let outcome = run(&server, "delete workload --all --yes");
    let expected = "This deletes 4 workloads and their jobs in namespace default:\n  workload bare (pending)\n  job.batch/a (uid uid-..., pending)   workload job-a\n";
    assert!(outcome.err.starts_with(expected), "{outcome:?}");
    assert_eq!(outcome.out.lines().count(), 4);
    assert_eq!(
        server.state.lock().unwrap().objects.keys().filter(|path| path.starts_with(JOBS)).count(),
        1,
        "the unmanaged job stays"
    );
}

fn change(state: &mut ServerState, path: &str) {
    let mut object = state.objects[path].clone();
    object["spec"]["other"] = json!("changed");
    state.put(path, object);
}

fn recreate(state: &mut ServerState, path: &str) {
    let mut object = state.objects[path].clone();
    object["metadata"]["uid"] = json!("another");
    state.put(path, object);
}

#[test]
fn a_conflict_is_tried_again_and_another_object_is_left_alone() {
    let server = server();
    let path = format!("{WORKLOADS}/job-a");
    server.state.lock().unwrap().before_write = Some((path.clone(), change));
    let outcome = run(&server, "stop workload job-a");
    assert_eq!(
        (outcome.code, outcome.out.as_str()),
        (0, "workload.kueue.x-k8s.io/job-a stopped\n"),
        "{outcome:?}"
    );
    let stored = server.get(&path).unwrap();
    assert_eq!((&stored["spec"]["other"], &stored["spec"]["active"]), (&json!("changed"), &json!(false)));
    server.state.lock().unwrap().before_write = Some((path.clone(), recreate));
    let outcome = run(&server, "resume workload job-a job-b --yes");
    assert_eq!(outcome.code, 3, "one of two: {outcome:?}");
    assert!(
        outcome.err.ends_with("error: skipped: job-a was created again since it was read\n"),
        "{outcome:?}"
    );
    assert_eq!(is_active(&server, "job-a"), false);
    let path = format!("{JOBS}/b");
    server.state.lock().unwrap().before_write = Some((path.clone(), recreate));
    let outcome = run(&server, "delete workload job-b --yes");
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.err.ends_with("error: skipped: job.batch/b was created again since it was read\n"),
        "{outcome:?}"
    );
    assert!(server.get(&path).is_some());
}

#[test]
fn move_changes_the_queue_of_the_owner() {
    let server = server();
    let outcome = run(&server, "move workload job/a --to night");
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "job.batch/a moved\n"), "{outcome:?}");
    assert_eq!(outcome.err, "job.batch/a: train -> night (ClusterQueue nlp -> interns)\n");
    assert_eq!(
        server.get(&format!("{JOBS}/a")).unwrap()["metadata"]["labels"]["kueue.x-k8s.io/queue-name"],
        "night"
    );
    let outcome = run(&server, "move workload bare --to night");
    assert_eq!(outcome.out, "workload.kueue.x-k8s.io/bare moved\n", "{outcome:?}");
    assert_eq!(server.get(&format!("{WORKLOADS}/bare")).unwrap()["spec"]["queueName"], "night");
    let outcome = run(&server, "move workload bare --to night");
    assert_eq!(
        (outcome.out.as_str(), outcome.err.as_str()),
        ("", "workload.kueue.x-k8s.io/bare is in night already\n")
    );
    let outcome = run(&server, "move workload job/b --to nigth");
    assert_eq!(outcome.err, "error: localqueue \"nigth\" not found in namespace default; similar: night\n");
}

fn admit(server: &PeopleServer, name: &str, state: &str) {
    let path = format!("{WORKLOADS}/{name}");
    let mut workload = server.get(&path).unwrap();
    let condition =
        |name: &str| json!({"type": name, "status": state, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    workload["status"] = json!({
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
        "admission": {"clusterQueue": "nlp", "podSetAssignments": [{"name": "main", "count": 4}]},
    });
    server.put(&path, workload);
}

#[test]
fn an_admitted_workload_moves_only_by_eviction() {
    let server = server();
    admit(&server, "job-a", "True");
    let outcome = run(&server, "move workload job/a --to night");
    assert_eq!(outcome.code, 1);
    let expected = "error: job.batch/a is admitted; moving it stops 4 pods that have run for ";
    assert!(outcome.err.starts_with(expected) && outcome.err.ends_with(": use --evict\n"), "{outcome:?}");
    let outcome = run(&server, "move workload job/a --to night --evict --timeout 1s");
    assert_eq!(outcome.code, 1, "the quota is not released: {outcome:?}");
    assert!(
        outcome.err.contains("job-a still has quota after 1s") && outcome.err.contains("left to do: "),
        "{outcome:?}"
    );
    assert_eq!(is_active(&server, "job-a"), false);
    run(&server, "resume workload job-a");
    // The manager's part: it releases the quota of what is stopped.
    let manager = server.clone();
    let released = std::thread::spawn(move || {
        for _ in 0..600 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            if is_active(&manager, "job-a") == false {
                admit(&manager, "job-a", "False");
                return;
            }
        }
    });
    let outcome = run(&server, "move workload job/a --to night --evict");
    released.join().unwrap();
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "job.batch/a moved\n"), "{outcome:?}");
    assert_eq!(is_active(&server, "job-a"), true, "it is resumed in the other queue");
}

#[test]
fn reprioritize_changes_the_class_of_the_owner() {
    let server = server();
    let outcome = run(&server, "reprioritize workload job/a --class high");
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "job.batch/a reprioritized\n"), "{outcome:?}");
    assert_eq!(outcome.err, "job.batch/a: priority 100 -> 300\n");
    assert_eq!(
        server.get(&format!("{JOBS}/a")).unwrap()["metadata"]["labels"]["kueue.x-k8s.io/priority-class"],
        "high"
    );
    let outcome = run(&server, "reprioritize workload bare --class hihg");
    assert_eq!(outcome.err, "error: workloadpriorityclass \"hihg\" not found; similar: high\n");
    run(&server, "reprioritize workload bare --class high");
    assert_eq!(server.get(&format!("{WORKLOADS}/bare")).unwrap()["spec"]["priorityClassRef"]["name"], "high");
}

#[test]
fn create_says_when_all_namespaces_may_use_a_queue() {
    let server = server();
    let outcome = run(&server, "create cq x --nominal-quota f:cpu=1");
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "clusterqueue.kueue.x-k8s.io/x created\n"));
    assert_eq!(outcome.err, "note: without --namespace-selector every namespace may use the ClusterQueue\n");
    let outcome = run(&server, "create cq x --namespace-selector a=b");
    assert_eq!((outcome.code, outcome.err.as_str()), (1, "error: \"x\" already exists\n"));
    let outcome = run(
        &server,
        "create cq y --namespace-selector a=b -o jsonpath={.spec.namespaceSelector.matchLabels.a} --dry-run",
    );
    assert_eq!((outcome.out.as_str(), outcome.err.as_str()), ("b", ""));
}

#[test]
fn a_plugin_and_its_completion_answer() {
    let server = server();
    assert_eq!(
        server.run("kubectl-sluice", "stop workload bare").out,
        "workload.kueue.x-k8s.io/bare stopped\n"
    );
    let complete = |name: &str, line: &str| server.run(name, line).out;
    // The flags for the server stand before the word at the cursor in a real call; here they come last and are words too.
    assert!(complete("kubectl_complete-kueue", "stop").ends_with(":4\n"));
    assert_eq!(server.run("sluice", "nonsense").code, 2);
}

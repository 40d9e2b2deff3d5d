//! The command line in bad company: a user that the server does not know, warnings, a reader that goes away, texts of any length and
//! content, a locale without UTF-8.

use super::when;
use crate::fixtures::people_server::{Outcome, PeopleServer};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";
const QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";

fn workload(message: &str, labels: &Value) -> Value {
    let condition = json!({"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": message, "lastTransitionTime": "2026-11-26T13:00:00Z"});
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
    let pod_sets = json!([{"name": "main", "count": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}]);
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"labels": labels},
        "spec": {"queueName": "main", "active": true, "podSets": pod_sets}, "status": {"conditions": [condition]}})
}

fn server(message: &str, count: usize) -> PeopleServer {
    let server = PeopleServer::start();
    for index in 0..count {
        server.put(&format!("{WORKLOADS}/w{index:04}"), workload(message, &json!({})));
    }
    let spec = json!({"clusterQueue": "cq"});
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": spec});
    server.put("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues/main", queue);
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "spec": {"namespaceSelector": {}}});
    server.put(&format!("{QUEUES}/cq"), queue);
    server
}

fn run(server: &PeopleServer, line: &str) -> Outcome {
    server.run_with("sluice", line, "", &[("LC_ALL", "C"), ("NO_COLOR", "1")])
}

#[test]
fn an_unknown_user_is_told_to_log_in() {
    let server = server("", 1);
    server.state.lock().unwrap().knows_no_user = true;
    for line in [
        "list workload",
        "list clusterqueue",
        "list pods --for job/a",
        "list preemption",
        "why w0000",
        "why job/a",
        "tree cohort",
        "tree job job/a",
        "share",
        "capacity",
        "usage",
        "usage export --since 1d",
        "audit",
        "status",
        "describe workload w0000",
        "stop workload w0000",
        "reprioritize workload w0000 --class a",
        "list workload --source cluster",
        "what-if --drain h1",
    ] {
        let outcome = run(&server, line);
        let says = "error: the API server does not know the user (401: Unauthorized): log in again, or use another --token, --user or --context\n";
        assert_eq!((outcome.code, outcome.out.as_str()), (1, ""), "{line}: {outcome:?}");
        assert!(outcome.err.ends_with(says), "{line}: {outcome:?}");
    }
    for line in ["list workload", "list clusterqueue", "stop workload w0000", "create rf x"] {
        let outcome = server.run("kueuectl", line);
        let says = "Error: You must be logged in to the server (Unauthorized)\n";
        assert_eq!((outcome.code, outcome.err.as_str()), (1, says), "{line}: {outcome:?}");
    }
}

#[test]
fn warnings_of_the_server_are_printed_once() {
    let server = server("", 1);
    server.state.lock().unwrap().warnings =
        vec!["kueue v1beta1 is old".to_owned(), "b\u{1b}[31m".replace('\u{1b}', "")];
    for (name, line) in [
        ("sluice", "stop workload w0000"),
        ("kueuectl", "resume workload w0000"),
        ("kueuectl", "list workload"),
    ] {
        let outcome = server.run(name, line);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        assert_eq!(outcome.err.matches("Warning: kueue v1beta1 is old\n").count(), 1, "{outcome:?}");
        assert!(!outcome.out.contains("Warning"), "{outcome:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let server = server("", 3_000);
    for (name, line) in [
        ("sluice", "list workload --source cluster"),
        ("sluice", "list workload --source cluster -o yaml"),
        ("kueuectl", "list workload"),
        ("sluice", "completion bash"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.arg0(name).args(line.split(' '));
        if !line.starts_with("completion") {
            command.args(["--kubeconfig", "/dev/null", "--server", server.address()]);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(!first.is_empty(), "{line}: {err}");
        assert!(!err.contains("panicked") && !err.to_lowercase().contains("pipe"), "{line}: {err}");
    }
}

#[test]
fn texts_of_any_length_and_content_are_printed() {
    let message = format!("<script>alert(1)</script>\u{1b}]0;x\u{7}\u{202e}{}", "x".repeat(500_000));
    let server = server(&message, 1);
    let labels = json!({"a": "<b>&amp;"});
    server.put(&format!("{WORKLOADS}/w0001"), workload("", &labels));
    for line in [
        "list workload --source cluster",
        "list workload --source cluster -o wide --show-labels",
        "list workload --source cluster -o csv",
        "why w0000 --source cluster",
        "why w0000 --all --source cluster",
        "describe workload w0000 --source cluster",
        "tree job w0000",
        "list workload --source cluster -o json --views",
    ] {
        let outcome = run(&server, line);
        assert!(outcome.code == 0 || outcome.code == 3, "{line}: {} {}", outcome.code, outcome.err);
        let all = format!("{}{}", outcome.out, outcome.err);
        let is_odd = |letter: char| letter.is_control() && letter != '\n';
        let odd = all.chars().find(|letter| is_odd(*letter));
        assert_eq!(odd, None, "{line}");
        let shown = if line.contains("json") { 600_000 } else { 20_000 };
        assert!(all.len() < shown, "{line}: {} bytes", all.len());
        assert!(line.contains("json") || !all.contains('\u{202e}'), "{line}");
        assert!(!all.contains("panicked"), "{line}");
    }
}

/// The author of a job writes its expected run time, and each user that asks for an estimate reads why it is ignored.
#[test]
fn an_expected_run_time_of_any_length_and_content_is_printed() {
    let mut cluster = when::cluster();
    let text = format!("<script>\u{1b}]0;x\u{7}\u{202e}{}", "x".repeat(300_000));
    let first =
        cluster.objects.iter_mut().find(|object| object["metadata"]["uid"] == "Workload-first").unwrap();
    first["metadata"]["annotations"] = json!({"sluice.dev/expected-run-time": text});
    let server = PeopleServer::start();
    let dump = when::Dump::write("long-texts", &cluster, &when::configured());
    for line in ["why waits --when", "why waits --when -o json"] {
        let outcome = when::run(&server, &dump, line);
        assert_eq!(outcome.code, 0, "{line}: {}", outcome.err);
        let all = format!("{}{}", outcome.out, outcome.err);
        assert!(all.contains("sluice.dev/expected-run-time of team/first is ignored"), "{line}: {all}");
        assert!(all.contains(&"x".repeat(40)) && !all.contains(&"x".repeat(65)), "{line}");
        let odd =
            all.chars().find(|letter| (letter.is_control() && *letter != '\n') || *letter == '\u{202e}');
        assert_eq!(odd, None, "{line}");
        assert!(all.len() < 20_000, "{line}: {} bytes", all.len());
    }
}

#[test]
fn a_dump_counts_to_its_own_time() {
    // Two hours are an hour more than a check may be pending.
    let file = |time: &str| {
        let mut pending = workload("", &json!({}));
        pending["metadata"] = json!({"name": "w", "namespace": "default", "uid": "u", "creationTimestamp": "2026-11-26T12:00:00Z"});
        let reserved = json!({"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "", "lastTransitionTime": "2026-11-26T12:00:00Z"});
        pending["status"] = json!({"conditions": [reserved], "admissionChecks": [{"name": "budget", "state": "Pending", "message": "", "lastTransitionTime": "2026-11-26T12:00:00Z"}],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "flavors": {}, "count": 1}]}});
        let header = json!({"apiVersion": "sluice.dev/v1", "kind": "Dump", "time": time, "version": "test"});
        let path = std::env::temp_dir().join(format!(
            "sluice-as-of-{}-{}.yaml",
            std::process::id(),
            time.len() + usize::from(time.as_bytes()[12])
        ));
        std::fs::write(&path, format!("{header}\n---\n{pending}\n")).unwrap();
        path
    };
    let server = PeopleServer::start();
    for (time, is_late) in [("2026-11-26T12:30:00Z", false), ("2026-11-26T14:00:00Z", true)] {
        let path = file(time);
        let outcome = run(&server, &format!("audit -A --source {}", path.display()).replace(" -A", ""));
        let _ = std::fs::remove_file(&path);
        assert_eq!(outcome.out.contains("pending for more than an hour"), is_late, "{time}: {outcome:?}");
    }
}

/// Candidates as the shells themselves ask for them; a shell that is not installed is left out, with a line.
#[test]
fn scripts_of_shells_complete() {
    let program = env!("CARGO_BIN_EXE_sluice");
    let folder = std::path::Path::new(program).parent().unwrap().display().to_string();
    let bash = "source <(sluice completion bash); COMP_WORDS=(sluice au); COMP_CWORD=1; _complete_sluice; echo \"${COMPREPLY[@]}\"";
    let zsh = "compdef(){ :; }; compadd(){ print -r -- ${@:2} }; source <(sluice completion zsh); words=(sluice au); CURRENT=2; _complete_sluice; words=(sluice capacity --zzz); CURRENT=3; _complete_sluice";
    let fish = "sluice completion fish | source; complete -C 'sluice au'";
    for (shell, script) in [("bash", bash), ("zsh", zsh), ("fish", fish)] {
        let mut command = Command::new(shell);
        let path = if shell == "fish" {
            format!("set -x PATH {folder} $PATH")
        } else {
            format!("PATH={folder}:$PATH")
        };
        command.args(["-c", &format!("{path}; {script}")]).stdin(Stdio::null()).env("HOME", &folder);
        let Ok(output) = command.output() else {
            println!("skipped: {shell} is not installed");
            continue;
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        assert_eq!(
            (text(&output.stdout), text(&output.stderr)),
            ("audit".to_owned(), String::new()),
            "{shell}"
        );
    }
}

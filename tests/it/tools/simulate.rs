//! The `simulate` command: sources of manifests, output, and exit codes.

use crate::fixtures::simulate_command::{QUEUES, TestFolder, run_simulate};
use serde_json::Value;
use std::process::Command;

fn job(name: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, labels: {{kueue.x-k8s.io/queue-name: q}}}}\nspec:\n  template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: x, resources: {{requests: {{cpu: 1}}}}}}]}}}}\n"
    )
}

fn job_names(report: &str, list: &str) -> Vec<String> {
    let report: Value = serde_json::from_str(report).unwrap();
    let rows = report[list].as_array().unwrap().iter();
    rows.map(|row| row["job"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn manifests_are_read_from_files_folders_stdin() {
    let folder = TestFolder::new("inputs");
    let queues = folder.write("queues.yml", QUEUES);
    folder.write("deep/jobs.json", "{\"kind\": \"List\", \"apiVersion\": \"v1\", \"items\": []}");
    folder.write("deep/one.yaml", job("in-folder"));
    folder.write("notes.txt", "no manifest");
    let (code, output, errors) = run_simulate(&[&folder.path(), "-", "-o", "json"], &job("in-stdin"));
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(job_names(&output, "admitted"), ["default/in-folder"]);
    assert_eq!(job_names(&output, "pending"), ["default/in-stdin"]);
    let (_, output, _) = run_simulate(&[&queues, "-", "-o", "json", "-n", "default"], &job("alone"));
    assert_eq!(job_names(&output, "admitted"), ["default/alone"]);
}

#[test]
fn pipe_in_folder_is_skipped_with_error() {
    let folder = TestFolder::new("pipe");
    folder.write("queues.yaml", QUEUES);
    folder.write("one.yaml", job("one"));
    let pipe = format!("{}/pipe.yaml", folder.path());
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (code, output, errors) = run_simulate(&[&folder.path(), "-o", "json"], "");
    assert_eq!((code, errors), (3, format!("sluice: {pipe}:1: not a regular file\n")));
    assert_eq!(job_names(&output, "admitted"), ["default/one"]);
}

/// 20 runs of 1 to 20 minutes of the LocalQueue, with the amounts of a job.
#[test]
fn run_times_come_from_an_export() {
    let folder = TestFolder::new("run-times");
    let queues = folder.write("queues.yaml", QUEUES);
    let row = |minutes: u32| {
        let run = serde_json::json!({"uid": format!("u{minutes}"), "attempt": 0, "part": 0, "result": "Finished", "units": "1000"});
        serde_json::json!({"namespace": "default", "localQueue": "q", "flavor": "f", "resource": "cpu", "run": run,
            "start": "2026-01-01T10:00:00Z", "end": format!("2026-01-01T10:{minutes:02}:00Z")})
        .to_string()
    };
    let rows: Vec<String> = (1..=20).map(row).collect();
    let all = folder.write("runs.jsonl", rows.join("\n"));
    let few = folder.write("few.jsonl", rows[1..].join("\n"));
    let run = |more: &[&str]| {
        let arguments = [&[queues.as_str(), "-", "-o", "json"][..], more].concat();
        let (code, output, errors) = run_simulate(&arguments, &job("one"));
        assert_eq!((code, errors.as_str()), (0, ""), "{more:?}");
        let report: Value = serde_json::from_str(&output).unwrap();
        let ends: Vec<String> = job_names(&output, "finished");
        (ends.len(), report["end"]["seconds"].as_f64().unwrap() / 60.0, report["notes"].to_string())
    };
    for (more, ended, minutes) in [
        (vec!["--run-times", &all], 1, 10.0),
        (vec!["--run-times", &all, "--percentile", "90"], 1, 18.0),
        (vec!["--run-times", &few, "--run-for", "7m"], 1, 7.0),
        (vec!["--run-times", &few], 0, 0.0),
    ] {
        let (found, end, notes) = run(&more);
        assert_eq!((found, end), (ended, minutes), "{more:?}");
        let known = if more[1] == all { "1 admitted workloads run" } else { "0 admitted workloads run" };
        assert!(notes.contains(known), "{more:?}: {notes}");
    }
    let bad = folder.write("bad.jsonl", "{\"run\": 7}");
    for (more, part) in [
        (vec!["--run-times", &bad], "bad.jsonl: line 1: not a row of an export"),
        (vec!["--run-times", "/nonexistent.jsonl"], "--run-times /nonexistent.jsonl"),
        (vec!["--run-times", "history"], "needs --from-cluster"),
    ] {
        let (code, _, errors) = run_simulate(&[&[queues.as_str()][..], &more].concat(), "");
        assert!(code == 1 && errors.contains(part), "{more:?}: {code} {errors}");
    }
    for more in [&["--percentile", "50"][..], &["--run-times", &all, "--percentile", "75"]] {
        assert_eq!(run_simulate(&[&[queues.as_str()][..], more].concat(), "").0, 2, "{more:?}");
    }
}

#[test]
fn output_formats_agree() {
    let folder = TestFolder::new("forms");
    let queues = folder.write("queues.yaml", QUEUES);
    let run = |format: &str| run_simulate(&[&queues, "-", "--run-for", "10m", "-o", format], &job("one"));
    let (_, json, _) = run("json");
    let (_, yaml, _) = run("yaml");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), json);
    assert_eq!(json["end"]["seconds"], 600.0);
    let (_, table, _) = run("table");
    assert!(table.starts_with("Timeline\n  TIME  EVENT     NAME"), "{table}");
    assert!(table.contains("  10m   finished  default/one"), "{table}");
    assert!(
        table.ends_with("Settled after 10m: 0 admitted, 0 pending, 1 finished, 0 preemptions, 0 skipped.\n"),
        "{table}"
    );
    let (_, short, _) = run_simulate(&[&queues, "-", "--run-for", "10m", "--history", "1"], &job("one"));
    assert!(short.contains("… 1 more"), "{short}");
}

#[test]
fn exit_code_cases() {
    let folder = TestFolder::new("codes");
    let queues = folder.write("queues.yaml", QUEUES);
    let invalid = folder.write("bad.yaml", "kind: Cohort\n---\nkind: [\n");
    folder.write("binary.yaml", [b'a', b'\n', 0xff, 0xfe]);
    let two = format!("{}---\n{}", job("one"), job("two"));
    let table: [(&[&str], &str, i32, &str); 9] = [
        (&[&queues, "-"], &two, 0, ""),
        (&[&queues, "-", "--fail-pending"], &two, 4, ""),
        (&[&queues, "-", "--fail-pending", "--run-for", "1s"], &two, 0, ""),
        (&[&queues, &invalid], "", 3, "bad.yaml:1: Cohort: apiVersion: Required value"),
        (&[&folder.path(), "--fail-pending"], "", 3, "binary.yaml:2: not UTF-8"),
        (&["no-such-file"], "", 1, "no-such-file: No such file"),
        (&[], "", 1, "nothing to simulate"),
        (&[&queues, "--until", "soon"], "", 2, "must be settled, or a duration"),
        (&[&queues, "--kubeconfig", "x"], "", 2, "--from-cluster"),
    ];
    for (arguments, input, code, words) in table {
        let (actual, _, errors) = run_simulate(arguments, input);
        assert_eq!(actual, code, "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
}

#[test]
fn invalid_scenario_does_not_stop_others() {
    let valid = r#"{"now": "2026-01-01T00:00:00Z", "objects": []}"#;
    let input = format!("{valid}\n{{\n\n{valid}\n");
    let (code, output, errors) = run_simulate(&["--jsonl"], &input);
    let outcomes: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, outcomes.len()), (3, 3), "{errors}");
    assert!(outcomes[1]["error"].as_str().unwrap().contains("EOF"), "{output}");
    assert_eq!(outcomes[0], outcomes[2]);
    assert!(errors.contains("standard input, line 2: EOF") && errors.lines().count() == 1, "{errors}");
}

#[test]
fn then_manifests_apply_after_stable_state() {
    let folder = TestFolder::new("then");
    let queues = folder.write("queues.yaml", format!("{QUEUES}---\n{}---\n{}", job("one"), job("two")));
    let raise = folder.write("raise.yaml", QUEUES.replace("nominalQuota: 1", "nominalQuota: 2"));
    let three = folder.write("three.yaml", job("three"));
    let (code, output, errors) =
        run_simulate(&[&queues, "--then", &raise, "--then", &three, "-o", "json"], "");
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(job_names(&output, "admitted"), ["default/one", "default/two"]);
    assert_eq!(job_names(&output, "pending"), ["default/three"]);
}

#[test]
fn livelock_exits_with_dedicated_code() {
    let folder = TestFolder::new("livelock");
    let queues = folder.write("queues.yaml", QUEUES);
    let livelocked = job("one").replace("labels:", "annotations: {sluice.dev/ready-after: 5h}, labels:");
    let (code, _, errors) = run_simulate(&[&queues, "-", "--history", "1"], &livelocked);
    assert_eq!(code, 5, "{errors}");
    assert!(errors.starts_with("sluice: livelock detected: workloads only evict each other"), "{errors}");
    let (code, _, errors) = run_simulate(&[&queues, "-", "--until", "100h"], &livelocked);
    assert_eq!((code, errors.as_str()), (0, ""));
}

#[test]
fn manager_configuration_is_applied() {
    let folder = TestFolder::new("configuration");
    let queues = folder.write(
        "queues.yaml",
        format!("{QUEUES}---\n{}", job("free").replace("kueue.x-k8s.io/queue-name: q", "a: b")),
    );
    let config = folder.write(
        "config.yaml",
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: true\n",
    );
    let (_, output, _) = run_simulate(&[&queues, "-o", "json"], "");
    assert!(output.contains("\"unqueued\": [\n    \"Job default/free\"\n  ]"), "{output}");
    let (code, output, errors) = run_simulate(&[&queues, "-o", "json", "--config", &config], "");
    assert_eq!(code, 0, "{errors}");
    assert_eq!(job_names(&output, "pending"), ["default/free"]);
    let broken = folder.write("broken.yaml", "kind: Other\n");
    let (code, _, errors) = run_simulate(&[&queues, "--config", &broken], "");
    assert!(code == 1 && errors.contains("configuration"), "{errors}");
}

#[test]
fn deleting_queue_is_reported_as_inactive() {
    let folder = TestFolder::new("deleted");
    let queues = folder.write("queues.yaml", format!("{QUEUES}---\n{}", job("one")));
    let deleted = folder.write(
        "gone.yaml",
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: q, deletionTimestamp: \"2026-01-01T00:00:00Z\"}\n",
    );
    let two = folder.write("two.yaml", job("two"));
    for (until, message) in
        [("5m", "ClusterQueue q is inactive: it is being deleted"), ("1h", "ClusterQueue q doesn't exist")]
    {
        let arguments =
            [&queues, "--then", &deleted, "--then", &two, "--run-for", "10m", "--until", until, "-o", "json"];
        let (code, output, errors) = run_simulate(&arguments, "");
        assert_eq!((code, errors.as_str()), (0, ""));
        assert_eq!(job_names(&output, "pending"), ["default/two"], "{until}");
        let report: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(report["pending"][0]["message"], message, "{until}");
    }
}

/// A running Job that is resized is stopped once and runs at its new size, and the simulation ends.
#[test]
fn resized_job_runs_at_new_size() {
    let folder = TestFolder::new("resize");
    let sized = |pods: u32| job("j").replace("spec:\n", &format!("spec:\n  parallelism: {pods}\n"));
    let queues = QUEUES.replace("nominalQuota: 1", "nominalQuota: 4");
    let start = folder.write("start.yaml", format!("{queues}---\n{}", sized(2)));
    for pods in [0, 1, 3] {
        let then = folder.write("then.yaml", sized(pods));
        let (code, output, errors) = run_simulate(&[&start, "--then", &then, "-o", "json"], "");
        assert_eq!((code, errors.as_str()), (0, ""));
        let report: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(report["admitted"][0]["podSets"][0]["count"], pods, "{report}");
        let admissions = report["timeline"].as_array().unwrap().iter().filter(|e| e["event"] == "admitted");
        assert_eq!(admissions.count(), 2, "{report}");
    }
    let then = folder.write("then.yaml", sized(5));
    let (code, output, _) = run_simulate(&[&start, "--then", &then, "-o", "json"], "");
    assert_eq!((code, job_names(&output, "pending")), (0, vec!["default/j".to_owned()]));
}

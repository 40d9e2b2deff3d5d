//! A kind of jobs that a file describes: simulated by the program, and its component built by kustomize.

use crate::fixtures::simulate_command::{QUEUES, TestFolder, run_simulate};
use crate::manifests::kustomize::{build_with, objects};
use serde_json::{Value, json};
use sluice::frameworks::{components, framework_from_file};
use std::path::{Path, PathBuf};

/// The queue of the other tests of the command, with quota for a job, under the name that the sample has.
fn queues() -> String {
    let named = QUEUES.replace("name: q}\nspec: {clusterQueue", "name: team-a-queue}\nspec: {clusterQueue");
    format!("{}---\n", named.replace("nominalQuota: 1", "nominalQuota: 8"))
}

fn sample(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples/framework-file").join(file)
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Two jobs of six pods in a quota of eight run one after the other, to their ends.
#[test]
fn jobs_of_the_kind_are_simulated_to_their_end() {
    let file = sample("framework.yaml").display().to_string();
    let job = text(&sample("render.yaml"));
    let named = |name: &str| job.replace("generateName: sample-render-", &format!("name: {name}"));
    let input = format!("{}{}---\n{}", queues(), named("first"), named("second"));
    let input = input.replace("              memory: 200Mi\n", "");
    let arguments = ["-", "-o", "json", "--run-for", "1h", "--framework-file", &file];
    let (code, output, errors) = run_simulate(&arguments, &input);
    assert_eq!((code, errors.as_str()), (0, ""), "{output}");
    let report: Value = serde_json::from_str(&output).unwrap();
    let finished: Vec<&Value> = report["finished"].as_array().unwrap().iter().collect();
    assert_eq!(finished.len(), 2, "{report}");
    // Without the file its objects are of an unknown kind.
    let (_, output, _) = run_simulate(&["-", "-o", "json"], &input);
    let report: Value = serde_json::from_str(&output).unwrap();
    assert!(report["finished"].as_array().unwrap().is_empty() && output.contains("Render"), "{report}");
}

/// A queued Job below a job of the kind runs on the quota of that if the file says that its controller creates Jobs, and is queued by
/// itself otherwise.
#[test]
fn what_its_controller_creates_runs_on_its_quota() {
    let folder = TestFolder::new("framework-file-chain");
    let pods = text(&sample("framework.yaml"));
    let jobs = pods.replace("creates:\n", "creates:\n- group: batch\n  kind: Job\n");
    let created = "resourceVersion: \"1\"\n  creationTimestamp: \"2026-01-01T00:00:00Z\"";
    let above = text(&sample("render.yaml"))
        .replace("generateName: sample-render-", &format!("name: above\n  uid: uid-above\n  {created}"))
        .replace("spec:\n  director:", "spec:\n  suspend: true\n  director:")
        .replace("              memory: 200Mi\n", "");
    let child = format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: child\n  namespace: default\n  uid: uid-child\n  {created}\n  \
         labels: {{kueue.x-k8s.io/queue-name: team-a-queue}}\n  ownerReferences:\n  - {{apiVersion: example.com/v1, \
         kind: Render, name: above, uid: uid-above, controller: true}}\nspec:\n  suspend: true\n  parallelism: 1\n  \
         completions: 1\n  template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: x, \
         resources: {{requests: {{cpu: 1}}}}}}]}}}}\n"
    );
    let input = format!("{}{above}---\n{child}", queues());
    for (name, file, expected) in [("pods.yaml", pods, 2), ("jobs.yaml", jobs, 1)] {
        let file = folder.write(name, file);
        let (_, output, errors) = run_simulate(&["-", "-o", "json", "--framework-file", &file], &input);
        let report: Value = serde_json::from_str(&output).unwrap();
        let rows = ["admitted", "pending", "finished"].map(|list| report[list].as_array().unwrap());
        let workloads = rows.into_iter().flatten().filter(|row| row.get("workload").is_some()).count();
        assert_eq!(workloads, expected, "{name}: {errors} {report:#}");
    }
}

#[test]
fn wrong_files_stop_the_program() {
    let folder = TestFolder::new("framework-file");
    let sample = text(&sample("framework.yaml"));
    let faulty = folder.write("faulty.yaml", sample.replace("suspend: /spec", "suspend: /status"));
    let known = folder.write(
        "known.yaml",
        sample.replace("group: example.com", "group: ray.io").replace("kind: Render", "kind: RayJob"),
    );
    let good = folder.write("good.yaml", &sample);
    let empty = folder.write("empty.yaml", "");
    let commented = folder.write("commented.yaml", "# kind: Framework\n");
    for (files, wanted) in [
        (vec![&faulty], "faulty.yaml: suspend: \"/status/suspend\" must be a JSON pointer below /spec"),
        (vec![&known], "RayJob of group \"ray.io\" is known as ray.io/rayjob"),
        (vec![&good, &good], "Render of group \"example.com\" is known as example.com/render"),
        (vec![&format!("{good}.absent")], "No such file"),
        (vec![&empty], "empty.yaml: the file has no content"),
        (vec![&good, &commented], "commented.yaml: the file has no content"),
    ] {
        let mut arguments = vec!["-"];
        for file in files {
            arguments.extend(["--framework-file", file.as_str()]);
        }
        let (code, _, errors) = run_simulate(&arguments, QUEUES);
        assert!(code != 0 && errors.contains(wanted), "{code}: {errors}");
    }
}

/// The component gives webhooks, permissions and the file to the manager, in one Deployment or two, in another namespace.
#[test]
fn component_is_complete() {
    let file = text(&sample("framework.yaml"));
    let row = framework_from_file(&file).unwrap();
    let files: Vec<(String, String)> = components::files_of(&row, &file)
        .into_iter()
        .map(|(path, text)| (format!("config/frameworks/render/{path}"), text))
        .collect();
    let all =
        ["", "/manage-all-jobs", "/retention", "/split"].map(|below| format!("frameworks/render{below}"));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for (added, certificates) in
        [(&all[..3], &["self-managed"][..]), (&all, &["../config/split", "self-managed"])]
    {
        let name = format!("framework-file-{}", added.len());
        let Some(text) = build_with(&name, added, certificates, &files) else { return };
        let map = objects(&text, "ConfigMap")
            .into_iter()
            .find(|map| {
                map["metadata"]["name"].as_str().unwrap().starts_with("kueue-framework-render.example.com")
            })
            .unwrap();
        assert_eq!(map["data"]["render.example.com.yaml"], json!(file));
        let deployments = objects(&text, "Deployment");
        assert_eq!(deployments.len(), certificates.len());
        for deployment in deployments {
            let pod = &deployment["spec"]["template"]["spec"];
            let has =
                |list: &Value, wanted: &dyn Fn(&Value) -> bool| list.as_array().unwrap().iter().any(wanted);
            let flag = json!("--framework-file=/frameworks/render.example.com.yaml");
            assert!(has(&pod["containers"][0]["args"], &|arg| *arg == flag), "{pod}");
            assert!(
                has(&pod["volumes"], &|volume| volume["configMap"]["name"] == map["metadata"]["name"]),
                "{pod}"
            );
        }
        for (kind, names) in [
            ("MutatingWebhookConfiguration", ["mrender.example.com", "mrender-managed.example.com"]),
            ("ValidatingWebhookConfiguration", ["vrender.example.com", "vrender-managed.example.com"]),
        ] {
            let entries = objects(&text, kind)[0]["webhooks"].as_array().unwrap().clone();
            let mut found: Vec<&str> = entries.iter().filter_map(|entry| entry["name"].as_str()).collect();
            found.retain(|name| name.contains("render"));
            assert_eq!(found, names, "those that fail open are replaced");
        }
        let bound = objects(&text, "ClusterRoleBinding");
        let accounts: Vec<(&str, &str)> = bound
            .iter()
            .filter(|binding| binding["roleRef"]["name"].as_str().unwrap().contains("render"))
            .map(|binding| &binding["subjects"][0])
            .map(|subject| (subject["name"].as_str().unwrap(), subject["namespace"].as_str().unwrap()))
            .collect();
        let [manager, webhooks] =
            ["kueue-controller-manager", "kueue-webhooks"].map(|name| (name, "batch-queues"));
        assert_eq!(accounts, [manager, manager, webhooks][..added.len() - 1]);
    }
}

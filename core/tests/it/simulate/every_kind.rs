//! Jobs of every kind in `sluice simulate`: each row is played from its sample to its end, also out of a dump.

use crate::fixtures::every_job_kind::{sample as sample_in_queue, server_of_all_kinds};
use crate::fixtures::job_samples::{related, submitted};
use crate::fixtures::simulate_cluster;
use crate::fixtures::simulate_cluster::{flavor, manifests, options, queue, report};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Framework, JobKind, Role, frameworks};
use sluice_core::simulate::{Dump, Manifests, Redaction, Simulation, SimulationOptions, Until};

const NAME: &str = "sample";

/// A simulation of all kinds.
fn simulation() -> Simulation {
    let defaults = options();
    let mut core = defaults.core;
    core.frameworks = frameworks().map(|row| row.name.to_owned()).collect();
    Simulation::new(SimulationOptions { core, ..defaults }).unwrap()
}

/// The sample of a kind in the queue `q`, not suspended, whose pods run for a minute.
fn sample(row: &Framework) -> Value {
    let mut object = submitted(row);
    object["metadata"] = json!({
        "name": NAME, "labels": {"kueue.x-k8s.io/queue-name": "q"},
        "annotations": {"sluice.dev/run-for": "60s", "sluice.dev/terminate-after": "10s"},
    });
    if let Some(suspend) = row.fields.suspend {
        *object.pointer_mut(suspend).unwrap() = json!(false);
    }
    object
}

/// The queues, and the objects that the sample of a kind reads.
fn objects(row: &Framework, cpus: &str) -> Vec<Value> {
    let mut queues = queue("q", cpus, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    queues[0]["spec"]["resourceGroups"] = json!([{"coveredResources": ["cpu", "memory"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpus}, {"name": "memory", "nominalQuota": "100Gi"}]}]}]);
    let read: Vec<Value> = related().into_iter().map(|(_, object)| object).collect();
    let high = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
        "metadata": {"name": "high"}, "value": 100});
    [vec![flavor(), high], queues.to_vec(), read, vec![sample(row)]].concat()
}

/// Nothing was refused, nothing waits, and nothing runs without quota.
fn assert_quiet(row: &Framework, report: &Value) {
    for part in ["problems", "pending", "notManaged", "unqueued"] {
        assert_eq!(report[part], json!([]), "{}: {part} {report}", row.name);
    }
    assert_eq!(report["warnings"], json!({}), "{}: {report}", row.name);
}

/// Returns the amount of a resource that is in use.
fn in_use(report: &Value, resource: &str) -> String {
    let usage = report["queues"][0]["usage"].as_array().unwrap();
    let of_resource = usage.iter().find(|usage| usage["resource"] == resource).unwrap();
    of_resource["used"].as_str().unwrap().to_owned()
}

/// Whether the jobs of a kind end by themselves.
fn ends(row: &Framework) -> bool {
    row.is_pod() || row.can_finish(true)
}

#[test]
fn each_kind_is_played_from_its_sample_to_its_end() {
    for row in frameworks() {
        let mut simulation = simulation();
        simulation.apply_all(manifests(&objects(row, "10")));
        simulation.run(Until::Settled);
        let first = report(&mut simulation);
        assert_quiet(row, &first);
        let rows = if ends(row) { &first["finished"] } else { &first["admitted"] };
        let number = rows.as_array().map(Vec::len).unwrap();
        let expected = match row.role {
            // The sample has three pods; that of LeaderWorkerSets two replicas.
            Role::PassThrough => 3,
            Role::PodsOfOwner if row.has_replicas() => 2,
            _ => 1,
        };
        assert_eq!(number, expected, "{}: {first}", row.name);
        assert_eq!(in_use(&first, "cpu") == "0", ends(row), "{}: {first}", row.name);
        if ends(row) {
            assert_eq!(first["end"]["seconds"], 60.0, "{}: {first}", row.name);
            continue;
        }
        let mut gone = sample(row);
        gone["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:01:00Z");
        simulation.apply_change("deletion", manifests(&[gone]));
        simulation.run(Until::Settled);
        let last = report(&mut simulation);
        assert_eq!((&last["admitted"], &last["pending"]), (&json!([]), &json!([])), "{}: {last}", row.name);
        assert_eq!(in_use(&last, "cpu"), "0", "{}: {last}", row.name);
    }
}

/// The manager does not watch kinds that the configuration does not list.
#[test]
fn kinds_that_are_not_listed_are_not_admitted() {
    for row in frameworks().filter(|row| row.name != "batch/job") {
        let defaults = options();
        let mut core = defaults.core;
        core.frameworks = ["batch/job".to_owned()].into();
        let mut simulation = Simulation::new(SimulationOptions { core, ..defaults }).unwrap();
        simulation.apply_all(manifests(&objects(row, "10")));
        simulation.run(Until::Settled);
        let last = report(&mut simulation);
        for part in ["admitted", "pending", "finished", "evicted"] {
            assert_eq!(last[part].as_array().map_or(0, Vec::len), 0, "{}: {part} {last}", row.name);
        }
        let listed = last["notManaged"].to_string();
        assert!(listed.contains("is not in integrations.frameworks"), "{}: {last}", row.name);
        assert!(last["end"]["livelock"] != true, "{}: {last}", row.name);
    }
}

/// A more important Job takes the quota; when it has ended, the job of the kind runs again.
#[test]
fn each_kind_is_preempted_and_runs_again() {
    for row in frameworks() {
        let mut simulation = simulation();
        simulation.apply_all(manifests(&objects(row, "10")));
        simulation.run(Until::After(jiff::SignedDuration::from_secs(5)));
        let mut job = simulate_cluster::job("important", "q", 10, &json!({"sluice.dev/run-for": "100s"}));
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
        simulation.apply_change("preemption", manifests(&[job]));
        simulation.run(Until::After(jiff::SignedDuration::from_secs(50)));
        let middle = report(&mut simulation);
        let admitted = middle["admitted"].as_array().unwrap();
        assert_eq!(admitted.len(), 1, "{}: {middle}", row.name);
        assert_eq!(admitted[0]["job"], "team/important", "{}: {middle}", row.name);
        assert!(!middle["preempted"].as_array().unwrap().is_empty(), "{}: {middle}", row.name);
        simulation.run(Until::Settled);
        let last = report(&mut simulation);
        let again = if row.is_pod() {
            // Its pods are gone, and no controller makes new ones.
            continue;
        } else if ends(row) {
            last["finished"].as_array().unwrap().iter().any(|row| row["job"] != "team/important")
        } else {
            !last["admitted"].as_array().unwrap().is_empty() && last["pending"] == json!([])
        };
        assert!(again, "{}: {last}", row.name);
    }
}

/// What a dump keeps of a job and its Workload is enough to go on with both; texts that no decision reads are left out.
#[test]
fn each_kind_goes_on_out_of_a_dump() {
    for row in frameworks() {
        let kind = Kind::of_job(JobKind::new(row));
        let mut server = server_of_all_kinds(|_, _| ());
        server.submit(row, with_secrets(sample_in_queue(row, "lq"))).unwrap();
        let mut redaction = Redaction::default();
        let mut text = Vec::new();
        let header = Dump::new(server.now(), "test", None, Vec::new());
        text.push(Dump::document(&header).unwrap());
        for kind in Kind::all() {
            for mut object in server.all(kind) {
                redaction.redact(kind, &mut object);
                text.push(object.to_string());
            }
        }
        // Objects of a server have other UIDs than those of a simulation.
        let text = text.join("\n---\n").replace("\"uid-", "\"server-");
        assert!(!text.contains("hunter2"), "{}: {text}", row.name);
        let mut after = simulation();
        let mut read = Manifests::default();
        read.parse("dump", &text, "ns");
        assert!(read.problems.is_empty(), "{}: {:?}", row.name, read.problems);
        after.apply_all(read);
        after.run(Until::Settled);
        let last = report(&mut after);
        assert_quiet(row, &last);
        let runs = [&last["finished"], &last["admitted"]].map(|rows| rows.as_array().unwrap().len());
        let has_workload = row.role != Role::PassThrough;
        assert_eq!(runs[0] + runs[1] > 0, has_workload, "{}: {last}", row.name);
        assert!(server.get(kind, &row.gvk.kind.to_lowercase()).is_some());
    }
}

/// Puts a secret wherever the sample of a kind has free text.
fn with_secrets(mut object: Value) -> Value {
    let spec = object["spec"].as_object_mut().unwrap();
    for field in ["entrypoint", "runtimeEnvYAML", "serveConfigV2", "mainApplicationFile", "mainClass"] {
        if spec.contains_key(field) {
            spec[field] = json!("hunter2");
        }
    }
    let in_spec: &[(&str, Value)] = match object["kind"].as_str().unwrap() {
        "RayJob" => &[("runtimeEnvYAML", json!("env_vars: {TOKEN: hunter2}"))],
        "RayService" => &[("serveConfigV2", json!("runtime_env: hunter2"))],
        "SparkApplication" => {
            &[("arguments", json!(["hunter2"])), ("hadoopConf", json!({"fs.s3a.secret.key": "hunter2"}))]
        }
        _ => &[],
    };
    for (field, value) in in_spec {
        object["spec"][*field] = value.clone();
    }
    fill(&mut object["spec"]);
    if object["kind"] == "AppWrapper" {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": "hunter2"}});
        object["spec"]["components"].as_array_mut().unwrap().push(json!({"template": secret, "podSets": []}));
    }
    object
}

/// Puts secrets into the environment of containers and the parameters of Ray.
fn fill(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if name == "rayStartParams" {
                    *field = json!({"redis-password": "hunter2"});
                } else if name == "containers" {
                    field[0]["env"] = json!([{"name": "TOKEN", "value": "hunter2"}]);
                } else {
                    fill(field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(fill),
        _ => {}
    }
}

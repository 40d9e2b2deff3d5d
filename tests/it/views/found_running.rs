//! Jobs that run when a manager starts which charges their kind for more than the one before it did: they run on, on the quota that
//! they were given, until they start again or change their size.

use crate::fixtures::job_server::{JobServer, kind};
use crate::fixtures::server_views::Shown as _;
use serde_json::{Value, json};
use sluice::admission::AdmissionSettings;
use sluice::cache::Kind;
use sluice::frameworks::{Framework, framework};
use sluice::reconciler::CoreSettings;

const FRAMEWORKS: [&str; 5] = [
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "workload.codeflare.dev/appwrapper",
    "sparkoperator.k8s.io/sparkapplication",
];

fn settings() -> CoreSettings {
    CoreSettings { frameworks: FRAMEWORKS.map(str::to_owned).into(), ..CoreSettings::default() }
}

fn row(kind: &str) -> &'static Framework {
    let group = match kind {
        "AppWrapper" => "workload.codeflare.dev",
        "SparkApplication" => "sparkoperator.k8s.io",
        _ => "ray.io",
    };
    framework(group, kind).unwrap()
}

fn kind_of(name: &str) -> Kind {
    kind(row(name).gvk.group, name)
}

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}})
}

fn cluster() -> Value {
    json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": [
        {"groupName": "g", "replicas": 1, "minReplicas": 0, "maxReplicas": 10, "template": template()}]})
}

/// A job of a head and a worker, and where its group of workers is.
fn ray(name: &str) -> (Value, &'static str) {
    let (spec, group) = match name {
        "RayCluster" => (cluster(), "/spec/workerGroupSpecs/0"),
        "RayJob" => (
            json!({"shutdownAfterJobFinishes": true, "submissionMode": "HTTPMode", "rayClusterSpec": cluster()}),
            "/spec/rayClusterSpec/workerGroupSpecs/0",
        ),
        "RayService" => (json!({"rayClusterConfig": cluster()}), "/spec/rayClusterConfig/workerGroupSpecs/0"),
        _ => {
            let wrapped = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"},
                "spec": cluster()});
            (
                json!({"components": [{"template": wrapped}]}),
                "/spec/components/0/template/spec/workerGroupSpecs/0",
            )
        }
    };
    (json!({"metadata": metadata(), "spec": spec}), group)
}

fn metadata() -> Value {
    json!({"name": "j", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}})
}

fn runs(server: &JobServer, name: &str) -> bool {
    let suspend = row(name).fields.suspend.unwrap();
    server.holds_quota() && server.get(kind_of(name), "j").unwrap().pointer(suspend) != Some(&json!(true))
}

/// What is said of its charge since the start of the manager.
fn said(server: &JobServer) -> Vec<String> {
    let said = server.events.iter().filter(|event| event.reason == "ChargedTooLittle");
    said.map(|event| event.note.clone()).collect()
}

fn pods(server: &JobServer) -> i64 {
    let workload = server.all(Kind::Workload).remove(0);
    workload["spec"]["podSets"].as_array().unwrap().iter().map(|set| set["count"].as_i64().unwrap()).sum()
}

/// A job that runs, of which a change is made while no manager looks.
fn changed_unseen(name: &str, object: Value, change: impl FnOnce(&mut Value)) -> JobServer {
    let mut server = JobServer::with_settings(settings(), AdmissionSettings::default(), "20");
    server.submit(row(name), object).unwrap();
    assert!(runs(&server, name), "{name}");
    server.edit_unseen(kind_of(name), "j", change);
    server.restart(settings());
    server
}

/// Earlier versions charged groups of Ray workers for `replicas`, whatever limits them.
#[test]
fn ray_jobs_run_on_until_their_size_changes() {
    for name in ["RayCluster", "RayJob", "RayService", "AppWrapper"] {
        let (object, group) = ray(name);
        let mut server =
            changed_unseen(name, object, |job| job.pointer_mut(group).unwrap()["minReplicas"] = json!(3));
        assert!(runs(&server, name) && pods(&server) == 2, "{name}");
        let [note] = &said(&server)[..] else { panic!("{name}: {:?}", said(&server)) };
        assert!(note.contains("not charged: cpu: 2."), "{note}");
        let audited = server.audit();
        assert!(
            audited.iter().any(|finding| finding == &format!("job-charged-too-little {name} ns/j: an earlier version charged it too little; not charged: cpu: 2")),
            "{audited:?}"
        );
        // A second manager of this version finds it again, and says it again.
        server.restart(settings());
        assert!(runs(&server, name) && said(&server).len() == 2, "{name}");
        server.edit(kind_of(name), "j", |job| job["metadata"]["labels"]["x"] = json!("y"));
        assert!(runs(&server, name) && pods(&server) == 2, "{name}: its size stays");
        server.edit(kind_of(name), "j", |job| job.pointer_mut(group).unwrap()["minReplicas"] = json!(4));
        assert_eq!(pods(&server), 5, "{name}: its whole size counts");
        assert!(runs(&server, name) && said(&server).len() == 2, "{name}");
        assert!(!server.audit().iter().any(|finding| finding.starts_with("job-charged")), "{name}");
    }
}

/// What no earlier version would have charged either is a change of size.
#[test]
fn ray_jobs_that_were_resized_unseen_are_queued_again() {
    for name in ["RayCluster", "RayJob", "RayService", "AppWrapper"] {
        let (object, group) = ray(name);
        let server = changed_unseen(name, object, |job| {
            job.pointer_mut(group).unwrap()["replicas"] = json!(2);
            job.pointer_mut(group).unwrap()["minReplicas"] = json!(5);
        });
        assert!(runs(&server, name) && pods(&server) == 6 && said(&server).is_empty(), "{name}");
    }
}

/// Earlier versions charged a wrapped cluster for what the controller of the wrapper writes into the status: `replicas`.
#[test]
fn wrapped_clusters_run_on_what_the_status_says() {
    let (object, group) = ray("AppWrapper");
    let kind = kind_of("AppWrapper");
    let mut server = changed_unseen("AppWrapper", object, |job| {
        job.pointer_mut(group).unwrap()["numOfHosts"] = json!(3);
        job["status"]["componentStatus"] = json!([{"podSets": [
            {"path": "template.spec.headGroupSpec.template", "replicas": 1},
            {"path": "template.spec.workerGroupSpecs[0].template", "replicas": 1}]}]);
    });
    assert!(runs(&server, "AppWrapper") && pods(&server) == 2);
    let [note] = &said(&server)[..] else { panic!("{:?}", said(&server)) };
    assert!(note.contains("not charged: cpu: 2."), "{note}");
    server.edit(kind, "j", |job| job.pointer_mut(group).unwrap()["numOfHosts"] = json!(4));
    assert!(runs(&server, "AppWrapper") && pods(&server) == 5, "its whole size counts");
}

/// A group that KubeRay does not start was charged, which is no reason to stop the others.
#[test]
fn jobs_that_are_charged_too_much_run_on() {
    let (object, group) = ray("RayCluster");
    let mut server =
        changed_unseen("RayCluster", object, |job| job.pointer_mut(group).unwrap()["suspend"] = json!(true));
    assert!(runs(&server, "RayCluster") && pods(&server) == 2 && said(&server).is_empty());
    server.edit(kind_of("RayCluster"), "j", |job| job.pointer_mut(group).unwrap()["suspend"] = json!(false));
    assert!(runs(&server, "RayCluster") && pods(&server) == 2);
}

/// Earlier versions took `TRUE` for no boolean, and did not read names that Spark had given up.
#[test]
fn spark_applications_run_on() {
    let name = "SparkApplication";
    for (setting, text, missing) in [
        ("spark.memory.offHeap.enabled", "TRUE", "16Gi"),
        ("spark.unsafe.offHeap", "true", "16Gi"),
        ("spark.yarn.executor.memoryOverhead", "1408m", "2Gi"),
    ] {
        let application = json!({"metadata": metadata(), "spec": {"type": "Scala", "mode": "cluster",
            "sparkVersion": "4.0.0", "mainApplicationFile": "local:///a.jar",
            "sparkConf": {"spark.memory.offHeap.size": "8g"},
            "driver": {"coreRequest": "1", "memory": "512m"},
            "executor": {"instances": 2, "coreRequest": "1", "memory": "512m"}}});
        let server = changed_unseen(name, application, |job| job["spec"]["sparkConf"][setting] = json!(text));
        assert!(runs(&server, name), "{setting}");
        let [note] = &said(&server)[..] else { panic!("{setting}: {:?}", said(&server)) };
        assert!(note.contains(&format!("not charged: memory: {missing}.")), "{setting}: {note}");
    }
}

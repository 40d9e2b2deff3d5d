//! Elastic RayServices that are upgraded: both RayClusters, which autoscalers resize, stay within what the RayService is charged for.

use crate::fixtures::job_server::{JobServer, kind};
use serde_json::{Value, json};
use sluice_core::admission::AdmissionSettings;
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;
use sluice_core::reconciler::CoreSettings;

const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";

fn services() -> Kind {
    kind("ray.io", "RayService")
}

fn clusters() -> Kind {
    kind("ray.io", "RayCluster")
}

/// What a RayService reads of a cluster is a watch of its own.
fn show(server: &mut JobServer, name: &str) {
    let read = Kind::Related(framework("ray.io", "RayService").unwrap().related[0]);
    match server.get(clusters(), name).cloned() {
        Some(object) if server.get(read, name).is_some() => server.edit(read, name, |known| *known = object),
        Some(object) => server.load(read, object),
        None => server.delete(read, name),
    }
}

fn set_workers(server: &mut JobServer, name: &str, workers: u8) {
    server.edit(clusters(), name, |cluster| {
        cluster["spec"]["workerGroupSpecs"][0]["replicas"] = json!(workers);
    });
    show(server, name);
}

fn delete_cluster(server: &mut JobServer, name: &str) {
    server.delete(clusters(), name);
    show(server, name);
}

fn settings(elastic: bool) -> CoreSettings {
    let frameworks = ["ray.io/rayservice", "ray.io/raycluster"].map(str::to_owned).into();
    let mut settings = CoreSettings { frameworks, ..CoreSettings::default() };
    settings.gates.elastic_jobs = elastic;
    settings
}

/// A RayService with a head and three workers of one CPU each, and its upgrade strategy.
fn service(strategy: &str, autoscaled: bool) -> Value {
    let template = json!({"spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    json!({
        "metadata": {"name": "above", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {ELASTIC: "true"}},
        "spec": {"upgradeStrategy": {"type": strategy}, "rayClusterConfig": {
            "suspend": true, "enableInTreeAutoscaling": autoscaled, "headGroupSpec": {"template": template},
            "workerGroupSpecs": [{"groupName": "main", "replicas": 3, "minReplicas": 1, "maxReplicas": 9,
                "template": template}]}}})
}

/// The cluster that KubeRay makes of the RayService.
fn cluster(server: &JobServer, name: &str) -> Value {
    let above = server.get(services(), "above").unwrap();
    json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": above["spec"]["rayClusterConfig"],
        "metadata": {"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "annotations": above["metadata"]["annotations"],
            "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayService", "name": "above",
                "uid": above["metadata"]["uid"], "controller": true}]}})
}

fn make_cluster(server: &mut JobServer, name: &str, field: &str) {
    let made = server.admit(framework("ray.io", "RayCluster").unwrap(), cluster(server, name), None).unwrap();
    server.create(clusters(), made);
    show(server, name);
    server.edit(services(), "above", |service| service["status"][field]["rayClusterName"] = json!(name));
}

/// KubeRay makes pods of a cluster, named after it; the first is its head.
fn make_pods(server: &mut JobServer, name: &str, numbers: std::ops::Range<usize>) {
    let cluster = server.get(clusters(), name).unwrap().clone();
    for number in numbers {
        let place = if number == 0 { "/headGroupSpec/template" } else { "/workerGroupSpecs/0/template" };
        let mut pod = cluster["spec"].pointer(place).unwrap().clone();
        pod["metadata"]["name"] = json!(format!("{name}-{number}"));
        pod["metadata"]["namespace"] = json!("ns");
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": name,
            "uid": cluster["metadata"]["uid"], "controller": true}]);
        server.create(Kind::Pod, pod);
    }
}

/// The pods that may run, or run.
fn ungated(server: &JobServer) -> Vec<String> {
    let gated =
        |pod: &Value| pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let pods = server.all(Kind::Pod).into_iter().filter(|pod| !gated(pod));
    pods.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Number of pods that are charged.
fn charged(server: &JobServer) -> i64 {
    let workloads = server.all(Kind::Workload);
    let is_true = |workload: &Value, name: &str| {
        let conditions = workload["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|c| c["type"] == name && c["status"] == "True"))
    };
    let charged = workloads.iter().filter(|w| is_true(w, "QuotaReserved") && !is_true(w, "Finished"));
    let pods = |workload: &Value| workload["spec"]["podSets"].as_array().cloned().unwrap();
    charged.flat_map(pods).map(|set| set["count"].as_i64().unwrap()).sum()
}

fn suspended(server: &JobServer, name: &str) -> bool {
    server.get(clusters(), name).unwrap()["spec"]["suspend"] == true
}

fn said(server: &JobServer, reason: &str) -> Vec<String> {
    let said = server.events.iter().filter(|event| event.reason == reason && *event.key.name == *"above");
    said.map(|event| event.note.clone()).collect()
}

/// In a queue of as many CPUs, a service whose first cluster runs: four pods, of which that of the head asks for half a CPU more for
/// the autoscaler.
fn running(strategy: &str, autoscaled: bool, cpus: &str) -> JobServer {
    let mut server = JobServer::with_settings(settings(true), AdmissionSettings::default(), cpus);
    server.submit(framework("ray.io", "RayService").unwrap(), service(strategy, autoscaled)).unwrap();
    make_cluster(&mut server, "c", "activeServiceStatus");
    make_pods(&mut server, "c", 0..4);
    for pod in ["c-0", "c-1", "c-2", "c-3"] {
        server.run_pod(pod);
    }
    assert_eq!((ungated(&server).len(), charged(&server)), (4, 4));
    server
}

const CASES: [(&str, bool); 3] =
    [("NewClusterWithIncrementalUpgrade", true), ("NewCluster", true), ("NewCluster", false)];

fn end(server: &mut JobServer, pod: &str) {
    server.end_pod(pod);
    server.delete(Kind::Pod, pod);
}

/// The first cluster is gone, and the second one serves.
fn switch(server: &mut JobServer) {
    server.edit(services(), "above", |service| {
        service["status"] = json!({"activeServiceStatus": {"rayClusterName": "d"}});
    });
    let first = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().starts_with("c-");
    let pods: Vec<Value> = server.all(Kind::Pod).into_iter().filter(first).collect();
    delete_cluster(server, "c");
    assert_eq!(charged(server), 4, "its pods run");
    for pod in pods {
        end(server, pod["metadata"]["name"].as_str().unwrap());
    }
}

/// Without room for both, the pods of the second wait, whatever the first does; then they take its place.
#[test]
fn second_elastic_cluster_waits_for_room() {
    for (strategy, autoscaled) in CASES {
        let case = format!("{strategy} {autoscaled}");
        let mut server = running(strategy, autoscaled, "5");
        make_cluster(&mut server, "d", "pendingServiceStatus");
        make_pods(&mut server, "d", 0..4);
        assert!(ungated(&server).iter().all(|pod| pod.starts_with("c-")), "{case}: {:?}", ungated(&server));
        let [note] = &said(&server, "ChildWaits")[..] else { panic!("{case}: {:?}", server.events) };
        assert!(
            note.contains("RayCluster d waits for quota") && note.contains("it requests: cpu: 4"),
            "{note}"
        );
        // A worker of the first that failed is replaced: the room is its own.
        end(&mut server, "c-1");
        assert_eq!((ungated(&server).len(), charged(&server)), (3, 4), "{case}");
        make_pods(&mut server, "c", 4..5);
        assert_eq!(ungated(&server), ["c-0", "c-2", "c-3", "c-4"], "{case}");
        assert!(!suspended(&server, "c") && said(&server, "Stopped").is_empty(), "{case}");
        switch(&mut server);
        assert_eq!(ungated(&server), ["d-0", "d-1", "d-2", "d-3"], "{case}: {:?}", server.events);
        assert_eq!((charged(&server), said(&server, "Stopped").len()), (4, 0), "{case}");
    }
}

/// Both run with room for both. They grow with quota only.
#[test]
fn both_elastic_clusters_are_charged() {
    for (strategy, autoscaled) in CASES {
        let case = format!("{strategy} {autoscaled}");
        // The head of an autoscaled cluster asks for half a CPU more.
        let mut server = running(strategy, autoscaled, if autoscaled { "9" } else { "8" });
        make_cluster(&mut server, "d", "pendingServiceStatus");
        make_pods(&mut server, "d", 0..4);
        assert_eq!((ungated(&server).len(), charged(&server)), (8, 8), "{case}: {:?}", server.events);
        for pod in ["d-0", "d-1", "d-2", "d-3"] {
            server.run_pod(pod);
        }
        set_workers(&mut server, "d", 4);
        make_pods(&mut server, "d", 4..5);
        assert_eq!((ungated(&server).len(), charged(&server)), (8, 8), "{case}");
        server.edit_queue("10");
        assert_eq!((ungated(&server).len(), charged(&server)), (9, 9), "{case}: {:?}", server.events);
        // The traffic has moved: the first one shrinks, then it goes.
        if autoscaled {
            set_workers(&mut server, "c", 1);
            assert_eq!(charged(&server), 9, "{case}: its pods run");
            end(&mut server, "c-2");
            end(&mut server, "c-3");
            assert_eq!(charged(&server), 7, "{case}");
        }
        server.restart(settings(true));
        assert_eq!(said(&server, "Stopped").len(), 0, "{case}: {:?}", server.events);
        assert!(!suspended(&server, "c") && !suspended(&server, "d"), "{case}");
    }
}

/// Where no job is elastic, the second cluster waits as a whole.
#[test]
fn second_autoscaled_cluster_waits_where_no_job_is_elastic() {
    let mut server = JobServer::with_settings(settings(false), AdmissionSettings::default(), "5");
    server.create(services(), service("NewClusterWithIncrementalUpgrade", true));
    assert_eq!(charged(&server), 4);
    for (name, field) in [("c", "activeServiceStatus"), ("d", "pendingServiceStatus")] {
        let made = cluster(&server, name);
        server.create(clusters(), made);
        show(&mut server, name);
        server.edit(services(), "above", |service| service["status"][field]["rayClusterName"] = json!(name));
    }
    assert!(!suspended(&server, "c") && suspended(&server, "d"), "{:?}", server.events);
    assert_eq!((charged(&server), said(&server, "ChildWaits").len()), (4, 1), "{:?}", server.events);
    delete_cluster(&mut server, "c");
    server.edit(services(), "above", |service| {
        service["status"] = json!({"activeServiceStatus": {"rayClusterName": "d"}});
    });
    assert!(!suspended(&server, "d") && said(&server, "Stopped").is_empty(), "{:?}", server.events);
}

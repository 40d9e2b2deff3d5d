//! The RayCluster of a RayService that waits or is preempted. KubeRay neither suspends nor resumes it, and prepares a second one if the
//! RayService changes while the head of the first one is there.

use crate::fixtures::job_server::{JobServer, kind};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;

const STOPPED: &str = "sluice.dev/stopped-below";
const WAITS: &str = "sluice.dev/waits-for-room";
const HASH: &str = "ray.io/hash-without-replicas-and-workers-to-delete";
const GROUPS: &str = "ray.io/num-worker-groups";
const VERSION: &str = "ray.io/kuberay-version";

fn services() -> Kind {
    kind("ray.io", "RayService")
}

fn clusters() -> Kind {
    kind("ray.io", "RayCluster")
}

/// What a RayService reads of a cluster is a watch of its own.
fn show(server: &mut JobServer, name: &str) {
    let read = Kind::Related(framework("ray.io", "RayService").unwrap().related[0]);
    let object = server.get(clusters(), name).cloned().unwrap();
    if server.get(read, name).is_some() {
        server.edit(read, name, |known| *known = object);
    } else {
        server.load(read, object);
    }
}

/// A RayService of a head and two workers with one CPU each, in a queue of as many CPUs.
fn server(cpus: &str) -> JobServer {
    let mut server = JobServer::new(&["ray.io/rayservice", "ray.io/rayjob", "ray.io/raycluster"], cpus);
    let service = json!({"metadata": metadata("above"), "spec": {"rayClusterConfig": cluster_spec()}});
    server.submit(framework("ray.io", "RayService").unwrap(), service).unwrap();
    server
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}})
}

fn cluster_spec() -> Value {
    let template = json!({"spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    json!({"headGroupSpec": {"template": template},
        "workerGroupSpecs": [{"groupName": "main", "replicas": 2, "template": template}]})
}

/// What KubeRay makes of the RayService as it is.
fn copy(server: &JobServer, name: &str) -> Value {
    let above = server.get(services(), "above").unwrap();
    let spec = above["spec"]["rayClusterConfig"].clone();
    let mut metadata = metadata(name);
    metadata["annotations"] = json!({HASH: spec.to_string(), GROUPS: "1", VERSION: "v1.6.0"});
    metadata["ownerReferences"] = json!([{"apiVersion": "ray.io/v1", "kind": "RayService", "name": "above",
        "uid": above["metadata"]["uid"], "controller": true}]);
    json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec})
}

fn make(server: &mut JobServer, name: &str, field: &str) {
    let made = server.admit(framework("ray.io", "RayCluster").unwrap(), copy(server, name), None).unwrap();
    server.create(clusters(), made);
    show(server, name);
    server.edit(services(), "above", |service| service["status"][field]["rayClusterName"] = json!(name));
}

/// KubeRay updates a cluster in place that says neither of which version of the RayService it is, nor how many groups it has.
fn follow(server: &mut JobServer, name: &str) {
    let cluster = server.get(clusters(), name).unwrap().clone();
    let goal = copy(server, name);
    let says = |annotation: &str| cluster["metadata"]["annotations"][annotation].clone();
    if says(HASH) != goal["metadata"]["annotations"][HASH] && says(GROUPS).is_null() {
        let row = framework("ray.io", "RayCluster").unwrap();
        let mut new = cluster.clone();
        new["spec"] = goal["spec"].clone();
        new["metadata"]["annotations"] = goal["metadata"]["annotations"].clone();
        let new = server.admit(row, new, Some(&cluster)).unwrap();
        server.edit(clusters(), name, |known| *known = new);
        show(server, name);
    }
}

/// KubeRay writes that a cluster has pods, or none.
fn set_pods(server: &mut JobServer, name: &str, has_pods: bool) {
    let (state, suspended) = if has_pods { ("ready", "False") } else { ("suspended", "True") };
    server.edit(clusters(), name, |cluster| {
        cluster["status"] =
            json!({"state": state, "conditions": [{"type": "RayClusterSuspended", "status": suspended}]});
    });
    show(server, name);
}

/// A RayService that runs, and whose cluster serves.
fn running() -> JobServer {
    let mut server = server("3");
    assert!(server.holds_quota());
    make(&mut server, "c", "activeServiceStatus");
    set_pods(&mut server, "c", true);
    server.edit(services(), "above", |service| {
        service["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    });
    assert!(!is_suspended(&server, "c"));
    server
}

fn is_suspended(server: &JobServer, name: &str) -> bool {
    server.get(clusters(), name).unwrap()["spec"]["suspend"] == true
}

fn service_is_suspended(server: &JobServer) -> bool {
    server.get(services(), "above").unwrap()["spec"]["rayClusterConfig"]["suspend"] == true
}

fn annotation(server: &JobServer, name: &str, annotation: &str) -> Value {
    server.get(clusters(), name).unwrap()["metadata"]["annotations"][annotation].clone()
}

/// Whether the pods of a cluster get what the start of the RayService has added.
fn has_marks(server: &JobServer, name: &str) -> bool {
    let template = &server.get(clusters(), name).unwrap()["spec"]["headGroupSpec"]["template"];
    template["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "head"
}

fn reactivate(server: &mut JobServer) {
    let name = server.workload_name();
    server.edit(Kind::Workload, &name, |workload| workload["spec"]["active"] = json!(true));
}

fn assert_nothing_is_left_to_do(server: &mut JobServer) {
    let writes = server.writes;
    server.advance(SignedDuration::from_secs(3600));
    assert_eq!(server.writes, writes);
}

/// KubeRay makes a suspended cluster while the RayService waits; that one runs after the admission, with what this has added.
#[test]
fn cluster_of_a_service_that_waited_runs() {
    let mut server = server("0");
    make(&mut server, "c", "pendingServiceStatus");
    assert!(is_suspended(&server, "c") && !has_marks(&server, "c"));
    assert!(annotation(&server, "c", HASH).is_string(), "the RayService waits");
    assert_nothing_is_left_to_do(&mut server);
    server.edit_queue("3");
    assert!(server.holds_quota() && !service_is_suspended(&server));
    assert!(is_suspended(&server, "c"), "its pods would run anywhere");
    for name in [HASH, GROUPS, VERSION] {
        assert!(annotation(&server, "c", name).is_null(), "{name}");
    }
    assert_nothing_is_left_to_do(&mut server);
    follow(&mut server, "c");
    assert!(!is_suspended(&server, "c") && has_marks(&server, "c"));
    assert_nothing_is_left_to_do(&mut server);
}

/// It is suspended when its cluster has no head any more, and gives its quota back although its status stays. The same cluster runs
/// when it is admitted again.
#[test]
fn cluster_of_a_preempted_service_runs_again() {
    let mut server = running();
    server.deactivate();
    assert!(is_suspended(&server, "c") && annotation(&server, "c", STOPPED).is_string());
    assert!(!service_is_suspended(&server), "KubeRay would prepare a second cluster");
    assert!(server.holds_quota());
    set_pods(&mut server, "c", false);
    assert!(service_is_suspended(&server) && !server.holds_quota(), "{:?}", server.events);
    assert_nothing_is_left_to_do(&mut server);
    reactivate(&mut server);
    assert!(server.holds_quota() && !service_is_suspended(&server));
    assert!(annotation(&server, "c", STOPPED).is_null() && annotation(&server, "c", HASH).is_null());
    follow(&mut server, "c");
    assert!(!is_suspended(&server, "c") && has_marks(&server, "c"));
    assert_nothing_is_left_to_do(&mut server);
}

/// It has read the RayService as it was before the start.
#[test]
fn cluster_that_follows_an_earlier_version_runs() {
    let mut server = server("0");
    make(&mut server, "c", "pendingServiceStatus");
    let waiting = server.get(clusters(), "c").unwrap().clone();
    server.edit_queue("3");
    assert!(annotation(&server, "c", HASH).is_null());
    server.edit(clusters(), "c", |cluster| {
        cluster["metadata"]["annotations"] = waiting["metadata"]["annotations"].clone();
    });
    assert!(annotation(&server, "c", HASH).is_null(), "it is copied again");
    follow(&mut server, "c");
    assert!(!is_suspended(&server, "c"));
}

/// Another client that suspends it again and again is answered with back-off.
#[test]
fn copies_are_not_asked_for_again_and_again() {
    let mut server = server("0");
    make(&mut server, "c", "pendingServiceStatus");
    server.edit_queue("3");
    let before = server.writes;
    for _ in 0..20 {
        server.edit(clusters(), "c", |cluster| {
            cluster["metadata"]["annotations"] = json!({HASH: "another", GROUPS: "1"});
        });
    }
    assert!(server.writes - before < 10, "{}", server.writes - before);
}

/// Nothing tells why: its user wants it so.
#[test]
fn cluster_that_its_user_has_suspended_stays_so() {
    let mut server = running();
    server.edit(clusters(), "c", |cluster| cluster["spec"]["suspend"] = json!(true));
    set_pods(&mut server, "c", false);
    assert!(is_suspended(&server, "c") && annotation(&server, "c", HASH).is_string());
    assert!(server.holds_quota() && !service_is_suspended(&server));
    assert_nothing_is_left_to_do(&mut server);
}

/// KubeRay does not change the cluster that serves while another one is to replace it.
#[test]
fn cluster_that_serves_in_an_upgrade_runs_as_it_is() {
    let mut server = running();
    server.deactivate();
    set_pods(&mut server, "c", false);
    make(&mut server, "d", "pendingServiceStatus");
    assert!(is_suspended(&server, "d"));
    reactivate(&mut server);
    assert!(!is_suspended(&server, "c") && annotation(&server, "c", STOPPED).is_null());
    assert!(annotation(&server, "c", HASH).is_string());
    assert!(is_suspended(&server, "d") && annotation(&server, "d", HASH).is_string(), "there is no room");
    let waits = server.events.iter().filter(|event| event.reason == "ChildWaits").count();
    assert_eq!(waits, 1, "{:?}", server.events);
    assert_nothing_is_left_to_do(&mut server);
}

fn set_active(server: &mut JobServer, workload: &str, active: bool) {
    server.edit(Kind::Workload, workload, |workload| workload["spec"]["active"] = json!(active));
}

fn set_worker_cpu(server: &mut JobServer, cpu: &str) {
    server.edit(services(), "above", |service| {
        let template = &mut service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["template"];
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
    });
}

fn workloads(server: &JobServer) -> usize {
    server.all(Kind::Workload).len()
}

/// Its clusters are suspended before it although its Workload is admitted: that is for what it asked for before.
#[test]
fn changed_service_stops_and_runs_as_it_is_now() {
    let changes: [fn(&mut JobServer); 2] = [
        |server| set_worker_cpu(server, "2"),
        |server| {
            server.edit(services(), "above", |service| {
                service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["replicas"] = json!(4);
            });
        },
    ];
    for change in changes {
        let mut server = running();
        server.edit_queue("5");
        change(&mut server);
        assert!(is_suspended(&server, "c") && annotation(&server, "c", STOPPED).is_string());
        assert!(!service_is_suspended(&server), "KubeRay would prepare a second cluster");
        set_pods(&mut server, "c", false);
        assert!(server.holds_quota() && !service_is_suspended(&server), "{:?}", server.events);
        follow(&mut server, "c");
        assert!(!is_suspended(&server, "c") && has_marks(&server, "c"));
        let (service, cluster) = (server.get(services(), "above"), server.get(clusters(), "c"));
        assert_eq!(cluster.unwrap()["spec"], service.unwrap()["spec"]["rayClusterConfig"]);
        assert_nothing_is_left_to_do(&mut server);
    }
}

/// KubeRay has prepared a second cluster at once. The one that serves runs again as it was, and the other one is queued.
#[test]
fn second_cluster_of_a_changed_service_is_queued() {
    let mut server = running();
    server.edit_queue("20");
    set_worker_cpu(&mut server, "2");
    make(&mut server, "d", "pendingServiceStatus");
    assert!(is_suspended(&server, "d") && workloads(&server) == 1, "it waits below a service that stops");
    set_pods(&mut server, "c", false);
    assert!(!service_is_suspended(&server) && !is_suspended(&server, "c"), "{:?}", server.events);
    assert!(!is_suspended(&server, "d"), "there is quota for both");
    assert_eq!(workloads(&server), 2);
}

/// The cluster that serves requests more than the service by now: it is queued as what it is, and the other one runs.
#[test]
fn cluster_that_serves_and_is_too_large_is_queued() {
    let mut server = running();
    set_worker_cpu(&mut server, "500m");
    make(&mut server, "d", "pendingServiceStatus");
    set_pods(&mut server, "c", false);
    assert!(!service_is_suspended(&server) && !is_suspended(&server, "d"), "{:?}", server.events);
    assert!(is_suspended(&server, "c") && annotation(&server, "c", WAITS).is_string());
    server.edit_queue("5");
    assert!(!is_suspended(&server, "c") && !is_suspended(&server, "d"));
}

/// As where the manifest with `suspend: true` is applied again: it stops cleanly and is started again.
#[test]
fn service_that_its_user_suspends_is_started_again() {
    let mut server = running();
    server.edit(services(), "above", |service| service["spec"]["rayClusterConfig"]["suspend"] = json!(true));
    assert!(is_suspended(&server, "c") && annotation(&server, "c", STOPPED).is_string());
    set_pods(&mut server, "c", false);
    assert!(server.holds_quota() && !service_is_suspended(&server), "{:?}", server.events);
    follow(&mut server, "c");
    assert!(!is_suspended(&server, "c") && has_marks(&server, "c"));
    assert_nothing_is_left_to_do(&mut server);
}

/// A copy of a service that its user has suspended has all that its start has added. It runs all the same.
#[test]
fn cluster_made_of_a_service_that_its_user_suspends_runs() {
    let mut server = running();
    server.edit(services(), "above", |service| service["spec"]["rayClusterConfig"]["suspend"] = json!(true));
    make(&mut server, "d", "pendingServiceStatus");
    assert!(is_suspended(&server, "d") && annotation(&server, "d", STOPPED).is_string());
    assert!(has_marks(&server, "d"));
    set_pods(&mut server, "c", false);
    assert!(!service_is_suspended(&server) && !is_suspended(&server, "c"), "{:?}", server.events);
    assert!(is_suspended(&server, "d") && workloads(&server) == 2, "it is queued");
    server.edit_queue("6");
    assert!(!is_suspended(&server, "d"), "{:?}", server.events);
}

/// Neither the quota that the second cluster waits for, nor that of the service goes to it before the one that serves.
#[test]
fn cluster_that_serves_comes_back_before_one_that_waits() {
    let mut server = running();
    let service = server.workload_name();
    make(&mut server, "d", "pendingServiceStatus");
    assert!(is_suspended(&server, "d") && workloads(&server) == 2);
    set_active(&mut server, &service, false);
    assert!(is_suspended(&server, "c"));
    set_pods(&mut server, "c", false);
    assert!(service_is_suspended(&server) && is_suspended(&server, "d"), "{:?}", server.events);
    assert_eq!(workloads(&server), 1, "it does not run without the service");
    set_active(&mut server, &service, true);
    assert!(!service_is_suspended(&server) && !is_suspended(&server, "c"), "{:?}", server.events);
    assert!(is_suspended(&server, "d") && workloads(&server) == 2, "it waits again");
    server.edit_queue("6");
    assert!(!is_suspended(&server, "c") && !is_suspended(&server, "d"));
}

/// One with quota of its own stops with the service as well, which is suspended after both.
#[test]
fn both_clusters_of_an_upgrade_stop_and_come_back() {
    let mut server = running();
    let service = server.workload_name();
    server.edit_queue("6");
    make(&mut server, "d", "pendingServiceStatus");
    assert!(!is_suspended(&server, "d"), "there is quota for both");
    set_pods(&mut server, "d", true);
    set_active(&mut server, &service, false);
    assert!(is_suspended(&server, "c") && is_suspended(&server, "d"));
    set_pods(&mut server, "c", false);
    assert!(!service_is_suspended(&server), "the other one has pods");
    set_pods(&mut server, "d", false);
    assert!(service_is_suspended(&server) && workloads(&server) == 1, "{:?}", server.events);
    set_active(&mut server, &service, true);
    assert!(!service_is_suspended(&server) && !is_suspended(&server, "c"), "{:?}", server.events);
    assert!(!is_suspended(&server, "d") && workloads(&server) == 2);
}

/// While pods of a stopped cluster end, another one that KubeRay makes gets none; nor does one that it makes of a service that goes.
#[test]
fn cluster_made_while_its_service_stops_is_held() {
    let row = framework("ray.io", "RayCluster").unwrap();
    let mut server = running();
    server.deactivate();
    let made = server.admit(row, copy(&server, "d"), None).unwrap();
    assert_eq!(made["spec"]["suspend"], true, "pods of the first one end");
    let mut server = running();
    server.edit(services(), "above", |service| {
        service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        service["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    });
    server.delete(clusters(), "c");
    let made = server.admit(row, copy(&server, "d"), None).unwrap();
    assert_eq!(made["spec"]["suspend"], true, "the service goes");
}

/// Where the kind of the clusters is not listed, nothing holds the second one back: the RayService says so, once.
#[test]
fn second_cluster_of_a_kind_that_is_not_listed_is_said() {
    let mut server = JobServer::new(&["ray.io/rayservice"], "3");
    let service = json!({"metadata": metadata("above"), "spec": {"rayClusterConfig": cluster_spec()}});
    server.submit(framework("ray.io", "RayService").unwrap(), service).unwrap();
    assert!(server.holds_quota());
    let said = |server: &JobServer| -> Vec<String> {
        let warnings = server.events.iter().filter(|event| event.reason == "ChargedTooLittle");
        warnings.map(|event| format!("{}: {}", event.key.name, event.note)).collect()
    };
    for (name, field) in [("c", "activeServiceStatus"), ("d", "pendingServiceStatus")] {
        assert_eq!(said(&server), Vec::<String>::new(), "{name}");
        let mut cluster = copy(&server, name);
        cluster["metadata"]["uid"] = json!(format!("uid-{name}"));
        cluster["metadata"]["creationTimestamp"] = json!(server.now().to_string());
        server.load(Kind::Related(framework("ray.io", "RayService").unwrap().related[0]), cluster);
        server.edit(services(), "above", |service| service["status"][field]["rayClusterName"] = json!(name));
    }
    server.edit(services(), "above", |service| service["metadata"]["labels"]["x"] = json!("y"));
    let [note] = &said(&server)[..] else { panic!("{:?}", server.events) };
    assert!(note.starts_with("above: RayCluster d runs") && note.contains("ray.io/raycluster"), "{note}");
    assert!(note.ends_with("it requests: cpu: 3"), "{note}");
}

/// KubeRay deletes the cluster of a RayJob that is suspended.
#[test]
fn cluster_of_a_job_is_left_to_its_operator() {
    let mut server = JobServer::new(&["ray.io/rayjob", "ray.io/raycluster"], "3");
    let spec = json!({"shutdownAfterJobFinishes": true, "submissionMode": "HTTPMode", "rayClusterSpec": cluster_spec()});
    let job = json!({"metadata": metadata("above"), "spec": spec});
    server.submit(framework("ray.io", "RayJob").unwrap(), job).unwrap();
    assert!(server.holds_quota());
    let above = server.get(kind("ray.io", "RayJob"), "above").unwrap().clone();
    let mut made = metadata("c");
    made["annotations"] = json!({});
    made["ownerReferences"] = json!([{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "above",
        "uid": above["metadata"]["uid"], "controller": true}]);
    let cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": made,
        "spec": above["spec"]["rayClusterSpec"]});
    server.create(clusters(), cluster);
    server.deactivate();
    assert!(is_suspended(&server, "c") && annotation(&server, "c", STOPPED).is_null());
    let suspended = &server.get(kind("ray.io", "RayJob"), "above").unwrap()["spec"]["suspend"];
    assert_eq!(suspended, true, "it waits for no cluster");
    reactivate(&mut server);
    assert!(is_suspended(&server, "c"));
}

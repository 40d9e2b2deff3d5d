//! RayClusters that run on the quota of a job above them: they get no pods that the Workload of that job is not charged for.

use crate::fixtures::job_server::{JobServer, kind};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Framework, framework};
use sluice_core::reconciler::CoreSettings;

const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";

fn row(kind: &str) -> &'static Framework {
    framework("ray.io", kind).unwrap()
}

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}})
}

/// A cluster of a head and these groups of workers.
fn cluster_spec(groups: &[(&str, i64)]) -> Value {
    let group = |(name, replicas): &(&str, i64)| json!({"groupName": name, "replicas": replicas, "template": template()});
    json!({"headGroupSpec": {"template": template()},
        "workerGroupSpecs": groups.iter().map(group).collect::<Vec<_>>()})
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}})
}

/// A queue of 20 CPUs with a job of two and one workers, which runs.
fn server(kind_name: &str, elastic: bool) -> JobServer {
    let frameworks =
        ["ray.io/rayjob", "ray.io/rayservice", "ray.io/raycluster", "workload.codeflare.dev/appwrapper"];
    let mut server = JobServer::new(&frameworks, "20");
    let cluster = cluster_spec(&[("Main", 2), ("side", 1)]);
    let mut job = match kind_name {
        "RayJob" => json!({"spec": {"shutdownAfterJobFinishes": true, "submissionMode": "HTTPMode",
            "rayClusterSpec": cluster}}),
        "RayService" => json!({"spec": {"rayClusterConfig": cluster}}),
        _ => {
            let wrapped = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster",
                "metadata": {"name": "c"}, "spec": cluster});
            json!({"spec": {"components": [{"template": wrapped}]}})
        }
    };
    job["metadata"] = metadata("above");
    if elastic {
        job["metadata"]["annotations"] = json!({ELASTIC: "true"});
    }
    server.submit(kind_of(kind_name).0, job).unwrap();
    assert!(server.holds_quota());
    server
}

fn kind_of(kind_name: &str) -> (&'static Framework, Kind) {
    if kind_name == "AppWrapper" {
        let group = "workload.codeflare.dev";
        return (framework(group, kind_name).unwrap(), kind(group, kind_name));
    }
    (row(kind_name), kind("ray.io", kind_name))
}

/// The cluster that the controller of the job makes of it.
fn child(server: &JobServer, kind_name: &str) -> Value {
    let above = server.get(kind_of(kind_name).1, "above").unwrap();
    let spec = match kind_name {
        "RayJob" => above["spec"]["rayClusterSpec"].clone(),
        "RayService" => above["spec"]["rayClusterConfig"].clone(),
        _ => {
            let component = &above["spec"]["components"][0];
            let mut spec = component["template"]["spec"].clone();
            let infos = component["podSetInfos"].as_array().unwrap();
            let templates =
                ["/headGroupSpec/template", "/workerGroupSpecs/0/template", "/workerGroupSpecs/1/template"];
            for (pointer, info) in templates.into_iter().zip(infos) {
                let template = spec.pointer_mut(pointer).unwrap();
                template["metadata"] = json!({"labels": info["labels"], "annotations": info["annotations"]});
            }
            spec
        }
    };
    let group = kind_of(kind_name).0.gvk;
    let mut metadata = metadata("c");
    if kind_name == "AppWrapper" {
        metadata["labels"] = json!({});
    }
    metadata["annotations"] = above["metadata"]["annotations"].clone();
    metadata["ownerReferences"] = json!([{"apiVersion": group.api_version(), "kind": kind_name, "name": "above",
        "uid": above["metadata"]["uid"], "controller": true}]);
    json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec})
}

fn scaled(cluster: &Value, group: usize, replicas: i64) -> Value {
    let mut cluster = cluster.clone();
    cluster["spec"]["workerGroupSpecs"][group]["replicas"] = json!(replicas);
    cluster
}

const ABOVE: [&str; 3] = ["RayJob", "RayService", "AppWrapper"];

#[test]
fn child_is_not_scaled_beyond_the_job_above() {
    for kind_name in ABOVE {
        let server = server(kind_name, false);
        let made = child(&server, kind_name);
        let cluster = server.admit(row("RayCluster"), made, None).unwrap();
        let change = |new: Value, old: &Value| server.admit(row("RayCluster"), new, Some(old));
        let refused = change(scaled(&cluster, 0, 3), &cluster).unwrap_err();
        let part = format!(
            "spec.workerGroupSpecs[0].replicas: Invalid value: 3: {kind_name} above, which is queued"
        );
        assert!(refused.contains(&part) && refused.contains("quota for 2 of these pods"), "{refused}");
        assert!(change(scaled(&cluster, 0, 1), &cluster).is_ok(), "{kind_name}");
        let smaller = scaled(&cluster, 0, 0);
        assert!(change(cluster.clone(), &smaller).is_ok(), "{kind_name}: back to its size");
        let hosts = |cluster: &Value| {
            let mut cluster = cluster.clone();
            cluster["spec"]["workerGroupSpecs"][1]["numOfHosts"] = json!(2);
            cluster
        };
        let refused = change(hosts(&cluster), &cluster).unwrap_err();
        assert!(refused.contains("spec.workerGroupSpecs[1].replicas: Invalid value: 2"), "{refused}");
        let mut added = cluster.clone();
        let group = json!({"groupName": "added", "replicas": 1, "template": template()});
        added["spec"]["workerGroupSpecs"].as_array_mut().unwrap().push(group);
        let refused = change(added, &cluster).unwrap_err();
        assert!(refused.contains("spec.workerGroupSpecs[2].replicas: Invalid value: 1"), "{refused}");
        // What nothing runs on, and what has no quota already, may be changed.
        let mut suspended = scaled(&cluster, 0, 3);
        suspended["spec"]["suspend"] = json!(true);
        assert!(change(suspended.clone(), &cluster).is_ok(), "{kind_name}");
        let mut resumed = suspended.clone();
        resumed["spec"]["suspend"] = json!(false);
        assert!(change(resumed, &suspended).is_err(), "{kind_name}: it would start with its new size");
        let large = scaled(&cluster, 0, 5);
        assert!(change(scaled(&cluster, 0, 4), &large).is_ok(), "{kind_name}: it shrinks");
        assert!(change(scaled(&cluster, 0, 6), &large).is_err(), "{kind_name}");
        let mut labelled = large.clone();
        labelled["metadata"]["labels"]["x"] = json!("y");
        assert!(change(labelled, &large).is_ok(), "{kind_name}: its size stays");
        assert!(
            server.admit(row("RayCluster"), scaled(&cluster, 0, 3), None).is_err(),
            "{kind_name}: created"
        );
        // The annotation alone holds no pod.
        let mut elastic = scaled(&cluster, 0, 3);
        elastic["metadata"]["annotations"] = json!({ELASTIC: "true"});
        let ungated = scaled(&elastic, 0, 2);
        assert!(change(elastic, &ungated).is_err(), "{kind_name}");
    }
}

/// An autoscaler resizes them; their pods wait for quota.
#[test]
fn child_of_an_elastic_job_is_scaled() {
    for kind_name in ["RayJob", "RayService"] {
        let server = server(kind_name, true);
        let cluster = server.admit(row("RayCluster"), child(&server, kind_name), None).unwrap();
        assert!(
            server.admit(row("RayCluster"), scaled(&cluster, 0, 7), Some(&cluster)).is_ok(),
            "{kind_name}"
        );
    }
}

/// KubeRay follows a RayService that its user has made larger, once that has the quota.
#[test]
fn child_follows_the_job_above() {
    let mut server = server("RayService", false);
    let cluster = server.admit(row("RayCluster"), child(&server, "RayService"), None).unwrap();
    server.edit(kind("ray.io", "RayService"), "above", |service| {
        service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["replicas"] = json!(4);
    });
    assert!(server.holds_quota());
    let grown = child(&server, "RayService");
    assert_eq!(grown["spec"]["suspend"], false, "it was queued again");
    assert!(server.admit(row("RayCluster"), grown, Some(&cluster)).is_ok());
}

/// The controller of an AppWrapper says `replicas` of the workers alone, and its cluster has all of its pods.
#[test]
fn child_of_a_wrapper_has_quota_for_what_the_status_does_not_count() {
    let mut server = server("AppWrapper", false);
    let sets = |(path, replicas): (&str, i64)| json!({"path": format!("template.spec.{path}.template"), "replicas": replicas});
    let counts = [("headGroupSpec", 1), ("workerGroupSpecs[0]", 2), ("workerGroupSpecs[1]", 1)].map(sets);
    server.edit(kind_of("AppWrapper").1, "above", |wrapper| {
        wrapper["status"] = json!({"componentStatus": [{"podSets": counts}]});
        let groups = &mut wrapper["spec"]["components"][0]["template"]["spec"]["workerGroupSpecs"];
        groups[0]["numOfHosts"] = json!(2);
        groups[1]["minReplicas"] = json!(6);
    });
    assert!(server.holds_quota());
    assert_eq!(charged(&server), [11]);
    let cluster = server.admit(row("RayCluster"), child(&server, "AppWrapper"), None).unwrap();
    assert_ne!(cluster["spec"]["suspend"], true);
    assert!(server.admit(row("RayCluster"), scaled(&cluster, 0, 3), Some(&cluster)).is_err());
}

/// A cluster of its own, and one of a job that is not queued, are their user's.
#[test]
fn other_clusters_are_scaled_freely() {
    let server = server("RayJob", false);
    let mut cluster = child(&server, "RayJob");
    cluster["metadata"]["ownerReferences"] = json!([]);
    cluster["metadata"]["labels"] = json!({});
    assert!(server.admit(row("RayCluster"), scaled(&cluster, 0, 9), Some(&cluster)).is_ok());
    let mut cluster = child(&server, "RayJob");
    cluster["metadata"]["ownerReferences"][0]["uid"] = json!("another job of this name");
    assert!(server.admit(row("RayCluster"), scaled(&cluster, 0, 9), Some(&cluster)).is_ok());
}

/// The webhook of clusters without a queue name fails open, and none is called while the kind is not listed.
#[test]
fn child_that_was_scaled_past_the_webhook_says_so() {
    for kind_name in ABOVE {
        let mut server = server(kind_name, false);
        let cluster = server.admit(row("RayCluster"), child(&server, kind_name), None).unwrap();
        server.create(kind("ray.io", "RayCluster"), cluster);
        let said = |server: &JobServer| {
            let warnings = server.events.iter().filter(|event| event.reason == "PodExceedsWorkload");
            warnings.map(|event| event.note.clone()).collect::<Vec<_>>()
        };
        assert!(said(&server).is_empty(), "{kind_name}");
        server.edit(kind("ray.io", "RayCluster"), "c", |cluster| {
            cluster["spec"]["workerGroupSpecs"][0]["replicas"] = json!(3);
        });
        let notes = said(&server);
        assert!(
            notes.len() == 1 && notes[0].contains("3 pods of main") && notes[0].contains("for 2"),
            "{notes:?}"
        );
    }
}

const WAITS: &str = "sluice.dev/waits-for-room";

fn cluster_kind() -> Kind {
    kind("ray.io", "RayCluster")
}

/// The second cluster that KubeRay makes of a RayService that is upgraded.
fn second(server: &JobServer) -> Value {
    let mut cluster = child(server, "RayService");
    cluster["metadata"]["name"] = json!("d");
    cluster
}

/// A RayService of 4 CPUs with its cluster, in a queue of as many CPUs.
fn upgraded(cpus: &str) -> JobServer {
    let mut server = server("RayService", false);
    let cluster = server.admit(row("RayCluster"), child(&server, "RayService"), None).unwrap();
    server.create(cluster_kind(), cluster);
    server.edit_queue(cpus);
    server.advance(SignedDuration::from_secs(1));
    server
}

fn submit_second(server: &mut JobServer) {
    let cluster = server.admit(row("RayCluster"), second(server), None).unwrap();
    server.create(cluster_kind(), cluster);
}

fn suspended(server: &JobServer, name: &str) -> bool {
    server.get(cluster_kind(), name).unwrap()["spec"]["suspend"] == true
}

fn waits(server: &JobServer, name: &str) -> bool {
    server.get(cluster_kind(), name).unwrap()["metadata"]["annotations"][WAITS].is_string()
}

/// Number of pods that are charged, by Workload.
fn charged(server: &JobServer) -> Vec<i64> {
    let workloads = server.all(Kind::Workload);
    let admitted = workloads.iter().filter(|workload| workload["status"]["admission"].is_object());
    let pods = |workload: &Value| {
        workload["spec"]["podSets"].as_array().unwrap().iter().map(|set| set["count"].as_i64().unwrap()).sum()
    };
    admitted.map(pods).collect()
}

fn warnings(server: &JobServer, reason: &str) -> Vec<String> {
    let said = server.events.iter().filter(|event| event.reason == reason && *event.key.name == *"above");
    said.map(|event| event.note.clone()).collect()
}

/// It waits from its creation while there is no room for both, and takes the place of the first when that is gone.
#[test]
fn second_cluster_of_a_service_waits_for_room() {
    let mut server = upgraded("4");
    let admitted = server.admit(row("RayCluster"), second(&server), None).unwrap();
    assert_eq!(admitted["spec"]["suspend"], true, "no pod of it ever starts");
    submit_second(&mut server);
    assert!(!suspended(&server, "c") && suspended(&server, "d"));
    assert_eq!(charged(&server), [4]);
    let [note] = &warnings(&server, "ChildWaits")[..] else { panic!("{:?}", server.events) };
    assert!(note.contains("RayCluster d waits for quota") && note.ends_with("it requests: cpu: 4"), "{note}");
    let writes = server.writes;
    server.advance(SignedDuration::from_secs(3600));
    assert_eq!((server.writes, warnings(&server, "ChildWaits").len()), (writes, 1), "nothing is left to do");
    server.delete(cluster_kind(), "c");
    assert!(!suspended(&server, "d") && !waits(&server, "d"), "it runs on the quota of the first");
    assert_eq!((charged(&server), server.all(Kind::Workload).len()), (vec![4], 1));
}

/// With room for both it runs beside the first, and goes on on the quota of the RayService.
#[test]
fn second_cluster_of_a_service_has_quota_of_its_own() {
    let mut server = upgraded("8");
    submit_second(&mut server);
    assert!(!suspended(&server, "c") && !suspended(&server, "d"));
    assert_eq!((charged(&server), warnings(&server, "ChildWaits").len()), (vec![4, 4], 0));
    server.events.clear();
    server.delete(cluster_kind(), "c");
    assert!(!suspended(&server, "d") && server.events.iter().all(|event| event.reason != "Stopped"));
    assert_eq!((charged(&server), server.all(Kind::Workload).len()), (vec![4], 1));
}

/// Of a cluster that was deleted in the background, pods run on for a while: until then its place is taken.
#[test]
fn pods_of_the_first_cluster_keep_its_place() {
    let mut server = upgraded("8");
    submit_second(&mut server);
    let uid = server.get(cluster_kind(), "c").unwrap()["metadata"]["uid"].clone();
    let workload = server.get(kind("ray.io", "RayService"), "above").unwrap()["spec"]["rayClusterConfig"]["headGroupSpec"]
        ["template"]["metadata"]["annotations"]["kueue.x-k8s.io/workload"]
        .clone();
    server.create(
        Kind::Pod,
        json!({"metadata": {"name": "head", "namespace": "ns", "annotations": {"kueue.x-k8s.io/workload": workload},
            "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c", "uid": uid,
                "controller": true}]}, "spec": {"containers": []}}),
    );
    server.run_pod("head");
    server.delete(cluster_kind(), "c");
    assert_eq!(charged(&server), [4, 4]);
    server.end_pod("head");
    server.delete(Kind::Pod, "head");
    assert_eq!((charged(&server), suspended(&server, "d")), (vec![4], false));
}

/// Clusters may share the pods of a pod set: sizes count together, not one by one.
#[test]
fn sizes_of_clusters_count_together() {
    let mut server = upgraded("20");
    server.edit_queue("4");
    let mut other = second(&server);
    // Groups without pods need no place; only its head does.
    other["spec"]["workerGroupSpecs"] = json!([]);
    let held = server.admit(row("RayCluster"), other.clone(), None).unwrap();
    assert_eq!(held["spec"]["suspend"], true);
    server.create(cluster_kind(), held);
    assert!(suspended(&server, "d"), "the head of the first has the only place of a head");
    server.edit_queue("5");
    let mut pods = charged(&server);
    pods.sort_unstable();
    assert_eq!((pods, suspended(&server, "d")), (vec![1, 4], false));
}

/// Which clusters of an object count: one that its controller has suspended takes no place, and is left as it is.
#[test]
fn suspended_cluster_takes_no_place() {
    let mut server = upgraded("4");
    server.edit(cluster_kind(), "c", |cluster| cluster["spec"]["suspend"] = json!(true));
    submit_second(&mut server);
    assert!(suspended(&server, "c") && !suspended(&server, "d"));
    assert_eq!((charged(&server), waits(&server, "d")), (vec![4], false));
    server.edit(cluster_kind(), "c", |cluster| cluster["spec"]["suspend"] = json!(false));
    let runs = ["c", "d"].into_iter().filter(|name| !suspended(&server, name)).count();
    assert_eq!(runs, 1, "of two that run, one is held");
}

/// Those that users make below a job share its quota as well. One that names no queue gets that of the job; where no webhook has seen
/// it, it waits for the place of the first.
#[test]
fn clusters_of_users_share_the_quota_of_the_job() {
    for kind_name in ABOVE {
        for reviewed in [true, false] {
            let case = format!("{kind_name} {reviewed}");
            let mut server = server(kind_name, false);
            server.edit_queue("4");
            let cluster = server.admit(row("RayCluster"), child(&server, kind_name), None).unwrap();
            server.create(cluster_kind(), cluster);
            let mut other = child(&server, kind_name);
            other["metadata"]["name"] = json!("d");
            other["metadata"]["labels"] = json!({});
            if reviewed {
                other = server.admit(row("RayCluster"), other, None).unwrap();
                assert_eq!(other["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "lq", "{case}");
            }
            server.create(cluster_kind(), other);
            assert!(suspended(&server, "d") && !suspended(&server, "c"), "{case}");
            assert_eq!((charged(&server), warnings(&server, "ChildWaits").len()), (vec![4], 1), "{case}");
            server.edit(cluster_kind(), "d", |cluster| cluster["spec"]["suspend"] = json!(false));
            assert!(suspended(&server, "d"), "{case}: it is held again");
            server.edit_queue("8");
            let expected = if reviewed { vec![4, 4] } else { vec![4] };
            assert_eq!(charged(&server), expected, "{case}");
            server.delete(cluster_kind(), "c");
            assert!(!suspended(&server, "d") && !waits(&server, "d"), "{case}");
            assert_eq!(charged(&server), [4], "{case}");
        }
    }
}

/// Earlier versions let both run.
#[test]
fn second_cluster_that_was_found_running_runs_on() {
    let mut server = upgraded("4");
    let cluster = second(&server);
    server.create_unseen(cluster_kind(), cluster);
    let frameworks = ["ray.io/rayservice", "ray.io/raycluster"].map(str::to_owned).into();
    server.restart(CoreSettings { frameworks, ..CoreSettings::default() });
    assert!(!suspended(&server, "c") && !suspended(&server, "d"));
    let [note] = &warnings(&server, "ChargedTooLittle")[..] else { panic!("{:?}", server.events) };
    assert!(note.contains("RayCluster d") && note.ends_with("not charged: cpu: 4"), "{note}");
}

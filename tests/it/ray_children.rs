//! RayClusters that run on the quota of a job above them: they get no pods that the Workload of that job is not charged for.

use crate::job_server::{JobServer, kind};
use serde_json::{Value, json};
use sluice::frameworks::{Framework, framework};

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

fn kind_of(kind_name: &str) -> (&'static Framework, sluice::cache::Kind) {
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

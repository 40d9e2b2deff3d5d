//! Jobs of KubeRay: those that its operator refuses give their quota back and are queued again when they can run; others keep it until
//! their pods have ended, whatever their status says.

use crate::fixtures::leading_core::{Core, started, writes};
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::frameworks::{JobKind, framework};
use sluice_core::reconciler::{CoreSettings, Delta, Write, WriteOutcome, WriteResult};

fn job_kind() -> Kind {
    Kind::Job(JobKind::new(framework("ray.io", "RayJob").expect("a row")))
}

fn clusters(core: &Core) -> Kind {
    let is_related = |kind: &&Kind| matches!(kind, Kind::Related(_));
    *core.state.kinds().iter().find(is_related).expect("the clusters of jobs are watched")
}

fn ray_job(suspend: bool, state: &str) -> Value {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    json!({
        "metadata": {"name": "r", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": suspend, "shutdownAfterJobFinishes": true, "submissionMode": "HTTPMode",
            "rayClusterSpec": {"headGroupSpec": {"template": template}}},
        "status": {"jobDeploymentStatus": state, "rayClusterName": "c"},
    })
}

fn reserved(workload: &Value) -> (&str, &str) {
    let conditions = workload["status"]["conditions"].as_array().unwrap();
    let reserved = conditions.iter().find(|condition| condition["type"] == "QuotaReserved").unwrap();
    (reserved["status"].as_str().unwrap(), reserved["reason"].as_str().unwrap())
}

#[test]
fn refused_job_holds_no_quota_and_is_queued_again() {
    let frameworks = ["batch/job", "ray.io/rayjob"].map(str::to_owned).into();
    let mut core = Core::new(CoreSettings { frameworks, ..CoreSettings::default() });
    let (clusters, mut workload) = (clusters(&core), Value::Null);
    let cluster = json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": {}});
    core.put(clusters, cluster);
    let effects = core.put(job_kind(), ray_job(true, ""));
    let effects = core.land(&effects, &mut workload);
    let effects = core.land(&effects, &mut workload);
    assert_eq!(reserved(&workload).0, "True");
    let [start] = &writes(&effects, job_kind())[..] else { panic!("{effects:?}") };
    assert!(
        start.body.as_array().unwrap().iter().any(|op| op["op"] == "remove" && op["path"] == "/spec/suspend")
    );
    let (id, kind, key) = (start.id, job_kind(), start.key.clone());
    let job = started(ray_job(true, ""), start);
    let running = core.with_server_metadata(job_kind(), job.clone());
    core.feed(Delta::Written(WriteResult {
        id,
        kind,
        key: key.clone(),
        outcome: WriteOutcome::Done(running),
    }));

    // Pods of its cluster may be left.
    let mut refused = job.clone();
    refused["status"]["jobDeploymentStatus"] = json!("ValidationFailed");
    let refused = core.with_server_metadata(job_kind(), refused);
    let effects = core.feed(Delta::Applied { kind, object: refused.clone() });
    assert!(writes(&effects, kind).is_empty() && writes(&effects, Kind::Workload).is_empty(), "{effects:?}");
    core.feed(Delta::Deleted {
        kind: clusters,
        key: ObjectKey::new("ns", "c"),
        uid: "rayclusters-c".to_owned(),
    });
    let effects = core.feed(Delta::Read { kind, key, object: Some(refused) });
    assert!(writes(&effects, kind).is_empty(), "its controller says why it does not run: {effects:?}");
    core.land(&effects, &mut workload);
    assert_eq!(reserved(&workload), ("False", "OnHold"));
    assert!(workload["status"].get("admission").is_none(), "its quota is free");

    let effects = core.put(job_kind(), job);
    let [stop] = &writes(&effects, job_kind())[..] else { panic!("{effects:?}") };
    let suspend = json!({"op": "add", "path": "/spec/suspend", "value": true});
    assert!(stop.body.as_array().unwrap().contains(&suspend), "{}", stop.body);
    core.land(&effects, &mut workload);
    assert_eq!(reserved(&workload).0, "True", "{workload}");
}

fn ray_cluster(generation: i64, suspend: bool, template: &Value) -> Value {
    json!({
        "metadata": {"name": "c", "namespace": "ns", "generation": generation,
            "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": suspend, "headGroupSpec": {"template": template}},
    })
}

/// While a cluster starts, its state is empty, as that of one without pods.
#[test]
fn starting_cluster_keeps_its_quota_until_its_pods_have_ended() {
    let kind = Kind::Job(JobKind::new(framework("ray.io", "RayCluster").expect("a row")));
    let frameworks = ["batch/job", "ray.io/raycluster"].map(str::to_owned).into();
    let mut core = Core::new(CoreSettings { frameworks, ..CoreSettings::default() });
    let (mut workload, mut template) = (
        Value::Null,
        json!({"metadata": {}, "spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}),
    );
    let suspended = template.clone();
    let effects = core.put(kind, ray_cluster(1, true, &template));
    let effects = core.land(&effects, &mut workload);
    let effects = core.land(&effects, &mut workload);
    let [start] = &writes(&effects, kind)[..] else { panic!("{effects:?}") };
    let name = workload["metadata"]["name"].clone();
    template["metadata"] = json!({"labels": {"kueue.x-k8s.io/podset": "head"},
        "annotations": {"kueue.x-k8s.io/workload": name}});
    let mut pod = template.clone();
    pod["metadata"]["name"] = json!("head");
    pod["metadata"]["namespace"] = json!("ns");
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c",
        "uid": "rayclusters-c", "controller": true}]);
    let (id, key) = (start.id, start.key.clone());
    let started = core.with_server_metadata(kind, ray_cluster(2, false, &template));
    core.feed(Delta::Written(WriteResult {
        id,
        kind,
        key: key.clone(),
        outcome: WriteOutcome::Done(started),
    }));
    core.put(Kind::Pod, pod);

    workload["spec"]["active"] = json!(false);
    workload["metadata"]["generation"] = json!(2);
    let effects = core.put(Kind::Workload, workload.clone());
    let effects = core.land(&effects, &mut workload);
    let [stop] = &writes(&effects, kind)[..] else { panic!("{effects:?}") };
    let (id, stopped) = (stop.id, core.with_server_metadata(kind, ray_cluster(3, true, &suspended)));
    let effects =
        core.feed(Delta::Written(WriteResult { id, kind, key, outcome: WriteOutcome::Done(stopped) }));
    assert!(writes(&effects, Kind::Workload).is_empty(), "its pod runs: {effects:?}");
    let key = ObjectKey::new("ns", "head");
    let effects = core.feed(Delta::Deleted { kind: Kind::Pod, key, uid: "pods-head".to_owned() });
    core.land(&effects, &mut workload);
    assert_eq!(reserved(&workload).0, "False", "{workload}");
}

const GATE: &str = "kueue.x-k8s.io/elastic-job";

/// An elastic cluster of a head and these workers. `first` is the slice that has started it.
fn elastic_cluster(generation: i64, workers: i64, first: Option<&Value>) -> Value {
    let template = |pod_set: &str| {
        let mut template = json!({"spec": {"schedulingGates": [{"name": GATE}], "containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
        if let Some(first) = first {
            template["metadata"] = marks(first, pod_set);
        }
        template
    };
    let mut cluster = ray_cluster(generation, first.is_none(), &template("head"));
    cluster["metadata"]["annotations"] = json!({GATE: "true"});
    cluster["spec"]["workerGroupSpecs"] =
        json!([{"groupName": "workers", "replicas": workers, "template": template("workers")}]);
    cluster
}

/// What a start adds to a template.
fn marks(first: &Value, pod_set: &str) -> Value {
    let name = &first["metadata"]["name"];
    json!({"labels": {"kueue.x-k8s.io/podset": pod_set},
        "annotations": {"kueue.x-k8s.io/workload": name, "kueue.x-k8s.io/workload-slice-name": name}})
}

/// While the end of the slice before it cannot be written, pods of a cluster may belong to either: two slices of one second are in the
/// order of their UIDs, which differs between these names.
#[test]
fn evicted_slice_keeps_its_quota_until_the_pods_of_its_cluster_have_ended() {
    for name in ["c", "d", "e", "f"] {
        let kind = Kind::Job(JobKind::new(framework("ray.io", "RayCluster").expect("a row")));
        let frameworks = ["batch/job", "ray.io/raycluster"].map(str::to_owned).into();
        let mut core = Core::new(CoreSettings { frameworks, ..CoreSettings::default() });
        let (mut first, mut second) = (Value::Null, Value::Null);
        let cluster = |generation, workers, first: Option<&Value>| {
            let mut cluster = elastic_cluster(generation, workers, first);
            cluster["metadata"]["name"] = json!(name);
            cluster
        };
        let written = |write: &Write, outcome| {
            let (id, kind, key) = (write.id, write.kind, write.key.clone());
            Delta::Written(WriteResult { id, kind, key, outcome })
        };
        let effects = core.put(kind, cluster(1, 0, None));
        let effects = core.land(&effects, &mut first);
        let effects = core.land(&effects, &mut first);
        let [start] = &writes(&effects, kind)[..] else { panic!("{effects:?}") };
        let started = core.with_server_metadata(kind, cluster(2, 0, Some(&first)));
        core.feed(written(start, WriteOutcome::Done(started)));
        let effects = core.put(kind, cluster(3, 1, Some(&first)));
        let effects = core.land(&effects, &mut second);
        let effects = core.land(&effects, &mut second);
        let [end] = &writes(&effects, Kind::Workload)[..] else { panic!("{effects:?}") };
        core.feed(written(end, WriteOutcome::Unavailable { message: "down".to_owned() }));
        let owner = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": name,
            "uid": format!("rayclusters-{name}"), "controller": true});
        for pod_set in ["head", "workers"] {
            let mut metadata = marks(&first, pod_set);
            metadata["name"] = json!(pod_set);
            metadata["namespace"] = json!("ns");
            metadata["ownerReferences"] = json!([owner]);
            let containers = json!([{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]);
            core.put(Kind::Pod, json!({"metadata": metadata, "spec": {"containers": containers}}));
        }
        second["spec"]["active"] = json!(false);
        second["metadata"]["generation"] = json!(2);
        let effects = core.put(Kind::Workload, second.clone());
        let effects = core.land(&effects, &mut second);
        let [stop] = &writes(&effects, kind)[..] else { panic!("{effects:?}") };
        let stopped = core.with_server_metadata(kind, cluster(4, 1, None));
        let effects = core.feed(written(stop, WriteOutcome::Done(stopped)));
        assert!(writes(&effects, Kind::Workload).is_empty(), "{name}: its pods run: {effects:?}");
        let ended = |name: &str| Delta::Deleted {
            kind: Kind::Pod,
            key: ObjectKey::new("ns", name),
            uid: format!("pods-{name}"),
        };
        let effects = core.feed(ended("head"));
        assert!(writes(&effects, Kind::Workload).is_empty(), "{name}: a pod runs: {effects:?}");
        let effects = core.feed(ended("workers"));
        core.land(&effects, &mut second);
        assert_eq!(reserved(&second).0, "False", "{second}");
    }
}

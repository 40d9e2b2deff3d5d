//! Recorded lives played through the reconciler, on a fake API server: admission, quota, queues and priorities are decided
//! here, not read from the recording. Each scenario is played three times: without faults, with a conflict before each second
//! write, and with a manager that is killed after each write.
//!
//! Compared at each step, once nothing is left to do: every Workload, Pod and job with the fields that recordings show. The
//! test does what webhooks, the API server's defaulting, the garbage collector and the ReplicaSet controller do.

mod acts;
mod compare;
mod elastic;
mod plane;
mod stateful_sets;

use super::{KUBEFLOW_KINDS, playable, scenarios, text};
use plane::{Fault, Plane};
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::frameworks::{JobKind, Role, framework};
use sluice_core::simulate::fake_api_server::key_of;

/// Plays a scenario. Returns the number of steps, or the first difference.
fn play(kind: JobKind, scenario: &Value, fault: Fault) -> Result<usize, String> {
    let name = text(&scenario["name"]);
    let mut plane = Plane::new(kind, &format!("RUN-{name}"), fault);
    let steps = scenario["steps"].as_array().unwrap();
    for (number, step) in steps.iter().enumerate() {
        let acts = step["acts"].as_array().unwrap();
        for (act, code) in acts.iter().zip(step["expect"]["codes"].as_array().unwrap()) {
            // What a webhook refuses is compared elsewhere.
            if code.as_u64() < Some(300) {
                plane.act(act);
            }
        }
        plane.settle();
        let note = format!("{name} step {number}, {fault:?}: {}", text(&step["note"]));
        compare::compare(&mut plane, &step["expect"]["state"])
            .map_err(|problem| format!("{note}\n{problem}"))?;
    }
    if plane.faults() == 0 && fault != Fault::None {
        return Err(format!("{name}: nothing went wrong"));
    }
    Ok(steps.len())
}

/// Why scenarios are not played, by a part of their names.
const NOT_PLAYED: &[(&str, &str)] = &[
    ("-workload-deleted", "a Workload that is deleted keeps its quota until its pods have stopped"),
    ("tj17-jobset", "a JobSet below the job is not compared here"),
    ("sp1-failed", "a failed submission is no end: the operator submits again, or gives up"),
    ("-other-type", "replicas of a type that is not known are charged"),
    ("-metadata-pending", "a Workload follows the labels and node selector of a job that waits"),
];

/// Plays the scenarios of a recording that `chosen` names.
fn play_chosen(recording: &str, (group, kind): (&str, &str), chosen: impl Fn(&str) -> bool) {
    let scenarios = scenarios(recording);
    let kind = JobKind::new(framework(group, kind).expect("a row"));
    // Pods are deleted at once, so that theirs is not kept.
    let not_played = if matches!(kind.role, Role::Suspended) { NOT_PLAYED } else { &[] };
    let (mut played, mut steps, mut differences) = (0, 0, Vec::new());
    for scenario in playable(&scenarios, not_played).filter(|scenario| chosen(text(&scenario["name"]))) {
        for fault in [Fault::None, Fault::Conflicts, Fault::Kills] {
            match play(kind, scenario, fault) {
                Ok(number) => steps += number,
                Err(difference) => differences.push(difference),
            }
        }
        played += 1;
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    println!("{recording}: {played} of {} scenarios reconciled, {steps} steps", scenarios.len());
    assert!(played > 0);
}

#[test]
fn job_sets_are_reconciled_as_recorded() {
    play_chosen("jobset", ("jobset.x-k8s.io", "JobSet"), |_| true);
}

#[test]
fn train_jobs_are_reconciled_as_recorded() {
    play_chosen("trainjob", ("trainer.kubeflow.org", "TrainJob"), |_| true);
}

#[test]
fn app_wrappers_are_reconciled_as_recorded() {
    play_chosen("appwrapper", ("workload.codeflare.dev", "AppWrapper"), |_| true);
}

#[test]
fn spark_applications_are_reconciled_as_recorded() {
    play_chosen("sparkapplication", ("sparkoperator.k8s.io", "SparkApplication"), |_| true);
}

#[test]
fn kubeflow_jobs_are_reconciled_as_recorded() {
    for (recording, kind) in KUBEFLOW_KINDS {
        play_chosen(recording, ("kubeflow.org", kind), |_| true);
    }
}

#[test]
fn pods_are_reconciled_as_recorded() {
    play_chosen("pod", ("", "Pod"), |_| true);
}

#[test]
fn pod_groups_are_reconciled_as_recorded() {
    play_chosen("pod-group", ("", "Pod"), |_| true);
}

#[test]
fn deployments_are_reconciled_as_recorded() {
    play_chosen("deployment", ("apps", "Deployment"), |_| true);
}

#[test]
fn leader_worker_sets_are_reconciled_as_recorded() {
    play_chosen("leaderworkerset", ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), |_| true);
}

#[test]
fn jobs_are_placed_on_topologies_as_recorded() {
    for (kind, names) in [
        (("jobset.x-k8s.io", "JobSet"), &["tp2-jobset", "tp3-jobset-sliced"][..]),
        (("kubeflow.org", "PyTorchJob"), &["tp4-pytorch-grouped"]),
        (("kubeflow.org", "MPIJob"), &["tp6-mpi-implicit"]),
        (("", "Pod"), &["tp8-group", "tp9-pod"]),
        (("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), &["tp11-lws-grouped"]),
    ] {
        play_chosen("topology", kind, |name| names.contains(&name));
    }
}

/// Creates a queue with quota.
fn queue(plane: &mut Plane) {
    let resources = json!([{"name": "cpu", "nominalQuota": "9"}]);
    let flavors = json!([{"name": "f", "resources": resources}]);
    plane.create(Kind::ResourceFlavor, &json!({"metadata": {"name": "f"}, "spec": {}}));
    let groups = json!([{"coveredResources": ["cpu"], "flavors": flavors}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups});
    plane.create(Kind::ClusterQueue, &json!({"metadata": {"name": "cq"}, "spec": spec}));
    let metadata = json!({"name": "lq", "namespace": "ns"});
    plane.create(Kind::LocalQueue, &json!({"metadata": metadata, "spec": {"clusterQueue": "cq"}}));
}

/// A Job below a queued one waits for it, whether the other's controller makes Jobs or not, and is its controller's own while
/// the other is admitted.
#[test]
fn child_jobs_wait_for_their_owner() {
    let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let role = json!({"name": "r", "replicas": 1, "template": {"spec": {"template": pod}}});
    let worker = json!({"Worker": {"replicas": 1, "template": pod}});
    for (group, kind, spec) in [
        ("jobset.x-k8s.io", "JobSet", json!({"suspend": true, "replicatedJobs": [role]})),
        (
            "kubeflow.org",
            "PyTorchJob",
            json!({"runPolicy": {"suspend": true}, "pytorchReplicaSpecs": worker}),
        ),
    ] {
        let kind = JobKind::new(framework(group, kind).expect("a row"));
        for fault in [Fault::None, Fault::Conflicts, Fault::Kills] {
            let mut plane = Plane::new(kind, "ns", fault);
            let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
            let metadata = json!({"name": "s", "namespace": "ns", "labels": labels});
            plane.create(Kind::Job(kind), &json!({"metadata": metadata, "spec": spec}));
            plane.settle();
            let parent = plane.harness.server.get(Kind::Job(kind), &plane.key("s")).cloned().unwrap();
            let owner = json!({
                "apiVersion": kind.gvk.api_version(), "kind": kind.gvk.kind, "name": "s", "controller": true,
                "uid": parent["metadata"]["uid"],
            });
            let metadata = json!({"name": "s-r-0", "namespace": "ns", "ownerReferences": [owner]});
            let spec = json!({"suspend": false, "template": pod});
            let (job, key) = (Kind::Job(JobKind::BATCH_JOB), plane.key("s-r-0"));
            plane.create(job, &json!({"metadata": metadata, "spec": spec}));
            plane.settle();
            let suspended = |plane: &Plane, kind: Kind, key: &ObjectKey| {
                let object = plane.harness.server.get(kind, key).unwrap();
                let Kind::Job(row) = kind else { unreachable!() };
                object.pointer(row.fields.suspend.unwrap()).cloned()
            };
            assert_eq!(suspended(&plane, job, &key), Some(json!(true)), "{fault:?}");
            queue(&mut plane);
            plane.settle();
            assert_eq!(suspended(&plane, Kind::Job(kind), &plane.key("s")), Some(json!(false)), "{fault:?}");
            plane.harness.server.edit(job, &key, |job| job["spec"]["suspend"] = json!(false));
            plane.settle();
            assert_eq!(suspended(&plane, job, &key), Some(json!(false)), "{fault:?}");
            assert_eq!(plane.harness.server.all(Kind::Workload).count(), 1, "the child has none");
            let workload = plane.harness.server.all(Kind::Workload).next().map(key_of).unwrap();
            plane.harness.server.edit(Kind::Workload, &workload, |w| w["spec"]["active"] = json!(false));
            plane.settle();
            assert_eq!(suspended(&plane, job, &key), Some(json!(true)), "{fault:?}");
        }
    }
}

/// A framework that is not enabled costs nothing and touches nothing, whatever labels pods have.
#[test]
fn pods_are_left_alone_unless_their_framework_is_enabled() {
    let kind = |group, kind| JobKind::new(framework(group, kind).expect("a row"));
    for (kind, managed) in [(kind("", "Pod"), true), (kind("jobset.x-k8s.io", "JobSet"), false)] {
        let mut plane = Plane::new(kind, "ns", Fault::None);
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
        plane.create_pod(json!({"metadata": {"name": "p", "labels": labels}, "spec": spec}), true);
        let before = plane.harness.server.get(Kind::Pod, &plane.key("p")).cloned();
        plane.settle();
        assert_eq!(plane.harness.server.all(Kind::Workload).count(), usize::from(managed));
        assert_eq!(plane.harness.server.get(Kind::Pod, &plane.key("p")).cloned(), before);
    }
}

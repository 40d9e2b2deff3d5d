//! Workloads that request capacity from a cluster autoscaler, whose role the tests play.

use super::laws::{cluster, job};
use super::world::{World, condition};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;

/// The cluster of `laws`, with a check on queue `a` that requests capacity.
pub(super) fn cluster_with_provisioning_check(seed: u64, managed: &[&str], settings: &CoreSettings) -> World {
    let mut world = cluster(seed, settings);
    let spec = json!({
        "provisioningClassName": "check-capacity",
        "parameters": {"a": "1"},
        "managedResources": managed,
        "retryStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 2, "backoffMaxSeconds": 4},
        "podSetUpdates": {"nodeSelector": [{"key": "group", "valueFromProvisioningClassDetail": "group"}]},
    });
    world.create(Kind::ProvisioningRequestConfig, json!({"metadata": {"name": "config"}, "spec": spec}));
    let spec = json!({
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"},
    });
    world.create(Kind::AdmissionCheck, json!({"metadata": {"name": "room"}, "spec": spec}));
    world.harness.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("a"), |queue| {
        queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "room"}]});
    });
    world
}

pub(super) fn run_until(world: &mut World, until: impl Fn(&World) -> bool) {
    for _ in 0..6_000 {
        if until(world) {
            return;
        }
        world.step();
    }
    let all: Vec<&Value> = world.harness.server.all(Kind::Workload).map(|w| &w["status"]).collect();
    panic!("condition not reached: {all:#?}");
}

pub(super) fn provisioning_request(world: &World) -> Option<Value> {
    world.harness.server.all(Kind::ProvisioningRequest).next().cloned()
}

/// Plays the autoscaler: sets a condition of the request.
fn set_request_condition(world: &mut World, kind: &str, message: &str) {
    let request = provisioning_request(world).unwrap();
    let key = sluice_core::simulate::fake_api_server::key_of(&request);
    let stamp = world.timestamp_text();
    world.harness.server.edit(Kind::ProvisioningRequest, &key, |request| {
        request["status"] = json!({
            "provisioningClassDetails": {"group": "g7"},
            "conditions": [{"type": kind, "status": "True", "reason": kind, "message": message,
                "lastTransitionTime": stamp}],
        });
    });
}

fn workload(world: &World) -> Value {
    world.harness.server.all(Kind::Workload).next().cloned().unwrap_or_default()
}

fn check_state(world: &World) -> Option<String> {
    let object = workload(world);
    object.pointer("/status/admissionChecks/0/state").and_then(Value::as_str).map(str::to_owned)
}

#[test]
fn job_starts_on_provisioned_capacity() {
    for seed in 0..5 {
        let mut world = cluster_with_provisioning_check(seed, &[], &CoreSettings::default());
        let mut annotated = job("j", "a", 1);
        annotated["metadata"]["annotations"] = json!({"provreq.kueue.x-k8s.io/b": "2"});
        world.create(JOB, annotated);
        run_until(&mut world, |world| world.harness.server.all(Kind::PodTemplate).count() == 1);
        let request = provisioning_request(&world).unwrap();
        assert_eq!(request["spec"]["parameters"], json!({"a": "1", "b": "2"}), "{request}");
        let template = world.harness.server.all(Kind::PodTemplate).next().unwrap();
        assert_eq!(request["spec"]["podSets"][0]["podTemplateRef"]["name"], template["metadata"]["name"]);
        assert_eq!(template["template"]["spec"]["nodeSelector"], json!({"pool": "f"}));
        assert_eq!(template["template"]["spec"]["containers"][0]["image"], "x");
        assert_eq!(condition(&workload(&world), "Admitted"), Some("False"));
        set_request_condition(&mut world, "Provisioned", "there is room");
        run_until(&mut world, |world| condition(&workload(world), "Admitted") == Some("True"));
        run_until(&mut world, |world| {
            world.harness.server.all(JOB).any(|job| job["spec"]["suspend"] == false)
        });
        let started = world.harness.server.all(JOB).next().unwrap();
        let pods = &started["spec"]["template"];
        assert_eq!(pods["spec"]["nodeSelector"], json!({"pool": "f", "group": "g7"}));
        let consumed_request =
            &pods["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"];
        assert_eq!(*consumed_request, request["metadata"]["name"]);
        assert!(world.run_until_finished(20_000), "seed {seed}");
        assert_eq!(
            world.harness.server.all(Kind::ProvisioningRequest).count(),
            0,
            "seed {seed}: a request was not deleted"
        );
    }
}

/// The first attempt fails and is retried after its backoff; the second failure deactivates the workload.
#[test]
fn failed_request_is_retried_up_to_limit() {
    let mut world = cluster_with_provisioning_check(3, &[], &CoreSettings::default());
    world.create(JOB, job("j", "a", 1));
    run_until(&mut world, |world| provisioning_request(world).is_some());
    let first = provisioning_request(&world).unwrap()["metadata"]["name"].clone();
    // Two seconds from the answer; the server's whole-second timestamps may shorten them by one.
    let failed = world.now;
    set_request_condition(&mut world, "Failed", "no room");
    run_until(&mut world, |world| condition(&workload(world), "Evicted") == Some("True"));
    run_until(&mut world, |world| {
        provisioning_request(world).is_some_and(|request| request["metadata"]["name"] != first)
    });
    assert!(world.now.duration_since(failed).as_secs() >= 1, "the backoff was not respected");
    let retried = workload(&world);
    assert_eq!(retried.pointer("/status/admissionChecks/0/retryCount"), Some(&json!(1)), "{retried}");
    set_request_condition(&mut world, "Failed", "no room again");
    run_until(&mut world, |world| workload(world)["spec"]["active"] == false);
    assert!(world.events.iter().any(|(_, reason)| reason == "AdmissionCheckRejected"), "{:?}", world.events);
}

#[test]
fn unmanaged_resources_need_no_request() {
    let mut world = cluster_with_provisioning_check(4, &["example.com/gpu"], &CoreSettings::default());
    world.create(JOB, job("j", "a", 1));
    assert!(world.run_until_finished(20_000));
    assert_eq!(world.harness.server.all(Kind::ProvisioningRequest).count(), 0);
    assert_eq!(check_state(&world).as_deref(), Some("Ready"));
}

/// Revoked capacity stops a running Workload.
#[test]
fn revoked_capacity_deactivates_workload() {
    let mut world = cluster_with_provisioning_check(5, &[], &CoreSettings::default());
    world.jobs_never_end = true;
    world.create(JOB, job("j", "a", 1));
    run_until(&mut world, |world| provisioning_request(world).is_some());
    set_request_condition(&mut world, "Provisioned", "there is room");
    run_until(&mut world, |world| condition(&workload(world), "Admitted") == Some("True"));
    set_request_condition(&mut world, "CapacityRevoked", "the room is gone");
    run_until(&mut world, |world| workload(world)["spec"]["active"] == false);
    run_until(&mut world, |world| condition(&workload(world), "QuotaReserved") == Some("False"));
}

/// A check without its configuration deactivates the queue until the configuration exists.
#[test]
fn check_without_configuration_is_inactive() {
    let mut world = cluster_with_provisioning_check(6, &[], &CoreSettings::default());
    world.harness.server.delete(Kind::ProvisioningRequestConfig, &ObjectKey::cluster("config"), world.now);
    let active = |world: &World| {
        let check = world
            .harness
            .server
            .get(Kind::AdmissionCheck, &ObjectKey::cluster("room"))
            .cloned()
            .unwrap_or_default();
        condition(&check, "Active").map(str::to_owned)
    };
    run_until(&mut world, |world| active(world).as_deref() == Some("False"));
    let spec = json!({"provisioningClassName": "check-capacity"});
    world.create(Kind::ProvisioningRequestConfig, json!({"metadata": {"name": "config"}, "spec": spec}));
    run_until(&mut world, |world| active(world).as_deref() == Some("True"));
}

/// A request that is gone when the manager deletes it: nothing was to be created, so nothing failed to be.
#[test]
fn delete_of_missing_request_is_no_failed_create() {
    for seed in 0..40 {
        let mut world = cluster_with_provisioning_check(seed, &[], &CoreSettings::default());
        world.create(JOB, job("j", "a", 1));
        run_until(&mut world, |world| provisioning_request(world).is_some());
        let key = sluice_core::simulate::fake_api_server::key_of(&workload(&world));
        world.harness.server.edit(Kind::Workload, &key, |w| w["spec"]["active"] = json!(false));
        for _ in 0..world.random_below(60) {
            world.step();
        }
        if let Some(request) = provisioning_request(&world) {
            let now = world.now;
            let key = sluice_core::simulate::fake_api_server::key_of(&request);
            world.harness.server.delete(Kind::ProvisioningRequest, &key, now);
        }
        assert!(world.run_until_idle(20_000), "seed {seed}");
        let failed = world.events.iter().any(|(_, reason)| reason == "FailedCreate");
        assert!(!failed, "seed {seed}: {:?}", world.events);
    }
}

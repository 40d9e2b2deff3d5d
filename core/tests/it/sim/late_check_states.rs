//! Check states that arrive late do not block a workload that is pending without a reservation forever.

use super::topology::{cluster_with_racks, job, run_until, workload};
use super::world::{World, condition};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::simulate::fake_api_server::key_of;

fn set_quota(world: &mut World, cpu: &str) {
    world.harness.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("q"), |q| {
        q["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(cpu);
    });
}

fn set_check_state(world: &mut World, state: &str, after: Option<i64>) {
    let key = key_of(&workload(world, "j"));
    let stamp = world.timestamp_text();
    world.harness.server.edit(Kind::Workload, &key, |w| {
        let check = &mut w["status"]["admissionChecks"][0];
        check["state"] = json!(state);
        check["lastTransitionTime"] = json!(stamp);
        if let Some(seconds) = after {
            check["requeueAfterSeconds"] = json!(seconds);
        }
    });
}

fn check_state(workload: &Value) -> &str {
    workload["status"]["admissionChecks"][0]["state"].as_str().unwrap_or_default()
}

/// A cluster whose workload was requeued by its check, and now finds no quota.
fn workload_retried_by_check(seed: u64) -> World {
    let mut world = cluster_with_racks(seed, &[("a1", "a")]);
    let active = json!({"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": world.timestamp_text()}]});
    let gate =
        json!({"metadata": {"name": "gate"}, "spec": {"controllerName": "sim/gate"}, "status": active});
    world.create(Kind::AdmissionCheck, gate);
    world.harness.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("q"), |q| {
        q["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "gate"}]});
    });
    world.create(JOB, job("j", 1, &json!({})));
    run_until(&mut world, "its check is pending", |world| {
        let w = workload(world, "j");
        condition(&w, "QuotaReserved") == Some("True") && check_state(&w) == "Pending"
    });
    set_quota(&mut world, "0");
    assert!(world.run_until_idle(20_000));
    set_check_state(&mut world, "Retry", None);
    assert!(world.run_until_idle(20_000));
    let w = workload(&world, "j");
    assert!(
        condition(&w, "QuotaReserved") == Some("False") && check_state(&w) == "Pending",
        "{}",
        w["status"]
    );
    world
}

#[test]
fn late_retry_is_reset_and_delays_requeue() {
    for (seed, after) in [(0, None), (1, Some(60))] {
        let mut world = workload_retried_by_check(seed);
        set_check_state(&mut world, "Retry", after);
        assert!(world.run_until_idle(20_000));
        assert_eq!(check_state(&workload(&world, "j")), "Pending");
        let quota_raised = world.now;
        set_quota(&mut world, "1");
        run_until(&mut world, "quota is reserved again", |world| {
            condition(&workload(world, "j"), "QuotaReserved") == Some("True")
        });
        let waited = world.now.duration_since(quota_raised).as_secs();
        assert!(after.is_none() || waited > 20, "it reserved quota after {waited} s");
    }
}

#[test]
fn late_rejection_deactivates_workload() {
    let mut world = workload_retried_by_check(2);
    set_check_state(&mut world, "Rejected", None);
    assert!(world.run_until_idle(20_000));
    let w = workload(&world, "j");
    assert_eq!(w["spec"]["active"], json!(false), "{}", w["status"]);
    let conditions = w["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|c| c["reason"] == "DeactivatedDueToAdmissionCheck"), "{conditions:?}");
    set_quota(&mut world, "1");
    assert!(world.run_until_idle(20_000));
    assert_eq!(condition(&workload(&world, "j"), "QuotaReserved"), Some("False"));
}

//! Checks that answer when nobody asks any more: who waits without a reservation is not held up by it for ever.

use super::topology::{job, racks, until, workload};
use super::world::{World, condition};
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::simulate::server::key_of;
use sluice::state::Kind;

fn quota(world: &mut World, cpu: &str) {
    world.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("q"), |q| {
        q["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(cpu);
    });
}

fn answer(world: &mut World, state: &str, after: Option<i64>) {
    let key = key_of(&workload(world, "j"));
    let stamp = world.stamp();
    world.server.edit(Kind::Workload, &key, |w| {
        let check = &mut w["status"]["admissionChecks"][0];
        check["state"] = json!(state);
        check["lastTransitionTime"] = json!(stamp);
        if let Some(seconds) = after {
            check["requeueAfterSeconds"] = json!(seconds);
        }
    });
}

fn state(workload: &Value) -> &str {
    workload["status"]["admissionChecks"][0]["state"].as_str().unwrap_or_default()
}

/// One that was sent back by its check, and finds no quota now.
fn sent_back(seed: u64) -> World {
    let mut world = racks(seed, &[("a1", "a")]);
    let active = json!({"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": world.stamp()}]});
    let gate =
        json!({"metadata": {"name": "gate"}, "spec": {"controllerName": "sim/gate"}, "status": active});
    world.create(Kind::AdmissionCheck, gate);
    world.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("q"), |q| {
        q["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "gate"}]});
    });
    world.create(Kind::Job(0), job("j", 1, &json!({})));
    until(&mut world, "its check is asked", |world| {
        let w = workload(world, "j");
        condition(&w, "QuotaReserved") == Some("True") && state(&w) == "Pending"
    });
    quota(&mut world, "0");
    assert!(world.rest(20_000));
    answer(&mut world, "Retry", None);
    assert!(world.rest(20_000));
    let w = workload(&world, "j");
    assert!(condition(&w, "QuotaReserved") == Some("False") && state(&w) == "Pending", "{}", w["status"]);
    world
}

#[test]
fn a_late_retry_is_set_back_and_heeded() {
    for (seed, after) in [(0, None), (1, Some(60))] {
        let mut world = sent_back(seed);
        answer(&mut world, "Retry", after);
        assert!(world.rest(20_000));
        assert_eq!(state(&workload(&world, "j")), "Pending");
        let asked = world.now;
        quota(&mut world, "1");
        until(&mut world, "it is asked again", |world| {
            condition(&workload(world, "j"), "QuotaReserved") == Some("True")
        });
        let waited = world.now.duration_since(asked).as_secs();
        assert!(after.is_none() || waited > 20, "it was queued again after {waited} s");
    }
}

#[test]
fn a_late_rejection_ends_it() {
    let mut world = sent_back(2);
    answer(&mut world, "Rejected", None);
    assert!(world.rest(20_000));
    let w = workload(&world, "j");
    assert_eq!(w["spec"]["active"], json!(false), "{}", w["status"]);
    let told = w["status"]["conditions"].as_array().unwrap();
    assert!(told.iter().any(|c| c["reason"] == "DeactivatedDueToAdmissionCheck"), "{told:?}");
    quota(&mut world, "1");
    assert!(world.rest(20_000));
    assert_eq!(condition(&workload(&world, "j"), "QuotaReserved"), Some("False"));
}

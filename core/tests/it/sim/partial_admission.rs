//! Jobs that run with a part of their pods: a stop restores their size, whatever a user did to the annotations meanwhile.

use super::user_edits::{FOLLOW, MIN, QUOTA, cluster, holds, job, key, set};
use super::world::World;
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::simulate::fake_api_server::key_of;

fn set_active(world: &mut World, active: bool) {
    let workload = world.harness.server.all(Kind::Workload).next().map(key_of).unwrap();
    world.harness.server.edit(Kind::Workload, &workload, |w| w["spec"]["active"] = json!(active));
    assert!(world.run_until_idle(20_000));
}

fn sizes(job: &Value) -> [Option<i64>; 2] {
    ["parallelism", "completions"].map(|field| job["spec"][field].as_i64())
}

/// A Job of 12 pods of which the quota admits 8.
fn partially_admitted(completions: Option<i64>, follows: bool) -> World {
    let mut world = cluster(1);
    let mut job = super::laws::job("edited", "a", 12);
    job["spec"]["completions"] = json!(completions);
    if follows {
        job["spec"]["completionMode"] = json!("Indexed");
    }
    job["metadata"]["annotations"] = json!({MIN: "2", FOLLOW: follows.to_string()});
    world.create(JOB, job);
    assert!(world.run_until_idle(20_000));
    world
}

#[test]
fn size_is_restored_whatever_the_annotations_say() {
    for (completions, follows) in [(Some(12), false), (Some(12), true), (Some(20), false), (None, false)] {
        for (name, value) in [
            (MIN, Value::Null),
            (MIN, json!("1")),
            (MIN, json!("8")),
            (MIN, json!("12")),
            (MIN, json!("x")),
            (FOLLOW, Value::Null),
            (FOLLOW, json!("true")),
        ] {
            let case = format!("{completions:?} completions, {name} becomes {value}");
            let mut world = partially_admitted(completions, follows);
            let before = job(&world);
            assert_eq!(before["spec"]["parallelism"], json!(QUOTA), "{case}");
            assert_eq!(before["spec"]["suspend"], json!(false), "{case}");
            world.harness.server.edit(JOB, &key(), |j| set(j, &["metadata", "annotations", name], value));
            assert!(world.run_until_idle(20_000));
            assert_eq!(job(&world)["spec"], before["spec"], "{case}: the running Job was changed");
            set_active(&mut world, false);
            assert_eq!(sizes(&job(&world)), [Some(12), completions], "{case}");
        }
    }
}

/// A size that a user sets while the Job runs with a part of its pods is kept, also without the annotation.
#[test]
fn size_of_the_user_is_kept() {
    for removed in [false, true] {
        let mut world = partially_admitted(None, false);
        world.harness.server.edit(JOB, &key(), |j| {
            j["spec"]["parallelism"] = json!(5);
            if removed {
                set(j, &["metadata", "annotations", MIN], Value::Null);
            }
        });
        assert!(world.run_until_idle(20_000));
        assert_eq!(sizes(&job(&world)), [Some(5), None]);
        assert_eq!(job(&world)["status"]["active"], json!(5));
    }
}

/// A Job whose annotation a user removes between admission and start does not start with a part of its pods, nor with more
/// pods than were granted.
#[test]
fn whole_job_waits_once_it_must_not_run_in_part() {
    let mut world = partially_admitted(Some(12), false);
    world.harness.server.edit(JOB, &key(), |j| {
        j["spec"]["suspend"] = json!(true);
        set(j, &["metadata", "annotations", MIN], Value::Null);
    });
    assert!(world.run_until_idle(20_000));
    let after = job(&world);
    assert_eq!((&after["spec"]["suspend"], sizes(&after)), (&json!(true), [Some(12), Some(12)]));
    let workload = world.harness.server.all(Kind::Workload).next().unwrap();
    assert!(!holds(workload, "QuotaReserved"), "{workload:#}");
}

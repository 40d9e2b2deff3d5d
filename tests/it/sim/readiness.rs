//! Admissions one after the other: nobody is admitted while pods of somebody admitted are not ready, and whoever holds
//! quota already is left alone.

use super::laws::{cluster, job, legal, seeds};
use super::world::{Faults, World, condition};
use jiff::SignedDuration;
use serde_json::Value;
use sluice::lifecycle::pods_ready::Limits;
use sluice::state::{Kind, Settings};

fn in_turn() -> Settings {
    let mut settings = Settings::default();
    let hour = SignedDuration::from_hours(1);
    let second = SignedDuration::from_secs(1);
    settings.engine.one_at_a_time = true;
    settings.lifecycle.pods_ready = Some(Limits {
        timeout: hour,
        recovery: Some(hour),
        requeues: None,
        backoff_base: second,
        backoff_max: second,
    });
    settings
}

/// Those admitted whose pods are not ready.
fn unready(world: &World) -> usize {
    let awaited = |w: &&Value| {
        condition(w, "Admitted") == Some("True")
            && condition(w, "Finished") != Some("True")
            && condition(w, "PodsReady") != Some("True")
    };
    world.server.all(Kind::Workload).filter(awaited).count()
}

#[test]
fn one_is_admitted_after_the_other() {
    for seed in seeds(600..610) {
        let mut world = cluster(seed, &in_turn());
        world.faults = Faults { lost: 40, dropped: 40, killed: 2, meddled: 20 };
        for n in 0..8_u32 {
            let queue = if world.roll(2) == 0 { "a" } else { "b" };
            world.create(Kind::Job(0), job(&format!("j{n}"), queue, 1));
            for _ in 0..world.roll(60) {
                world.step();
                assert!(unready(&world) <= 1, "seed {seed}: {} at once", unready(&world));
            }
        }
        assert!(world.settle(60_000), "seed {seed}: did not come to rest");
        world.remember();
        legal(&world.history).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let text = |w: &Value| w["status"]["conditions"].to_string();
        let told = world.history.iter().any(|w| text(w).contains("WaitingForPodsReady"));
        assert!(told, "seed {seed}: nobody ever waited");
        let lost = |w: &Value| text(w).contains("EvictedDue") || condition(w, "Evicted") == Some("True");
        assert!(!world.history.iter().any(lost), "seed {seed}: somebody lost what he had");
    }
}

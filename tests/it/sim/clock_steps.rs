//! Clocks that are set by an hour, forth and back, while waits are on: nobody waits an hour for it, and nobody's time is up.

use super::laws::{check, cluster, held, job, legal, seeds};
use super::world::{Faults, World, condition};
use jiff::SignedDuration;
use serde_json::Value;
use sluice::lifecycle::pods_ready::Limits;
use sluice::simulate::server::key_of;
use sluice::state::{Kind, Settings};
use std::collections::BTreeSet;
use std::time::Duration;

fn hours(n: i64) -> SignedDuration {
    SignedDuration::from_hours(n)
}

#[test]
fn waits_go_on_whatever_the_clock_is_set_to() {
    for seed in seeds(700..730) {
        let mut world = cluster(seed, &Settings::default());
        for n in 0..12_u32 {
            world.faults = Faults { lost: 60, dropped: 120, killed: 0, meddled: 40 };
            let queue = if world.roll(2) == 0 { "a" } else { "b" };
            world.create(Kind::Job(0), job(&format!("j{n}"), queue, 1 + n % 2));
            for _ in 0..world.roll(60) {
                world.step();
                check(&world, seed);
            }
            if world.roll(3) == 0 {
                let by = if world.roll(2) == 0 { hours(1) } else { hours(-1) };
                world.set_clocks(by);
            }
        }
        // Some 15 minutes, far less than any step.
        assert!(world.settle(45_000), "seed {seed}: did not come to rest");
        assert_eq!(held(&world), 0, "seed {seed}: quota left behind (I1)");
        world.remember();
        legal(&world.history).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Those who were ever told that their pods were late.
fn late(world: &World) -> usize {
    let told = world.history.iter().filter(|w| w["status"].to_string().contains("PodsReadyTimeout"));
    told.map(key_of).collect::<BTreeSet<_>>().len()
}

/// Lets so many seconds pass.
fn pass(world: &mut World, seconds: u64) {
    let end = world.passed() + Duration::from_secs(seconds);
    while world.passed() < end {
        world.step();
    }
}

#[test]
fn a_step_forward_is_no_timeout_for_everybody() {
    let mut settings = Settings::default();
    let minute = SignedDuration::from_mins(1);
    settings.lifecycle.pods_ready = Some(Limits {
        timeout: minute * 10,
        recovery: None,
        requeues: None,
        backoff_base: minute,
        backoff_max: minute,
    });
    for seed in seeds(740..745) {
        let mut world = cluster(seed, &settings);
        (world.never_ready, world.endless) = (true, true);
        for n in 0..3_u32 {
            world.create(Kind::Job(0), job(&format!("j{n}"), "a", 1));
        }
        pass(&mut world, 60);
        let admitted = |w: &&Value| condition(w, "Admitted") == Some("True");
        assert_eq!(world.server.all(Kind::Workload).filter(admitted).count(), 3, "seed {seed}");
        world.set_clocks(hours(1));
        pass(&mut world, 200);
        assert_eq!(late(&world), 0, "seed {seed}: time is up after four minutes of ten");
        pass(&mut world, 400);
        assert_eq!(late(&world), 3, "seed {seed}: time is never up");
    }
}

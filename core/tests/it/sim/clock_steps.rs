//! Clocks that step by an hour, forward and back, during waits: no wait becomes an hour longer, and no timeout fires early.

use super::laws::{check_capacity, check_transitions, cluster, job, reserved_cpu, seeds};
use super::world::{Faults, World, condition};
use crate::fixtures::leading_core::JOB;
use jiff::SignedDuration;
use serde_json::Value;
use sluice_core::cache::Kind;
use sluice_core::lifecycle::pods_ready::PodsReadyLimits;
use sluice_core::reconciler::CoreSettings;
use sluice_core::simulate::fake_api_server::key_of;
use std::collections::BTreeSet;
use std::time::Duration;

fn hours(n: i64) -> SignedDuration {
    SignedDuration::from_hours(n)
}

#[test]
fn clock_steps_do_not_stall_waits() {
    for seed in seeds(700..730) {
        let mut world = cluster(seed, &CoreSettings::default());
        for n in 0..12_u32 {
            world.faults =
                Faults { lost_responses: 60, dropped_writes: 120, manager_kills: 0, concurrent_writes: 40 };
            let queue = if world.random_below(2) == 0 { "a" } else { "b" };
            world.create(JOB, job(&format!("j{n}"), queue, 1 + n % 2));
            for _ in 0..world.random_below(60) {
                world.step();
                check_capacity(&world, seed);
            }
            if world.random_below(3) == 0 {
                let step = if world.random_below(2) == 0 { hours(1) } else { hours(-1) };
                world.set_clocks(step);
            }
        }
        // About 15 minutes, far less than any step of a clock.
        assert!(world.run_until_finished(45_000), "seed {seed}: did not finish");
        assert_eq!(reserved_cpu(&world), 0, "seed {seed}: quota not released (I1)");
        world.record_undelivered_versions();
        check_transitions(&world.history).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Number of workloads that ever had a PodsReadyTimeout.
fn workloads_with_late_pods(world: &World) -> usize {
    let timed_out = world.history.iter().filter(|w| w["status"].to_string().contains("PodsReadyTimeout"));
    timed_out.map(key_of).collect::<BTreeSet<_>>().len()
}

/// Advances the simulation by this many seconds.
fn advance(world: &mut World, seconds: u64) {
    let end = world.elapsed() + Duration::from_secs(seconds);
    while world.elapsed() < end {
        world.step();
    }
}

#[test]
fn clock_step_forward_triggers_no_mass_timeout() {
    let mut settings = CoreSettings::default();
    let minute = SignedDuration::from_mins(1);
    settings.lifecycle.pods_ready = Some(PodsReadyLimits {
        timeout: minute * 10,
        recovery_timeout: None,
        max_requeues: None,
        backoff_base: minute,
        backoff_max: minute,
    });
    for seed in seeds(740..745) {
        let mut world = cluster(seed, &settings);
        (world.pods_never_ready, world.jobs_never_end) = (true, true);
        for n in 0..3_u32 {
            world.create(JOB, job(&format!("j{n}"), "a", 1));
        }
        advance(&mut world, 60);
        let admitted = |w: &&Value| condition(w, "Admitted") == Some("True");
        assert_eq!(world.harness.server.all(Kind::Workload).filter(admitted).count(), 3, "seed {seed}");
        world.set_clocks(hours(1));
        advance(&mut world, 200);
        assert_eq!(workloads_with_late_pods(&world), 0, "seed {seed}: timeout after four minutes of ten");
        advance(&mut world, 400);
        assert_eq!(workloads_with_late_pods(&world), 3, "seed {seed}: no timeout");
    }
}

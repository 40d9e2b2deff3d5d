//! Blocked admission: no workload is admitted while pods of an admitted workload are not ready, and workloads with quota stay
//! as they are.

use super::laws::{check_transitions, cluster, job, seeds};
use super::world::{Faults, World, condition};
use crate::fixtures::leading_core::JOB;
use jiff::SignedDuration;
use serde_json::Value;
use sluice_core::cache::Kind;
use sluice_core::lifecycle::pods_ready::PodsReadyLimits;
use sluice_core::reconciler::CoreSettings;

fn block_admission_settings() -> CoreSettings {
    let mut settings = CoreSettings::default();
    let hour = SignedDuration::from_hours(1);
    let second = SignedDuration::from_secs(1);
    settings.engine.block_admission = true;
    settings.lifecycle.pods_ready = Some(PodsReadyLimits {
        timeout: hour,
        recovery_timeout: Some(hour),
        max_requeues: None,
        backoff_base: second,
        backoff_max: second,
    });
    settings
}

/// Number of admitted workloads whose pods are not ready.
fn admitted_without_ready_pods(world: &World) -> usize {
    let not_ready = |w: &&Value| {
        condition(w, "Admitted") == Some("True")
            && condition(w, "Finished") != Some("True")
            && condition(w, "PodsReady") != Some("True")
    };
    world.harness.server.all(Kind::Workload).filter(not_ready).count()
}

#[test]
fn admission_waits_for_ready_pods_of_previous() {
    for seed in seeds(600..610) {
        let mut world = cluster(seed, &block_admission_settings());
        world.faults =
            Faults { lost_responses: 40, dropped_writes: 40, manager_kills: 2, concurrent_writes: 20 };
        for n in 0..8_u32 {
            let queue = if world.random_below(2) == 0 { "a" } else { "b" };
            world.create(JOB, job(&format!("j{n}"), queue, 1));
            for _ in 0..world.random_below(60) {
                world.step();
                assert!(
                    admitted_without_ready_pods(&world) <= 1,
                    "seed {seed}: {} workloads without ready pods",
                    admitted_without_ready_pods(&world)
                );
            }
        }
        assert!(world.run_until_finished(60_000), "seed {seed}: did not finish");
        world.record_undelivered_versions();
        check_transitions(&world.history).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let text = |w: &Value| w["status"]["conditions"].to_string();
        let waited = world.history.iter().any(|w| text(w).contains("WaitingForPodsReady"));
        assert!(waited, "seed {seed}: no workload ever waited");
        let evicted = |w: &Value| text(w).contains("EvictedDue") || condition(w, "Evicted") == Some("True");
        assert!(!world.history.iter().any(evicted), "seed {seed}: a workload was evicted");
    }
}

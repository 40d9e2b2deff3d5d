//! Preemption as seen in the objects: two steps, once per pair, and the released capacity goes to its preemptor.

use super::laws::{check_capacity, check_transitions, cluster, job, reserved_cpu, seeds, with_write_limit};
use super::world::{Faults, World, condition};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;
use sluice_core::scheduler::FairStrategy;
use sluice_core::simulate::fake_api_server::key_of;
use std::collections::BTreeMap;

const LOW: i32 = -10;
const HIGH: i32 = 10;

/// The cluster of `laws`, with queues that preempt and reclaim.
pub(super) fn contended_cluster(seed: u64, settings: &CoreSettings) -> World {
    let mut world = cluster(seed, settings);
    for name in ["a", "b"] {
        let key = ObjectKey::cluster(name);
        world.harness.server.edit(Kind::ClusterQueue, &key, |queue| {
            queue["spec"]["preemption"] =
                json!({"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"});
        });
    }
    for (name, value) in [("low", LOW), ("high", HIGH)] {
        world.create(Kind::WorkloadPriorityClass, json!({"metadata": {"name": name}, "value": value}));
    }
    world
}

pub(super) fn job_with_priority(name: &str, queue: &str, pods: u32, class: &str) -> Value {
    let mut job = job(name, queue, pods);
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
    job
}

fn condition_reason<'a>(object: &'a Value, kind: &str) -> &'a str {
    let list = object.pointer("/status/conditions").and_then(Value::as_array);
    let entry = list.into_iter().flatten().find(|c| c["type"] == kind);
    entry.and_then(|c| c["reason"].as_str()).unwrap_or_default()
}

fn condition_message<'a>(object: &'a Value, kind: &str) -> &'a str {
    let list = object.pointer("/status/conditions").and_then(Value::as_array);
    let entry = list.into_iter().flatten().find(|c| c["type"] == kind);
    entry.and_then(|c| c["message"].as_str()).unwrap_or_default()
}

/// Evictions by preemption in a history: number per victim and message, which names the preemptor.
fn count_preemptions(history: &[Value]) -> BTreeMap<(String, String), u32> {
    let mut last: BTreeMap<ObjectKey, bool> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for object in history {
        let preempted = condition(object, "Evicted") == Some("True")
            && condition_reason(object, "Evicted") == "Preempted";
        if preempted {
            assert_eq!(condition(object, "Preempted"), Some("True"), "{object}");
        }
        if last.insert(key_of(object), preempted) != Some(true) && preempted {
            let text = condition_message(object, "Preempted")
                .split_once(';')
                .map_or("", |(head, _)| head)
                .to_owned();
            *counts.entry((key_of(object).to_string(), text)).or_default() += 1;
        }
    }
    counts
}

/// Creates random Jobs of two priorities; while `jobs_never_end` is set, none of them finishes.
fn submit_random_jobs(world: &mut World, seed: u64, jobs: u32) {
    for n in 0..jobs {
        let queue = if world.random_below(2) == 0 { "a" } else { "b" };
        let class = if world.random_below(2) == 0 { "low" } else { "high" };
        let size = 1 + world.random_below(3);
        world.create(JOB, job_with_priority(&format!("j{n}"), queue, size, class));
        for _ in 0..world.random_below(60) {
            world.step();
            check_capacity(world, seed);
        }
    }
}

fn finish_and_check(mut world: World, seed: u64) {
    assert!(world.run_until_finished(80_000), "seed {seed}: did not finish");
    assert_eq!(reserved_cpu(&world), 0, "seed {seed}: quota not released (I1)");
    world.record_undelivered_versions();
    check_transitions(&world.history).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

fn fair_sharing_settings() -> CoreSettings {
    let mut settings = CoreSettings::default();
    let both = vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
    settings.engine.fair_sharing = Some(both);
    settings
}

/// I20: without external change preemptions cease, and until then no pair preempts twice.
#[test]
fn i20_pair_never_preempts_twice() {
    let mut all = 0;
    for settings in [CoreSettings::default(), fair_sharing_settings()] {
        for seed in seeds(200..220) {
            let mut world = contended_cluster(seed, &settings);
            world.jobs_never_end = true;
            submit_random_jobs(&mut world, seed, 8);
            let (before, last) = (world.history.len(), count_preemptions(&world.history));
            assert!(world.run_until_idle(20_000), "seed {seed}: preemptions do not cease");
            check_capacity(&world, seed);
            for (pair, count) in count_preemptions(&world.history) {
                let since = count - last.get(&pair).copied().unwrap_or(0);
                assert!(since <= 1, "seed {seed}: {pair:?} {since} times since version {before}");
                all += count;
            }
            world.jobs_never_end = false;
            finish_and_check(world, seed);
        }
    }
    assert!(all > 10 || seeds(0..2).len() == 1, "only {all} preemptions occurred");
}

#[test]
fn preemption_conserves_quota_under_faults() {
    for settings in [CoreSettings::default(), fair_sharing_settings()] {
        for seed in seeds(300..315) {
            let mut world = contended_cluster(seed, &with_write_limit(seed, settings.clone()));
            world.faults =
                Faults { lost_responses: 60, dropped_writes: 60, manager_kills: 3, concurrent_writes: 30 };
            submit_random_jobs(&mut world, seed, 12);
            finish_and_check(world, seed);
        }
    }
}

/// A victim of four pods is evicted for a preemptor of one pod, which starts when the last pod has terminated; the victim runs
/// later.
#[test]
fn victim_is_evicted_in_two_steps_and_requeued() {
    let mut world = contended_cluster(11, &CoreSettings::default());
    world.create(JOB, job_with_priority("victim", "a", 4, "low"));
    let runs = |world: &World, name: &str| {
        world.harness.server.get(JOB, &ObjectKey::new("ns", name)).is_some_and(|j| {
            j["status"]["active"] != 0 && j["spec"]["suspend"] == false && j["status"]["active"].is_number()
        })
    };
    for _ in 0..5_000 {
        world.step();
        if runs(&world, "victim") {
            break;
        }
    }
    world.create(JOB, job_with_priority("preemptor", "a", 1, "high"));
    assert!(world.run_until_finished(40_000), "did not finish");
    world.record_undelivered_versions();
    let preemptions = count_preemptions(&world.history);
    assert_eq!(preemptions.len(), 1, "{preemptions:?}");
    let ((victim, text), _) = preemptions.first_key_value().unwrap();
    assert!(victim.contains("victim"), "{victim}");
    assert!(text.contains("due to prioritization in the ClusterQueue"), "{text}");
    let waited = world.history.iter().any(|w| {
        key_of(w).name.contains("preemptor")
            && condition_reason(w, "QuotaReserved") == "WaitingForPreemptedWorkloads"
    });
    assert!(waited, "the preemptor never reported that it waits for its victim");
    let requeued = world.history.iter().any(|w| {
        key_of(w).name.contains("victim")
            && condition(w, "Requeued") == Some("True")
            && condition_reason(w, "Requeued") == "Preempted"
    });
    assert!(requeued, "the victim was not requeued");
    for reason in ["Preempted", "PreemptedWorkload", "EvictedDueToPreempted"] {
        assert!(
            world.events.iter().any(|(_, event)| event == reason),
            "no event {reason}: {:?}",
            world.events
        );
    }
}

//! The history in simulated time: its records are those of the versions of the objects, and its runs are the usage of the ledger
//! (`World` compares them after every delta), through faults, restarts, deletions and changes of quotas.

use super::laws::{seeds, with_write_limit};
use super::preemption::{contended_cluster, job_with_priority};
use super::world::{Faults, World};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::history::{RecordEvent, RecordKind, UsageGroup, UsageQuery};
use sluice_core::reconciler::CoreSettings;
use std::collections::{BTreeMap, BTreeSet};

fn submit(world: &mut World, jobs: u32, mut after_each: impl FnMut(&mut World, u32)) {
    for n in 0..jobs {
        let queue = if world.random_below(2) == 0 { "a" } else { "b" };
        let class = if world.random_below(2) == 0 { "low" } else { "high" };
        let size = 1 + world.random_below(3);
        world.create(JOB, job_with_priority(&format!("j{n}"), queue, size, class));
        for _ in 0..world.random_below(60) {
            world.step();
        }
        after_each(world, n);
    }
}

/// Evictions of all versions: UID, transition time, reason.
fn evictions_of_objects(world: &World) -> BTreeSet<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let condition = |object: &Value| {
        let list = object.pointer("/status/conditions").and_then(Value::as_array)?;
        list.iter().find(|c| c["type"] == "Evicted" && c["status"] == "True").cloned()
    };
    world
        .history
        .iter()
        .filter_map(|object| Some((text(&object["metadata"]["uid"]), condition(object)?)))
        .map(|(uid, evicted)| (uid, text(&evicted["lastTransitionTime"]), text(&evicted["reason"])))
        .collect()
}

#[test]
fn records_are_those_of_the_objects() {
    let mut all = 0;
    for seed in seeds(900..915) {
        let mut world = contended_cluster(seed, &CoreSettings::default());
        submit(&mut world, 10, |_, _| {});
        assert!(world.run_until_finished(80_000), "seed {seed}: did not finish");
        world.record_undelivered_versions();
        let ring = world.harness.core.history().clone();
        let view = ring.view();
        let mut recorded = BTreeSet::new();
        for record in &view.records {
            if let RecordEvent::Eviction(eviction) = &record.event {
                let at = jiff::Timestamp::from_millisecond(eviction.at).unwrap();
                recorded.insert((record.key.uid.to_string(), at.to_string(), eviction.reason.to_string()));
                assert!(eviction.released.is_some(), "seed {seed}: {record:?}");
                let preemption = eviction.preemption.as_ref().unwrap();
                assert!(preemption.preemptor.is_some(), "seed {seed}: {record:?}");
                assert!(eviction.run.as_ref().is_some_and(|run| run.start <= eviction.at), "{record:?}");
            }
        }
        let of_objects = evictions_of_objects(&world);
        assert_eq!(recorded, of_objects, "seed {seed}");
        all += recorded.len();
        let finishes = view.records.iter().filter(|record| record.key.kind == RecordKind::Finish).count();
        assert_eq!(finishes, 10, "seed {seed}: each Workload finished once");
        assert!(view.runs.is_empty() && ring.open_usage().is_empty(), "seed {seed}");
        let stats = ring.stats();
        assert_eq!((stats.conflicts, stats.cut), (0, 0), "seed {seed}");
        check_sums(&mut world, seed);
    }
    assert!(all > 4 || seeds(0..2).len() == 1, "only {all} evictions occurred");
}

/// The hours by queue, which come from the series, and those by namespace, which come from the records, agree: the series count
/// from the versions that were delivered, the records from the seconds in the conditions.
fn check_sums(world: &mut World, seed: u64) {
    let view = world.harness.core.history().view();
    let none = BTreeMap::new();
    let used = |by| {
        let query = UsageQuery {
            by,
            from: jiff::Timestamp::MIN,
            until: world.now,
            resource: Some("cpu"),
            namespace: None,
            cohorts: &none,
        };
        view.usage(&query).sums.first().map(|sum| sum.used).unwrap_or_default()
    };
    let (by_series, by_records) = (used(UsageGroup::Queue), used(UsageGroup::Namespace));
    let runs = view.records.iter().filter(|r| r.key.kind != RecordKind::Wait).count();
    // Of each run, start and end are off by a second, and by the delivery of the watch.
    let tolerance = i128::try_from(runs).unwrap() * 2 * 3_000 * 30_000;
    assert!(by_records > 0, "seed {seed}");
    assert!((by_series - by_records).abs() < tolerance, "seed {seed}: {by_series} and {by_records}");
}

#[test]
fn runs_are_the_usage_of_the_ledger_through_restarts_deletions_and_changes_of_quotas() {
    for seed in seeds(920..935) {
        let mut world = contended_cluster(seed, &with_write_limit(seed, CoreSettings::default()));
        world.faults =
            Faults { lost_responses: 60, dropped_writes: 60, manager_kills: 6, concurrent_writes: 30 };
        submit(&mut world, 12, |world, n| {
            let now = world.now;
            match n % 4 {
                0 => {
                    let cpus = 1 + world.random_below(6);
                    world.harness.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("a"), |queue| {
                        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] =
                            json!(cpus);
                    });
                }
                1 => {
                    let workloads: Vec<_> = world
                        .harness
                        .server
                        .all(Kind::Workload)
                        .map(sluice_core::simulate::fake_api_server::key_of)
                        .collect();
                    let number = u32::try_from(workloads.len()).unwrap();
                    let chosen = world.random_below(number.max(1));
                    if let Some(key) = workloads.get(usize::try_from(chosen).unwrap()) {
                        world.harness.server.delete(Kind::Workload, key, now);
                    }
                }
                2 => world.restart(),
                _ => {}
            }
        });
        for _ in 0..600 {
            world.step();
        }
        assert_eq!(world.harness.core.history().stats().conflicts, 0, "seed {seed}");
    }
}

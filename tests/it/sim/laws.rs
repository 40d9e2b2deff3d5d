//! What holds in every history, with and without faults.

use super::world::{Faults, World, condition};
use serde_json::{Value, json};
use sluice::simulate::server::key_of;
use sluice::state::{Kind, Settings};
use std::collections::BTreeMap;

const CPU_OF_TREE: i64 = 4;

/// Two queues of 1 CPU each under a cohort that owns 2 more.
pub(super) fn cluster(seed: u64, settings: &Settings) -> World {
    let mut world = World::new(seed, settings);
    world.create(Kind::Namespace, json!({"metadata": {"name": "ns", "labels": {"a": "b"}}}));
    world.create(
        Kind::ResourceFlavor,
        json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"pool": "f"}}}),
    );
    let group = |cpu: &str| {
        json!([{"coveredResources": ["cpu"], "flavors": [
            {"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]}])
    };
    world.create(Kind::Cohort, json!({"metadata": {"name": "root"}, "spec": {"resourceGroups": group("2")}}));
    for name in ["a", "b"] {
        let spec = json!({"cohortName": "root", "namespaceSelector": {}, "resourceGroups": group("1")});
        world.create(Kind::ClusterQueue, json!({"metadata": {"name": name}, "spec": spec}));
        let spec = json!({"clusterQueue": name});
        world.create(Kind::LocalQueue, json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}));
    }
    world
}

pub(super) fn job(name: &str, queue: &str, pods: u32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"parallelism": pods, "completions": pods, "suspend": true, "template": {"metadata": {}, "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}},
    })
}

/// CPU held, from the objects alone.
pub(super) fn held(world: &World) -> i64 {
    let usage = |w: &Value| {
        let sets = w
            .pointer("/status/admission/podSetAssignments")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        sets.iter()
            .map(|s| s["resourceUsage"]["cpu"].as_str().unwrap_or("0").parse::<i64>().unwrap())
            .sum::<i64>()
    };
    let counts = |w: &&Value| {
        condition(w, "QuotaReserved") == Some("True") && condition(w, "Finished") != Some("True")
    };
    world.server.all(Kind::Workload).filter(counts).map(usage).sum()
}

/// Pods that run or are ending.
fn pods(world: &World) -> i64 {
    world
        .server
        .all(Kind::Job(0))
        .map(|j| j.pointer("/status/active").and_then(Value::as_i64).unwrap_or(0))
        .sum()
}

/// I14: each version of a Workload follows legally from the one before.
pub(super) fn legal(history: &[Value]) -> Result<(), String> {
    let mut last: BTreeMap<(String, String), &Value> = BTreeMap::new();
    for object in history {
        let id = (key_of(object).to_string(), object["metadata"]["uid"].to_string());
        if let Some(before) = last.insert(id, object) {
            for kind in ["QuotaReserved", "Admitted", "Evicted", "Requeued", "Finished"] {
                if condition(before, kind).is_some() && condition(object, kind).is_none() {
                    return Err(format!("{kind} disappeared: {before} -> {object}"));
                }
            }
            let was = |kind| condition(before, kind) == Some("True");
            let is = |kind| condition(object, kind) == Some("True");
            if was("Finished")
                && (!is("Finished") || before["status"]["admission"] != object["status"]["admission"])
            {
                return Err(format!("changed after the end: {before} -> {object}"));
            }
            if was("Evicted") && !is("Evicted") && (was("QuotaReserved") || !is("QuotaReserved")) {
                return Err(format!("Evicted cleared without a new reservation: {before} -> {object}"));
            }
        }
    }
    Ok(())
}

pub(super) fn check(world: &World, seed: u64) {
    assert!(held(world) <= CPU_OF_TREE, "seed {seed}: {} CPU held of {CPU_OF_TREE} (I2)", held(world));
    assert!(pods(world) <= CPU_OF_TREE, "seed {seed}: {} pods on {CPU_OF_TREE} CPU (I22)", pods(world));
}

/// The same settings, for every other seed with room for one or two writes at a time.
pub(super) fn narrow(seed: u64, settings: Settings) -> Settings {
    let status_writes_at_once =
        [None, Some(1), None, Some(2)].into_iter().cycle().nth(usize::try_from(seed % 4).unwrap());
    Settings { status_writes_at_once: status_writes_at_once.flatten(), ..settings }
}

fn run(seed: u64, faults: Faults, churn: bool) {
    let mut world = cluster(seed, &narrow(seed, Settings::default()));
    world.faults = faults;
    for n in 0..12_u32 {
        let queue = if world.roll(2) == 0 { "a" } else { "b" };
        let size = 1 + world.roll(3);
        world.create(Kind::Job(0), job(&format!("j{n}"), queue, size));
        for _ in 0..world.roll(60) {
            world.step();
            check(&world, seed);
        }
        if churn {
            disturb(&mut world, n);
        }
    }
    for _ in 0..600 {
        world.step();
        check(&world, seed);
    }
    if churn {
        restore(&mut world);
    }
    let rested = world.settle(60_000);
    let mut left: Vec<String> = world
        .server
        .all(Kind::Workload)
        .filter(|w| condition(w, "Finished") != Some("True"))
        .map(|w| format!("{} {}", w["metadata"]["name"], w["status"]))
        .collect();
    let jobs = world.server.all(Kind::Job(0)).filter(|j| condition(j, "Complete") != Some("True"));
    left.extend(jobs.map(|j| format!("{} suspend {} {}", j["metadata"], j["spec"]["suspend"], j["status"])));
    assert!(rested, "seed {seed}: did not come to rest: {left:#?}");
    assert_eq!(held(&world), 0, "seed {seed}: quota left behind (I1)");
    world.remember();
    legal(&world.history).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

/// People and other controllers at work.
fn disturb(world: &mut World, n: u32) {
    let keys: Vec<_> = world.server.all(Kind::Workload).map(key_of).collect();
    let count = u32::try_from(keys.len()).unwrap();
    if count == 0 {
        return;
    }
    let key = keys[usize::try_from(world.roll(count)).unwrap()].clone();
    let now = world.now;
    match n % 5 {
        0 => world.server.edit(Kind::Workload, &key, |w| w["spec"]["active"] = json!(false)),
        1 => {
            let jobs: Vec<_> = world.server.all(Kind::Job(0)).map(key_of).collect();
            let job = jobs[usize::try_from(world.roll(u32::try_from(jobs.len()).unwrap())).unwrap()].clone();
            world.server.delete(Kind::Job(0), &job, now);
        }
        2 => world.server.edit(Kind::ClusterQueue, &sluice::api::ObjectKey::cluster("a"), |q| {
            q["spec"]["stopPolicy"] = json!("HoldAndDrain");
        }),
        3 => world.server.delete(Kind::Workload, &key, now),
        _ => world.server.edit(Kind::ClusterQueue, &sluice::api::ObjectKey::cluster("a"), |q| {
            q["spec"]["stopPolicy"] = json!("None");
        }),
    }
}

fn restore(world: &mut World) {
    world.server.edit(Kind::ClusterQueue, &sluice::api::ObjectKey::cluster("a"), |q| {
        q["spec"]["stopPolicy"] = json!("None");
    });
    let keys: Vec<_> = world.server.all(Kind::Workload).map(key_of).collect();
    for key in keys {
        world.server.edit(Kind::Workload, &key, |w| w["spec"]["active"] = json!(true));
    }
}

/// The seeds to run: those given, or the one that SLUICE_SEED names.
#[expect(clippy::disallowed_methods, reason = "a person replays a seed")]
pub(super) fn seeds(all: std::ops::Range<u64>) -> Vec<u64> {
    std::env::var("SLUICE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .map_or_else(|| all.collect(), |seed| vec![seed])
}

#[test]
fn every_job_runs_and_gives_its_quota_back() {
    for seed in 0..20 {
        run(seed, Faults::default(), false);
    }
}

#[test]
fn faults_neither_lose_nor_overbook_quota() {
    for seed in seeds(0..30) {
        run(seed, Faults { lost: 80, dropped: 80, killed: 4, meddled: 40 }, false);
    }
}

#[test]
fn people_at_work_and_faults_together() {
    for seed in seeds(100..130) {
        run(seed, Faults { lost: 60, dropped: 60, killed: 3, meddled: 30 }, true);
    }
}

/// Writes per Job over its life, with one wait: the Workload and the Job, queue status apart.
#[test]
fn few_writes_per_job() {
    let mut world = cluster(7, &Settings::default());
    for name in ["first", "second"] {
        world.create(Kind::Job(0), job(name, "a", 3));
    }
    assert!(world.settle(20_000));
    for _ in 0..200 {
        world.step();
    }
    let per_job = |name: &str| -> u32 {
        world.writes.iter().filter(|(key, _)| key.contains(name)).map(|(_, count)| count).sum()
    };
    assert!(per_job("first") <= 7 && per_job("second") <= 7, "{:#?}", world.writes);
    assert!(world.events.len() <= 12, "{:#?}", world.events);
}

/// Why somebody waits is told within the allowance, to everybody in time; a start never waits for it.
#[test]
fn what_is_told_waits_its_turn() {
    let settings = Settings { told_per_second: Some(2), ..Settings::default() };
    let mut world = cluster(9, &settings);
    world.endless = true;
    for n in 0..40 {
        world.create(Kind::Job(0), job(&format!("j{n}"), "a", 4));
    }
    let begun = world.now;
    let told = |world: &World| {
        world.server.all(Kind::Workload).filter(|w| condition(w, "QuotaReserved") == Some("False")).count()
    };
    let runs = |world: &World| pods(world) == 4;
    while !runs(&world) {
        world.step();
        assert!(world.now.duration_since(begun).as_secs() < 30, "the start waits");
    }
    for _ in 0..40_000 {
        let seconds = usize::try_from(world.now.duration_since(begun).as_secs()).unwrap();
        // A second's worth at once, and one that had its turn already.
        assert!(told(&world) <= 2 * seconds + 5, "{} were told within {seconds} s", told(&world));
        if told(&world) == 39 {
            return;
        }
        world.step();
    }
    panic!("only {} of 39 were ever told", told(&world));
}

/// A Job that should have got the default queue, but was made while no webhook answered, runs on and is told so once.
#[test]
fn a_job_that_no_webhook_saw_runs_on() {
    let mut world = cluster(3, &Settings::default());
    let spec = json!({"clusterQueue": "a"});
    world.create(Kind::LocalQueue, json!({"metadata": {"name": "default", "namespace": "ns"}, "spec": spec}));
    for _ in 0..200 {
        world.step();
    }
    let mut passed_by = job("passed-by", "a", 1);
    passed_by["metadata"]["labels"] = json!({});
    passed_by["spec"]["suspend"] = json!(false);
    world.create(Kind::Job(0), passed_by);
    assert!(world.settle(20_000));
    let told = world.events.iter().filter(|(key, reason)| &*key.name == "passed-by" && reason == "NotQueued");
    assert_eq!(told.count(), 1, "{:?}", world.events);
    assert_eq!(world.server.all(Kind::Workload).count(), 0);
}

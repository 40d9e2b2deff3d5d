//! A dump of a cluster and the cluster itself have the same simulated outcome, at every moment of its life.

use super::laws::seeds;
use super::preemption::{contended_cluster, job_with_priority};
use super::world::World;
use crate::fixtures::leading_core::JOB;
use crate::fixtures::simulate_cluster::{empty_simulation, options};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;
use sluice_core::simulate::{
    Dump, Manifests, Redaction, Simulation, SimulationOptions, SkippedResource, Until,
};

/// Returns the objects as `simulate --from-cluster` reads them: Workloads last.
fn objects(world: &World) -> Vec<(Kind, Value)> {
    let mut kinds = CoreSettings::default().kinds();
    kinds.sort_by_key(|kind| *kind == Kind::Workload);
    kinds
        .into_iter()
        .flat_map(|kind| world.harness.server.all(kind).cloned().map(move |object| (kind, object)))
        .collect()
}

fn dump_text(header: &Dump, objects: Vec<(Kind, Value)>) -> String {
    let mut redaction = Redaction::default();
    let mut text = Dump::document(header).unwrap();
    for (kind, mut object) in objects {
        redaction.redact(kind, &mut object);
        text.push_str(&Dump::document(&object).unwrap());
    }
    text
}

fn report(mut simulation: Simulation) -> Value {
    simulation.run(Until::Settled);
    serde_json::to_value(simulation.report()).unwrap()
}

fn check_same_outcome(world: &World, seed: u64) -> Value {
    let start = || Simulation::new(SimulationOptions { start: world.now, ..options() }).unwrap();
    let mut cluster = start();
    for (kind, object) in objects(world) {
        cluster.load_stored(kind, object);
    }
    let expected = report(cluster);
    let header = Dump::new(world.now, "test", None, Vec::new());
    let mut manifests = Manifests::default();
    manifests.parse("dump.yaml", &dump_text(&header, objects(world)), "default");
    assert_eq!(manifests.dump.as_ref(), Some(&header));
    let mut dumped = start();
    dumped.apply_all(manifests);
    assert_eq!(report(dumped), expected, "seed {seed}");
    expected
}

/// The templates of even Jobs have environment; one Job is late, one is being deleted.
fn submit(world: &mut World, number: u32) {
    let queue = if number.is_multiple_of(2) { "a" } else { "b" };
    let class = if (number / 2).is_multiple_of(2) { "low" } else { "high" };
    let mut job = job_with_priority(&format!("j{number}"), queue, 1 + world.random_below(3), class);
    if number.is_multiple_of(2) {
        job["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "hunter2"}]);
    }
    if number == 3 {
        job["metadata"]["annotations"] = json!({"sluice.dev/arrives-after": "1h"});
    }
    if number == 5 {
        job["metadata"]["finalizers"] = json!(["example.com/kept"]);
    }
    world.create(JOB, job);
}

#[test]
fn dump_and_cluster_have_same_outcome() {
    let (mut admitted, mut pending, mut preempted) = (0, 0, 0);
    for seed in seeds(0..6) {
        let mut world = contended_cluster(seed, &CoreSettings::default());
        world.jobs_never_end = true;
        for number in 0..8 {
            submit(&mut world, number);
            for _ in 0..world.random_below(40) {
                world.step();
            }
            if number == 6 {
                let key = sluice_core::api::ObjectKey::new("ns", "j5");
                world.harness.server.delete(JOB, &key, world.now);
            }
            let report = check_same_outcome(&world, seed);
            let rows = |list: &str| report[list].as_array().unwrap().len();
            admitted += rows("admitted");
            pending += rows("pending");
            preempted += rows("preempted");
        }
    }
    assert!(admitted > 0 && pending > 0 && preempted > 0, "{admitted}, {pending}, {preempted}");
}

#[test]
fn missing_resources_and_second_header_are_problems() {
    let skipped = vec![SkippedResource { resource: "pods".into(), reason: "forbidden".into() }];
    let header = Dump::new(options().start, "test", None, skipped);
    let mut manifests = Manifests::default();
    manifests.parse("a.yaml", &dump_text(&header, Vec::new()), "default");
    manifests.parse("b.yaml", &dump_text(&header, Vec::new()), "default");
    let unknown = "apiVersion: sluice.dev/v1\nkind: Dump\ntime: 2026-01-01T00:00:00Z\nversion: x\nother: 1\n";
    manifests.parse("c.yaml", unknown, "default");
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests);
    let problems: Vec<String> = simulation.report().problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems[0], "a.yaml:2: pods: not in the dump: forbidden");
    assert_eq!(problems[1], "b.yaml:2: Dump: there is another dump before it");
    assert!(
        problems[2].starts_with("c.yaml:") && problems[2].contains("unknown field `other`"),
        "{problems:?}"
    );
    assert_eq!(problems.len(), 3);
}

const SPECIAL: [&str; 15] = [
    "yes", "~", "null", "0x1f", "1_000", "12:30:45", "1e3", "1e1000", ".inf", "- a", "a: b", "#", "---", "=",
    "<<",
];

/// Texts that YAML could take for something else.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(&SPECIAL[..]).prop_map(str::to_owned),
        "[ -~\n\t\"'#:é\u{85}\u{2028}\u{feff}]{0,12}",
        "[0-9.eE+_:-]{1,8}",
    ]
}

proptest! {
    /// What is written is what is read: no text becomes a number, and no line break is lost.
    #[test]
    fn documents_are_read_as_written(texts in proptest::collection::vec(text(), 1..6), number in any::<i64>()) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n",
            "labels": texts.iter().map(|text| (text.clone(), json!(text))).collect::<serde_json::Map<_, _>>()},
            "list": texts, "nested": [{"number": number, "none": null, "empty": {}, "items": []}]});
        let mut manifests = Manifests::default();
        manifests.parse("dump.yaml", &Dump::document(&object).unwrap(), "default");
        prop_assert!(manifests.problems.is_empty(), "{:?}", manifests.problems);
        prop_assert_eq!(&manifests.objects[0].object, &object);
    }
}

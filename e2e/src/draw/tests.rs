//! What is drawn.

use super::life::Life;
use super::suite::Suite;
use serde_json::Value;
use sluice::simulate::{Scenario, replay};

fn first_objects(seed: u64, number: u64) -> Value {
    let scenario: Value = serde_json::from_str(&Life::draw(seed, number).scenario().unwrap()).unwrap();
    scenario["objects"].clone()
}

#[test]
fn other_seeds_and_numbers_draw_other_clusters() {
    assert_eq!(first_objects(1, 0), first_objects(1, 0));
    assert_ne!(first_objects(1, 0), first_objects(2, 0));
    assert_ne!(first_objects(1, 0), first_objects(1, 5));
}

#[test]
fn each_suite_is_drawn() {
    let suites = [Suite::Flat, Suite::Hier, Suite::Fair, Suite::Flavor, Suite::Tas];
    for (number, suite) in (0..).zip(suites) {
        assert_eq!([Suite::of(number), Suite::of(number + 5)], [suite; 2]);
        let objects = first_objects(1, number);
        let has = |kind: &str| objects.as_array().unwrap().iter().any(|object| object["kind"] == kind);
        assert!(["ResourceFlavor", "ClusterQueue", "LocalQueue", "Workload"].iter().all(|kind| has(kind)));
        assert_eq!(has("Cohort"), suite.has_trees(), "{suite:?}");
        assert_eq!(["Topology", "Node"].map(has), [suite == Suite::Tas; 2], "{suite:?}");
    }
}

#[test]
fn drawn_objects_are_read() {
    for number in 0..20 {
        let scenario = Scenario::parse(Life::draw(1, number).scenario().unwrap().as_bytes()).unwrap();
        let outcome = replay(&scenario).unwrap();
        assert!(outcome.unreadable.is_empty(), "{:?}", outcome.unreadable);
    }
}

//! Scenarios are played in this process, by the engine of this commit.

use super::answers;
use super::life::{CYCLES, Life, Totals};
use super::random::Digest;
use super::suite::Suite;
use serde_json::Value;
use sluice::simulate::{Scenario, replay};
use std::path::Path;
use std::sync::LazyLock;

/// The first scenarios of seed 1, played to their ends.
static PLAYED: LazyLock<Vec<Life>> = LazyLock::new(|| (0..20).map(|number| played(1, number)).collect());

fn played(seed: u64, number: u64) -> Life {
    let mut life = Life::draw(seed, number);
    for _ in 0..CYCLES {
        let scenario = Scenario::parse(life.scenario().unwrap().as_bytes()).unwrap();
        let outcome = replay(&scenario).unwrap();
        assert!(outcome.unreadable.is_empty(), "{:?}", outcome.unreadable);
        life.go_on(&serde_json::to_string(&outcome).unwrap()).unwrap();
    }
    life
}

fn first_objects(seed: u64, number: u64) -> Value {
    let scenario: Value = serde_json::from_str(&Life::draw(seed, number).scenario().unwrap()).unwrap();
    scenario["objects"].clone()
}

#[test]
fn same_seed_is_played_the_same_way() {
    for (first, number) in PLAYED.iter().take(5).zip(0..) {
        assert_eq!(played(1, number).summary(), first.summary());
    }
}

#[test]
fn other_seeds_and_numbers_draw_other_clusters() {
    assert_eq!(first_objects(1, 0), first_objects(1, 0));
    assert_ne!(first_objects(1, 0), first_objects(2, 0));
    assert_ne!(first_objects(1, 0), first_objects(1, 5));
}

/// A change of the drawing changes the digest. Commits before and after it can then only be compared if one drawing plays the
/// programs of both.
#[test]
fn drawing_is_the_same_everywhere() {
    let mut digest = Digest::new();
    for number in 0..5 {
        digest.add(&Life::draw(1, number).scenario().unwrap());
    }
    assert_eq!(digest.to_string(), "d3a0fcc7fdc3326973fa72d80dcced68");
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

/// A drawing in which nothing happens would find no difference.
#[test]
fn much_is_decided() {
    let mut all = Totals::default();
    for number in 0..5 {
        let mut suite = Totals::default();
        PLAYED.iter().skip(number).step_by(5).for_each(|life| suite.add_all(life.totals()));
        assert!(suite.admitted > 0 && suite.pending > 0, "{number}: {suite}");
        all.add_all(suite);
    }
    assert!(all.admitted >= 60 && all.preempted >= 3 && all.pending >= 100, "{all}");
}

#[tokio::test]
async fn program_that_does_not_answer_is_an_error() {
    let failure = answers(Path::new("false"), "{}", 1).await.unwrap_err();
    assert!(failure.to_string().contains("exit status: 1"), "{failure}");
    let silence = answers(Path::new("true"), "{}", 1).await.unwrap_err();
    assert!(silence.to_string().contains("0 answers to 1 scenarios"), "{silence}");
}

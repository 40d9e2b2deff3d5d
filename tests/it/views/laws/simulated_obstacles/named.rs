//! What an answer names admits the workload: the amounts with those before it, or the objects that are in the way, one after the other.

use super::changes::{Objects, Promise};
use super::clusters::{Cluster, InTheWay, answer, cluster, cluster_with, load, objects, pending, state_of};
use crate::fixtures::builders::{config, sample};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::{Value, json};
use sluice::visibility::views::Verdict;

/// Most answers that are followed for one workload.
const ROUNDS: usize = 12;

fn named_changes_admit(cluster: &Cluster, asked: usize) -> TestCaseResult {
    let (mut objects, mut asked_for, mut last) = (Objects(objects(cluster)), None::<String>, None);
    for _ in 0..ROUNDS {
        let mut simulation = load(&objects.0);
        simulation.run_until_stable();
        let report = simulation.report();
        if report.end.livelocked {
            return Ok(());
        }
        let (all, _) = pending(&report);
        let name = match &asked_for {
            Some(name) => name.clone(),
            None => match all.iter().nth(asked % all.len().max(1)) {
                Some(name) => name.clone(),
                None => return Ok(()),
            },
        };
        let fails = |what: &str| {
            Err(TestCaseError::fail(format!("{what}: {name} after {last:#?}\nin {:#}", json!(objects.0))))
        };
        if !all.contains(&name) {
            return Ok(());
        }
        if matches!(last, Some((Promise::Admits, _))) {
            return fails("not admitted by what would be enough");
        }
        let found = answer(&mut state_of(&simulation), &name);
        if last.as_ref().is_some_and(|(_, last)| *last == found) {
            return fails("the same is in the way after it was changed");
        }
        objects = Objects(simulation.stored());
        match objects.follow(&found) {
            Ok(promise) => last = Some((promise, found)),
            Err(error) => {
                return Err(TestCaseError::fail(format!("{error}: {found:#?}\nin {:#}", json!(objects.0))));
            }
        }
        asked_for = Some(name);
    }
    Err(TestCaseError::fail(format!("the answers come to no end: {last:#?}\nin {cluster:#?}")))
}

/// Returns the objects when nothing moves any more, and the answer about the workload that waits then.
fn answered(objects: &[Value]) -> (Vec<Value>, Option<Verdict>) {
    let mut simulation = load(objects);
    simulation.run_until_stable();
    let report = simulation.report();
    assert!(!report.end.livelocked, "{objects:#?}");
    let (all, _) = pending(&report);
    let found = all.first().map(|name| answer(&mut state_of(&simulation), name));
    (simulation.stored(), found)
}

/// Where one thing alone is in the way, the answer names an object whose change alone admits the workload.
#[test]
fn the_only_thing_in_the_way_is_what_is_named() {
    let (_, found) = answered(&objects(&cluster_with(InTheWay::Nothing)));
    assert!(found.is_none(), "nothing is in the way: {found:#?}");
    for one in [
        InTheWay::Inactive,
        InTheWay::StoppedQueue,
        InTheWay::StoppedLocalQueue,
        InTheWay::BrokenCheck,
        InTheWay::OtherNamespace,
        InTheWay::NoClusterQueue,
        InTheWay::NoLocalQueue,
        InTheWay::Quota,
        InTheWay::Selector,
        InTheWay::NoTopology,
        InTheWay::MissingLevel,
        InTheWay::SmallNodes,
    ] {
        let (stored, found) = answered(&objects(&cluster_with(one)));
        let found = found.unwrap_or_else(|| panic!("{one:?} keeps nothing waiting"));
        let mut changed = Objects(stored);
        changed.follow(&found).unwrap_or_else(|error| panic!("{one:?}: {error}: {found:#?}"));
        let (_, left) = answered(&changed.0);
        assert!(left.is_none(), "{one:?}: not admitted by what is named alone: {found:#?}\n{left:#?}");
    }
}

proptest! {
    #![proptest_config(config(sample(60, 2)))]

    #[test]
    fn what_an_answer_names_admits_the_workload(cluster in cluster(), asked in 0..6_usize) {
        named_changes_admit(&cluster, asked)?;
    }
}

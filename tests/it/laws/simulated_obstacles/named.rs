//! What an answer names admits the workload: the amounts with those before it, or the objects that are in the way, one after the other.

use super::super::builders::config;
use super::changes::{Objects, Promise};
use super::clusters::{Cluster, answer, cluster, load, objects, pending, state_of};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::json;

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

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn what_an_answer_names_admits_the_workload(cluster in cluster(), asked in 0..6_usize) {
        named_changes_admit(&cluster, asked)?;
    }
}

//! Which workloads are stuck: lists, `why`, the audit and `simulate` say the same of random clusters, and `simulate` shows it when all that
//! holds quota ends.

use super::clusters::{Cluster, Names, answer, cluster, load, objects, pending, state_of};
use crate::fixtures::builders::{config, sample};
use crate::fixtures::offline_objects::meta;
use crate::fixtures::simulate_cluster::manifests;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::json;
use sluice::simulate::{Simulation, Until};
use sluice::visibility::access::Access;
use sluice::visibility::findings::audit;
use sluice::visibility::offline::OfflineState;
use sluice::visibility::page::PageQuery;
use sluice::visibility::selector::WorkloadSelector;
use sluice::visibility::workloads::{WorkloadQuery, workloads};

/// Lets all that holds quota end, again and again, also what waits for a check. Returns what is pending then; `None` without an end.
fn pending_in_the_end(simulation: &mut Simulation) -> Option<Names> {
    for _ in 0..20 {
        simulation.run(Until::Settled);
        let report = simulation.report();
        if report.end.livelocked {
            return None;
        }
        if report.admitted.is_empty() {
            return Some(pending(&report).0);
        }
        let deleted = report.admitted.iter().map(|row| {
            let key = row.workload.workload.split_once('/').unwrap();
            let mut metadata = meta(key.1, key.0);
            metadata["deletionTimestamp"] = json!("2027-01-15T09:00:00Z");
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": {}})
        });
        simulation.apply_change("ends", manifests(&deleted.collect::<Vec<_>>()));
    }
    None
}

/// What the readers of a cluster are told to be stuck: rows, answers.
fn told(state: &mut OfflineState, all: &Names) -> (Names, Names) {
    let selector = WorkloadSelector::parse("status=pending,reason=stuck").unwrap();
    let query = WorkloadQuery { namespace: None, selector, page: PageQuery::default() };
    let (rows, _) = workloads(state.snapshot(), &Access::everything(), &query).unwrap();
    let rows = rows.into_iter().map(|row| row.metadata.name).collect();
    let is_stuck = |name: &&String| answer(state, name).workload.stuck;
    let answers = all.iter().filter(is_stuck).cloned().collect();
    (rows, answers)
}

/// The workloads of an audit: how many, and the first of each class.
fn audited(state: &mut OfflineState) -> (u64, Names) {
    let (facts, snapshot) = (state.audit_facts(), state.snapshot().clone());
    let time = "2027-01-15T09:00:00Z".parse().unwrap();
    let found = audit((&snapshot, Some(&facts)), &Access::everything(), (None, time)).unwrap();
    let classes = || found.iter().flat_map(|one| &one.workloads);
    (classes().map(|class| class.count).sum(), classes().map(|class| class.first.clone()).collect())
}

fn stuck_is_one_set(cluster: &Cluster) -> TestCaseResult {
    let mut simulation = load(&objects(cluster));
    simulation.run_until_stable();
    let report = simulation.report();
    prop_assert!(report.problems.is_empty(), "{:?}", report.problems);
    let (all, stuck) = pending(&report);
    let mut state = state_of(&simulation);
    let (rows, answers) = told(&mut state, &all);
    prop_assert_eq!(&rows, &stuck, "rows, simulate: {:#?}", cluster);
    prop_assert_eq!(&answers, &stuck, "answers, simulate: {:#?}", cluster);
    let (number, firsts) = audited(&mut state);
    prop_assert_eq!(
        number,
        u64::try_from(stuck.len()).unwrap(),
        "audit {:?}, simulate {:?}: {:#?}",
        firsts,
        stuck,
        cluster
    );
    prop_assert!(firsts.is_subset(&stuck), "audit {:?}, simulate {:?}: {:#?}", firsts, stuck, cluster);
    let Some(end) = pending_in_the_end(&mut simulation) else { return Ok(()) };
    let end: Names = end.intersection(&all).cloned().collect();
    prop_assert_eq!(&stuck, &end, "told to be stuck, never admitted: {:#?}", cluster);
    Ok(())
}

proptest! {
    #![proptest_config(config(sample(150, 2)))]

    #[test]
    fn lists_answers_and_simulations_name_the_same_as_stuck(cluster in cluster()) {
        stuck_is_one_set(&cluster)?;
    }
}

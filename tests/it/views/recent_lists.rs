//! Lists of workloads with quota and of finished ones, the newest first, and the pages of the dashboard that show them.

use crate::fixtures::leading_core::{Core, START, condition, put_job_and_workload};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;
use sluice::cache::Kind;
use sluice::dashboard::build::workload_list_page;
use sluice::dashboard::{ListedState, WorkloadListPage, WorkloadListQuery};
use sluice::reconciler::{CoreSettings, Delta};
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::page::ModelError;
use sluice::visibility::views::{Source, WorkloadView};
use std::cmp::Reverse;

/// A state in which a Workload is put: pending, with quota, admitted, evicted with quota, or finished.
const STATES: usize = 5;

fn core() -> Core {
    let mut core = Core::new(CoreSettings::default());
    core.feed(Delta::Leading(false));
    core.put(Kind::Namespace, json!({"metadata": {"name": "other"}}));
    let local = json!({"metadata": {"name": "lq", "namespace": "other"}, "spec": {"clusterQueue": "cq"}});
    core.put(Kind::LocalQueue, local);
    core
}

/// Puts a Workload in a state since some seconds after the start.
fn put(core: &mut Core, (namespace, name): (&str, &str), state: usize, seconds: i64) {
    let at = |kind: &str, status: &str, reason: &str| {
        let mut condition = condition(kind, status, reason);
        condition["lastTransitionTime"] = json!(Timestamp::from_second(START + seconds).unwrap().to_string());
        condition
    };
    let conditions = match state {
        0 => vec![at("QuotaReserved", "False", "WaitingForQuota")],
        1 => vec![at("QuotaReserved", "True", "QuotaReserved")],
        2 => vec![at("QuotaReserved", "True", "QuotaReserved"), at("Admitted", "True", "Admitted")],
        3 => vec![at("QuotaReserved", "True", "QuotaReserved"), at("Evicted", "True", "Preempted")],
        _ => vec![at("QuotaReserved", "True", "QuotaReserved"), at("Finished", "True", "Succeeded")],
    };
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    put_job_and_workload(core, (namespace, name, "lq"), (1, 0), &template, &conditions);
}

fn page(core: &mut Core, access: &Access, query: &WorkloadListQuery) -> Result<WorkloadListPage, ModelError> {
    workload_list_page(&core.state.snapshot(), access, (query, Source::default()))
}

/// All rows in pages of this size.
fn all_rows(core: &mut Core, access: &Access, query: &WorkloadListQuery) -> Vec<WorkloadView> {
    let (mut rows, mut query) = (Vec::new(), query.clone());
    loop {
        let page = page(core, access, &query).unwrap();
        rows.extend(page.items);
        query.after = page.metadata.continue_token;
        if query.after.is_empty() {
            return rows;
        }
        if let (Some(left), Some(total)) = (page.metadata.remaining_item_count, page.total) {
            assert_eq!(u64::try_from(rows.len()).unwrap() + left, total);
        }
    }
}

fn key(row: &WorkloadView) -> (String, String) {
    (row.metadata.namespace.clone(), row.metadata.name.clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Pages of any size hold each row of their state once, the newest first; a tenant sees its own rows alone.
    #[test]
    fn pages_hold_each_row_of_a_state_once(
        all in prop::collection::btree_map("[a-f]{1,3}", (any::<bool>(), 0..STATES, 0_i64..4), 0..24),
        limit in 1_u64..7,
    ) {
        let mut core = core();
        let mut expected = [Vec::new(), Vec::new()];
        for (name, (other, state, seconds)) in &all {
            let namespace = if *other { "other" } else { "ns" };
            // What it was before is not listed any more.
            put(&mut core, (namespace, name), (*state + 2) % STATES, 0);
            put(&mut core, (namespace, name), *state, *seconds);
            let row = (Reverse(*seconds), (namespace.to_owned(), name.clone()));
            match *state {
                0 => {}
                4 => expected[1].push(row),
                _ => expected[0].push(row),
            }
        }
        for (list, mut rows) in [ListedState::Admitted, ListedState::Finished].into_iter().zip(expected) {
            rows.sort();
            let query = WorkloadListQuery { list, limit, ..WorkloadListQuery::default() };
            let found = all_rows(&mut core, &Access::everything(), &query);
            let found: Vec<_> = found.iter().map(key).collect();
            let keys: Vec<_> = rows.into_iter().map(|(_, key)| key).collect();
            prop_assert_eq!(&found, &keys);
            let tenant = Access::to_namespace("other", TenantDetail::Sums);
            for (access, namespace) in [(Access::everything(), "other"), (tenant.clone(), "other"), (tenant, "")] {
                let own = WorkloadListQuery { namespace: namespace.to_owned(), ..query.clone() };
                let found: Vec<_> = all_rows(&mut core, &access, &own).iter().map(key).collect();
                let expected: Vec<_> = keys.iter().filter(|(namespace, _)| namespace == "other").cloned().collect();
                prop_assert_eq!(found, expected);
                if !access.cluster {
                    prop_assert_eq!(page(&mut core, &access, &own).unwrap().total, None);
                }
            }
        }
    }
}

#[test]
fn filters_select_and_wrong_ones_are_named() {
    let mut core = core();
    for (name, state) in [("train-a", 2), ("eval-b", 2), ("train-c", 4)] {
        put(&mut core, ("ns", name), state, 1);
    }
    let mut names = |query: WorkloadListQuery| -> Vec<String> {
        all_rows(&mut core, &Access::everything(), &query).iter().map(|row| key(row).1).collect()
    };
    let admitted = WorkloadListQuery::default();
    let finished = WorkloadListQuery { list: ListedState::Finished, ..admitted.clone() };
    let of = |q: &str, query: &WorkloadListQuery| WorkloadListQuery { q: q.to_owned(), ..query.clone() };
    assert_eq!(names(of("train", &admitted)), ["train-a"]);
    assert_eq!(names(of("TRAIN", &finished)), ["train-c"]);
    assert_eq!(names(WorkloadListQuery { cluster_queue: "cq".to_owned(), ..admitted.clone() }).len(), 2);
    assert!(names(WorkloadListQuery { cluster_queue: "none".to_owned(), ..admitted.clone() }).is_empty());
    assert!(names(WorkloadListQuery { namespace: "none".to_owned(), ..admitted.clone() }).is_empty());
    let access = Access::everything();
    let invalid = |core: &mut Core, query: &WorkloadListQuery| match page(core, &access, query) {
        Err(ModelError::Invalid(text)) => text,
        other => panic!("{other:?}"),
    };
    let wrong = WorkloadListQuery { cluster_queue: "a,b".to_owned(), ..admitted.clone() };
    assert_eq!(invalid(&mut core, &wrong), "clusterQueue: \"a,b\" is no name");
    // A token of one list is none of the other.
    let first = page(&mut core, &access, &WorkloadListQuery { limit: 1, ..admitted }).unwrap();
    let token = first.metadata.continue_token;
    assert!(!token.is_empty());
    assert!(
        invalid(&mut core, &WorkloadListQuery { after: token, ..finished })
            .contains("the token is not one of this list")
    );
}

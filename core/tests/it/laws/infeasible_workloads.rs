//! B2: infeasible workloads never block feasible ones (the bug is a `break` where a `continue` belongs).

use crate::fixtures::builders::{
    admitted_names, config, engine, key, limits, pod_set, queue, run_until_idle, single_flavor_group,
    workload,
};
use proptest::prelude::*;
use sluice_core::api::ObjectKey;
use sluice_core::scheduler::{ClusterQueue, Engine, Flavor, FlavorResource, Inactive, Workload};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

const QUEUES: [&str; 3] = ["x", "y", "z"];

/// Reasons why a workload can never be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Infeasibility {
    NoFlavor,
    UnknownResource,
    TooBig,
    NamespaceNotSelected,
    StoppedQueue,
    MissingQueue,
}

const INFEASIBILITIES: [Infeasibility; 6] = [
    Infeasibility::NoFlavor,
    Infeasibility::UnknownResource,
    Infeasibility::TooBig,
    Infeasibility::NamespaceNotSelected,
    Infeasibility::StoppedQueue,
    Infeasibility::MissingQueue,
];

/// Three queues of one cohort with `nominal` cpus each.
fn world(nominal: i64) -> Engine {
    let mut engine = engine();
    let labels = BTreeMap::from([("kind".to_owned(), "red".to_owned())]);
    engine.set_flavor("red", Some(Flavor { node_labels: labels, ..Flavor::default() }));
    for name in QUEUES {
        engine.set_cluster_queue(
            name,
            Some(queue(Some("all"), single_flavor_group("red", "cpu", limits(nominal, None, None)))),
        );
    }
    let inactive =
        Some(Inactive { reason: Arc::from("Stopped"), message: Arc::from("ClusterQueue is stopped") });
    let stopped = ClusterQueue {
        inactive,
        ..queue(Some("all"), single_flavor_group("red", "cpu", limits(0, None, None)))
    };
    engine.set_cluster_queue("stopped", Some(stopped));
    engine
}

fn feasible_workload(name: &str, queue: &str, second: i64) -> Workload {
    workload(name, queue, 0, second, vec![pod_set("main", 1, &[("cpu", 1)])])
}

fn infeasible_workload(kind: Infeasibility, name: &str, queue: &str, second: i64) -> Workload {
    let mut workload = feasible_workload(name, queue, second);
    let mut set = pod_set("main", 1, &[("cpu", 1)]);
    match kind {
        Infeasibility::NoFlavor => {
            Arc::make_mut(&mut set.pod_requirements).node_selector =
                BTreeMap::from([("kind".to_owned(), "green".to_owned())]);
        }
        Infeasibility::UnknownResource => set = pod_set("main", 1, &[("cpu", 1), ("unobtainium", 1)]),
        Infeasibility::TooBig => set = pod_set("main", 1000, &[("cpu", 1)]),
        Infeasibility::NamespaceNotSelected => workload.key = ObjectKey::new("elsewhere", name),
        Infeasibility::StoppedQueue => workload.cluster_queue = Arc::from("stopped"),
        Infeasibility::MissingQueue => workload.cluster_queue = Arc::from("missing"),
    }
    workload.pod_sets = vec![set].into();
    workload
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let longer = |shorter: Vec<usize>| {
        (0..n).map(move |index| {
            let mut order = shorter.clone();
            order.insert(index, n - 1);
            order
        })
    };
    permutations(n - 1).into_iter().flat_map(longer).collect()
}

/// One of six workloads of a queue, of which the last two are feasible.
fn mixed_workload(index: usize, slot: usize, queue: usize, order: usize) -> Workload {
    let second = i64::try_from(slot).unwrap();
    let name = format!("{}-{index}", QUEUES[queue]);
    match INFEASIBILITIES.get((index + order) % INFEASIBILITIES.len()).filter(|_| index < 4) {
        Some(kind) => infeasible_workload(*kind, &name, QUEUES[queue], second),
        None => feasible_workload(&name, QUEUES[queue], second),
    }
}

#[test]
fn b2_infeasible_heads_never_block_feasible_workloads() {
    for (order, indexes) in permutations(6).iter().enumerate() {
        let mut engine = world(4);
        let mut keys = Vec::new();
        for queue in 0..QUEUES.len() {
            for (slot, index) in indexes.iter().enumerate() {
                let workload = mixed_workload(*index, slot, queue, order + queue);
                keys.push(workload.key.clone());
                engine.enqueue(workload);
            }
        }
        let admitted: BTreeSet<String> = admitted_names(&run_until_idle(&mut engine)).into_iter().collect();
        let feasible: BTreeSet<String> =
            QUEUES.iter().flat_map(|q| [format!("{q}-4"), format!("{q}-5")]).collect();
        assert_eq!(admitted, feasible, "order {indexes:?}");
        for key in keys.iter().filter(|key| !feasible.contains(&*key.name)) {
            assert!(engine.verdict(key).is_some(), "{key} has no pending reason");
        }
    }
}

/// A feasible workload: queue, priority, second, cpus.
type FeasibleSpec = (usize, i64, i64, i64);

fn goods(queues: usize) -> impl Strategy<Value = Vec<FeasibleSpec>> {
    prop::collection::vec((0..queues, 0..3_i64, 0..9_i64, 1..4_i64), 0..20)
}

/// Infeasible workloads: queue, priority, second, kind.
fn bads(
    queues: usize,
    priorities: Range<i64>,
) -> impl Strategy<Value = Vec<(usize, i64, i64, Infeasibility)>> {
    prop::collection::vec(
        (0..queues, priorities, 0..9_i64, prop::sample::select(INFEASIBILITIES.to_vec())),
        1..12,
    )
}

fn enqueue_goods(engine: &mut Engine, goods: &[FeasibleSpec]) {
    for (n, (queue, priority, second, cpu)) in goods.iter().enumerate() {
        let sets = vec![pod_set("main", 1, &[("cpu", *cpu)])];
        engine.enqueue(workload(&format!("good{n}"), QUEUES[*queue], *priority, *second, sets));
    }
}

fn enqueue_bads(engine: &mut Engine, bads: &[(usize, i64, i64, Infeasibility)]) {
    for (n, (queue, priority, second, kind)) in bads.iter().enumerate() {
        let workload = infeasible_workload(*kind, &format!("bad{n}"), QUEUES[*queue], *second);
        engine.enqueue(Workload { priority: *priority, ..workload });
    }
}

/// Returns the admitted workloads in order, without and with the infeasible ones.
fn admitted_without_and_with(
    goods: &[FeasibleSpec],
    bads: &[(usize, i64, i64, Infeasibility)],
) -> (Vec<String>, Vec<String>) {
    let (mut alone, mut together) = (world(4), world(4));
    enqueue_goods(&mut alone, goods);
    enqueue_goods(&mut together, goods);
    enqueue_bads(&mut together, bads);
    (admitted_names(&run_until_idle(&mut alone)), admitted_names(&run_until_idle(&mut together)))
}

// Contending queues alternate, one head each, so an infeasible head costs its queue one opportunity: which feasible workloads
// get the last of a shared quota may change. Therefore each test below states its conditions.
proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn b2_all_feasible_workloads_admitted_when_quota_suffices(goods in goods(3), bads in bads(3, 0..5)) {
        let mut engine = world(20);
        enqueue_goods(&mut engine, &goods);
        enqueue_bads(&mut engine, &bads);
        let admitted: BTreeSet<String> = admitted_names(&run_until_idle(&mut engine)).into_iter().collect();
        prop_assert_eq!(admitted, (0..goods.len()).map(|n| format!("good{n}")).collect::<BTreeSet<_>>());
    }

    #[test]
    fn b2_infeasible_workloads_leave_single_queue_admissions_unchanged(goods in goods(1), bads in bads(1, 0..5)) {
        let (alone, together) = admitted_without_and_with(&goods, &bads);
        prop_assert_eq!(alone, together);
    }

    #[test]
    fn b2_infeasible_tail_leaves_admissions_unchanged(goods in goods(3), bads in bads(3, -3..0)) {
        let (alone, together) = admitted_without_and_with(&goods, &bads);
        prop_assert_eq!(alone, together);
    }

    #[test]
    fn b2_fitting_workload_never_waits_in_contending_queues(goods in goods(3), bads in bads(3, 0..5)) {
        let mut engine = world(4);
        enqueue_goods(&mut engine, &goods);
        enqueue_bads(&mut engine, &bads);
        let admitted = admitted_names(&run_until_idle(&mut engine));
        for (n, (queue, _, _, cpu)) in goods.iter().enumerate() {
            let is_pending = engine.workload(&key(&format!("good{n}"))).is_some();
            prop_assert_eq!(is_pending, !admitted.contains(&format!("good{n}")));
            let available = engine.available(QUEUES[*queue], &FlavorResource::new("red", "cpu"));
            prop_assert!(!is_pending || *cpu > available.get(), "good{n} is pending: requests {cpu}, available {available}");
        }
    }
}

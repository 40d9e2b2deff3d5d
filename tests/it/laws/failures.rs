//! What cannot be admitted never stands in the way of what can (a `break` where a `continue` belonged, elsewhere).

use super::world::{admitted, config, engine, limits, one, pods, queue, settle, workload};
use proptest::prelude::*;
use sluice::api::ObjectKey;
use sluice::scheduler::{ClusterQueue, Engine, Flavor, Inactive, Workload};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const QUEUES: [&str; 3] = ["x", "y", "z"];

/// Ways of never being admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bad {
    NoFlavor,
    UnknownResource,
    TooBig,
    NamespaceNotSelected,
    StoppedQueue,
    MissingQueue,
}

const BAD: [Bad; 6] = [
    Bad::NoFlavor,
    Bad::UnknownResource,
    Bad::TooBig,
    Bad::NamespaceNotSelected,
    Bad::StoppedQueue,
    Bad::MissingQueue,
];

fn world() -> Engine {
    let mut engine = engine();
    let labels = BTreeMap::from([("kind".to_owned(), "red".to_owned())]);
    engine.set_flavor("red", Some(Flavor { node_labels: labels, ..Flavor::default() }));
    for name in QUEUES {
        engine.set_cluster_queue(name, Some(queue(Some("all"), one("red", "cpu", limits(4, None, None)))));
    }
    let inactive =
        Some(Inactive { reason: Arc::from("Stopped"), message: Arc::from("ClusterQueue is stopped") });
    let stopped = ClusterQueue { inactive, ..queue(Some("all"), one("red", "cpu", limits(0, None, None))) };
    engine.set_cluster_queue("stopped", Some(stopped));
    engine
}

fn good(name: &str, queue: &str, second: i64) -> Workload {
    workload(name, queue, 0, second, vec![pods("main", 1, &[("cpu", 1)])])
}

fn bad(kind: Bad, name: &str, queue: &str, second: i64) -> Workload {
    let mut made = good(name, queue, second);
    let mut set = pods("main", 1, &[("cpu", 1)]);
    match kind {
        Bad::NoFlavor => {
            set.node_selector = Arc::new(BTreeMap::from([("kind".to_owned(), "green".to_owned())]));
        }
        Bad::UnknownResource => set = pods("main", 1, &[("cpu", 1), ("unobtainium", 1)]),
        Bad::TooBig => set = pods("main", 1000, &[("cpu", 1)]),
        Bad::NamespaceNotSelected => made.key = ObjectKey::new("elsewhere", name),
        Bad::StoppedQueue => made.cluster_queue = Arc::from("stopped"),
        Bad::MissingQueue => made.cluster_queue = Arc::from("missing"),
    }
    made.pod_sets = vec![set].into();
    made
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let longer = |short: Vec<usize>| {
        (0..n).map(move |at| {
            let mut order = short.clone();
            order.insert(at, n - 1);
            order
        })
    };
    permutations(n - 1).into_iter().flat_map(longer).collect()
}

/// Six items, of which the last two are good, in one order.
fn item(index: usize, slot: usize, queue: usize, order: usize) -> Workload {
    let second = i64::try_from(slot).unwrap();
    let name = format!("{}-{index}", QUEUES[queue]);
    match BAD.get((index + order) % BAD.len()).filter(|_| index < 4) {
        Some(kind) => bad(*kind, &name, QUEUES[queue], second),
        None => good(&name, QUEUES[queue], second),
    }
}

#[test]
fn b2_bad_items_ahead_in_three_queues_in_every_order_stop_no_good_one() {
    for (order, places) in permutations(6).iter().enumerate() {
        let mut engine = world();
        let mut everyone = Vec::new();
        for queue in 0..QUEUES.len() {
            for (slot, index) in places.iter().enumerate() {
                let made = item(*index, slot, queue, order + queue);
                everyone.push(made.key.clone());
                engine.enqueue(made);
            }
        }
        let given: BTreeSet<String> = admitted(&settle(&mut engine)).into_iter().collect();
        let all: BTreeSet<String> =
            QUEUES.iter().flat_map(|q| [format!("{q}-4"), format!("{q}-5")]).collect();
        assert_eq!(given, all, "order {places:?}");
        for key in everyone.iter().filter(|key| !all.contains(&*key.name)) {
            assert!(engine.verdict(key).is_some(), "{key} waits without a word");
        }
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn b2_infeasible_items_change_nobody_elses_admission(
        goods in prop::collection::vec((0..3_usize, 0..3_i64, 0..9_i64, 1..4_i64), 0..20),
        bads in prop::collection::vec((0..3_usize, 0..5_i64, 0..9_i64, prop::sample::select(BAD.to_vec())), 1..12),
    ) {
        let (mut alone, mut together) = (world(), world());
        for (n, (queue, priority, second, cpu)) in goods.iter().enumerate() {
            let made = workload(&format!("good{n}"), QUEUES[*queue], *priority, *second, vec![pods("main", 1, &[("cpu", *cpu)])]);
            alone.enqueue(made.clone());
            together.enqueue(made);
        }
        for (n, (queue, priority, second, kind)) in bads.iter().enumerate() {
            let made = bad(*kind, &format!("bad{n}"), QUEUES[*queue], *second);
            together.enqueue(Workload { priority: *priority, ..made });
        }
        let set = |engine: &mut Engine| admitted(&settle(engine)).into_iter().collect::<BTreeSet<String>>();
        prop_assert_eq!(set(&mut alone), set(&mut together));
    }
}

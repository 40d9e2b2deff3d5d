//! The order that readers get: positions and pages agree with a sorted list, the scheduler agrees with it, a clone never
//! changes, and a change after a clone copies a path.

use crate::fixtures::builders::{config, key, pod_set, workload};
use proptest::prelude::*;
use sluice_core::api::ObjectKey;
use sluice_core::api::v1beta2::QueueingStrategy;
use sluice_core::queue::{ListedFields, PendingOrder, QueueManager, UsageRank, Workload};
use std::collections::BTreeMap;
use std::sync::Arc;

const QUEUES: [&str; 2] = ["a", "b"];
const LOCAL_QUEUES: [&str; 3] = ["x", "y", "z"];

#[derive(Clone, Debug)]
enum Event {
    Insert(Workload),
    Wait(Workload),
    Remove(usize),
    Rank { queue: usize, local_queue: usize, usage: u8 },
    Publish,
}

fn any_workload() -> impl Strategy<Value = Workload> {
    (0..30_usize, 0..2_usize, 0..3_usize, (0..3_i64, 0..4_i64, 0..3_i32, 1..3_i64)).prop_map(
        |(index, queue, local_queue, (priority, second, shown, cpu))| {
            let sets = vec![pod_set("main", 1, &[("cpu", cpu)])];
            let local_queue = Arc::from(LOCAL_QUEUES[local_queue]);
            let listed = ListedFields { spec_priority: shown, ..ListedFields::default() };
            let base = workload(&format!("w{index}"), QUEUES[queue], priority, second, sets);
            Workload { local_queue, listed, ..base }
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => any_workload().prop_map(Event::Insert),
        2 => any_workload().prop_map(Event::Wait),
        3 => (0..30_usize).prop_map(Event::Remove),
        2 => (0..2_usize, 0..3_usize, 0..3_u8)
            .prop_map(|(queue, local_queue, usage)| Event::Rank { queue, local_queue, usage }),
        1 => Just(Event::Publish),
    ]
}

/// What must be in the order: workloads, and whether each may be nominated; ranks by ClusterQueue and LocalQueue.
#[derive(Default)]
struct Model {
    workloads: BTreeMap<Names, (Workload, bool)>,
    ranks: BTreeMap<(Arc<str>, Arc<str>), UsageRank>,
}

type Names = (Arc<str>, Arc<str>);

fn names(key: &ObjectKey) -> Names {
    (Arc::clone(&key.namespace), Arc::clone(&key.name))
}

impl Model {
    fn apply(&mut self, manager: &mut QueueManager, event: &Event) {
        match event {
            Event::Insert(workload) => {
                manager.insert(workload.clone());
                self.workloads.insert(names(&workload.key), (workload.clone(), true));
            }
            Event::Wait(workload) => {
                manager.wait(workload.clone());
                self.workloads.insert(names(&workload.key), (workload.clone(), false));
            }
            Event::Remove(index) => {
                let key = key(&format!("w{index}"));
                manager.remove(&key);
                self.workloads.remove(&names(&key));
            }
            Event::Rank { queue, local_queue, usage } => {
                let (queue, local_queue) = (QUEUES[*queue], LOCAL_QUEUES[*local_queue]);
                let rank = UsageRank::from_usage(f64::from(*usage));
                manager.set_rank(queue, &key(local_queue), rank);
                self.ranks.insert((Arc::from(queue), Arc::from(local_queue)), rank);
            }
            Event::Publish => {}
        }
    }

    /// The workloads of a ClusterQueue in order.
    fn sorted(&self, queue: &str) -> Vec<&(Workload, bool)> {
        let mut sorted: Vec<_> =
            self.workloads.values().filter(|(w, _)| *w.cluster_queue == *queue).collect();
        let rank = |w: &Workload| self.ranks.get(&(w.cluster_queue.clone(), w.local_queue.clone())).copied();
        sorted.sort_by(|(a, _), (b, _)| {
            let ranks = rank(a).unwrap_or_default().cmp(&rank(b).unwrap_or_default());
            ranks.then_with(|| a.order().cmp(&b.order()))
        });
        sorted
    }
}

fn page(order: &PendingOrder, queue: &str, offset: usize, limit: usize) -> Vec<(Workload, usize, usize)> {
    let page = order.from_position(queue, offset).take(limit);
    page.map(|p| ((**p.workload).clone(), p.in_cluster_queue, p.in_local_queue)).collect()
}

fn local_page(
    order: &PendingOrder,
    queue: &str,
    local_queue: &str,
    offset: usize,
) -> Vec<(Workload, usize, usize)> {
    let page = order.local_from_position(queue, &key(local_queue), offset);
    page.map(|p| ((**p.workload).clone(), p.in_cluster_queue, p.in_local_queue)).collect()
}

/// The same from the model.
fn expected(model: &Model, queue: &str) -> Vec<(Workload, usize, usize)> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let rows = model.sorted(queue).into_iter().enumerate().map(|(index, (workload, _))| {
        let local = seen.entry(&workload.local_queue).or_default();
        *local += 1;
        (workload.clone(), index, *local - 1)
    });
    rows.collect()
}

fn manager() -> QueueManager {
    let mut manager = QueueManager::default();
    manager.configure(QUEUES[0], Some(QueueingStrategy::BestEffortFIFO), false);
    manager.configure(QUEUES[1], Some(QueueingStrategy::StrictFIFO), false);
    manager
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn pages_and_positions_are_those_of_a_sorted_list(
        events in prop::collection::vec(event(), 1..80), offset in 0..12_usize,
    ) {
        let (mut manager, mut model) = (manager(), Model::default());
        let mut published = Vec::new();
        for event in &events {
            model.apply(&mut manager, event);
            let order = manager.order();
            for queue in QUEUES {
                let rows = expected(&model, queue);
                prop_assert_eq!(order.len(queue), rows.len());
                prop_assert_eq!(page(order, queue, 0, usize::MAX), rows.clone());
                prop_assert_eq!(page(order, queue, offset, 4), rows.iter().skip(offset).take(4).cloned().collect::<Vec<_>>());
                for local_queue in LOCAL_QUEUES {
                    let of_local: Vec<_> = rows.iter().filter(|row| *row.0.local_queue == *local_queue).cloned().collect();
                    prop_assert_eq!(order.local_len(queue, &key(local_queue)), of_local.len());
                    prop_assert_eq!(local_page(order, queue, local_queue, offset), of_local.into_iter().skip(offset).collect::<Vec<_>>());
                }
                let nominated: Vec<_> = model.sorted(queue).into_iter().filter(|row| row.1).map(|row| row.0.key.clone()).collect();
                let scheduled: Vec<_> = manager.in_order(queue).into_iter().map(|w| w.key.clone()).collect();
                prop_assert_eq!(&scheduled, &nominated, "the scheduler's order");
                prop_assert_eq!(manager.head(queue).map(|head| head.workload.key.clone()), nominated.first().cloned());
            }
            if matches!(event, Event::Publish) {
                published.push((order.clone(), QUEUES.map(|queue| expected(&model, queue))));
            }
        }
        for (order, rows) in published {
            for (queue, rows) in QUEUES.into_iter().zip(rows) {
                prop_assert_eq!(page(&order, queue, 0, usize::MAX), rows, "a published order changed");
            }
        }
    }
}

#[test]
fn publishing_costs_what_changed() {
    let mut manager = manager();
    let numbered = |number: i64, queue: &str| {
        let sets = vec![pod_set("main", 1, &[("cpu", 1 + number % 7)])];
        let local_queue = Arc::from(LOCAL_QUEUES[usize::try_from(number % 3).unwrap()]);
        Workload { local_queue, ..workload(&format!("w{number}"), queue, number % 5, number % 1_000, sets) }
    };
    for number in 0..20_000 {
        manager.insert(numbered(number, "a"));
    }
    // One path is copied where a second LocalQueue begins to share a rank with the first.
    let mut copied = manager.order().copied_nodes();
    assert!(copied <= 4, "{copied} nodes copied, and nothing was published");
    let mut kept = Vec::new();
    for round in 0..50 {
        // What is published is a pointer; unchanged, the next publication is the same.
        kept.push(manager.order().clone());
        kept.push(manager.order().clone());
        for number in 0..round {
            manager.insert(numbered(20_000 + round * 100 + number, "a"));
            manager.remove(&key(&format!("w{}", round * 100 + number)));
        }
        let now = manager.order().copied_nodes();
        // Two changes in two trees of at most 18 levels, with a rotation beside the path at times.
        let bound = u64::try_from(round).unwrap() * 2 * 2 * 24;
        assert!(now - copied <= bound, "{} nodes copied for {round} changes, at most {bound}", now - copied);
        assert_eq!(now == copied, round == 0, "no change, no copy");
        copied = now;
    }
    assert!(kept.iter().all(|order| order.len("a") == 20_000));
}

#[test]
fn a_local_queue_that_shares_no_rank_moves_at_once() {
    let mut manager = manager();
    for number in 0..9_000_i64 {
        let sets = vec![pod_set("main", 1, &[("cpu", 1)])];
        let local_queue = Arc::from(LOCAL_QUEUES[usize::try_from(number % 3).unwrap()]);
        manager.insert(Workload { local_queue, ..workload(&format!("w{number}"), "a", 0, number, sets) });
    }
    let set = |manager: &mut QueueManager, local_queue: &str, usage: f64| {
        manager.set_rank("a", &key(local_queue), UsageRank::from_usage(usage));
    };
    for (index, local_queue) in LOCAL_QUEUES.iter().enumerate() {
        set(&mut manager, local_queue, f64::from(u32::try_from(index).unwrap()) + 1.0);
    }
    let published = manager.order().clone();
    let before = manager.order().copied_nodes();
    for step in 0..100_u32 {
        set(&mut manager, "x", 10.0 + f64::from(step));
    }
    assert!(manager.order().copied_nodes() - before < 600, "ranks alone moved");
    let first = |order: &PendingOrder| page(order, "a", 0, 1)[0].0.local_queue.clone();
    assert_eq!((&*first(&published), &*first(manager.order())), ("x", "y"));
    let last = page(manager.order(), "a", 8_999, 10);
    assert_eq!((last.len(), &*last[0].0.local_queue, last[0].1, last[0].2), (1, "x", 8_999, 2_999));
}

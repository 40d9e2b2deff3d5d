//! Priority boosts: a Workload with an annotation lives as one whose priority is the sum, from its place in the queue to
//! those that it preempts; without the feature gate it lives as one without the annotation.

use crate::fixtures::builders::config;
use crate::fixtures::queue_cluster::Cluster;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreGates, CoreSettings};

const ANNOTATION: &str = "kueue.x-k8s.io/priority-boost";

/// A Workload of a history.
#[derive(Clone, Debug)]
struct Entry {
    priority: i32,
    boost: i32,
    cpu: u32,
    /// The boost that it gets later.
    later: i32,
}

/// How the priority of an entry is given.
#[derive(Clone, Copy, PartialEq)]
enum Notation {
    /// The priority, and the boost as an annotation.
    Annotated,
    /// Their sum as the priority.
    Sum,
    /// The priority alone.
    Plain,
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let boost = || prop_oneof![Just(0), -3..=3, Just(i32::MAX), Just(i32::MIN)];
    // The sum must fit into a priority, because the model gives it as one.
    let entry = (-2..=2, boost(), boost(), 1..=2_u32).prop_map(|(priority, boost, later, cpu)| {
        let fitting = |boost: i32| if i32::checked_add(priority, boost).is_some() { boost } else { 0 };
        Entry { priority, boost: fitting(boost), cpu, later: fitting(later) }
    });
    vec(entry, 1..=6)
}

fn workload(name: &str, entry: &Entry, notation: Notation) -> Value {
    let (priority, annotations) = match notation {
        Notation::Annotated => (entry.priority, json!({ANNOTATION: entry.boost.to_string()})),
        Notation::Sum => (entry.priority + entry.boost, json!({})),
        Notation::Plain => (entry.priority, json!({})),
    };
    let template = json!({"spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": entry.cpu.to_string()}}}]}});
    json!({"metadata": {"name": name, "namespace": "ns", "annotations": annotations},
        "spec": {"queueName": "lq", "priority": priority,
            "podSets": [{"name": "main", "count": 1, "template": template}]}})
}

fn boost_later(object: &mut Value, entry: &Entry, notation: Notation) {
    match notation {
        Notation::Annotated => object["metadata"]["annotations"][ANNOTATION] = json!(entry.later.to_string()),
        Notation::Sum => object["spec"]["priority"] = json!(entry.priority + entry.later),
        Notation::Plain => {}
    }
}

/// Returns what happened to the Workloads, in order, and which hold quota in the end.
fn life(entries: &[Entry], policy: &str, gate: bool, notation: Notation) -> (Vec<String>, Vec<String>) {
    let gates = CoreGates { priority_boost: gate, ..CoreGates::default() };
    let mut cluster = Cluster::new(CoreSettings { gates, ..CoreSettings::default() });
    cluster.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
        queue["spec"]["preemption"] = json!({"withinClusterQueue": policy});
    });
    let names: Vec<String> = (0..entries.len()).map(|index| format!("w{index}")).collect();
    for (name, entry) in names.iter().zip(entries) {
        cluster.create(Kind::Workload, workload(name, entry, notation));
        cluster.advance_tenths(11, |_, _| {});
    }
    for (name, entry) in names.iter().zip(entries) {
        cluster.server.edit(Kind::Workload, &ObjectKey::new("ns", name), |object| {
            boost_later(object, entry, notation);
        });
        cluster.advance_tenths(11, |_, _| {});
    }
    let told = cluster.events.iter().map(|event| format!("{} {}", event.key, event.reason)).collect();
    let holds = |workload: &&Value| {
        let conditions = workload["status"]["conditions"].as_array().into_iter().flatten();
        conditions.clone().any(|c| c["type"] == "QuotaReserved" && c["status"] == "True")
    };
    let holding = cluster.server.all(Kind::Workload).filter(holds);
    (told, holding.map(|workload| workload["metadata"]["name"].to_string()).collect())
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn boosted_workload_lives_as_one_of_the_sum(entries in entries(), newer in any::<bool>()) {
        let policy = if newer { "LowerOrNewerEqualPriority" } else { "LowerPriority" };
        let boosted = life(&entries, policy, true, Notation::Annotated);
        prop_assert_eq!(&boosted, &life(&entries, policy, true, Notation::Sum));
        let plain = life(&entries, policy, false, Notation::Annotated);
        prop_assert_eq!(&plain, &life(&entries, policy, false, Notation::Plain));
    }
}

/// The histories of the law differ: a boost decides who runs.
#[test]
fn boost_preempts_and_is_named_in_events() {
    let entry = |boost| Entry { priority: 0, boost, cpu: 2, later: boost };
    let entries = [entry(0), entry(5)];
    let (told, holding) = life(&entries, "LowerPriority", true, Notation::Annotated);
    assert_eq!(holding, ["\"w1\""], "{told:?}");
    let (told, holding) = life(&entries, "LowerPriority", false, Notation::Annotated);
    assert_eq!(holding, ["\"w0\""], "{told:?}");
    let gates = CoreGates { priority_boost: true, ..CoreGates::default() };
    let mut cluster = Cluster::new(CoreSettings { gates, ..CoreSettings::default() });
    cluster.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
        queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    });
    for (name, boost) in [("victim", "-1"), ("unread", "1.5"), ("preemptor", "7")] {
        let mut object = workload(name, &entry(0), Notation::Annotated);
        object["metadata"]["annotations"][ANNOTATION] = json!(boost);
        cluster.create(Kind::Workload, object);
        cluster.advance_tenths(11, |_, _| {});
    }
    let notes = |reason: &str| -> Vec<String> {
        let events = cluster.events.iter().filter(|event| event.reason == reason);
        events.map(|event| event.note.clone()).collect()
    };
    let preempted = notes("Preempted");
    let priorities = [
        "preemptor effective priority: 0 (base: 0, boost: 0); preemptee effective priority: -1 (base: 0, boost: -1)",
        "preemptor effective priority: 7 (base: 0, boost: 7); preemptee effective priority: 0 (base: 0, boost: 0)",
    ];
    assert_eq!(preempted.len(), 2, "{preempted:?}");
    for (note, end) in preempted.iter().zip(priorities) {
        assert!(note.ends_with(end), "{note}");
    }
    assert_eq!(notes("PreemptedWorkload").len(), 2);
}

//! I8, for objects: a change of any object that the evaluation of a parked workload reads wakes it if a manager that starts
//! with the changed objects would admit it, and both make the same decision.

use crate::fixtures::builders::config;
use crate::fixtures::queue_cluster::Cluster;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;

/// The objects beside the workloads; an absent object is `None`.
#[derive(Clone, Debug)]
struct Objects {
    /// CPUs, whether it is ready and whether it is cordoned, by node.
    nodes: [Option<(u8, bool, bool)>; 3],
    /// The flavor has a topology, and the topology exists.
    topology: (bool, bool),
    /// Default request and maximum of a container, in CPUs.
    limit_range: Option<(u8, u8)>,
    /// Overhead of pods, in CPUs.
    runtime_class: Option<u8>,
    /// Whether the check that the queue names is active.
    check: Option<bool>,
    /// Whether the queue names it.
    names_check: bool,
    /// Quota in CPUs.
    quota: u8,
    /// Whether the namespace is selected.
    selected: bool,
}

/// The workload that waits.
#[derive(Clone, Debug)]
struct Pending {
    pods: u8,
    /// CPUs that a pod requests, if its template says so.
    request: Option<u8>,
    /// Level of the topology that all pods must be in.
    required: Option<&'static str>,
    has_runtime_class: bool,
}

const LEVELS: [&str; 2] = ["rack", "kubernetes.io/hostname"];

/// Objects with which most workloads are admitted, or anything.
fn objects(favourable: bool) -> impl Strategy<Value = Objects> {
    let likely = move |usual: f64| if favourable { 0.97 } else { usual };
    let unlikely = move |usual: f64| if favourable { 0.03 } else { usual };
    let cpus = if favourable { 4_u8..8 } else { 1..6 };
    let node = (cpus, proptest::bool::weighted(likely(0.7)), proptest::bool::weighted(unlikely(0.3)));
    let node = proptest::option::weighted(likely(0.7), node);
    let parts = (
        [node.clone(), node.clone(), node],
        (any::<bool>(), proptest::bool::weighted(likely(0.7))),
        proptest::option::weighted(0.6, (0_u8..4, if favourable { 3_u8..5 } else { 1..4 })),
        proptest::option::weighted(likely(0.7), if favourable { 0_u8..2 } else { 0..6 }),
        proptest::option::weighted(likely(0.7), proptest::bool::weighted(likely(0.5))),
        any::<bool>(),
        if favourable { 6_u8..12 } else { 1..6 },
        proptest::bool::weighted(likely(0.5)),
    );
    parts.prop_map(|(nodes, topology, limit_range, runtime_class, check, names_check, quota, selected)| {
        Objects { nodes, topology, limit_range, runtime_class, check, names_check, quota, selected }
    })
}

fn pending() -> impl Strategy<Value = Pending> {
    let required = proptest::option::of(proptest::sample::select(&LEVELS[..]));
    (1_u8..3, proptest::option::of(1_u8..4), required, any::<bool>()).prop_map(
        |(pods, request, required, has_runtime_class)| Pending { pods, request, required, has_runtime_class },
    )
}

/// The objects with one field of the other ones.
fn with_change(before: &Objects, other: &Objects, field: usize) -> Objects {
    let mut after = before.clone();
    match field {
        0..=2 => after.nodes[field] = other.nodes[field],
        3 => after.topology.0 = other.topology.0,
        4 => after.topology.1 = other.topology.1,
        5 => after.limit_range = other.limit_range,
        6 => after.runtime_class = other.runtime_class,
        7 => after.check = other.check,
        8 => after.names_check = other.names_check,
        9 => after.quota = other.quota,
        _ => after.selected = other.selected,
    }
    after
}

/// All objects that may exist, in an order in which they can be created, with `None` for absent ones.
fn manifests(objects: &Objects) -> Vec<(Kind, ObjectKey, Option<Value>)> {
    let mut all = Vec::new();
    let mut add = |kind: Kind, namespace: &str, name: &str, rest: Option<Value>| {
        let manifest = rest.map(|mut object| {
            object["metadata"]["name"] = json!(name);
            if !namespace.is_empty() {
                object["metadata"]["namespace"] = json!(namespace);
            }
            object
        });
        all.push((kind, ObjectKey::new(namespace, name), manifest));
    };
    let labels = if objects.selected { json!({"team": "a"}) } else { json!({}) };
    add(Kind::Namespace, "", "team", Some(json!({"metadata": {"labels": labels}})));
    let levels: Vec<Value> = LEVELS.iter().map(|level| json!({"nodeLabel": level})).collect();
    add(Kind::Topology, "", "t", objects.topology.1.then(|| json!({"spec": {"levels": levels}})));
    let flavor = if objects.topology.0 {
        json!({"topologyName": "t", "nodeLabels": {"pool": "p"}})
    } else {
        json!({})
    };
    add(Kind::ResourceFlavor, "", "racks", Some(json!({"spec": flavor})));
    for (index, node) in objects.nodes.iter().enumerate() {
        let name = format!("node-{index}");
        let rack = if index == 0 { "a" } else { "b" };
        let manifest = node.map(|(cpus, ready, cordoned)| {
            json!({"metadata": {"labels": {"pool": "p", "rack": rack, "kubernetes.io/hostname": name}},
                "spec": {"unschedulable": cordoned},
                "status": {"allocatable": {"cpu": cpus.to_string(), "pods": "10"},
                    "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}})
        });
        add(Kind::Node, "", &name, manifest);
    }
    let range = objects.limit_range.map(|(default, max)| {
        let mut range = json!({"type": "Container", "max": {"cpu": max.to_string()}});
        if default > 0 {
            range["defaultRequest"] = json!({"cpu": default.to_string()});
        }
        json!({"spec": {"limits": [range]}})
    });
    add(Kind::LimitRange, "team", "limits", range);
    let class = |cpus: u8| json!({"handler": "vm", "overhead": {"podFixed": {"cpu": cpus.to_string()}}});
    add(Kind::RuntimeClass, "", "vm", objects.runtime_class.map(class));
    let check = |active: bool| {
        let status = if active { "True" } else { "False" };
        json!({"spec": {"controllerName": "example.com/c"}, "status": {"conditions": [
            {"type": "Active", "status": status, "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
    };
    add(Kind::AdmissionCheck, "", "check", objects.check.map(check));
    let checks: &[Value] = if objects.names_check { &[json!({"name": "check"})] } else { &[] };
    let queue = json!({"spec": {
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "admissionChecksStrategy": {"admissionChecks": checks},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "racks", "resources": [
            {"name": "cpu", "nominalQuota": objects.quota.to_string()}]}]}]}});
    add(Kind::ClusterQueue, "", "shared", Some(queue));
    add(Kind::LocalQueue, "team", "main", Some(json!({"spec": {"clusterQueue": "shared"}})));
    all
}

fn workload(pending: &Pending) -> Value {
    let requests = pending.request.map_or_else(|| json!({}), |cpus| json!({"cpu": cpus.to_string()}));
    let mut spec = json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}]});
    if pending.has_runtime_class {
        spec["runtimeClassName"] = json!("vm");
    }
    let mut set = json!({"name": "main", "count": pending.pods, "template": {"spec": spec}});
    if let Some(level) = pending.required {
        set["topologyRequest"] = json!({"required": level});
    }
    json!({"metadata": {"name": "waiting", "namespace": "team"}, "spec": {"queueName": "main", "podSets": [set]}})
}

fn settle(cluster: &mut Cluster) {
    cluster.advance_tenths(40, |_, _| ());
}

/// The admission of the workload, and why it waits.
fn decision(cluster: &Cluster) -> (Value, Value) {
    let status = &cluster.server.get(Kind::Workload, &ObjectKey::new("team", "waiting")).unwrap()["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let waits = conditions.filter(|c| c["type"] == "QuotaReserved" && c["status"] == "False");
    (status["admission"].clone(), waits.map(|c| c["reason"].clone()).collect())
}

fn started_with(objects: &Objects, pending: &Pending) -> Cluster {
    let mut cluster = Cluster::new(CoreSettings::default());
    for (kind, _, manifest) in manifests(objects) {
        if let Some(object) = manifest {
            cluster.create(kind, object);
        }
    }
    cluster.create(Kind::Workload, workload(pending));
    settle(&mut cluster);
    cluster
}

/// Makes the objects of a cluster those of the change, as another client.
fn apply_change(cluster: &mut Cluster, before: &Objects, after: &Objects) {
    let now = cluster.now;
    for ((kind, key, old), (_, _, new)) in manifests(before).into_iter().zip(manifests(after)) {
        match (old, new) {
            (Some(old), Some(new)) if old != new => cluster.server.edit(kind, &key, |object| {
                for part in ["spec", "overhead"] {
                    if !new[part].is_null() {
                        object[part] = new[part].clone();
                    }
                }
                if !new["status"].is_null() {
                    object["status"] = new["status"].clone();
                }
                if !new["metadata"]["labels"].is_null() {
                    object["metadata"]["labels"] = new["metadata"]["labels"].clone();
                }
            }),
            (Some(_), None) => {
                cluster.server.delete(kind, &key, now);
                // A user may force the deletion of an object that is in use.
                cluster.server.edit(kind, &key, |object| object["metadata"]["finalizers"] = json!([]));
            }
            (None, Some(new)) => cluster.create(kind, new),
            _ => {}
        }
    }
    settle(cluster);
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn changed_objects_wake_parked_workloads(
        favourable in objects(true),
        other in objects(false),
        field in 0_usize..11,
        pending in pending(),
        gets_worse in proptest::bool::weighted(0.2),
    ) {
        let (mut before, mut after) = (with_change(&favourable, &other, field), favourable);
        if gets_worse {
            std::mem::swap(&mut before, &mut after);
        }
        let mut cluster = started_with(&before, &pending);
        if decision(&cluster).0.is_null() {
            apply_change(&mut cluster, &before, &after);
            let expected = decision(&started_with(&after, &pending));
            prop_assert_eq!(decision(&cluster), expected, "{:?}", after);
        }
    }
}

//! Random clusters, and how they stand once nothing moves in them any more.

use super::jobs::{RunningPod, running_pods, stored};
use crate::fixtures::offline_objects::{kueue, meta};
use crate::fixtures::simulate_cluster::options;
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::reconciler::CoreSettings;
use sluice::simulate::{Report, Simulation, SimulationOptions};
use sluice::visibility::access::Access;
use sluice::visibility::offline::OfflineState;
use sluice::visibility::questions::{VerdictQuestion, WorkloadName};
use sluice::visibility::views::{SourceKind, Verdict};
use std::collections::BTreeSet;

/// Flavors: one of any node, one with a topology, one of a label.
const FLAVORS: [&str; 3] = ["plain", "tree", "gpu"];
const LEVELS: [&str; 4] = ["", "rack", "kubernetes.io/hostname", "zone"];

#[derive(Clone, Debug)]
struct QueueOf {
    strict: bool,
    in_cohort: bool,
    preempts: bool,
    /// Flavor, nominal quota, borrowing limit.
    flavors: Vec<(usize, u32, Option<u32>)>,
    stopped: bool,
    check: Option<bool>,
    selects: bool,
    local_stopped: bool,
}

#[derive(Clone, Debug)]
struct PodsOf {
    count: u32,
    cpu: u32,
    /// Level, or none for pods without a topology; the last one is none of the topology.
    level: Option<usize>,
    selected: Option<bool>,
}

#[derive(Clone, Debug)]
struct WorkloadOf {
    /// The last ones do not exist.
    queue: usize,
    priority: i32,
    active: bool,
    sets: Vec<PodsOf>,
}

#[derive(Clone, Debug)]
pub(super) struct Cluster {
    /// CPUs of nodes, and their rack.
    nodes: Vec<(u32, bool)>,
    queues: Vec<QueueOf>,
    workloads: Vec<WorkloadOf>,
    pods: Vec<RunningPod>,
}

pub(super) fn cluster() -> impl Strategy<Value = Cluster> {
    let seldom = || prop::bool::weighted(0.06);
    let flavor = (0..3_usize, 0..9_u32, prop::option::weighted(0.3, 0..4_u32));
    let queue = (
        (any::<bool>(), prop::bool::weighted(0.6), prop::bool::weighted(0.3)),
        prop::collection::vec(flavor, 1..3),
        (seldom(), prop::option::weighted(0.15, any::<bool>()), seldom(), seldom()),
    )
        .prop_map(
            |((strict, in_cohort, preempts), mut flavors, (stopped, check, other, local_stopped))| {
                flavors.sort_by_key(|flavor| flavor.0);
                flavors.dedup_by_key(|flavor| flavor.0);
                QueueOf {
                    strict,
                    in_cohort,
                    preempts,
                    flavors,
                    stopped,
                    check,
                    selects: !other,
                    local_stopped,
                }
            },
        );
    let level = prop_oneof![3 => Just(None), 3 => (0..3_usize).prop_map(Some), 1 => Just(Some(3))];
    let set = (1..5_u32, 0..5_u32, level, prop::option::weighted(0.3, prop::bool::weighted(0.7)))
        .prop_map(|(count, cpu, level, selected)| PodsOf { count, cpu, level, selected });
    let queue_of = prop_oneof![20 => 0..3_usize, 1 => 3..5_usize];
    let workload = (queue_of, 0..3_i32, seldom(), prop::collection::vec(set, 1..3)).prop_map(
        |(queue, priority, inactive, sets)| WorkloadOf { queue, priority, active: !inactive, sets },
    );
    let nodes = prop::collection::vec((1..7_u32, any::<bool>()), 1..4);
    (nodes, prop::collection::vec(queue, 3), prop::collection::vec(workload, 1..7), running_pods())
        .prop_map(|(nodes, queues, workloads, pods)| Cluster { nodes, queues, workloads, pods })
}

/// What keeps the only workload of a cluster waiting; nothing else does.
#[derive(Clone, Copy, Debug)]
pub(super) enum InTheWay {
    Nothing,
    Inactive,
    StoppedQueue,
    StoppedLocalQueue,
    BrokenCheck,
    OtherNamespace,
    NoClusterQueue,
    NoLocalQueue,
    Quota,
    Selector,
    NoTopology,
    MissingLevel,
    SmallNodes,
}

/// A cluster of one node, one queue and one workload, with one thing in the way.
pub(super) fn cluster_with(one: InTheWay) -> Cluster {
    let flavor = match one {
        InTheWay::MissingLevel | InTheWay::SmallNodes => 1,
        InTheWay::Selector => 2,
        _ => 0,
    };
    let nominal = if matches!(one, InTheWay::Quota) { 0 } else { 8 };
    let queue = QueueOf {
        strict: false,
        in_cohort: false,
        preempts: false,
        flavors: vec![(flavor, nominal, None)],
        stopped: matches!(one, InTheWay::StoppedQueue),
        check: matches!(one, InTheWay::BrokenCheck).then_some(false),
        selects: !matches!(one, InTheWay::OtherNamespace),
        local_stopped: matches!(one, InTheWay::StoppedLocalQueue),
    };
    let level = match one {
        InTheWay::NoTopology | InTheWay::SmallNodes => Some(1),
        InTheWay::MissingLevel => Some(3),
        _ => None,
    };
    let cpu = if matches!(one, InTheWay::SmallNodes) { 7 } else { 1 };
    let selected = matches!(one, InTheWay::Selector).then_some(false);
    let queue_of = match one {
        InTheWay::NoClusterQueue => 3,
        InTheWay::NoLocalQueue => 4,
        _ => 0,
    };
    let active = !matches!(one, InTheWay::Inactive);
    let sets = vec![PodsOf { count: 1, cpu, level, selected }];
    let workload = WorkloadOf { queue: queue_of, priority: 0, active, sets };
    Cluster { nodes: vec![(6, false)], queues: vec![queue], workloads: vec![workload], pods: Vec::new() }
}

fn node((index, (cpus, rack)): (usize, &(u32, bool))) -> Value {
    let name = format!("n{index}");
    let mut metadata = meta(&name, "");
    metadata["labels"] =
        json!({"pool": "tree", "rack": format!("r{}", u8::from(*rack)), "kubernetes.io/hostname": name});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata,
        "status": {"allocatable": {"cpu": cpus.to_string(), "pods": "20"}, "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn queue_objects((index, of): (usize, &QueueOf)) -> [Value; 2] {
    let name = format!("q{index}");
    let flavors = of.flavors.iter().map(|(flavor, nominal, borrowing)| {
        let mut cpu = json!({"name": "cpu", "nominalQuota": nominal.to_string()});
        if let Some(limit) = borrowing.filter(|_| of.in_cohort) {
            cpu["borrowingLimit"] = json!(limit.to_string());
        }
        json!({"name": FLAVORS[*flavor], "resources": [cpu]})
    });
    let selector = if of.selects { json!({}) } else { json!({"matchLabels": {"team": "other"}}) };
    let mut spec = json!({"namespaceSelector": selector,
        "queueingStrategy": if of.strict { "StrictFIFO" } else { "BestEffortFIFO" },
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors.collect::<Vec<_>>()}]});
    if of.in_cohort {
        spec["cohortName"] = json!("c");
    }
    if of.preempts {
        spec["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    }
    if of.stopped {
        spec["stopPolicy"] = json!("Hold");
    }
    if let Some(works) = of.check {
        let check = if works { "answers" } else { "broken" };
        spec["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": check}]});
    }
    let mut local = json!({"clusterQueue": name});
    if of.local_stopped {
        local["stopPolicy"] = json!("Hold");
    }
    [kueue("ClusterQueue", &name, "", &spec), kueue("LocalQueue", &name, "ns", &local)]
}

fn name(index: usize) -> String {
    format!("w{index}")
}

fn workload((index, of): (usize, &WorkloadOf)) -> Value {
    let set = |(at, pods): (usize, &PodsOf)| {
        let requests = if pods.cpu == 0 { json!({}) } else { json!({"cpu": pods.cpu.to_string()}) };
        let mut spec =
            json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}]});
        if let Some(known) = pods.selected {
            spec["nodeSelector"] = json!({"gpu": if known { "a" } else { "b" }});
        }
        let mut set = json!({"name": format!("set-{at}"), "count": pods.count, "template": {"spec": spec}});
        if let Some(level) = pods.level {
            set["topologyRequest"] =
                if level == 0 { json!({"unconstrained": true}) } else { json!({"required": LEVELS[level]}) };
        }
        set
    };
    let sets: Vec<Value> = of.sets.iter().enumerate().map(set).collect();
    let queue = if of.queue == 4 { "missing".to_owned() } else { format!("q{}", of.queue) };
    let spec = json!({"queueName": queue, "priority": of.priority, "active": of.active, "podSets": sets});
    let mut object = kueue("Workload", &name(index), "ns", &spec);
    object["metadata"]["creationTimestamp"] = json!(format!("2027-01-15T08:00:{index:02}Z"));
    object
}

pub(super) fn objects(cluster: &Cluster) -> Vec<Value> {
    let levels = json!({"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]});
    let flavor = |name: &str, spec: Value| kueue("ResourceFlavor", name, "", &spec);
    let check = |name: &str, active: &str| {
        let mut check = kueue("AdmissionCheck", name, "", &json!({"controllerName": "example.com/check"}));
        check["status"] = json!({"conditions": [{"type": "Active", "status": active, "reason": "r", "message": "", "lastTransitionTime": "2027-01-15T08:00:00Z"}]});
        check
    };
    let mut all = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta("ns", "")}),
        kueue("Topology", "t", "", &levels),
        flavor("plain", json!({})),
        flavor("tree", json!({"nodeLabels": {"pool": "tree"}, "topologyName": "t"})),
        flavor("gpu", json!({"nodeLabels": {"gpu": "a"}})),
        check("answers", "True"),
        check("broken", "False"),
        kueue("LocalQueue", "q3", "ns", &json!({"clusterQueue": "gone"})),
    ];
    all.extend(cluster.nodes.iter().enumerate().map(node));
    all.extend(cluster.queues.iter().enumerate().flat_map(queue_objects));
    all.extend(cluster.workloads.iter().enumerate().map(workload));
    if !cluster.pods.is_empty() {
        all.extend(stored(&cluster.pods, cluster.nodes.len()));
    }
    all
}

pub(super) fn load(objects: &[Value]) -> Simulation {
    let start = "2027-01-15T09:00:00Z".parse().unwrap();
    let run_for = Some(SignedDuration::from_mins(1));
    let mut simulation = Simulation::new(SimulationOptions { start, run_for, ..options() }).unwrap();
    // An owner comes before its Workload.
    let (workloads, others): (Vec<&Value>, Vec<&Value>) =
        objects.iter().partition(|object| object["kind"] == "Workload");
    for object in others.into_iter().chain(workloads) {
        let group = object["apiVersion"].as_str().unwrap().split_once('/').map_or("", |(group, _)| group);
        let kind = Kind::from_group_kind(group, object["kind"].as_str().unwrap()).unwrap();
        simulation.load_stored(kind, object.clone());
    }
    simulation
}

pub(super) type Names = BTreeSet<String>;

/// Names of pending workloads of a report, and which of them are stuck.
pub(super) fn pending(report: &Report) -> (Names, Names) {
    let name = |text: &str| text.split_once('/').unwrap().1.to_owned();
    let all = report.pending.iter().map(|row| name(&row.workload.workload)).collect();
    let stuck = report.pending.iter().filter(|row| row.stuck);
    (all, stuck.map(|row| name(&row.workload.workload)).collect())
}

/// What the readers of a cluster are answered from, when a simulation of it stands still.
pub(super) fn state_of(simulation: &Simulation) -> OfflineState {
    let time = (SourceKind::File, "2027-01-15T09:00:00Z".parse().unwrap());
    OfflineState::load(CoreSettings::default(), simulation.stored(), time)
}

/// The answer to a reader of the cluster.
pub(super) fn answer(state: &mut OfflineState, name: &str) -> Verdict {
    let workload = WorkloadName::parse(name, "ns");
    let access = Access::everything();
    let question = VerdictQuestion { access, workload, before: None, queue: None, priority: None };
    state.verdict(&question).unwrap()
}

//! Which workloads are stuck: lists, `why`, the audit and `simulate` say the same of random clusters, and `simulate` shows it when all that
//! holds quota ends.

use super::builders::config;
use crate::simulate_cluster::{manifests, options};
use crate::verdict_lines::{kueue, meta};
use jiff::SignedDuration;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::reconciler::CoreSettings;
use sluice::simulate::{Report, Simulation, SimulationOptions, Until};
use sluice::visibility::access::Access;
use sluice::visibility::findings::audit;
use sluice::visibility::offline::OfflineState;
use sluice::visibility::page::PageQuery;
use sluice::visibility::questions::{VerdictQuestion, WorkloadName};
use sluice::visibility::selector::WorkloadSelector;
use sluice::visibility::views::SourceKind;
use sluice::visibility::workloads::{WorkloadQuery, workloads};
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
struct Cluster {
    /// CPUs of nodes, and their rack.
    nodes: Vec<(u32, bool)>,
    queues: Vec<QueueOf>,
    workloads: Vec<WorkloadOf>,
}

fn cluster() -> impl Strategy<Value = Cluster> {
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
    (nodes, prop::collection::vec(queue, 3), prop::collection::vec(workload, 1..7))
        .prop_map(|(nodes, queues, workloads)| Cluster { nodes, queues, workloads })
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

fn objects(cluster: &Cluster) -> Vec<Value> {
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
    all
}

fn load(objects: &[Value]) -> Simulation {
    let start = "2027-01-15T09:00:00Z".parse().unwrap();
    let run_for = Some(SignedDuration::from_mins(1));
    let mut simulation = Simulation::new(SimulationOptions { start, run_for, ..options() }).unwrap();
    for object in objects {
        let group = object["apiVersion"].as_str().unwrap().split_once('/').map_or("", |(group, _)| group);
        let kind = Kind::from_group_kind(group, object["kind"].as_str().unwrap()).unwrap();
        simulation.load_stored(kind, object.clone());
    }
    simulation
}

type Names = BTreeSet<String>;

/// Names of pending workloads of a report, and which of them are stuck.
fn pending(report: &Report) -> (Names, Names) {
    let name = |text: &str| text.split_once('/').unwrap().1.to_owned();
    let all = report.pending.iter().map(|row| name(&row.workload.workload)).collect();
    let stuck = report.pending.iter().filter(|row| row.stuck);
    (all, stuck.map(|row| name(&row.workload.workload)).collect())
}

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
    let is_stuck = |name: &&String| {
        let workload = WorkloadName::parse(name, "ns");
        let access = Access::everything();
        let question = VerdictQuestion { access, workload, before: None, queue: None, priority: None };
        state.verdict(&question).unwrap().workload.stuck
    };
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
    let time = (SourceKind::File, "2027-01-15T09:00:00Z".parse().unwrap());
    let mut state = OfflineState::load(CoreSettings::default(), simulation.stored(), time);
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
    #![proptest_config(config(150))]

    #[test]
    fn lists_answers_and_simulations_name_the_same_as_stuck(cluster in cluster()) {
        stuck_is_one_set(&cluster)?;
    }
}

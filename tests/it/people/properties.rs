//! What the command line says, tried: the missing amounts of `why` admit the workload in `simulate`, `capacity` N means that N jobs are
//! admitted and one more is not, and two replicas that read the same objects give the same positions.

use crate::fixtures::simulate_cluster::{KUEUE_API_VERSION, empty_simulation, manifests, report};
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::reconciler::CoreSettings;
use sluice::simulate::Until;
use sluice::visibility::access::Access;
use sluice::visibility::flavors::{flavors, question};
use sluice::visibility::offline::OfflineState;
use sluice::visibility::page::PageQuery;
use sluice::visibility::questions::{VerdictQuestion, WorkloadName};
use sluice::visibility::selector::WorkloadSelector;
use sluice::visibility::views::{BlockerKindView, BlockerView, SourceKind, Verdict};
use sluice::visibility::workloads::{WorkloadQuery, workloads};
use std::collections::BTreeMap;

const NOW: &str = "2027-01-15T08:00:00Z";
const GPU: &str = "example.com/gpu";
/// Cohorts of a tree, then its ClusterQueues.
const COHORTS: usize = 3;

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn offline(objects: &[Value]) -> OfflineState {
    OfflineState::load(CoreSettings::default(), objects.to_vec(), (SourceKind::File, now()))
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let metadata =
        json!({"name": name, "uid": format!("{kind}-{name}"), "creationTimestamp": "2027-01-15T07:00:00Z"});
    json!({"apiVersion": KUEUE_API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})
}

fn namespaced(kind: &str, name: &str, spec: &Value) -> Value {
    let mut object = object(kind, name, spec);
    object["metadata"]["namespace"] = json!("team");
    object
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
}

/// A pod set of pods that ask for GPUs.
fn pod_set(name: &str, pods: u32, gpus: u32, topology: Option<(&str, &str)>) -> Value {
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {GPU: gpus.to_string()}, "limits": {GPU: gpus.to_string()}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let mut set = json!({"name": name, "count": pods, "template": template});
    if let Some((how, level)) = topology {
        set["topologyRequest"] = json!({how: level});
    }
    set
}

fn workload(name: &str, queue: &str, pod_sets: &[Value]) -> Value {
    namespaced(
        "Workload",
        name,
        &json!({"queueName": queue, "active": true, "priority": 0, "podSets": pod_sets}),
    )
}

/// A node of a tree of quotas. Cohorts name one before them as their parent; without one they are roots.
#[derive(Clone, Debug)]
struct Member {
    parent: Option<usize>,
    nominal: u32,
    borrowing: Option<u32>,
    lending: Option<u32>,
    usage: u32,
}

impl Member {
    fn kind_and_name(index: usize) -> (&'static str, String) {
        if index < COHORTS { ("Cohort", format!("c{index}")) } else { ("ClusterQueue", format!("q{index}")) }
    }

    fn object(&self, index: usize) -> Value {
        let (kind, name) = Self::kind_and_name(index);
        let mut quota = json!({"name": GPU, "nominalQuota": self.nominal.to_string()});
        if self.parent.is_some() {
            for (field, limit) in [("borrowingLimit", self.borrowing), ("lendingLimit", self.lending)] {
                if let Some(limit) = limit {
                    quota[field] = json!(limit.to_string());
                }
            }
        }
        let groups = json!([{"coveredResources": [GPU], "flavors": [{"name": "f", "resources": [quota]}]}]);
        let mut spec = json!({"resourceGroups": groups});
        let field = if kind == "Cohort" { "parentName" } else { "cohortName" };
        if let Some(parent) = self.parent {
            spec[field] = json!(format!("c{parent}"));
        }
        if kind == "ClusterQueue" {
            spec["namespaceSelector"] = json!({});
        }
        object(kind, &name, &spec)
    }

    fn admitted(&self, index: usize) -> Option<Value> {
        let (_, queue) = Self::kind_and_name(index);
        let mut workload =
            workload(&format!("runs-{queue}"), &queue, &[pod_set("main", 1, self.usage, None)]);
        let assignment = json!([{"name": "main", "count": 1, "flavors": {GPU: "f"}, "resourceUsage": {GPU: self.usage.to_string()}}]);
        let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2027-01-15T07:30:00Z"});
        workload["status"] = json!({"admission": {"clusterQueue": queue, "podSetAssignments": assignment}, "conditions": [condition("QuotaReserved"), condition("Admitted")]});
        (self.usage > 0).then_some(workload)
    }
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let limit = || proptest::option::of(0..6_u32);
    let member = move |index: usize| {
        let parents = index.min(COHORTS);
        let usage = if index < COHORTS { 0..1_u32 } else { 0..6_u32 };
        (proptest::option::weighted(0.8, 0..parents.max(1)), 0..6_u32, limit(), limit(), usage).prop_map(
            move |(parent, nominal, borrowing, lending, usage)| Member {
                parent: parent.filter(|_| parents > 0),
                nominal,
                borrowing,
                lending,
                usage,
            },
        )
    };
    (0..COHORTS + 3).map(member).collect::<Vec<_>>()
}

fn objects_of(members: &[Member], waiting: &Value) -> Vec<Value> {
    let mut objects = vec![namespace(), object("ResourceFlavor", "f", &json!({}))];
    for (index, member) in members.iter().enumerate() {
        objects.push(member.object(index));
        if index >= COHORTS {
            let (_, name) = Member::kind_and_name(index);
            objects.push(namespaced("LocalQueue", &name, &json!({"clusterQueue": name})));
            objects.extend(member.admitted(index));
        }
    }
    objects.push(waiting.clone());
    objects
}

fn why(objects: &[Value], name: &str) -> Verdict {
    let question = VerdictQuestion {
        access: Access::everything(),
        workload: WorkloadName::parse(name, "team"),
        before: None,
        queue: None,
        priority: None,
    };
    offline(objects).verdict(&question).unwrap()
}

/// Whether `simulate` admits a Workload.
fn is_admitted(objects: &[Value], name: &str) -> bool {
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(objects));
    simulation.run(Until::Settled);
    let report = report(&mut simulation);
    let rows = report["admitted"].as_array().unwrap();
    rows.iter().any(|row| row["workload"] == format!("team/{name}"))
}

fn missing(row: &BlockerView) -> u32 {
    row.missing.as_ref().unwrap().value.parse().unwrap()
}

/// Adds what a row says is missing to the limit of its node: the borrowing limit if it is that which binds, else the nominal quota.
fn add_missing(members: &mut [Member], row: &BlockerView) {
    let missing = missing(row);
    assert!(missing > 0, "{row:?}");
    let index = (0..members.len()).find(|index| {
        let (kind, name) = Member::kind_and_name(*index);
        row.node == format!("{kind}/{name}")
    });
    let member = &mut members[index.unwrap_or_else(|| panic!("{row:?}"))];
    match member.borrowing.as_mut().filter(|_| member.parent.is_some()) {
        Some(limit) => *limit += missing,
        None => member.nominal += missing,
    }
}

/// Whether a node is above another one, or the same.
fn depth(members: &[Member], index: usize) -> usize {
    members[index].parent.map_or(0, |parent| 1 + depth(members, parent))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_missing_amounts_admit_the_workload(
        mut members in members(),
        sizes in prop::collection::vec((1..3_u32, 1..4_u32), 1..3),
        queue in COHORTS..COHORTS + 3,
    ) {
        prop_assume!(depth(&members, queue) <= COHORTS);
        let names = ["main", "side"];
        let sets: Vec<Value> =
            sizes.iter().zip(names).map(|((pods, gpus), name)| pod_set(name, *pods, *gpus, None)).collect();
        let waiting = workload("waits", &format!("q{queue}"), &sets);
        let objects = objects_of(&members, &waiting);
        let verdict = why(&objects, "waits");
        prop_assume!(!verdict.never_fits);
        // The request of a pod set counts with those before it, so the greatest amount of a node is what it lacks.
        let mut greatest = BTreeMap::<&str, &BlockerView>::new();
        for row in verdict.blockers.iter().chain(&verdict.next) {
            let known = greatest.entry(&row.node).or_insert(row);
            if missing(row) > missing(known) {
                *known = row;
            }
        }
        let rows: Vec<BlockerView> = greatest.into_values().cloned().collect();
        prop_assert_eq!(rows.is_empty(), is_admitted(&objects, "waits"), "{:?}", verdict);
        for row in &rows {
            prop_assert!(matches!(row.kind, BlockerKindView::InUse | BlockerKindView::Next), "{:?}", row);
            add_missing(&mut members, row);
        }
        let raised = objects_of(&members, &waiting);
        prop_assert!(is_admitted(&raised, "waits"), "{:#?}\nthen {:#?}", rows, why(&raised, "waits").blockers);
        // One less of any of them is not enough.
        for row in &rows {
            let mut less = members.clone();
            let (index, _) = members.iter().enumerate().find(|(index, _)| row.node.ends_with(&Member::kind_and_name(*index).1)).unwrap();
            match less[index].borrowing.as_mut().filter(|_| members[index].parent.is_some()) {
                Some(limit) => *limit -= 1,
                None => less[index].nominal -= 1,
            }
            prop_assert!(!is_admitted(&objects_of(&less, &waiting), "waits"), "{:?} is more than is missing", row);
        }
    }
}

/// Nodes in racks, a flavor with their topology or without, and a queue with a quota.
#[derive(Clone, Debug)]
struct Nodes {
    /// Rack and GPUs of each.
    hosts: Vec<(u8, u32)>,
    has_topology: bool,
    quota: u32,
}

impl Nodes {
    fn objects(&self) -> Vec<Value> {
        let mut objects = vec![namespace()];
        let levels = json!([{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]);
        let mut flavor = json!({"nodeLabels": {"pool": "gpu"}});
        if self.has_topology {
            flavor["topologyName"] = json!("racks");
        }
        objects.push(object("Topology", "racks", &json!({"levels": levels})));
        objects.push(object("ResourceFlavor", "f", &flavor));
        for (index, (rack, gpus)) in self.hosts.iter().enumerate() {
            let name = format!("n{index}");
            let labels = json!({"pool": "gpu", "rack": format!("r{rack}"), "kubernetes.io/hostname": name});
            objects.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
                "status": {"allocatable": {GPU: gpus.to_string(), "pods": "20"}, "conditions": [{"type": "Ready", "status": "True"}]}}));
        }
        let quota = json!([{"name": GPU, "nominalQuota": self.quota.to_string()}]);
        let groups = json!([{"coveredResources": [GPU], "flavors": [{"name": "f", "resources": quota}]}]);
        objects.push(object(
            "ClusterQueue",
            "q",
            &json!({"namespaceSelector": {}, "resourceGroups": groups}),
        ));
        objects.push(namespaced("LocalQueue", "q", &json!({"clusterQueue": "q"})));
        objects
    }

    fn copies(&self, pod_sets: &[Value], cluster_queue: Option<&str>) -> (u64, bool, String) {
        let mut objects = self.objects();
        objects.push(workload("asked", "q", pod_sets));
        let mut state = offline(&objects);
        let report = state.capacity(&question(Some("f"), "", "team/asked").unwrap());
        let view = flavors(state.snapshot(), &Access::everything(), (&report, cluster_queue))
            .unwrap()
            .pop()
            .unwrap();
        let job = view.job.unwrap();
        (job.copies, job.at_least, job.limited_by)
    }

    /// Number of such Workloads that `simulate` admits out of this many.
    fn admitted(&self, pod_sets: &[Value], number: u64) -> usize {
        let mut objects = self.objects();
        objects.extend((0..number).map(|index| workload(&format!("w{index:03}"), "q", pod_sets)));
        let mut simulation = empty_simulation();
        simulation.apply_all(manifests(&objects));
        simulation.run(Until::Settled);
        report(&mut simulation)["admitted"].as_array().unwrap().len()
    }
}

fn nodes() -> impl Strategy<Value = Nodes> {
    (prop::collection::vec((0..3_u8, 1..5_u32), 1..7), prop_oneof![Just(1_000_u32), 0..12_u32])
        .prop_map(|(hosts, quota)| Nodes { hosts, has_topology: true, quota })
}

fn sets() -> impl Strategy<Value = Vec<Value>> {
    let requests = vec![
        None,
        Some(("required", "rack")),
        Some(("preferred", "rack")),
        Some(("required", "kubernetes.io/hostname")),
    ];
    prop::collection::vec((1..4_u32, 1..3_u32, select(requests)), 1..4).prop_map(|all| {
        let named = all.into_iter().enumerate();
        named
            .map(|(index, (pods, gpus, topology))| pod_set(&format!("s{index}"), pods, gpus, topology))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn so_many_jobs_are_admitted_and_no_more(nodes in nodes(), sets in sets()) {
        let (copies, at_least, limited_by) = nodes.copies(&sets, Some("q"));
        prop_assert!(!at_least && !limited_by.is_empty());
        let admitted = nodes.admitted(&sets, copies + 1);
        prop_assert_eq!(u64::try_from(admitted).unwrap(), copies, "{} {:?}", limited_by, nodes);
        // Without the queue, nodes alone count.
        prop_assert!(nodes.copies(&sets, None).0 >= copies);
    }

    #[test]
    fn replicas_give_the_same_positions(
        priorities in prop::collection::vec((0..3_i32, 0..3_u8), 1..12),
        order in any::<u64>(),
    ) {
        let mut objects = vec![namespace(), object("ResourceFlavor", "f", &json!({}))];
        for queue in ["q0", "q1"] {
            let member = Member { parent: None, nominal: 0, borrowing: None, lending: None, usage: 0 };
            let mut queue_object = member.object(COHORTS);
            queue_object["metadata"]["name"] = json!(queue);
            objects.push(queue_object);
            objects.push(namespaced("LocalQueue", queue, &json!({"clusterQueue": queue})));
        }
        for (index, (priority, second)) in priorities.iter().enumerate() {
            let mut object = workload(&format!("w{index}"), &format!("q{}", index % 2), &[pod_set("main", 1, 1, None)]);
            object["spec"]["priority"] = json!(priority);
            object["metadata"]["creationTimestamp"] = json!(format!("2027-01-15T07:00:0{second}Z"));
            objects.push(object);
        }
        let positions = |objects: &[Value]| -> BTreeMap<ObjectKey, Value> {
            let state = offline(objects);
            let query = WorkloadQuery {
                namespace: None,
                selector: WorkloadSelector::parse("").unwrap(),
                page: PageQuery { limit: 100, continue_token: String::new() },
            };
            let rows = workloads(state.snapshot(), &Access::everything(), &query).unwrap().0;
            rows.into_iter()
                .map(|row| (ObjectKey::new(&row.metadata.namespace, &row.metadata.name), json!(row.position)))
                .collect()
        };
        let first = positions(&objects);
        prop_assert_eq!(first.len(), priorities.len());
        prop_assert!(first.values().all(|position| position["clusterQueue"].as_u64() > Some(0)), "{:?}", first);
        let turn = usize::try_from(order % 97).unwrap() % objects.len();
        objects.rotate_left(turn);
        objects.reverse();
        prop_assert_eq!(first, positions(&objects));
    }
}

/// Flavors without a topology are counted by node: the scheduler asks their quota alone.
#[test]
fn pod_sets_of_a_flavor_without_topology_share_its_nodes() {
    let nodes = Nodes { hosts: vec![(0, 4), (0, 4)], has_topology: false, quota: 100 };
    let sets = [pod_set("leader", 1, 2, None), pod_set("workers", 2, 1, None)];
    assert_eq!(
        nodes.copies(&sets, None),
        (2, false, "pod set leader: the nodes have room for 0 of 1 pods".to_owned())
    );
    let big = [pod_set("leader", 1, 3, None), pod_set("workers", 2, 3, None)];
    assert_eq!(
        nodes.copies(&big, None),
        (0, false, "pod set workers: the nodes have room for 1 of 2 pods".to_owned())
    );
    let explicit = [pod_set("main", 1, 1, Some(("required", "rack")))];
    let named = "pod set main: flavor f does not support topology-aware scheduling";
    assert_eq!(nodes.copies(&explicit, None), (0, false, named.to_owned()));
    let few = Nodes { quota: 5, ..nodes };
    let named = format!("quota of {GPU} in ClusterQueue q");
    assert_eq!(few.copies(&sets, Some("q")), (1, false, named));
}

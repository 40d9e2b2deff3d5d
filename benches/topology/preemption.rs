//! A whole cycle in which one workload preempts others for topology: 1,000 nodes with 30 resources, full of workloads, and a
//! preemptor of 200 pods, each of which requests half a node.

use criterion::Criterion;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use sluice::api::ObjectKey;
use sluice::api::v1beta2::{ClusterQueuePreemption, PodSetTopologyRequest, WithinClusterQueuePolicy};
use sluice::quota::{FlavorQuotas, FlavorResource, QuotaLimits, ResourceGroup};
use sluice::resources::{Amount, Requests};
use sluice::scheduler::{Charge, ClusterQueue, Engine, EngineSettings, Flavor, Outcome, PodSet, Workload};
use sluice::topology::{HOSTNAME_LABEL, NodeSpec, Occupancy, Placement, PodRequirements};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NODES: usize = 1_000;
const RACKS: usize = 8;
const RESOURCES: usize = 30;
/// Capacity of a node per resource.
const ROOM: i64 = 10;

fn resource(n: usize) -> Arc<str> {
    Arc::from(format!("example.com/resource-{n}"))
}

/// This amount of each resource.
fn of_each(amount: i64) -> Requests {
    (0..RESOURCES).map(|n| (resource(n), Amount::new(amount))).collect()
}

fn host(node: usize) -> String {
    format!("node-{node:04}")
}

/// A node; neighbours are in different racks.
fn node(n: usize) -> NodeSpec {
    let labels = [("pool", "a".to_owned()), ("rack", format!("r{}", n % RACKS)), (HOSTNAME_LABEL, host(n))];
    let mut allocatable = of_each(ROOM);
    allocatable.insert(Arc::from("pods"), Amount::new(110));
    NodeSpec {
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        taints: Vec::new(),
        usable: true,
        allocatable,
    }
}

/// Fills one node after the other with workloads of 1 to 31 pods with 1 to 10 of each resource, lowest priority first. Returns
/// a priority above theirs.
fn fill(engine: &mut Engine) -> i64 {
    let mut free = [ROOM; NODES];
    for n in 1.. {
        let (size, pods) = (1 + n % ROOM, 1 + n * 10 % 31);
        let mut domains: Vec<(usize, i32)> = Vec::new();
        let mut left = pods;
        for (node_index, capacity) in free.iter_mut().enumerate() {
            let count = (*capacity / size).min(left);
            if count > 0 {
                *capacity -= count * size;
                left -= count;
                domains.push((node_index, i32::try_from(count).unwrap_or_default()));
            }
        }
        if left > 0 {
            return n;
        }
        let domains =
            domains.into_iter().map(|(node_index, pods)| (Arc::from([Arc::from(host(node_index))]), pods));
        let placement =
            Placement { levels: Arc::from([Arc::from(HOSTNAME_LABEL)]), domains: domains.collect() };
        let flavor: Arc<str> = Arc::from("f");
        let usage =
            (0..RESOURCES).map(|r| (FlavorResource::new("f", &resource(r)), Amount::new(size * pods)));
        let charge = Charge {
            cluster_queue: Arc::from("q"),
            usage: usage.collect(),
            uid: Arc::from(format!("held-{n}")),
            local_queue: Arc::from("lq"),
            priority: n,
            reserved_at: Some(Timestamp::UNIX_EPOCH),
            topology: vec![Occupancy {
                flavor,
                pod_set: Arc::from("main"),
                placement,
                requests_per_pod: of_each(size),
            }],
            ..Charge::default()
        };
        engine.charge(&ObjectKey::new("ns", &format!("w{n}")), charge);
    }
    0
}

/// A full cluster with this nominal quota of each resource, and a priority above those of its workloads.
fn full(nominal: i64) -> (Engine, i64) {
    let mut engine = Engine::new(EngineSettings::default());
    engine.set_namespace("ns", Some(BTreeMap::new()));
    engine.set_topology("racks", Some(Arc::from([Arc::from("rack"), Arc::from(HOSTNAME_LABEL)])));
    let node_labels = BTreeMap::from([("pool".to_owned(), "a".to_owned())]);
    let topology_name = Some(Arc::from("racks"));
    engine.set_flavor("f", Some(Flavor { node_labels, topology_name, ..Flavor::default() }));
    let limits = QuotaLimits { nominal: Amount::new(nominal), ..QuotaLimits::default() };
    let quotas = FlavorQuotas {
        name: Arc::from("f"),
        limits: (0..RESOURCES).map(|n| (resource(n), limits)).collect(),
    };
    let queue = ClusterQueue {
        groups: vec![ResourceGroup::from_flavors(vec![quotas])],
        namespace_selector: Some(LabelSelector::default()),
        preemption: ClusterQueuePreemption {
            within_cluster_queue: Some(WithinClusterQueuePolicy::LowerPriority),
            ..ClusterQueuePreemption::default()
        },
        ..ClusterQueue::default()
    };
    engine.set_cluster_queue("q", Some(queue));
    for n in 0..NODES {
        engine.set_node(&host(n), Some(node(n)));
    }
    let priority = fill(&mut engine);
    (engine, priority)
}

fn newcomer(priority: i64, request: Option<PodSetTopologyRequest>, rack: Option<&str>) -> Workload {
    let node_selector = rack.map(|rack| ("rack".to_owned(), rack.to_owned())).into_iter().collect();
    let requests = of_each(ROOM / 2);
    let pods =
        PodRequirements { request, requests: requests.clone(), node_selector, ..PodRequirements::default() };
    let set = PodSet {
        name: Arc::from("main"),
        count: 200,
        requests,
        pod_requirements: Arc::new(pods),
        ..PodSet::default()
    };
    Workload {
        key: ObjectKey::new("ns", "newcomer"),
        uid: Arc::from("newcomer"),
        cluster_queue: Arc::from("q"),
        local_queue: Arc::from("lq"),
        priority,
        pod_sets: vec![set].into(),
        ..Workload::default()
    }
}

/// Measures the cycle alone; its decisions are undone.
pub(super) fn preemption(criterion: &mut Criterion) {
    let base = PodSetTopologyRequest::default();
    let rack = Some("rack".to_owned());
    let required = PodSetTopologyRequest { required: rack.clone(), ..base.clone() };
    let preferred = PodSetTopologyRequest { preferred: rack, ..base };
    let (plenty, little) = (1_000_000, i64::try_from(NODES).unwrap_or_default() * ROOM);
    let cases = [
        ("nodes of one rack selected", None, Some("r0"), plenty),
        ("required on a rack", Some(required.clone()), None, plenty),
        ("preferred on a rack", Some(preferred), None, plenty),
        ("required on a rack, quota used up", Some(required), None, little),
    ];
    let mut group = criterion.benchmark_group("preemption, 1000 nodes, 200 pods, 30 resources");
    group.sample_size(20);
    for (name, request, rack, nominal) in cases {
        let (mut engine, priority) = full(nominal);
        let newcomer = newcomer(priority, request, rack);
        let mut reported = false;
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| {
                let mut spent = Duration::ZERO;
                for _ in 0..times {
                    engine.enqueue(newcomer.clone());
                    let start = Instant::now();
                    let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
                    spent += start.elapsed();
                    let Some(Outcome::Preempting(_, victims)) = decisions.first().map(|d| &d.outcome) else {
                        panic!("no victims: {decisions:?}");
                    };
                    if !std::mem::replace(&mut reported, true) {
                        eprintln!("{name}: {} of {} workloads are victims", victims.len(), priority - 1);
                    }
                    engine.remove_pending(&newcomer.key);
                    engine.take_message_updates(usize::MAX);
                }
                spent
            });
        });
    }
    group.finish();
}

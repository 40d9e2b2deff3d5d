//! Benchmarks of topology placement: one pod set on clusters of growing size, with and without a leader, events of nodes and
//! pods, and a cycle that preempts for topology.

#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "a benchmark reads the clock and has no caller that handles errors"
)]

mod preemption;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sluice::api::ObjectKey;
use sluice::api::v1beta2::PodSetTopologyRequest;
use sluice::resources::{Amount, Requests};
use sluice::topology::{
    CapacityView, FlavorSpec, HOSTNAME_LABEL, NodeSpec, NonTasPod, PodRequirements, PriorPlacement, TasCache,
    TasGates, TasPodSetRequest,
};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

/// Racks of 32 nodes, in blocks of 8 racks.
fn cluster(nodes: usize) -> TasCache {
    let mut cluster = TasCache::default();
    let levels = ["block", "rack", HOSTNAME_LABEL].map(Arc::from);
    cluster.set_topology("topology", Some(Arc::from(levels)));
    let node_labels = BTreeMap::from([("pool".to_owned(), "a".to_owned())]);
    let flavor = FlavorSpec { node_labels, tolerations: Vec::new(), topology: Arc::from("topology") };
    cluster.set_flavor("flavor", Some(flavor));
    for n in 0..nodes {
        let name = format!("node-{n:05}");
        let labels = [
            ("pool", "a".to_owned()),
            ("block", format!("b{:03}", n / 256)),
            ("rack", format!("r{:04}", n / 32)),
            (HOSTNAME_LABEL, name.clone()),
        ];
        let amounts = [("cpu", 96_000), ("memory", 256 << 30), ("pods", 110), ("nvidia.com/gpu", 8)];
        let spec = NodeSpec {
            labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            taints: Vec::new(),
            usable: true,
            allocatable: amounts.into_iter().map(|(r, a)| (Arc::from(r), Amount::new(a))).collect(),
        };
        cluster.set_node(&name, Some(spec));
    }
    cluster
}

fn part(count: i32, cpu: i64, request: &PodSetTopologyRequest, group: Option<&str>) -> TasPodSetRequest {
    let requests: Requests = [("cpu", cpu), ("memory", 4 << 30)]
        .into_iter()
        .map(|(r, a)| (Arc::from(r), Amount::new(a)))
        .collect();
    let pods =
        Arc::new(PodRequirements { request: Some(request.clone()), requests, ..PodRequirements::default() });
    TasPodSetRequest {
        flavor: Arc::from("flavor"),
        pods,
        count,
        group: group.map(Arc::from),
        name: Arc::from("main"),
        prior: PriorPlacement::None,
    }
}

/// A pod without a topology assignment, and its requests.
fn pod() -> (ObjectKey, Requests) {
    (ObjectKey::new("ns", "pod"), [(Arc::from("cpu"), Amount::new(100))].into_iter().collect())
}

fn on_node(requests: &Requests) -> NonTasPod {
    NonTasPod { node: Arc::from("node-00009"), requests: requests.clone(), ends: false }
}

fn placement(criterion: &mut Criterion) {
    let base = PodSetTopologyRequest::default();
    let requests = [
        ("required", PodSetTopologyRequest { required: Some("block".to_owned()), ..base.clone() }),
        ("preferred", PodSetTopologyRequest { preferred: Some("rack".to_owned()), ..base.clone() }),
        ("unconstrained", PodSetTopologyRequest { unconstrained: Some(true), ..base }),
    ];
    let (key, usage) = pod();
    let mut group = criterion.benchmark_group("placement");
    for nodes in [500, 2_500] {
        let mut fresh = cluster(nodes);
        // The domains are built once, whatever the number of requests.
        let other = [part(1, 1, &PodSetTopologyRequest::default(), None)];
        assert!(
            fresh.place_all(&other, CapacityView::Projected, TasGates::default()).is_ok(),
            "there is capacity"
        );
        for (name, request) in &requests {
            let workers = [part(400, 4_000, request, None)];
            let led = [part(1, 8_000, request, Some("g")), part(400, 4_000, request, Some("g"))];
            for (kind, parts) in [("workers", &workers[..]), ("with leader", &led[..])] {
                // Without cached counts: this cluster has not seen such a request.
                let id = BenchmarkId::new(format!("{name}, {kind}"), nodes);
                group.bench_function(id, |bencher| {
                    bencher.iter_batched_ref(
                        || fresh.clone(),
                        |cluster| {
                            black_box(cluster.place_all(parts, CapacityView::Projected, TasGates::default()))
                        },
                        criterion::BatchSize::LargeInput,
                    );
                });
                let id = BenchmarkId::new(format!("{name}, {kind}, again, a pod having come or gone"), nodes);
                let (mut cluster, mut present) = (fresh.clone(), false);
                group.bench_function(id, |bencher| {
                    bencher.iter(|| {
                        present = !present;
                        cluster.set_non_tas_pod(&key, present.then(|| on_node(&usage)));
                        black_box(cluster.place_all(parts, CapacityView::Projected, TasGates::default()))
                    });
                });
            }
        }
    }
    group.finish();
}

/// A node whose capacity has changed, its heartbeat, and a pod that is created and deleted.
fn events(criterion: &mut Criterion) {
    let mut cluster = cluster(2_500);
    let labels = |name: &str| {
        [("pool", "a"), ("block", "b000"), ("rack", "r0000"), (HOSTNAME_LABEL, name)]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    };
    let name = "node-00007";
    let spec = NodeSpec { labels: labels(name), usable: true, ..NodeSpec::default() };
    cluster.set_node(name, Some(spec.clone()));
    criterion.bench_function("heartbeat, 2500 nodes", |bencher| {
        bencher.iter_batched(
            || spec.clone(),
            |spec| cluster.set_node(name, Some(spec)),
            criterion::BatchSize::SmallInput,
        );
    });
    let (key, usage) = pod();
    criterion.bench_function("pod comes and goes, 2500 nodes", |bencher| {
        bencher.iter(|| {
            cluster.set_non_tas_pod(&key, Some(on_node(&usage)));
            cluster.set_non_tas_pod(&key, None)
        });
    });
}

criterion_group!(benches, placement, events, preemption::preemption);
criterion_main!(benches);

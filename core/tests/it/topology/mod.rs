//! Placement: usage equals a recount after any history (I21), nothing panics, a placement that is reported fits, and on small
//! trees a placement that exists is found.

mod outside_pods;

use crate::fixtures::builders::sample;
use k8s_openapi::api::core::v1::Taint;
use sluice_core::api::ObjectKey;
use sluice_core::api::v1beta2::PodSetTopologyRequest;
use sluice_core::resources::{Amount, Requests, UsageLayer};
use sluice_core::topology::{
    AskedFlavor, CapacityView, DomainPath, FlavorSpec, Footprint, HOSTNAME_LABEL, NodeSpec, NonTasPod,
    Occupancy, Placement, PodRequirements, PriorPlacement, TasCache, TasGates, TasPodSetRequest,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const RACKS: u64 = 3;
const HOSTS: u64 = 4;

/// Random numbers that are the same everywhere.
struct SeededRandom(u64);

impl SeededRandom {
    fn random_below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn amount(&mut self, sides: u64) -> Amount {
        Amount::new(i64::try_from(self.random_below(sides)).unwrap())
    }
}

fn requests(entries: &[(&str, Amount)]) -> Requests {
    entries.iter().map(|(name, amount)| (Arc::from(*name), *amount)).collect()
}

/// A pod without a topology assignment; `ends` says whether it goes with what holds quota.
fn on_node(node: &str, requests: Requests, ends: bool) -> NonTasPod {
    NonTasPod { node: Arc::from(node), requests, ends }
}

/// A taint that no pod tolerates.
fn taint() -> Taint {
    Taint { key: "broken".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() }
}

fn node(random: &mut SeededRandom, host: u64) -> NodeSpec {
    let labels = [
        ("pool", "a".to_owned()),
        ("rack", format!("r{}", host / HOSTS)),
        (HOSTNAME_LABEL, format!("h{host}")),
    ];
    let mut allocatable = requests(&[("cpu", random.amount(9)), ("pods", random.amount(12))]);
    if random.random_below(3) > 0 {
        allocatable.insert(Arc::from("memory"), random.amount(9));
    }
    NodeSpec {
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        taints: if random.random_below(6) == 0 { vec![taint()] } else { Vec::new() },
        usable: random.random_below(8) > 0,
        allocatable,
    }
}

fn cluster() -> TasCache {
    let mut cluster = TasCache::default();
    cluster.set_topology("topo", Some(Arc::from([Arc::from("rack"), Arc::from(HOSTNAME_LABEL)])));
    let node_labels = BTreeMap::from([("pool".to_owned(), "a".to_owned())]);
    let flavor = |topology: &str| FlavorSpec {
        node_labels: node_labels.clone(),
        tolerations: Vec::new(),
        topology: Arc::from(topology),
    };
    cluster.set_flavor("f", Some(flavor("topo")));
    // A second flavor covers the same hosts, a third one only their racks.
    cluster.set_flavor("g", Some(flavor("topo")));
    cluster.set_topology("racks", Some(Arc::from([Arc::from("rack")])));
    cluster.set_flavor("r", Some(flavor("racks")));
    cluster
}

fn pod_set_request(
    flavor: &str,
    count: i32,
    per_pod: Requests,
    request: Option<PodSetTopologyRequest>,
) -> TasPodSetRequest {
    let pods = Arc::new(PodRequirements { request, requests: per_pod, ..PodRequirements::default() });
    TasPodSetRequest {
        flavor: Arc::from(flavor),
        pods,
        count,
        group: None,
        name: Arc::from("main"),
        prior: PriorPlacement::None,
    }
}

fn random_topology_request(random: &mut SeededRandom) -> Option<PodSetTopologyRequest> {
    let rack = Some("rack".to_owned());
    let base = PodSetTopologyRequest::default();
    match random.random_below(5) {
        0 => Some(PodSetTopologyRequest { required: rack, ..base }),
        1 => Some(PodSetTopologyRequest { preferred: rack, ..base }),
        2 => Some(PodSetTopologyRequest {
            preferred: rack.clone(),
            pod_set_slice_required_topology: rack,
            pod_set_slice_size: Some(1 + i32::try_from(random.random_below(4)).unwrap()),
            ..base
        }),
        3 => Some(PodSetTopologyRequest { unconstrained: Some(true), ..base }),
        _ => None,
    }
}

/// Nodes, pods and placements as the test knows them.
#[derive(Default)]
struct Model {
    nodes: BTreeMap<String, NodeSpec>,
    pods: BTreeMap<u64, NonTasPod>,
    placed: BTreeMap<u64, (Vec<Occupancy>, Footprint)>,
}

impl Model {
    /// Returns the free amount of a host, computed from scratch.
    fn free(&self, host: &str, resource: &str) -> i64 {
        let amount_of = |requests: &Requests| requests.get(resource).map_or(0, |amount| amount.get());
        let pod_slot = i64::from(resource == "pods");
        let node = self.nodes.get(host).filter(|node| node.usable && node.taints.is_empty());
        let mut free = node.map_or(0, |node| amount_of(&node.allocatable));
        free -= self
            .pods
            .values()
            .filter(|pod| *pod.node == *host)
            .map(|pod| amount_of(&pod.requests) + pod_slot)
            .sum::<i64>();
        for occupancy in
            self.placed.values().flat_map(|(all, _)| all).filter(|o| o.placement.levels.len() == 1)
        {
            let on_host = occupancy.placement.domains.iter().filter(|(values, _)| &*values[0] == host);
            free -= on_host
                .map(|(_, pods)| i64::from(*pods) * (amount_of(&occupancy.requests_per_pod) + pod_slot))
                .sum::<i64>();
        }
        free
    }

    fn fits(&self, placement: &Placement, per_pod: &Requests) -> bool {
        placement.domains.iter().all(|(values, pods)| {
            let fits = |resource: &str, amount: i64| {
                i64::from(*pods) * amount <= self.free(&values[0], resource).max(0)
            };
            per_pod.iter().all(|(resource, amount)| fits(resource, amount.get())) && fits("pods", 1)
        })
    }
}

fn step(cluster: &mut TasCache, model: &mut Model, random: &mut SeededRandom) {
    let host = random.random_below(RACKS * HOSTS);
    let name = format!("h{host}");
    match random.random_below(13) {
        0 | 1 => {
            let spec = node(random, host);
            model.nodes.insert(name.clone(), spec.clone());
            cluster.set_node(&name, Some(spec));
        }
        2 => {
            model.nodes.remove(&name);
            cluster.set_node(&name, None);
        }
        3 => {
            // A heartbeat without changes has no effect.
            let spec = model.nodes.get(&name).cloned();
            assert!(cluster.set_node(&name, spec).is_empty());
        }
        4 | 5 => {
            // Non-TAS pods, also on nodes that are deleted or full.
            let (id, ends) = (random.random_below(20), random.random_below(2) == 0);
            let pod = (random.random_below(3) > 0).then(|| {
                let usage = requests(&[("cpu", random.amount(6)), ("gpu", random.amount(2))]);
                on_node(&name, usage, ends)
            });
            match &pod {
                Some(pod) => drop(model.pods.insert(id, pod.clone())),
                None => drop(model.pods.remove(&id)),
            }
            cluster.set_non_tas_pod(&ObjectKey::new("ns", &id.to_string()), pod);
        }
        6 => {
            if let Some((_, footprint)) = model.placed.remove(&random.random_below(16)) {
                cluster.shift_usage(&footprint, -1, UsageLayer::Current);
                cluster.shift_usage(&footprint, -1, UsageLayer::Projected);
            }
        }
        7 => {
            // The same as before, after the topology was deleted and set again.
            cluster.set_topology("topo", None);
            cluster.set_topology("topo", Some(Arc::from([Arc::from("rack"), Arc::from(HOSTNAME_LABEL)])));
        }
        8 => grow(cluster, model, random),
        _ => place(cluster, model, random),
    }
}

fn place(cluster: &mut TasCache, model: &mut Model, random: &mut SeededRandom) {
    let id = random.random_below(16);
    if model.placed.contains_key(&id) {
        return;
    }
    let flavor = ["f", "g", "r"][usize::try_from(random.random_below(3)).unwrap()];
    let mut per_pod = requests(&[("cpu", random.amount(4))]);
    if random.random_below(2) == 0 {
        per_pod.insert(Arc::from("memory"), random.amount(4));
    }
    let count = i32::try_from(1 + random.random_below(6)).unwrap();
    let rules = TasGates { balanced_placement: random.random_below(2) == 0, ..TasGates::default() };
    let part = pod_set_request(flavor, count, per_pod.clone(), random_topology_request(random));
    let Ok(placements) = cluster.place_all(std::slice::from_ref(&part), CapacityView::Projected, rules)
    else {
        return;
    };
    let placement = placements[0].clone();
    if flavor != "r" {
        assert!(model.fits(&placement, &per_pod), "{placement:?} of {per_pod:?}");
    }
    assert_eq!(placement.pod_count(), count);
    let occupancies = vec![part.occupancy(placement)];
    let footprint = cluster.footprint(&occupancies);
    assert!(cluster.footprint_fits(&footprint, UsageLayer::Projected));
    cluster.shift_usage(&footprint, 1, UsageLayer::Current);
    cluster.shift_usage(&footprint, 1, UsageLayer::Projected);
    model.placed.insert(id, (occupancies, footprint));
}

/// Pods that are placed keep their places when others are added, and these fit beside all others.
fn grow(cluster: &mut TasCache, model: &mut Model, random: &mut SeededRandom) {
    let id = random.random_below(16);
    let Some((occupancies, footprint)) = model.placed.get(&id) else { return };
    let before = occupancies[0].clone();
    let count = before.placement.pod_count() + i32::try_from(random.random_below(4)).unwrap();
    let per_pod = before.requests_per_pod.clone();
    let part = TasPodSetRequest {
        prior: PriorPlacement::OfSlice(before.placement.clone()),
        ..pod_set_request(&before.flavor, count, per_pod.clone(), None)
    };
    let mut place = |view| cluster.place_all(std::slice::from_ref(&part), view, TasGates::default());
    let Ok(placements) = place(CapacityView::Projected) else { return };
    assert!(place(CapacityView::Empty).is_ok(), "what fits beside others fits alone");
    assert!(place(CapacityView::Released).is_ok(), "and when all others end");
    let placement = placements[0].clone();
    assert_eq!(placement.pod_count(), count);
    let added = part.occupancy(part.added_domains(&placement));
    if *before.flavor != *"r" {
        let pods_on = |host: &DomainPath| {
            let domain = placement.domains.iter().find(|(values, _)| values == host);
            domain.map_or(0, |(_, pods)| *pods)
        };
        assert!(before.placement.domains.iter().all(|(host, pods)| pods_on(host) >= *pods), "{placement:?}");
        assert!(model.fits(&added.placement, &per_pod), "{added:?}");
    }
    let added = cluster.footprint(&[added]);
    assert!(cluster.footprint_fits(&added, UsageLayer::Projected));
    let occupancies = vec![part.occupancy(placement)];
    let grown = cluster.footprint(&occupancies);
    for layer in [UsageLayer::Current, UsageLayer::Projected] {
        cluster.shift_usage(footprint, -1, layer);
        cluster.shift_usage(&grown, 1, layer);
    }
    model.placed.insert(id, (occupancies, grown));
}

#[test]
fn i21_usage_equals_recount_after_any_history() {
    let (mut cluster, mut model, mut random) = (cluster(), Model::default(), SeededRandom(7));
    for n in 0..sample(300_000, 3) {
        step(&mut cluster, &mut model, &mut random);
        if n % 1_000 == 0 {
            assert!(
                cluster.equals_recount(model.placed.values().map(|(_, footprint)| footprint)),
                "step {n}"
            );
        }
    }
}

/// Number of one-cpu pods that fit on each host, by rack.
type HostCapacity = Vec<Vec<i64>>;

fn small_cluster(capacity: &HostCapacity) -> TasCache {
    let mut cluster = cluster();
    for (rack, hosts) in capacity.iter().enumerate() {
        for (host, fits) in hosts.iter().enumerate() {
            let name = format!("r{rack}h{host}");
            let labels =
                [("pool", "a".to_owned()), ("rack", format!("r{rack}")), (HOSTNAME_LABEL, name.clone())];
            let spec = NodeSpec {
                labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
                taints: Vec::new(),
                usable: true,
                allocatable: requests(&[("cpu", Amount::new(*fits)), ("pods", Amount::new(99))]),
            };
            cluster.set_node(&name, Some(spec));
        }
    }
    cluster
}

fn one_cpu() -> Requests {
    requests(&[("cpu", Amount::new(1))])
}

#[test]
fn placement_exists_exactly_when_capacity_suffices() {
    let mut random = SeededRandom(11);
    for _ in 0..3_000 {
        let hosts = |random: &mut SeededRandom| {
            (0..=random.random_below(3)).map(|_| random.amount(5).get()).collect()
        };
        let capacity: HostCapacity = (0..=random.random_below(3)).map(|_| hosts(&mut random)).collect();
        let mut cluster = small_cluster(&capacity);
        let (count, size) = (
            i64::try_from(1 + random.random_below(10)).unwrap(),
            i64::try_from(1 + random.random_below(3)).unwrap(),
        );
        let incomplete = random.amount(u64::try_from(size).unwrap()).get();
        let all: i64 = capacity.iter().flatten().map(|fits| fits / size).sum();
        let racks = || capacity.iter().map(|hosts| hosts.iter().map(|fits| fits / size).sum::<i64>());
        for (level, exists) in [(None, all >= count), (Some("rack"), racks().any(|fits| fits >= count))] {
            let request = PodSetTopologyRequest {
                required: level.map(str::to_owned),
                preferred: level.is_none().then(|| "rack".to_owned()),
                pod_set_slice_required_topology: Some(HOSTNAME_LABEL.to_owned()),
                pod_set_slice_size: Some(i32::try_from(size).unwrap()),
                ..PodSetTopologyRequest::default()
            };
            // The last slice may be incomplete; it takes the capacity of a whole one.
            let pods = i32::try_from(count * size - incomplete).unwrap();
            let part = pod_set_request("f", pods, one_cpu(), Some(request));
            let placements =
                cluster.place_all(std::slice::from_ref(&part), CapacityView::Projected, TasGates::default());
            assert_eq!(
                placements.is_ok(),
                exists,
                "{capacity:?} {count} slices of {size} in {level:?}: {placements:?}"
            );
            let Some(placement) = placements.ok().and_then(|mut all| all.pop()) else { continue };
            assert_eq!(placement.pod_count(), pods);
            let partial = placement.domains.iter().filter(|(_, pods)| i64::from(*pods) % size != 0);
            assert_eq!(partial.count(), usize::from(incomplete > 0), "{placement:?}");
            let mut used: Vec<&str> = placement.domains.iter().map(|(values, _)| &values[0][..2]).collect();
            used.dedup();
            if exists && racks().any(|fits| fits >= count) {
                // One rack suffices: the tightest sufficient one is used.
                let rack: usize = used[0][1..].parse().unwrap();
                assert_eq!(used.len(), 1, "{capacity:?} {placement:?}");
                assert_eq!(racks().nth(rack), racks().filter(|fits| *fits >= count).min());
            }
        }
    }
}

/// What users are told: as many pods of a level are placed as it says, and one more is not; and the amounts are those of the model.
#[test]
fn capacity_is_what_placements_find() {
    let mut random = SeededRandom(17);
    for _ in 0..60 {
        let (mut cluster, mut model) = (cluster(), Model::default());
        for _ in 0..60 {
            step(&mut cluster, &mut model, &mut random);
        }
        for (name, topology) in [("f", "topo"), ("r", "racks")] {
            let node_labels = BTreeMap::from([("pool".to_owned(), "a".to_owned())]);
            let spec = FlavorSpec { node_labels, tolerations: Vec::new(), topology: Arc::from(topology) };
            let name: Arc<str> = Arc::from(name);
            let asked = AskedFlavor { name: &name, spec: &spec };
            let per_pod = requests(&[("cpu", Amount::new(1 + random.amount(3).get()))]);
            let pods = Arc::new(PodRequirements { requests: per_pod.clone(), ..PodRequirements::default() });
            let levels = cluster.level_capacities(asked, &pods, &Arc::from("cpu"));
            assert_eq!(levels.len(), if topology == "topo" { 3 } else { 2 });
            for level in &levels {
                let required = Some(level.level.to_string()).filter(|label| !label.is_empty());
                let request = PodSetTopologyRequest {
                    unconstrained: required.is_none().then_some(true),
                    required,
                    ..PodSetTopologyRequest::default()
                };
                let mut fits = |count: i64| {
                    let count = i32::try_from(count).unwrap();
                    let part = pod_set_request(&name, count, per_pod.clone(), Some(request.clone()));
                    let rules = TasGates::default();
                    cluster.place_all(&[part], CapacityView::AvailableNow, rules).is_ok()
                };
                assert!(level.gang == 0 || fits(level.gang), "{level:?}");
                assert!(!fits(level.gang + 1), "{level:?}");
            }
            if topology == "topo" {
                let amounts = cluster.node_amounts(asked);
                let usable: Vec<(&String, &NodeSpec)> =
                    model.nodes.iter().filter(|(_, node)| node.usable).collect();
                assert_eq!((amounts.total, amounts.schedulable), (model.nodes.len(), usable.len()));
                let untainted = usable.iter().filter(|(_, node)| node.taints.is_empty());
                let free: i128 = untainted.map(|(host, _)| i128::from(model.free(host, "cpu").max(0))).sum();
                assert_eq!(levels.last().unwrap().most_free, free, "of nodes that take the pods");
                let most = levels[0].most_free;
                let hosts = usable.iter().filter(|(_, node)| node.taints.is_empty());
                let frees: Vec<i128> =
                    hosts.map(|(host, _)| i128::from(model.free(host, "cpu").max(0))).collect();
                assert_eq!(most, frees.iter().copied().max().unwrap_or(0));
            }
        }
        let placed = model.placed.values().map(|(_, footprint)| footprint);
        assert!(cluster.equals_recount(placed), "asking changes nothing");
    }
}

#[test]
fn flavors_without_a_topology_are_counted_by_node() {
    let mut cluster = small_cluster(&vec![vec![4, 3], vec![5]]);
    let spec = FlavorSpec {
        node_labels: BTreeMap::from([("pool".to_owned(), "a".to_owned())]),
        ..FlavorSpec::default()
    };
    let name: Arc<str> = Arc::from("plain");
    let asked = AskedFlavor { name: &name, spec: &spec };
    let pods = requests(&[("cpu", Amount::new(2))]);
    let pods = Arc::new(PodRequirements { requests: pods, ..PodRequirements::default() });
    let cpu: Arc<str> = Arc::from("cpu");
    let anywhere = |cluster: &mut TasCache| {
        let levels = cluster.level_capacities(asked, &pods, &cpu);
        let [level] = &levels[..] else { panic!("{levels:?}") };
        (level.gang, level.most_free)
    };
    assert_eq!(anywhere(&mut cluster), (2 + 1 + 2, 12));
    let own = requests(&[("cpu", Amount::new(3))]);
    cluster.set_non_tas_pod(&ObjectKey::new("ns", "p"), Some(on_node("r0h0", own, false)));
    assert_eq!(anywhere(&mut cluster), (1 + 2, 9));
    let assigned = pod_set_request("f", 1, requests(&[("cpu", Amount::new(5))]), None);
    let placed =
        cluster.place_all(std::slice::from_ref(&assigned), CapacityView::AvailableNow, TasGates::default());
    let footprint = cluster.footprint(&[assigned.occupancy(placed.unwrap().remove(0))]);
    cluster.shift_usage(&footprint, 1, UsageLayer::Current);
    assert_eq!(anywhere(&mut cluster), (1, 4), "what workloads with a topology use is not free");
    let amounts = cluster.node_amounts(asked);
    let cpu = amounts.amounts["cpu"];
    assert_eq!((amounts.total, cpu.allocatable, cpu.largest, cpu.others, cpu.free), (3, 12, 5, 3, 4));
    cluster.set_node("r0h1", None);
    assert_eq!(anywhere(&mut cluster).0, 0);
}

#[test]
fn leader_is_placed_with_workers_when_possible() {
    let mut random = SeededRandom(13);
    for _ in 0..3_000 {
        let capacity: HostCapacity =
            vec![(0..=random.random_below(4)).map(|_| random.amount(6).get()).collect()];
        let (count, leader) = (
            i64::try_from(2 + random.random_below(8)).unwrap(),
            i64::try_from(1 + random.random_below(4)).unwrap(),
        );
        let total: i64 = capacity[0].iter().sum();
        let exists = capacity[0].iter().any(|fits| *fits >= leader && total - leader >= count);
        let request = || {
            Some(PodSetTopologyRequest {
                required: Some("rack".to_owned()),
                ..PodSetTopologyRequest::default()
            })
        };
        let group = Some(Arc::from("g"));
        let big = requests(&[("cpu", Amount::new(leader))]);
        let parts = [
            TasPodSetRequest { group: group.clone(), ..pod_set_request("f", 1, big, request()) },
            TasPodSetRequest {
                group,
                ..pod_set_request("f", i32::try_from(count).unwrap(), one_cpu(), request())
            },
        ];
        let placements =
            small_cluster(&capacity).place_all(&parts, CapacityView::Projected, TasGates::default());
        assert_eq!(placements.is_ok(), exists, "{capacity:?} {count} beside {leader}: {placements:?}");
        for (placement, pods) in placements.unwrap_or_default().iter().zip([1, count]) {
            assert_eq!(i64::from(placement.pod_count()), pods);
        }
    }
}

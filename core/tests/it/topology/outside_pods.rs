//! Pods outside topology assignments: what they leave on their nodes, and what is free when those end that hold quota.

use super::{
    Model, SeededRandom, cluster, on_node, one_cpu, pod_set_request, random_topology_request, requests,
    small_cluster, step,
};
use sluice_core::api::ObjectKey;
use sluice_core::resources::{Amount, Requests};
use sluice_core::topology::{CapacityView, HOSTNAME_LABEL, NodeSpec, TasCache, TasGates};

#[test]
fn exhausted_resource_blocks_only_requesting_pods() {
    let mut cluster = small_cluster(&vec![vec![4]]);
    let hog = requests(&[("memory", Amount::new(9))]);
    cluster.set_non_tas_pod(&ObjectKey::new("ns", "by-hand"), Some(on_node("r0h0", hog, false)));
    let fits = |cluster: &mut TasCache, per_pod: Requests| {
        cluster
            .place_all(
                &[pod_set_request("f", 4, per_pod, None)],
                CapacityView::Projected,
                TasGates::default(),
            )
            .is_ok()
    };
    assert!(fits(&mut cluster, one_cpu()));
    assert!(!fits(&mut cluster, requests(&[("memory", Amount::new(1))])));
    let over = requests(&[("cpu", Amount::new(5))]);
    cluster.set_non_tas_pod(&ObjectKey::new("ns", "overcommitted"), Some(on_node("r0h0", over, false)));
    assert!(!fits(&mut cluster, one_cpu()));
    assert!(fits(&mut cluster, Requests::new()));
}

/// The nodes of a model, with the pods alone that stay when all that holds quota ends.
fn without_what_ends(model: &Model) -> TasCache {
    let mut left = cluster();
    for (name, spec) in &model.nodes {
        left.set_node(name, Some(spec.clone()));
    }
    for (id, pod) in model.pods.iter().filter(|(_, pod)| !pod.ends) {
        left.set_non_tas_pod(&ObjectKey::new("ns", &id.to_string()), Some(pod.clone()));
    }
    left
}

#[test]
fn released_nodes_take_what_nodes_without_what_ends_take() {
    let (mut cluster, mut model, mut random) = (cluster(), Model::default(), SeededRandom(17));
    let mut fitting = 0;
    for n in 0..40_000_u32 {
        step(&mut cluster, &mut model, &mut random);
        if n % 40 > 0 {
            continue;
        }
        let flavor = ["f", "r"][usize::try_from(random.random_below(2)).unwrap()];
        let count = i32::try_from(1 + random.random_below(9)).unwrap();
        let per_pod = requests(&[("cpu", random.amount(6))]);
        let part = pod_set_request(flavor, count, per_pod, random_topology_request(&mut random));
        let fits = |cluster: &mut TasCache, view| {
            cluster.place_all(std::slice::from_ref(&part), view, TasGates::default()).is_ok()
        };
        let released = fits(&mut cluster, CapacityView::Released);
        let mut left = without_what_ends(&model);
        assert_eq!(released, fits(&mut left, CapacityView::Empty), "step {n}: {part:?}");
        fitting += usize::from(released);
    }
    assert!((50..950).contains(&fitting), "{fitting} of 1000");
}

#[test]
fn pods_that_end_with_quota_are_no_limit() {
    let mut cluster = small_cluster(&vec![vec![4]]);
    let key = ObjectKey::new("ns", "p");
    let fits = |cluster: &mut TasCache| {
        let large = pod_set_request("f", 1, requests(&[("cpu", Amount::new(3))]), None);
        [CapacityView::Released, CapacityView::Empty, CapacityView::Projected]
            .map(|view| cluster.place_all(std::slice::from_ref(&large), view, TasGates::default()).is_ok())
    };
    let labels = [("pool", "a"), ("rack", "r0"), (HOSTNAME_LABEL, "r0h0")];
    let spec = NodeSpec {
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        taints: Vec::new(),
        usable: true,
        allocatable: requests(&[("cpu", Amount::new(4)), ("pods", Amount::new(99))]),
    };
    // Its workload is admitted, and loses its quota.
    for ends in [false, true, false, true] {
        let pod = on_node("r0h0", requests(&[("cpu", Amount::new(2))]), ends);
        let changed = cluster.set_non_tas_pod(&key, Some(pod.clone()));
        assert!(!changed.is_empty(), "what was found is found again");
        assert!(cluster.set_non_tas_pod(&key, Some(pod)).is_empty());
        assert_eq!(fits(&mut cluster), [ends, false, false], "{ends}");
        assert_eq!(cluster.has_ending_pods(), ends);
        // A node that was away has the pod.
        cluster.set_node("r0h0", None);
        cluster.set_node("r0h0", Some(spec.clone()));
        assert_eq!(fits(&mut cluster), [ends, false, false], "{ends}, after the node was away");
    }
    cluster.set_non_tas_pod(&key, None);
    assert_eq!(fits(&mut cluster), [true; 3]);
    assert!(!cluster.has_ending_pods() && cluster.equals_recount(std::iter::empty()));
}

//! Requests of one pod: containers, sidecars, init containers, pod-level resources and overhead together.
//!
//! Invariants: sums are exact and rounded up once, at the end; a negative request of one container lowers nothing; an
//! invalid quantity counts as more than any quota; the API server gives a pod no greater requests than these.

use super::{Amount, Quantity, Requests, amount};
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Exact quantities by resource name.
pub type Quantities = BTreeMap<Arc<str>, Quantity>;

/// Unparsed quantities by resource name, as in API objects.
pub(super) type ApiQuantities = BTreeMap<String, ApiQuantity>;

/// Returns the requests of one pod, as amounts.
pub fn pod_requests(spec: &PodSpec) -> Requests {
    to_requests(&pod_quantities(spec))
}

/// Converts exact quantities to amounts. Negative ones become 0.
pub fn to_requests(quantities: &Quantities) -> Requests {
    let to_amount =
        |(name, quantity): (&Arc<str>, &Quantity)| (name.clone(), amount(name, quantity).max(Amount::ZERO));
    quantities.iter().map(to_amount).collect()
}

/// Returns the requests of `count` pods; a negative count is 0.
pub fn total_requests(requests: &Requests, count: i32) -> Requests {
    let count = i64::from(count.max(0));
    requests.iter().map(|(name, amount)| (name.clone(), amount.times(count))).collect()
}

/// Subtracts reclaimable pods from a count; the result is at least 0.
pub const fn without_reclaimable(count: i32, reclaimable: i32) -> i32 {
    let (count, reclaimable) =
        (if count < 0 { 0 } else { count }, if reclaimable < 0 { 0 } else { reclaimable });
    if reclaimable >= count { 0 } else { count - reclaimable }
}

/// Returns the exact requests of one pod. Limits replace missing requests, as in the API server.
pub fn pod_quantities(spec: &PodSpec) -> Quantities {
    let mut sum = aggregate_containers(spec);
    let pod_level = spec.resources.as_ref().map(|resources| pod_level_requests(resources, &sum));
    sum.extend(pod_level.into_iter().flatten());
    add_quantities(&mut sum, &parse_quantities(spec.overhead.as_ref()));
    sum
}

/// Sets the missing requests of a pod from its limits, as the API server does before LimitRanges add their defaults: a
/// container with a limit never gets a default request.
pub fn default_requests(spec: &mut PodSpec) {
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let Some(resources) = &mut container.resources else { continue };
        let Some(limits) = resources.limits.as_ref().filter(|limits| !limits.is_empty()) else { continue };
        fill_missing(&mut resources.requests, limits);
    }
    let aggregate = aggregate_containers(spec);
    let Some(resources) = &mut spec.resources else { return };
    if resources.limits.as_ref().is_none_or(BTreeMap::is_empty) {
        return;
    }
    // The sum of the containers becomes the pod's request here, so that later defaults of containers do not change it.
    let mut defaults = pod_level_requests(resources, &aggregate);
    for (name, sum) in aggregate.iter().filter(|(name, _)| is_pod_level_resource(name)) {
        defaults.entry(Arc::clone(name)).or_insert_with(|| sum.clone());
    }
    let defaults =
        defaults.iter().map(|(name, quantity)| (name.to_string(), ApiQuantity(quantity.to_string())));
    fill_missing(&mut resources.requests, &defaults.collect());
}

/// Adds the values whose names are missing.
pub(super) fn fill_missing(values: &mut Option<ApiQuantities>, defaults: &ApiQuantities) {
    if defaults.is_empty() {
        return;
    }
    let values = values.get_or_insert_default();
    for (name, quantity) in defaults {
        values.entry(name.clone()).or_insert_with(|| quantity.clone());
    }
}

/// Returns what the containers of a pod request together.
fn aggregate_containers(spec: &PodSpec) -> Quantities {
    let mut sum = Quantities::new();
    for container in &spec.containers {
        add_quantities(&mut sum, &container_quantities(container));
    }
    // An init container runs concurrently with the sidecars started before it, and before everything else.
    let (mut sidecars, mut peak) = (Quantities::new(), Quantities::new());
    for container in spec.init_containers.iter().flatten() {
        let requests = container_quantities(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add_quantities(&mut sum, &requests);
            add_quantities(&mut sidecars, &requests);
            raise_to(&mut peak, &sidecars);
        } else {
            let mut total = sidecars.clone();
            add_quantities(&mut total, &requests);
            raise_to(&mut peak, &total);
        }
    }
    raise_to(&mut sum, &peak);
    sum
}

/// Returns the requests of a pod as a whole. Where there is only a limit, the sum of the containers is requested, or the
/// limit if they request nothing; of huge pages always the limit, as request and limit must be equal.
fn pod_level_requests(resources: &ResourceRequirements, containers: &Quantities) -> Quantities {
    let mut requests = parse_quantities(resources.requests.as_ref());
    for (name, limit) in parse_quantities(resources.limits.as_ref()) {
        let sum = containers.get(&name).filter(|_| !is_huge_pages(&name));
        requests.entry(name).or_insert_with(|| sum.cloned().unwrap_or(limit));
    }
    requests.retain(|name, _| is_pod_level_resource(name));
    requests
}

/// Returns whether the resource can be requested for a pod as a whole.
fn is_pod_level_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn container_quantities(container: &Container) -> Quantities {
    let Some(resources) = &container.resources else { return Quantities::new() };
    let mut quantities = parse_quantities(resources.limits.as_ref());
    quantities.extend(parse_quantities(resources.requests.as_ref()));
    quantities
}

fn parse_quantities(quantities: Option<&ApiQuantities>) -> Quantities {
    let exact = |(name, quantity): (&String, &ApiQuantity)| {
        (Arc::from(name.as_str()), parse_or_max(quantity).max(Quantity::ZERO))
    };
    quantities.into_iter().flatten().map(exact).collect()
}

/// Parses a quantity. An invalid one becomes larger than any quota, so that it never fits.
pub(super) fn parse_or_max(quantity: &ApiQuantity) -> Quantity {
    Quantity::try_from(quantity).unwrap_or_else(|_| Quantity::from_units(i64::MAX, 9, false))
}

fn add_quantities(sums: &mut Quantities, from: &Quantities) {
    for (name, quantity) in from {
        let sum = sums.get(name).map_or_else(|| quantity.clone(), |current| current.plus(quantity));
        sums.insert(name.clone(), sum);
    }
}

fn raise_to(quantities: &mut Quantities, minimum: &Quantities) {
    for (name, quantity) in minimum {
        if quantities.get(name).is_none_or(|current| current < quantity) {
            quantities.insert(name.clone(), quantity.clone());
        }
    }
}

/// Raises the overhead of a pod to that of its RuntimeClass: the API server gives every pod of the class exactly this
/// overhead, and rejects pods with another one.
pub fn apply_overhead(
    spec: &mut PodSpec,
    overhead_of: impl FnOnce(&str) -> Option<BTreeMap<String, ApiQuantity>>,
) {
    let Some(fixed) = spec.runtime_class_name.as_deref().and_then(overhead_of) else { return };
    let overhead = spec.overhead.get_or_insert_default();
    for (name, quantity) in fixed {
        let enough = |own: &ApiQuantity| parse_or_max(own) >= parse_or_max(&quantity);
        if !overhead.get(&name).is_some_and(enough) {
            overhead.insert(name, quantity);
        }
    }
}

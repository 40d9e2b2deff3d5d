//! What one pod asks for: containers, sidecars, init containers, pod-level resources and overhead together.
//!
//! Invariants: sums are exact and rounded up once, at the end; a negative request of one container lowers nothing; a
//! quantity that cannot be read counts as more than anybody has.

use super::{Amount, Quantity, Requests, amount};
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Exact quantities by resource name.
pub type Quantities = BTreeMap<Arc<str>, Quantity>;

/// Raw quantities by resource name, as objects carry them.
pub(super) type ApiQuantities = BTreeMap<String, ApiQuantity>;

/// What one pod asks for, in amounts.
pub fn pod_requests(spec: &PodSpec) -> Requests {
    to_requests(&pod_quantities(spec))
}

/// Amounts of exact quantities; negative ones become 0.
pub fn to_requests(quantities: &Quantities) -> Requests {
    let whole =
        |(name, quantity): (&Arc<str>, &Quantity)| (name.clone(), amount(name, quantity).max(Amount::ZERO));
    quantities.iter().map(whole).collect()
}

/// What so many pods ask for together.
pub fn total_requests(requests: &Requests, count: i32) -> Requests {
    let count = i64::from(count.max(0));
    requests.iter().map(|(name, amount)| (name.clone(), amount.times(count))).collect()
}

/// Pods that still count when some will not run again.
pub const fn without_reclaimable(count: i32, reclaimable: i32) -> i32 {
    let (count, reclaimable) =
        (if count < 0 { 0 } else { count }, if reclaimable < 0 { 0 } else { reclaimable });
    if reclaimable >= count { 0 } else { count - reclaimable }
}

/// What one pod asks for, exactly. Limits stand in for requests that are missing.
pub fn pod_quantities(spec: &PodSpec) -> Quantities {
    let mut sum = Quantities::new();
    for container in &spec.containers {
        add_quantities(&mut sum, &container_quantities(container));
    }
    // An init container runs beside the sidecars that started before it, and before everything else.
    let (mut sidecars, mut peak) = (Quantities::new(), Quantities::new());
    for container in spec.init_containers.iter().flatten() {
        let own = container_quantities(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add_quantities(&mut sum, &own);
            add_quantities(&mut sidecars, &own);
            raise_to(&mut peak, &sidecars);
        } else {
            let mut beside = sidecars.clone();
            add_quantities(&mut beside, &own);
            raise_to(&mut peak, &beside);
        }
    }
    raise_to(&mut sum, &peak);
    let of_pod = spec.resources.as_ref().map(effective_requests).unwrap_or_default();
    sum.extend(of_pod.into_iter().filter(|(name, _)| is_pod_level_resource(name)));
    add_quantities(&mut sum, &parse_quantities(spec.overhead.as_ref()));
    sum
}

/// Resources that can be requested for a pod as a whole.
fn is_pod_level_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn container_quantities(container: &Container) -> Quantities {
    container.resources.as_ref().map(effective_requests).unwrap_or_default()
}

fn effective_requests(resources: &ResourceRequirements) -> Quantities {
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

/// The exact quantity; where it cannot be read, more than anybody has.
pub(super) fn parse_or_max(quantity: &ApiQuantity) -> Quantity {
    Quantity::try_from(quantity).unwrap_or_else(|_| Quantity::from_units(i64::MAX, 9, false))
}

fn add_quantities(to: &mut Quantities, from: &Quantities) {
    for (name, quantity) in from {
        let sum = to.get(name).map_or_else(|| quantity.clone(), |have| have.plus(quantity));
        to.insert(name.clone(), sum);
    }
}

fn raise_to(to: &mut Quantities, least: &Quantities) {
    for (name, quantity) in least {
        if to.get(name).is_none_or(|have| have < quantity) {
            to.insert(name.clone(), quantity.clone());
        }
    }
}

/// Gives a pod with a runtime class the overhead of that class, unless it names its own.
pub fn apply_overhead(spec: &mut PodSpec, fixed: impl FnOnce(&str) -> Option<BTreeMap<String, ApiQuantity>>) {
    if spec.overhead.as_ref().is_some_and(|overhead| !overhead.is_empty()) {
        return;
    }
    if let Some(class) = spec.runtime_class_name.as_deref() {
        spec.overhead = fixed(class);
    }
}

//! The LimitRanges of a namespace: defaults that they add to pods, and pods that they reject.
//!
//! Invariant: a pod without violations in `check` is accepted by the API server's LimitRange admission.

use super::pod::{ApiQuantities, fill_missing, parse_or_max};
use super::{Quantities, Quantity, pod_quantities};
use k8s_openapi::api::core::v1::{Container, LimitRange, LimitRangeItem, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The type of the bounds and defaults of containers.
const CONTAINER: &str = "Container";
const ABOVE_LIMITS: &str = "requests must not exceed its limits";
const ABOVE_MAX: &str = "requests must not be above the limitRange max";
const BELOW_MIN: &str = "requests must not be below the limitRange min";
const ABOVE_RATIO: &str = "limits must not exceed requests by more than the limitRange maxLimitRequestRatio";

/// All LimitRanges of a namespace combined.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitRangeSummary {
    container: Bounds,
    pod: Bounds,
}

/// The tightest bounds, and the largest of several defaults: the API server applies LimitRanges in any order, so the pods
/// may get each of them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Bounds {
    max: Quantities,
    min: Quantities,
    ratio: Quantities,
    limits: ApiQuantities,
    requests: ApiQuantities,
}

impl LimitRangeSummary {
    /// Combines LimitRanges.
    pub fn new<'a>(ranges: impl IntoIterator<Item = &'a LimitRange>) -> Self {
        let mut summary = Self::default();
        for item in ranges.into_iter().filter_map(|range| range.spec.as_ref()).flat_map(|spec| &spec.limits) {
            match item.type_.as_str() {
                CONTAINER => summary.container.narrow(item),
                "Pod" => summary.pod.narrow(item),
                _ => {}
            }
        }
        summary
    }

    /// Adds default limits and requests to containers that do not set them.
    pub fn apply(&self, spec: &mut PodSpec) {
        if self.container.limits.is_empty() && self.container.requests.is_empty() {
            return;
        }
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            let resources = container.resources.get_or_insert_default();
            fill_missing(&mut resources.limits, &self.container.limits);
            fill_missing(&mut resources.requests, &self.container.requests);
        }
    }

    /// Returns the violations of a pod, each with the path of the offending field.
    pub fn check(&self, spec: &PodSpec, path: &str) -> Vec<String> {
        let mut violations = Vec::new();
        each_container(spec, path, |container, path| {
            let (requests, limits) = requests_and_limits(container.resources.as_ref());
            self.container.check(&requests, &limits, &path, &mut violations);
        });
        // LimitRanges do not bound the overhead.
        let without_overhead = PodSpec { overhead: None, ..spec.clone() };
        self.pod.check(&pod_quantities(&without_overhead), &Quantities::new(), path, &mut violations);
        violations
    }
}

/// Returns the containers whose requests exceed their limits, each with its path.
pub fn requests_above_limits(spec: &PodSpec, path: &str) -> Vec<String> {
    let mut violations = Vec::new();
    each_container(spec, path, |container, path| {
        let (requests, limits) = requests_and_limits(container.resources.as_ref());
        push_invalid(&path, &names_above(&requests, &limits), ABOVE_LIMITS, &mut violations);
    });
    if spec.resources.is_some() {
        let (requests, limits) = requests_and_limits(spec.resources.as_ref());
        push_invalid(
            &format!("{path}.resources"),
            &names_above(&requests, &limits),
            ABOVE_LIMITS,
            &mut violations,
        );
    }
    violations
}

fn each_container(spec: &PodSpec, path: &str, mut visit: impl FnMut(&Container, String)) {
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        visit(container, format!("{path}.initContainers[{index}]"));
    }
    for (index, container) in spec.containers.iter().enumerate() {
        visit(container, format!("{path}.containers[{index}]"));
    }
}

impl Bounds {
    fn narrow(&mut self, item: &LimitRangeItem) {
        keep_tightest(&mut self.max, item.max.as_ref(), |current, new| new < current);
        keep_tightest(&mut self.ratio, item.max_limit_request_ratio.as_ref(), |current, new| new < current);
        keep_tightest(&mut self.min, item.min.as_ref(), |current, new| new > current);
        let (limits, requests) = container_defaults(item);
        keep_largest(&mut self.limits, limits);
        keep_largest(&mut self.requests, requests);
    }

    fn check(&self, requests: &Quantities, limits: &Quantities, path: &str, violations: &mut Vec<String>) {
        let largest = merge_with(requests, limits, Quantity::max);
        let smallest = merge_with(requests, limits, Quantity::min);
        push_invalid(path, &names_above(&largest, &self.max), ABOVE_MAX, violations);
        push_invalid(path, &names_above(&self.min, &smallest), BELOW_MIN, violations);
        let above_ratio: Vec<&str> = self
            .ratio
            .iter()
            .filter_map(|(name, ratio)| {
                let (request, limit) = (requests.get(name)?, limits.get(name)?);
                exceeds_ratio(request, limit, ratio).then_some(&**name)
            })
            .collect();
        push_invalid(path, &above_ratio, ABOVE_RATIO, violations);
    }
}

/// Returns the default limits and requests of a LimitRange as the API server completes them when it stores one: a maximum
/// is also the default limit, and that or a minimum the default request.
fn container_defaults(item: &LimitRangeItem) -> (ApiQuantities, ApiQuantities) {
    let (mut limits, mut requests) = (item.default.clone(), item.default_request.clone());
    if item.type_ == CONTAINER {
        fill_missing(&mut limits, item.max.as_ref().unwrap_or(&ApiQuantities::new()));
        fill_missing(&mut requests, limits.as_ref().unwrap_or(&ApiQuantities::new()));
        fill_missing(&mut requests, item.min.as_ref().unwrap_or(&ApiQuantities::new()));
    }
    (limits.unwrap_or_default(), requests.unwrap_or_default())
}

fn keep_largest(current: &mut ApiQuantities, new: ApiQuantities) {
    for (name, quantity) in new {
        let covered = |kept: &ApiQuantity| parse_or_max(kept) >= parse_or_max(&quantity);
        if !current.get(&name).is_some_and(covered) {
            current.insert(name, quantity);
        }
    }
}

/// Returns whether limit ÷ request > ratio, without dividing.
fn exceeds_ratio(request: &Quantity, limit: &Quantity, ratio: &Quantity) -> bool {
    let milli = |quantity: &Quantity| i128::from(quantity.saturating_scaled_value(-3));
    milli(limit).saturating_mul(1000) > milli(request).saturating_mul(milli(ratio))
}

fn keep_tightest(
    bounds: &mut Quantities,
    from: Option<&ApiQuantities>,
    tighter: impl Fn(&Quantity, &Quantity) -> bool,
) {
    for (name, quantity) in from.into_iter().flatten() {
        let quantity = parse_or_max(quantity);
        if bounds.get(name.as_str()).is_none_or(|current| tighter(current, &quantity)) {
            bounds.insert(Arc::from(name.as_str()), quantity);
        }
    }
}

fn requests_and_limits(resources: Option<&ResourceRequirements>) -> (Quantities, Quantities) {
    let read = |map: Option<&ApiQuantities>| {
        map.into_iter()
            .flatten()
            .map(|(name, quantity)| (Arc::from(name.as_str()), parse_or_max(quantity)))
            .collect()
    };
    (
        read(resources.and_then(|all| all.requests.as_ref())),
        read(resources.and_then(|all| all.limits.as_ref())),
    )
}

fn merge_with(a: &Quantities, b: &Quantities, choose: fn(Quantity, Quantity) -> Quantity) -> Quantities {
    let mut merged: BTreeMap<Arc<str>, Quantity> = a.clone();
    for (name, quantity) in b {
        let chosen = merged
            .get(name)
            .map_or_else(|| quantity.clone(), |current| choose(current.clone(), quantity.clone()));
        merged.insert(name.clone(), chosen);
    }
    merged
}

/// Returns the names of values above their bound, if there is one.
fn names_above<'a>(values: &'a Quantities, bounds: &Quantities) -> Vec<&'a str> {
    let exceeds =
        |(name, value): &(&Arc<str>, &Quantity)| bounds.get(*name).is_some_and(|bound| *value > bound);
    values.iter().filter(exceeds).map(|(name, _)| &**name).collect()
}

fn push_invalid(path: &str, names: &[&str], problem: &str, violations: &mut Vec<String>) {
    if !names.is_empty() {
        violations.push(format!("{path}: Invalid value: {names:?}: {problem}"));
    }
}

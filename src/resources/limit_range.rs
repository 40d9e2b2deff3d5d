//! The LimitRanges of a namespace: what they add to pods, and which pods they would refuse.
//!
//! Invariant: a pod that `check` finds nothing against is one that the server's own LimitRange admission takes.

use super::pod::{ApiQuantities, parse_or_max};
use super::{Quantities, Quantity, pod_quantities};
use k8s_openapi::api::core::v1::{Container, LimitRange, LimitRangeItem, PodSpec, ResourceRequirements};
use std::collections::BTreeMap;
use std::sync::Arc;

const ABOVE_LIMITS: &str = "requests must not exceed its limits";
const ABOVE_MAX: &str = "requests must not be above the limitRange max";
const BELOW_MIN: &str = "requests must not be below the limitRange min";
const ABOVE_RATIO: &str = "limits must not exceed requests by more than the limitRange maxLimitRequestRatio";

/// All LimitRanges of a namespace as one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitRangeSummary {
    container: Bounds,
    pod: Bounds,
}

/// The tightest bounds, and of defaults the first.
#[derive(Clone, Debug, Default, PartialEq)]
struct Bounds {
    max: Quantities,
    min: Quantities,
    ratio: Quantities,
    limits: ApiQuantities,
    requests: ApiQuantities,
}

impl LimitRangeSummary {
    /// The bounds of several LimitRanges together; their order decides which default holds.
    pub fn new<'a>(ranges: impl IntoIterator<Item = &'a LimitRange>) -> Self {
        let mut summary = Self::default();
        for item in ranges.into_iter().filter_map(|range| range.spec.as_ref()).flat_map(|spec| &spec.limits) {
            match item.type_.as_str() {
                "Container" => summary.container.narrow(item),
                "Pod" => summary.pod.narrow(item),
                _ => {}
            }
        }
        summary
    }

    /// Gives containers the limits and requests that they leave open.
    pub fn apply(&self, spec: &mut PodSpec) {
        if self.container.limits.is_empty() && self.container.requests.is_empty() {
            return;
        }
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            let resources = container.resources.get_or_insert_default();
            fill_defaults(&mut resources.limits, &self.container.limits);
            fill_defaults(&mut resources.requests, &self.container.requests);
        }
    }

    /// What the bounds hold against a pod, each with the path of the part that breaks them.
    pub fn check(&self, spec: &PodSpec, path: &str) -> Vec<String> {
        let mut found = Vec::new();
        each_container(spec, path, |container, path| {
            let (requests, limits) = requests_and_limits(container.resources.as_ref());
            self.container.check(&requests, &limits, &path, &mut found);
        });
        self.pod.check(&pod_quantities(spec), &Quantities::new(), path, &mut found);
        found
    }
}

/// Containers whose requests exceed their limits, each with its path.
pub fn requests_above_limits(spec: &PodSpec, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    each_container(spec, path, |container, path| {
        let (requests, limits) = requests_and_limits(container.resources.as_ref());
        push_invalid(&path, &names_above(&requests, &limits), ABOVE_LIMITS, &mut found);
    });
    if spec.resources.is_some() {
        let (requests, limits) = requests_and_limits(spec.resources.as_ref());
        push_invalid(
            &format!("{path}.resources"),
            &names_above(&requests, &limits),
            ABOVE_LIMITS,
            &mut found,
        );
    }
    found
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
        keep_tightest(&mut self.max, item.max.as_ref(), |have, new| new < have);
        keep_tightest(&mut self.ratio, item.max_limit_request_ratio.as_ref(), |have, new| new < have);
        keep_tightest(&mut self.min, item.min.as_ref(), |have, new| new > have);
        let defaults = [(&mut self.limits, &item.default), (&mut self.requests, &item.default_request)];
        for (have, new) in defaults {
            for (name, quantity) in new.iter().flatten() {
                have.entry(name.clone()).or_insert_with(|| quantity.clone());
            }
        }
    }

    fn check(&self, requests: &Quantities, limits: &Quantities, path: &str, found: &mut Vec<String>) {
        let most = merge_with(requests, limits, Quantity::max);
        let least = merge_with(requests, limits, Quantity::min);
        push_invalid(path, &names_above(&most, &self.max), ABOVE_MAX, found);
        push_invalid(path, &names_above(&self.min, &least), BELOW_MIN, found);
        let stretched: Vec<&str> = self
            .ratio
            .iter()
            .filter_map(|(name, ratio)| {
                let (request, limit) = (requests.get(name)?, limits.get(name)?);
                exceeds_ratio(request, limit, ratio).then_some(&**name)
            })
            .collect();
        push_invalid(path, &stretched, ABOVE_RATIO, found);
    }
}

/// limit ÷ request > ratio
fn exceeds_ratio(request: &Quantity, limit: &Quantity, ratio: &Quantity) -> bool {
    let milli = |quantity: &Quantity| i128::from(quantity.saturating_scaled_value(-3));
    milli(limit).saturating_mul(1000) > milli(request).saturating_mul(milli(ratio))
}

fn keep_tightest(
    to: &mut Quantities,
    from: Option<&ApiQuantities>,
    tighter: impl Fn(&Quantity, &Quantity) -> bool,
) {
    for (name, quantity) in from.into_iter().flatten() {
        let quantity = parse_or_max(quantity);
        if to.get(name.as_str()).is_none_or(|have| tighter(have, &quantity)) {
            to.insert(Arc::from(name.as_str()), quantity);
        }
    }
}

fn fill_defaults(to: &mut Option<ApiQuantities>, defaults: &ApiQuantities) {
    if defaults.is_empty() {
        return;
    }
    let to = to.get_or_insert_default();
    for (name, quantity) in defaults {
        to.entry(name.clone()).or_insert_with(|| quantity.clone());
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
    let mut both: BTreeMap<Arc<str>, Quantity> = a.clone();
    for (name, quantity) in b {
        let chosen =
            both.get(name).map_or_else(|| quantity.clone(), |have| choose(have.clone(), quantity.clone()));
        both.insert(name.clone(), chosen);
    }
    both
}

/// Names of what is greater than a bound that exists for it.
fn names_above<'a>(values: &'a Quantities, bounds: &Quantities) -> Vec<&'a str> {
    let over = |(name, value): &(&Arc<str>, &Quantity)| bounds.get(*name).is_some_and(|bound| *value > bound);
    values.iter().filter(over).map(|(name, _)| &**name).collect()
}

fn push_invalid(path: &str, names: &[&str], problem: &str, found: &mut Vec<String>) {
    if !names.is_empty() {
        found.push(format!("{path}: Invalid value: {names:?}: {problem}"));
    }
}

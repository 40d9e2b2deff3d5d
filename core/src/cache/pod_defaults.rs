//! Adjustments of pod requests before they count against quota: those of the API server, in its order (requests from
//! limits, defaults of LimitRanges, overhead of RuntimeClasses), and the configured resource transformations.
//!
//! Invariant: pods that the API server creates from a template request at most what its pod set is charged.

use super::records::{EffectiveRequests, PodSets};
use crate::api::ObjectKey;
use crate::api::v1beta2::PodSetRequest;
use crate::resources::limit_range::{self, LimitRangeSummary};
use crate::resources::transform::Transform;
use crate::resources::{self, Requests, apply_overhead, default_requests, pod_quantities, to_requests};
use crate::scheduler::PodSet;
use crate::topology::PodRequirements;
use k8s_openapi::api::core::v1::{LimitRange, PodResourceClaim, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Defaults, limits and overhead of pods.
#[derive(Clone, Debug, Default)]
pub(super) struct PodDefaults {
    limit_ranges: BTreeMap<ObjectKey, LimitRange>,
    /// Combined LimitRanges of each namespace.
    summaries: BTreeMap<Arc<str>, LimitRangeSummary>,
    /// Overhead of pods by RuntimeClass.
    overheads: BTreeMap<Arc<str>, BTreeMap<String, Quantity>>,
    transform: Transform,
}

impl PodDefaults {
    pub(super) fn new(transform: Transform) -> Self {
        Self { transform, ..Self::default() }
    }

    pub(super) fn limit_range_keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.limit_ranges.keys()
    }

    pub(super) fn runtime_class_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.overheads.keys()
    }

    /// Sets or removes a LimitRange. Returns whether there was or is one.
    pub(super) fn set_limit_range(&mut self, key: &ObjectKey, range: Option<LimitRange>) -> bool {
        let set = range.is_some();
        let before = match range {
            Some(range) => self.limit_ranges.insert(key.clone(), range),
            None => self.limit_ranges.remove(key),
        };
        if before.is_none() && !set {
            return false;
        }
        let namespace = &key.namespace;
        let start = ObjectKey { namespace: namespace.clone(), name: Arc::from("") };
        let ranges = self.limit_ranges.range(start..).take_while(|(key, _)| key.namespace == *namespace);
        let summary = LimitRangeSummary::new(ranges.map(|(_, range)| range));
        self.summaries.insert(namespace.clone(), summary);
        true
    }

    /// Sets the overhead of a RuntimeClass, or removes the class. Returns whether that changed anything.
    pub(super) fn set_overhead(
        &mut self,
        class: &Arc<str>,
        overhead: Option<BTreeMap<String, Quantity>>,
    ) -> bool {
        if self.overheads.get(class) == overhead.as_ref() {
            return false;
        }
        match overhead {
            Some(overhead) => drop(self.overheads.insert(class.clone(), overhead)),
            None => drop(self.overheads.remove(class)),
        }
        true
    }

    /// Returns the requests of the pods of a Workload after defaults, limits, overhead and transformations, and why
    /// they are invalid.
    pub(super) fn effective_requests(&self, namespace: &str, pods: &PodSets) -> EffectiveRequests {
        let limits = self.summaries.get(namespace);
        let mut pod_sets = Vec::new();
        let mut problems = Vec::new();
        for (at, set) in pods.sets.iter().enumerate() {
            let mut spec = (*set.spec).clone();
            default_requests(&mut spec);
            apply_overhead(&mut spec, |class| self.overheads.get(class).cloned());
            let path = format!("podSets[{at}].template.spec");
            if let Some(limits) = limits {
                limits.apply(&mut spec);
                problems.extend(limits.check(&spec, &path));
            }
            problems.extend(limit_range::requests_above_limits(&spec, &path));
            problems.extend(unsupported_claims(&spec, &path, &set.name));
            let requested = pod_quantities(&spec);
            let topology = set.topology.as_deref().filter(|request| request.is_explicit()).cloned();
            pod_sets.push(PodSet {
                name: set.name.clone(),
                count: set.count,
                min_count: set.min_count,
                pod_requirements: Arc::new(PodRequirements::new(&spec, to_requests(&requested), topology)),
                requests: to_requests(&self.transform.apply(&requested)),
                group: set.topology.as_ref().and_then(|t| t.pod_set_group_name.as_deref()).map(Arc::from),
            });
        }
        let misconfiguration = (!problems.is_empty()).then(|| problems.join("; "));
        let status_requests = to_status_requests(&pod_sets).into();
        EffectiveRequests { pod_sets: Some(Arc::from(pod_sets)), status_requests, misconfiguration }
    }
}

/// Returns a problem for each device claim of a pod. Claimed devices have no quota yet: without this check, pods would
/// use them without being charged.
fn unsupported_claims(spec: &PodSpec, path: &str, pod_set: &str) -> Vec<String> {
    let claims = spec.resource_claims.iter().flatten().enumerate();
    let problem = |(at, claim): (usize, &PodResourceClaim)| match &claim.resource_claim_template_name {
        Some(template) => format!(
            "{path}.resourceClaims[{at}].resourceClaimTemplateName: Not found: \"the DeviceClasses of \
             ResourceClaimTemplate {template} are not mapped in DRA configuration for podset {pod_set}\""
        ),
        None => format!(
            "{path}.resourceClaims[{at}]: KueueDRAIntegration feature does not support use of resource claims"
        ),
    };
    claims.map(problem).collect()
}

/// Returns the totals by pod set for `status.resourceRequests`.
pub(crate) fn to_status_requests(pod_sets: &[PodSet]) -> Vec<PodSetRequest> {
    let total = |requests: &Requests, count: i32| {
        requests
            .iter()
            .map(|(r, a)| (r.to_string(), Quantity(resources::format_quantity(r, a.times(i64::from(count))))))
            .collect()
    };
    pod_sets
        .iter()
        .map(|set| PodSetRequest { name: set.name.to_string(), resources: total(&set.requests, set.count) })
        .collect()
}

//! The placement requirements of pods, and their placements.

use crate::api::v1beta2::PodSetTopologyRequest;
use crate::resources::Requests;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodSpec, PreferredSchedulingTerm, Toleration};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values of the levels, widest first, or the labels of the levels.
pub type DomainPath = Arc<[Arc<str>]>;

/// Placement requirements of the pods of one pod set. Serialized into the equivalence hash.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PodRequirements {
    /// Topology request; `None` if the pod set has none.
    pub request: Option<PodSetTopologyRequest>,
    /// Requests of one pod.
    #[serde(skip)]
    pub requests: Requests,
    /// Labels that the node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Terms of the required node affinity, of which one must match; no restriction if empty.
    pub required_affinity: Vec<NodeSelectorTerm>,
    /// Terms of the preferred node affinity with their weights.
    pub preferred_affinity: Vec<PreferredSchedulingTerm>,
    /// Tolerations of the pods.
    pub tolerations: Vec<Toleration>,
}

impl PodRequirements {
    /// Reads the requirements from a pod template.
    pub fn new(spec: &PodSpec, requests: Requests, request: Option<PodSetTopologyRequest>) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        let preferred =
            affinity.and_then(|node| node.preferred_during_scheduling_ignored_during_execution.clone());
        Self {
            request,
            requests,
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            required_affinity: required.map(|r| r.node_selector_terms.clone()).unwrap_or_default(),
            preferred_affinity: preferred.unwrap_or_default(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
        }
    }

    /// Returns whether there is a topology request.
    pub const fn is_explicit(&self) -> bool {
        self.request.is_some()
    }
}

/// Domains assigned to pods, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Labels of the levels that the values belong to.
    pub levels: DomainPath,
    /// Values and pod count of each domain.
    pub domains: Vec<(DomainPath, i32)>,
}

impl Placement {
    /// Returns the number of pods.
    pub fn pod_count(&self) -> i32 {
        self.domains.iter().fold(0, |sum, (_, pods)| sum.saturating_add(*pods))
    }

    /// Adds pods in domains of the same levels.
    pub(super) fn with_added(self, added: Vec<(DomainPath, i32)>) -> Self {
        let mut domains: BTreeMap<DomainPath, i32> = BTreeMap::new();
        for (values, pods) in self.domains.into_iter().chain(added) {
            let sum = domains.entry(values).or_default();
            *sum = sum.saturating_add(pods);
        }
        Self { levels: self.levels, domains: domains.into_iter().collect() }
    }

    /// Removes pods so that this many are left: first from domains where fewer pods run than it has, then from the last ones.
    /// `running` says how many run in a domain, by its index.
    pub(crate) fn cut_to(&self, count: i32, running: impl Fn(usize) -> i32) -> Self {
        let mut left = count.max(0);
        let mut take = |pods: i32| {
            let taken = pods.clamp(0, left);
            left -= taken;
            taken
        };
        let occupied: Vec<i32> =
            self.domains.iter().enumerate().map(|(at, (_, pods))| take(running(at).min(*pods))).collect();
        let domains = self.domains.iter().zip(occupied).map(|((values, pods), occupied)| {
            (Arc::clone(values), occupied.saturating_add(take(pods.saturating_sub(occupied))))
        });
        Self { levels: Arc::clone(&self.levels), domains: domains.filter(|(_, pods)| *pods > 0).collect() }
    }

    /// Returns whether one of its domains is this host.
    pub fn contains_host(&self, host: &str) -> bool {
        let names_host =
            |(values, _): &(DomainPath, i32)| values.last().is_some_and(|value| **value == *host);
        self.is_by_host() && self.domains.iter().any(names_host)
    }

    /// Returns whether the narrowest level is the host.
    pub fn is_by_host(&self) -> bool {
        self.levels.last().is_some_and(|level| **level == *HOSTNAME_LABEL)
    }
}

/// The label whose value names a host.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Usage of pods of one flavor in their domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Name of the flavor.
    pub flavor: Arc<str>,
    /// Name of the pod set.
    pub pod_set: Arc<str>,
    /// Domains of the pods.
    pub placement: Placement,
    /// Requests of each pod, without its share of a node's pod limit.
    pub requests_per_pod: Requests,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a2 b1`: two pods in domain a, one in b.
    fn placement(text: &str) -> Placement {
        let domain = |word: &str| {
            let (name, pods) = word.split_at(1);
            (DomainPath::from([Arc::from(name)]), pods.parse().unwrap())
        };
        let levels = DomainPath::from([Arc::from(HOSTNAME_LABEL)]);
        Placement { levels, domains: text.split_whitespace().map(domain).collect() }
    }

    #[test]
    fn cut_cases() {
        for (before, running, count, after) in [
            ("a2 b1", [2, 1], 2, "a2"),
            ("a2 b1", [0, 0], 2, "a2"),
            ("a2 b1", [0, 1], 1, "b1"),
            ("a2 b2", [1, 2], 3, "a1 b2"),
            ("a2 b2", [0, 1], 2, "a1 b1"),
            ("a2 b2", [9, 9], 3, "a2 b1"),
            ("a2 b2", [2, 2], 0, ""),
            ("a2 b2", [2, 2], -1, ""),
            ("a2 b2", [2, 2], 5, "a2 b2"),
        ] {
            let cut = placement(before).cut_to(count, |at| running[at]);
            assert_eq!(cut, placement(after), "{before} to {count} with {running:?}");
        }
    }
}

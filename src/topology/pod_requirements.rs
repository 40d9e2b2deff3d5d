//! What placement looks at of pods, and where pods stand.

use crate::api::v1beta2::PodSetTopologyRequest;
use crate::resources::Requests;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodSpec, PreferredSchedulingTerm, Toleration};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values of the levels from the widest to the narrowest, or the labels that name the levels.
pub type DomainPath = Arc<[Arc<str>]>;

/// Pods of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PodRequirements {
    /// Where they should be relative to each other; absent when they do not say.
    pub request: Option<PodSetTopologyRequest>,
    /// What one of them asks of a node.
    #[serde(skip)]
    pub requests: Requests,
    /// Labels that the node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Terms of the required node affinity, of which one must hold; none when empty.
    pub required_affinity: Vec<NodeSelectorTerm>,
    /// Terms of the preferred node affinity with their weights.
    pub preferred_affinity: Vec<PreferredSchedulingTerm>,
    /// Taints that they tolerate.
    pub tolerations: Vec<Toleration>,
}

impl PodRequirements {
    /// The pods of a template that ask for this of a node.
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

    /// Whether they say anything about topology.
    pub const fn is_explicit(&self) -> bool {
        self.request.is_some()
    }
}

/// Domains that pods were given, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Labels of the levels that the values are given for.
    pub levels: DomainPath,
    /// Values of each domain, and how many pods it takes.
    pub domains: Vec<(DomainPath, i32)>,
}

impl Placement {
    /// Number of pods.
    pub fn pod_count(&self) -> i32 {
        self.domains.iter().fold(0, |sum, (_, pods)| sum.saturating_add(*pods))
    }

    /// Whether one of its domains is this host.
    pub fn contains_host(&self, host: &str) -> bool {
        let on = |(values, _): &(DomainPath, i32)| values.last().is_some_and(|value| **value == *host);
        self.is_by_host() && self.domains.iter().any(on)
    }

    /// Whether the narrowest level is the host.
    pub fn is_by_host(&self) -> bool {
        self.levels.last().is_some_and(|level| **level == *HOSTNAME_LABEL)
    }
}

/// The label whose value names a host.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// What pods of one flavor take in the domains where they stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Name of the flavor.
    pub flavor: Arc<str>,
    /// Where they are.
    pub placement: Placement,
    /// What each of them takes, beside its place among the pods of a node.
    pub requests_per_pod: Requests,
}

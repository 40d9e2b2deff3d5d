//! How kinds are addressed, and quotas in the scheduler's terms.

use super::interface::{Kind, Resource};
use crate::api::{GROUP, v1beta2};
use crate::jobs::KINDS;
use crate::quota::{FlavorQuotas, Limits, ResourceGroup};
use crate::resources::{self, Amount, Quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::sync::Arc;

/// Amount of a quantity; one that cannot be read counts as nothing, which a schema does not let through.
pub(super) fn amount_of(resource: &str, quantity: &ApiQuantity) -> Amount {
    Quantity::try_from(quantity).map_or(Amount::ZERO, |q| resources::amount(resource, &q))
}

/// Quotas as the scheduler counts them.
pub(super) fn groups_of(groups: &[v1beta2::ResourceGroup]) -> Vec<ResourceGroup> {
    let limits = |r: &v1beta2::ResourceQuota| {
        let limits = Limits {
            nominal: amount_of(&r.name, &r.nominal_quota),
            borrowing: r.borrowing_limit.as_ref().map(|q| amount_of(&r.name, q)),
            lending: r.lending_limit.as_ref().map(|q| amount_of(&r.name, q)),
        };
        (Arc::from(r.name.as_str()), limits)
    };
    let flavor = |f: &v1beta2::FlavorQuotas| FlavorQuotas {
        name: Arc::from(f.name.as_str()),
        limits: f.resources.iter().map(limits).collect(),
    };
    let group = |g: &v1beta2::ResourceGroup| ResourceGroup {
        covered: g.covered_resources.iter().map(|r| Arc::from(r.as_str())).collect(),
        flavors: g.flavors.iter().map(flavor).collect(),
    };
    groups.iter().map(group).collect()
}

const fn builtin(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Resource {
    Resource { group, version: "v1", kind, plural, namespaced }
}

const fn ours(kind: &'static str, plural: &'static str, namespaced: bool) -> Resource {
    Resource { group: GROUP, version: v1beta2::VERSION, kind, plural, namespaced }
}

impl Kind {
    /// Every kind that the core follows, those that others refer to first.
    pub fn all() -> Vec<Self> {
        let mut all = vec![
            Self::Namespace,
            Self::LimitRange,
            Self::RuntimeClass,
            Self::PriorityClass,
            Self::ResourceFlavor,
            Self::Topology,
            Self::AdmissionCheck,
            Self::MultiKueueCluster,
            Self::WorkloadPriorityClass,
            Self::Cohort,
            Self::ClusterQueue,
            Self::LocalQueue,
            Self::Workload,
            Self::ProvisioningRequestConfig,
            Self::ProvisioningRequest,
            Self::PodTemplate,
            Self::Node,
            Self::Pod,
        ];
        all.extend((0..KINDS.len()).map(Self::Job));
        all
    }

    /// Whether webhooks answer from objects of this kind.
    pub fn serves_reviews(self) -> bool {
        matches!(
            self,
            Self::Namespace
                | Self::AdmissionCheck
                | Self::WorkloadPriorityClass
                | Self::ClusterQueue
                | Self::LocalQueue
                | Self::Workload
                | Self::Job(_)
        )
    }

    /// How the kind is addressed.
    pub fn resource(self) -> Resource {
        match self {
            Self::Namespace => builtin("", "Namespace", "namespaces", false),
            Self::LimitRange => builtin("", "LimitRange", "limitranges", true),
            Self::RuntimeClass => builtin("node.k8s.io", "RuntimeClass", "runtimeclasses", false),
            Self::PriorityClass => builtin("scheduling.k8s.io", "PriorityClass", "priorityclasses", false),
            Self::ResourceFlavor => ours("ResourceFlavor", "resourceflavors", false),
            Self::Topology => ours("Topology", "topologies", false),
            Self::AdmissionCheck => ours("AdmissionCheck", "admissionchecks", false),
            Self::MultiKueueCluster => ours("MultiKueueCluster", "multikueueclusters", false),
            Self::WorkloadPriorityClass => ours("WorkloadPriorityClass", "workloadpriorityclasses", false),
            Self::Cohort => ours("Cohort", "cohorts", false),
            Self::ClusterQueue => ours("ClusterQueue", "clusterqueues", false),
            Self::LocalQueue => ours("LocalQueue", "localqueues", true),
            Self::Workload => ours("Workload", "workloads", true),
            Self::ProvisioningRequestConfig => {
                ours("ProvisioningRequestConfig", "provisioningrequestconfigs", false)
            }
            Self::ProvisioningRequest => {
                builtin("autoscaling.x-k8s.io", "ProvisioningRequest", "provisioningrequests", true)
            }
            Self::PodTemplate => builtin("", "PodTemplate", "podtemplates", true),
            Self::Node => builtin("", "Node", "nodes", false),
            Self::Pod => builtin("", "Pod", "pods", true),
            Self::Job(index) => KINDS.get(index).map_or(builtin("", "", "", true), |kind| {
                let gvk = kind.gvk();
                Resource {
                    group: gvk.group,
                    version: gvk.version,
                    kind: gvk.kind,
                    plural: gvk.plural,
                    namespaced: true,
                }
            }),
        }
    }

    /// The kind with this group and kind, if the core follows it.
    pub fn find(group: &str, kind: &str) -> Option<Self> {
        Self::all().into_iter().find(|k| {
            let resource = k.resource();
            resource.group == group && resource.kind == kind
        })
    }
}

impl Resource {
    /// `group/version`, or the version alone in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

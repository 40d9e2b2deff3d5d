//! The kinds that the core watches and their API resources; conversion of quotas to the scheduler's types.

use crate::api::{GROUP, v1beta2};
use crate::frameworks::{Gvk, JobKind, RelatedKind, Role, frameworks};
use crate::quota::{FlavorQuotas, QuotaLimits, ResourceGroup};
use crate::resources::{self, Amount, Quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A kind that the core watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// v1 Namespace.
    Namespace,
    /// v1 LimitRange.
    LimitRange,
    /// node.k8s.io/v1 RuntimeClass.
    RuntimeClass,
    /// scheduling.k8s.io/v1 PriorityClass.
    PriorityClass,
    /// ResourceFlavor.
    ResourceFlavor,
    /// Topology.
    Topology,
    /// AdmissionCheck.
    AdmissionCheck,
    /// MultiKueueCluster.
    MultiKueueCluster,
    /// WorkloadPriorityClass.
    WorkloadPriorityClass,
    /// Cohort.
    Cohort,
    /// ClusterQueue.
    ClusterQueue,
    /// LocalQueue.
    LocalQueue,
    /// Workload.
    Workload,
    /// ProvisioningRequestConfig.
    ProvisioningRequestConfig,
    /// autoscaling.x-k8s.io/v1 ProvisioningRequest.
    ProvisioningRequest,
    /// v1 PodTemplate.
    PodTemplate,
    /// v1 Node.
    Node,
    /// v1 Pod, without pods that have ended.
    Pod,
    /// apps/v1 ReplicaSet, its metadata alone.
    ReplicaSet,
    /// A kind of job.
    Job(JobKind),
    /// A kind that jobs of another kind read.
    Related(RelatedKind),
}

/// API resource of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiResourceInfo {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural name in paths.
    pub plural: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

/// Returns the amount of a quantity. An invalid quantity counts as zero; the schemas of the CRDs do not permit one.
pub(crate) fn to_amount(resource: &str, quantity: &ApiQuantity) -> Amount {
    Quantity::try_from(quantity).map_or(Amount::ZERO, |q| resources::amount(resource, &q))
}

/// Converts quotas to the scheduler's types.
pub(crate) fn to_resource_groups(groups: &[v1beta2::ResourceGroup]) -> Vec<ResourceGroup> {
    let limits = |r: &v1beta2::ResourceQuota| {
        let limits = QuotaLimits {
            nominal: to_amount(&r.name, &r.nominal_quota),
            borrowing_limit: r.borrowing_limit.as_ref().map(|q| to_amount(&r.name, q)),
            lending_limit: r.lending_limit.as_ref().map(|q| to_amount(&r.name, q)),
        };
        (Arc::from(r.name.as_str()), limits)
    };
    let flavor = |f: &v1beta2::FlavorQuotas| FlavorQuotas {
        name: Arc::from(f.name.as_str()),
        limits: f.resources.iter().map(limits).collect(),
    };
    let group = |g: &v1beta2::ResourceGroup| ResourceGroup {
        covered_resources: g.covered_resources.iter().map(|r| Arc::from(r.as_str())).collect(),
        flavors: g.flavors.iter().map(flavor).collect(),
    };
    groups.iter().map(group).collect()
}

const fn builtin_resource(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> ApiResourceInfo {
    ApiResourceInfo { group, version: "v1", kind, plural, namespaced }
}

const fn kueue_resource(kind: &'static str, plural: &'static str, namespaced: bool) -> ApiResourceInfo {
    ApiResourceInfo { group: GROUP, version: v1beta2::VERSION, kind, plural, namespaced }
}

impl Kind {
    /// Returns every kind that the core watches; kinds that other kinds refer to come first.
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
            Self::ReplicaSet,
        ];
        let jobs = frameworks().map(|row| Self::of_job(JobKind::new(row)));
        all.extend(jobs.filter(|kind| *kind != Self::Pod));
        let related: BTreeSet<&RelatedKind> = frameworks().flat_map(|row| row.related).collect();
        all.extend(related.into_iter().copied().map(Self::Related));
        all
    }

    /// Returns the kind of the objects of a kind of job.
    pub fn of_job(kind: JobKind) -> Self {
        match kind.role {
            Role::Pods => Self::Pod,
            Role::Suspended | Role::PodsOfOwner | Role::PassThrough => Self::Job(kind),
        }
    }

    /// Returns whether webhooks need objects of this kind for their responses.
    pub fn is_used_by_webhooks(self) -> bool {
        let related = matches!(self, Self::Related(kind) if kind.in_reviews);
        related
            || matches!(
                self,
                Self::Namespace
                    | Self::AdmissionCheck
                    | Self::WorkloadPriorityClass
                    | Self::ClusterQueue
                    | Self::LocalQueue
                    | Self::Workload
                    | Self::ReplicaSet
                    | Self::Job(_)
            )
    }

    /// Returns the API resource of the kind.
    pub fn resource(self) -> ApiResourceInfo {
        match self {
            Self::Namespace => builtin_resource("", "Namespace", "namespaces", false),
            Self::LimitRange => builtin_resource("", "LimitRange", "limitranges", true),
            Self::RuntimeClass => builtin_resource("node.k8s.io", "RuntimeClass", "runtimeclasses", false),
            Self::PriorityClass => {
                builtin_resource("scheduling.k8s.io", "PriorityClass", "priorityclasses", false)
            }
            Self::ResourceFlavor => kueue_resource("ResourceFlavor", "resourceflavors", false),
            Self::Topology => kueue_resource("Topology", "topologies", false),
            Self::AdmissionCheck => kueue_resource("AdmissionCheck", "admissionchecks", false),
            Self::MultiKueueCluster => kueue_resource("MultiKueueCluster", "multikueueclusters", false),
            Self::WorkloadPriorityClass => {
                kueue_resource("WorkloadPriorityClass", "workloadpriorityclasses", false)
            }
            Self::Cohort => kueue_resource("Cohort", "cohorts", false),
            Self::ClusterQueue => kueue_resource("ClusterQueue", "clusterqueues", false),
            Self::LocalQueue => kueue_resource("LocalQueue", "localqueues", true),
            Self::Workload => kueue_resource("Workload", "workloads", true),
            Self::ProvisioningRequestConfig => {
                kueue_resource("ProvisioningRequestConfig", "provisioningrequestconfigs", false)
            }
            Self::ProvisioningRequest => {
                builtin_resource("autoscaling.x-k8s.io", "ProvisioningRequest", "provisioningrequests", true)
            }
            Self::PodTemplate => builtin_resource("", "PodTemplate", "podtemplates", true),
            Self::Node => builtin_resource("", "Node", "nodes", false),
            Self::Pod => builtin_resource("", "Pod", "pods", true),
            Self::ReplicaSet => builtin_resource("apps", "ReplicaSet", "replicasets", true),
            Self::Job(kind) => {
                let Gvk { group, version, kind, plural } = kind.gvk;
                ApiResourceInfo { group, version, kind, plural, namespaced: true }
            }
            Self::Related(RelatedKind { gvk, namespaced, .. }) => {
                let Gvk { group, version, kind, plural } = gvk;
                ApiResourceInfo { group, version, kind, plural, namespaced }
            }
        }
    }

    /// Returns the kind with this API group and kind name, if the core watches it.
    pub fn from_group_kind(group: &str, kind: &str) -> Option<Self> {
        Self::all().into_iter().find(|k| {
            let resource = k.resource();
            resource.group == group && resource.kind == kind
        })
    }
}

impl ApiResourceInfo {
    /// Returns `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

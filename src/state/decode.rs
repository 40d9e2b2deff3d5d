//! How kinds are addressed.

use super::interface::{Kind, Resource};
use crate::api::{GROUP, v1beta2};
use crate::jobs::KINDS;

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
            Self::WorkloadPriorityClass,
            Self::Cohort,
            Self::ClusterQueue,
            Self::LocalQueue,
            Self::Workload,
        ];
        all.extend((0..KINDS.len()).map(Self::Job));
        all
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
            Self::WorkloadPriorityClass => ours("WorkloadPriorityClass", "workloadpriorityclasses", false),
            Self::Cohort => ours("Cohort", "cohorts", false),
            Self::ClusterQueue => ours("ClusterQueue", "clusterqueues", false),
            Self::LocalQueue => ours("LocalQueue", "localqueues", true),
            Self::Workload => ours("Workload", "workloads", true),
            Self::Job(index) => KINDS.get(index).map_or(builtin("", "", "", true), |kind| {
                let gvk = kind.gvk();
                Resource { group: gvk.group, version: gvk.version, kind: gvk.kind, plural: gvk.plural, namespaced: true }
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
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}

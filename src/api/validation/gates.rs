//! Feature gates that decide about validation and defaulting.

use crate::api::config::FeatureGates;
use std::collections::BTreeMap;

/// A gate that some rule here asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// Annotation that holds a job or Workload back.
    AdmissionGatedBy,
    /// Migration between flavors of one queue.
    ConcurrentAdmission,
    /// Jobs resized while they run.
    ElasticJobsViaWorkloadSlices,
    /// Dispatch to other clusters.
    MultiKueue,
    /// Jobs admitted with fewer pods.
    PartialAdmission,
    /// Annotation that shifts a Workload's priority.
    PriorityBoost,
    /// Checks that name flavors the queue lacks are refused on every update.
    RejectUpdatesToCQWithInvalidOnFlavors,
    /// Jobs that are being deleted are not held.
    SkipAncestorCheckForDeletedWorkloads,
    /// Slices in more than one layer.
    TASMultiLayerTopology,
    /// A slice's level needs its size.
    TASValidateWorkloadSliceSize,
    /// Placement by topology.
    TopologyAwareScheduling,
    /// Names of prebuilt Workloads in annotations.
    WorkloadIdentifierAnnotations,
    /// A class named `default` stands in.
    WorkloadPriorityClassDefaulting,
    /// Negative requests are refused.
    WorkloadValidateResourcesAreNonNegative,
    /// Labels and annotations of pod templates are checked.
    WorkloadValidationForPodSetMetadata,
}

impl Gate {
    /// The gate's name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AdmissionGatedBy => "AdmissionGatedBy",
            Self::ConcurrentAdmission => "ConcurrentAdmission",
            Self::ElasticJobsViaWorkloadSlices => "ElasticJobsViaWorkloadSlices",
            Self::MultiKueue => "MultiKueue",
            Self::PartialAdmission => "PartialAdmission",
            Self::PriorityBoost => "PriorityBoost",
            Self::RejectUpdatesToCQWithInvalidOnFlavors => "RejectUpdatesToCQWithInvalidOnFlavors",
            Self::SkipAncestorCheckForDeletedWorkloads => "SkipAncestorCheckForDeletedWorkloads",
            Self::TASMultiLayerTopology => "TASMultiLayerTopology",
            Self::TASValidateWorkloadSliceSize => "TASValidateWorkloadSliceSize",
            Self::TopologyAwareScheduling => "TopologyAwareScheduling",
            Self::WorkloadIdentifierAnnotations => "WorkloadIdentifierAnnotations",
            Self::WorkloadPriorityClassDefaulting => "WorkloadPriorityClassDefaulting",
            Self::WorkloadValidateResourcesAreNonNegative => "WorkloadValidateResourcesAreNonNegative",
            Self::WorkloadValidationForPodSetMetadata => "WorkloadValidationForPodSetMetadata",
        }
    }
}

/// Gates as configured: only those that differ from their defaults need to be named.
#[derive(Clone, Debug, Default)]
pub struct Gates(FeatureGates);

impl Gates {
    /// Gates with what a configuration says.
    pub fn new(configured: BTreeMap<String, bool>) -> Self {
        Self(FeatureGates::new(configured))
    }

    /// Whether a gate is on.
    pub fn is_enabled(&self, gate: Gate) -> bool {
        self.0.enabled(gate.name())
    }
}

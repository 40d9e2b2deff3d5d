//! Feature gates that affect validation and defaulting.

use crate::api::config::FeatureGates;
use std::collections::BTreeMap;

/// A feature gate that a validation or defaulting rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// The annotation that keeps a job or Workload out of the queue.
    AdmissionGatedBy,
    /// Migration between flavors of one queue.
    ConcurrentAdmission,
    /// Resizing of running jobs.
    ElasticJobsViaWorkloadSlices,
    /// The number of pods in a replica of a LeaderWorkerSet is fixed.
    LWSImmutableGroupSize,
    /// Dispatch to worker clusters.
    MultiKueue,
    /// Admission of jobs with fewer pods.
    PartialAdmission,
    /// The annotation that is added to a Workload's priority.
    PriorityBoost,
    /// Admission checks that name flavors missing in the queue are refused on every update.
    RejectUpdatesToCQWithInvalidOnFlavors,
    /// Jobs that are being deleted are not suspended.
    SkipAncestorCheckForDeletedWorkloads,
    /// Topology slices in more than one layer.
    TASMultiLayerTopology,
    /// A slice level must be set together with a slice size.
    TASValidateWorkloadSliceSize,
    /// Topology-aware scheduling.
    TopologyAwareScheduling,
    /// A change that removes the queue of a Ray or Spark job is checked.
    ValidateRayAndSparkJobUpdates,
    /// Names of prebuilt Workloads in annotations.
    WorkloadIdentifierAnnotations,
    /// The WorkloadPriorityClass `default` is used for jobs without a class.
    WorkloadPriorityClassDefaulting,
    /// Negative requests are refused.
    WorkloadValidateResourcesAreNonNegative,
    /// Labels and annotations of pod templates are checked.
    WorkloadValidationForPodSetMetadata,
}

impl Gate {
    /// Returns the name of the gate in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AdmissionGatedBy => "AdmissionGatedBy",
            Self::ConcurrentAdmission => "ConcurrentAdmission",
            Self::ElasticJobsViaWorkloadSlices => "ElasticJobsViaWorkloadSlices",
            Self::LWSImmutableGroupSize => "LWSImmutableGroupSize",
            Self::MultiKueue => "MultiKueue",
            Self::PartialAdmission => "PartialAdmission",
            Self::PriorityBoost => "PriorityBoost",
            Self::RejectUpdatesToCQWithInvalidOnFlavors => "RejectUpdatesToCQWithInvalidOnFlavors",
            Self::SkipAncestorCheckForDeletedWorkloads => "SkipAncestorCheckForDeletedWorkloads",
            Self::TASMultiLayerTopology => "TASMultiLayerTopology",
            Self::TASValidateWorkloadSliceSize => "TASValidateWorkloadSliceSize",
            Self::TopologyAwareScheduling => "TopologyAwareScheduling",
            Self::ValidateRayAndSparkJobUpdates => "ValidateRayAndSparkJobUpdates",
            Self::WorkloadIdentifierAnnotations => "WorkloadIdentifierAnnotations",
            Self::WorkloadPriorityClassDefaulting => "WorkloadPriorityClassDefaulting",
            Self::WorkloadValidateResourcesAreNonNegative => "WorkloadValidateResourcesAreNonNegative",
            Self::WorkloadValidationForPodSetMetadata => "WorkloadValidationForPodSetMetadata",
        }
    }
}

/// Configured gates; all others have their default.
#[derive(Clone, Debug, Default)]
pub struct Gates(FeatureGates);

impl Gates {
    /// Creates the gates from a configuration.
    pub fn new(configured: BTreeMap<String, bool>) -> Self {
        Self(FeatureGates::new(configured))
    }

    /// Returns whether a gate is on.
    pub fn is_enabled(&self, gate: Gate) -> bool {
        self.0.enabled(gate.name())
    }
}

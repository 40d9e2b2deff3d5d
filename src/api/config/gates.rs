//! Feature gates: Kueue's names and defaults, and which of them this version can set.

use super::Problems;
use std::collections::BTreeMap;

/// What this version can do with a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Support {
    /// The feature is there and can be turned on and off.
    Switch,
    /// The feature is there; only its default is offered.
    Built,
    /// The feature is there and its default is part of how this version works: why.
    Fixed(&'static str),
    /// The feature is always there, in Kueue as well.
    Locked,
    /// The feature is not there.
    Absent,
}
use Support::{Absent, Built, Fixed, Locked, Switch};

/// Why gates are fixed.
const STRICT: &str = "every write carries the version of the object that it was decided on";
const GRANULAR: &str = "conditions and metrics have the granular reasons only";
const DELETED: &str = "objects that are being deleted are never reviewed";

struct Gate {
    name: &'static str,
    default: bool,
    support: Support,
}

const fn gate(name: &'static str, default: bool, support: Support) -> Gate {
    Gate { name, default, support }
}

/// Gates as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<String, bool>);

impl FeatureGates {
    /// Whether a gate is on; names that are not known are off.
    pub fn enabled(&self, name: &str) -> bool {
        self.0.get(name).copied().unwrap_or_else(|| GATES.iter().any(|g| g.name == name && g.default))
    }
}

/// Judges the configured gates: unknown names and values that cannot be honoured are errors.
pub(super) fn check(configured: &BTreeMap<String, bool>, problems: &mut Problems) -> FeatureGates {
    for (name, value) in configured {
        let path = format!("featureGates.{name}");
        let Some(gate) = GATES.iter().find(|g| g.name == name) else {
            problems.error(&path, "unknown feature gate");
            continue;
        };
        match gate.support {
            _ if *value == gate.default && gate.support == Absent && *value => {
                problems.warn(&path, "the feature is not part of this version");
            }
            _ if *value == gate.default => {}
            Fixed(why) => problems.error(&path, &format!("cannot be set to {value}: {why}")),
            Locked => problems.error(&path, "this feature gate is locked to true"),
            Absent if *value => problems.error(&path, "the feature is not part of this version"),
            Switch | Absent => {}
            Built => {
                problems.error(
                    &path,
                    &format!("cannot be set to {value}: this version has the feature at its default only"),
                );
            }
        }
    }
    FeatureGates(configured.clone())
}

static GATES: &[Gate] = &[
    gate("AdmissionFairSharing", true, Switch),
    gate("AdmissionGatedBy", true, Switch),
    gate("AssignQueueLabelsForPods", true, Switch),
    gate("CleanupProvisioningRequestsOnEviction", true, Switch),
    gate("ConcurrentAdmission", false, Absent),
    gate("CustomMetricLabels", false, Absent),
    gate("DeferRayServiceFinalizationForRedisCleanup", true, Absent),
    gate("DisableWaitForPodsReady", false, Switch),
    gate("ElasticJobsViaWorkloadSlices", true, Absent),
    gate("ElasticJobsViaWorkloadSlicesWithTAS", false, Absent),
    gate("FailureRecoveryPolicy", false, Absent),
    gate("FairSharingPreemptWithinNominal", true, Switch),
    gate("FairSharingPrioritizeNonBorrowing", true, Switch),
    gate("FastQuotaReleaseInPodIntegration", false, Absent),
    gate("FinishOrphanedWorkloads", true, Switch),
    gate("FlavorFungibility", true, Switch),
    gate("FlavorFungibilityPreserveScanProgress", true, Switch),
    gate("KueueDRAIntegration", true, Absent),
    gate("KueueDRAIntegrationConsumableCapacity", false, Absent),
    gate("KueueDRAIntegrationExtendedResource", true, Absent),
    gate("KueueDRAIntegrationPartitionableDevices", true, Absent),
    gate("KueueDRARejectWorkloadsWhenDRADisabled", true, Absent),
    gate("LWSImmutableGroupSize", true, Absent),
    gate("LocalQueueMetrics", true, Switch),
    gate("ManagedJobsNamespaceSelectorAlwaysRespected", true, Locked),
    gate("MetricForWorkloadCreationLatency", true, Switch),
    gate("MetricsForCohorts", true, Switch),
    gate("MultiKueue", true, Absent),
    gate("MultiKueueAdaptersForCustomJobs", true, Absent),
    gate("MultiKueueClusterProfile", false, Absent),
    gate("MultiKueueIncrementalDispatcherConfig", true, Absent),
    gate("MultiKueueIncrementalDispatcherRespectConfigOrder", true, Absent),
    gate("MultiKueueKubeConfigPathValidation", true, Absent),
    gate("MultiKueueManagerQuotaAutomation", false, Absent),
    gate("MultiKueueOrchestratedPreemption", false, Absent),
    gate("MultiKueueRemoteSpecSync", true, Absent),
    gate("PartialAdmission", true, Switch),
    gate("PodIntegrationValidateGroupOwner", true, Absent),
    gate("PrioritizePreemptorWorkloads", false, Absent),
    gate("PriorityBoost", false, Absent),
    gate("PrioritySortingWithinCohort", true, Switch),
    gate("QuotaCheckStrategy", true, Switch),
    gate("ReclaimablePods", true, Switch),
    gate("RecomputeAssignmentUponPreemptionTargetsOverlap", true, Switch),
    gate("RejectUpdatesToCQWithInvalidOnFlavors", false, Switch),
    gate("RemoveFinalizersWithStrictPatch", true, Fixed(STRICT)),
    gate("SchedulerLibraryIntegration", false, Absent),
    gate("SchedulingEquivalenceHashing", true, Built),
    gate("ShortWorkloadNames", false, Absent),
    gate("SkipAncestorCheckForDeletedWorkloads", true, Fixed(DELETED)),
    gate("SkipReassignmentForPodOwnedWorkloads", true, Built),
    gate("SparkApplicationIntegration", false, Absent),
    gate("TASAssignmentsEncodingByHostnamePrefix", true, Built),
    gate("TASBalancedPlacement", false, Switch),
    gate("TASCacheNodeMatchResults", true, Built),
    gate("TASCacheTopologyTree", true, Built),
    gate("TASCachingRemainingResources", true, Built),
    gate("TASFailedNodeReplacement", true, Switch),
    gate("TASFailedNodeReplacementFailFast", true, Switch),
    gate("TASHandleOverlappingFlavors", true, Built),
    gate("TASMultiLayerTopology", true, Switch),
    gate("TASProfileMixed", true, Switch),
    gate("TASRecomputeAssignmentWithinSchedulingCycle", true, Switch),
    gate("TASReplaceNodeDueToNotReadyOverFixedTime", false, Switch),
    gate("TASReplaceNodeOnNodeTaints", true, Switch),
    gate("TASReplaceNodeOnPodTermination", true, Switch),
    gate("TASRespectNodeAffinityPreferred", false, Switch),
    gate("TASValidateWorkloadSliceSize", true, Switch),
    gate("TLSOptions", true, Locked),
    gate("TopologyAwareScheduling", true, Switch),
    gate("UnadmittedWorkloadsExplicitStatus", false, Absent),
    gate("UnadmittedWorkloadsObservability", true, Fixed(GRANULAR)),
    gate("ValidateRayAndSparkJobUpdates", true, Absent),
    gate("VectorizedResourceRequests", true, Absent),
    gate("VisibilityOnDemand", true, Absent),
    gate("WorkloadIdentifierAnnotations", true, Switch),
    gate("WorkloadPriorityClassDefaulting", true, Switch),
    gate("WorkloadRequestUseMergePatch", false, Absent),
    gate("WorkloadValidateResourcesAreNonNegative", true, Switch),
    gate("WorkloadValidationForPodSetMetadata", true, Switch),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighty_names_in_order() {
        assert_eq!(GATES.len(), 80);
        assert!(GATES.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert_eq!(GATES.iter().filter(|g| g.support == Locked).count(), 2);
        assert!(!FeatureGates::default().enabled("PriorityBoost"));
        assert!(FeatureGates::default().enabled("PartialAdmission"));
    }

    #[test]
    fn values_that_cannot_be_honoured() {
        let table = [
            ("PartialAdmission", true, 0, 0),
            ("PartialAdmission", false, 0, 0),
            ("SchedulingEquivalenceHashing", false, 1, 0),
            ("TopologyAwareScheduling", true, 0, 0),
            ("TopologyAwareScheduling", false, 0, 0),
            ("TASCacheTopologyTree", false, 1, 0),
            ("MultiKueue", true, 0, 1),
            ("ReclaimablePods", false, 0, 0),
            ("DisableWaitForPodsReady", true, 0, 0),
            ("RejectUpdatesToCQWithInvalidOnFlavors", true, 0, 0),
            ("RemoveFinalizersWithStrictPatch", false, 1, 0),
            ("UnadmittedWorkloadsObservability", false, 1, 0),
            ("ConcurrentAdmission", true, 1, 0),
            ("ConcurrentAdmission", false, 0, 0),
            ("TLSOptions", false, 1, 0),
            ("NoSuchGate", false, 1, 0),
        ];
        for (name, value, errors, warnings) in table {
            let mut problems = Problems::default();
            check(&BTreeMap::from([(name.to_owned(), value)]), &mut problems);
            assert_eq!(
                (problems.errors.len(), problems.warnings.len()),
                (errors, warnings),
                "{name}={value}"
            );
        }
    }
}

//! Kueue's feature gates at version 0.20 with stage, default, parents and support in this version, and the gates that
//! earlier versions of Kueue had.

use std::fmt::Write;

/// Maturity of a feature in Kueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Alpha,
    Beta,
    Stable,
    Deprecated,
}
use Stage::{Alpha, Beta, Deprecated, Stable};

/// Values of a gate that this version supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Support {
    /// On and off; `tests/it/settings/gate_effects` has an input whose outcome differs.
    Toggleable,
    /// On and off, but a part of the feature is missing; contains the consequence.
    PartiallySupported(&'static str),
    /// Only the default; contains the reason.
    DefaultOnly(&'static str),
    /// Any value, without effect: an optimization of Kueue that does not change decisions.
    PerformanceOnly,
    /// The default, whatever is set: Kueue has locked it since 0.17.
    Locked,
    /// The feature is missing; contains the consequence.
    Unsupported(&'static str),
}
use Support::{DefaultOnly, Locked, PartiallySupported, PerformanceOnly, Toggleable, Unsupported};

/// A current gate of Kueue.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) name: &'static str,
    pub(super) stage: Stage,
    pub(super) default: bool,
    /// Gates that must be on if this gate is on.
    pub(super) parents: &'static [&'static str],
    pub(super) support: Support,
}

/// A gate that Kueue has removed.
#[derive(Debug)]
pub(super) struct Retired {
    pub(super) name: &'static str,
    /// The value in effect; `None` if the value would not change a decision of this version.
    pub(super) fixed_value: Option<bool>,
    /// The version of Kueue that has removed it, if 0.17 had it. The file of a running Kueue of 0.17 or later can name such a gate.
    pub(super) removed_in: Option<&'static str>,
}

impl Retired {
    const fn in_version(self, version: &'static str) -> Self {
        Self { removed_in: Some(version), ..self }
    }
}

impl Gate {
    /// Returns the gate with this name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        GATES.iter().find(|gate| gate.name == name)
    }
}

/// Returns the tables as a Markdown page.
pub fn page() -> String {
    let mut page = PAGE_HEAD.to_owned();
    for gate in GATES {
        let Gate { name, stage, default, parents, support } = gate;
        let (default, parents) = (on_off(*default), parents.join(", "));
        let (kind, remark) = support.description();
        // Writing to a String does not fail.
        let _ = writeln!(page, "| {name} | {stage:?} | {default} | {parents} | {kind} | {remark} |");
    }
    page.push_str(PAGE_RETIRED);
    for Retired { name, fixed_value, removed_in } in RETIRED {
        let (removed_in, value) =
            (removed_in.unwrap_or("before 0.17"), fixed_value.map_or("any value: has no effect", on_off));
        let _ = writeln!(page, "| {name} | {removed_in} | {value} |");
    }
    page
}

pub(super) const fn on_off(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

impl Support {
    const fn description(self) -> (&'static str, &'static str) {
        match self {
            Toggleable => ("switchable", ""),
            PartiallySupported(missing) => ("switchable", missing),
            DefaultOnly(why) => ("default only", why),
            PerformanceOnly => ("any value", "performance only; does not affect scheduling"),
            Locked => ("always its default", "locked in Kueue as well; another value is a warning"),
            Unsupported(missing) => ("off only", missing),
        }
    }
}

const PAGE_HEAD: &str = "# Feature gates

Written by `make gates` from `core/src/api/config/gate_table.rs`; a test fails when it is stale. Gates are set by `featureGates` of the
configuration or by `--feature-gates`, not by both.

An unknown name that resembles a gate (a spelling mistake, another form of a word, a part of its name) is an error, which names the gate.
Any other unknown name, such as a gate of a later version, has no
effect: the log warns of it at the start, `sluice status` and the metric `sluice_unknown_feature_gate` name it, and `sluice config check`
refuses it. A value that is not true or false is an error. An unsupported value is an error if it would change scheduling. A gate that is on by
default is off while one of its parents is off; turning it on by name is an error then, as in Kueue. Turning on by name what is on by
default in Kueue and not supported here is a warning.

| Gate | Stage in Kueue 0.20 | Default | Parents | Here | Remark |
|---|---|---|---|---|---|
";

const PAGE_RETIRED: &str = "
Retired: Kueue has removed these gates. Setting one that Kueue 0.17 still had is a warning, which names the value in effect, as files for
0.17 to 0.19 may have it. So is setting one of those that are locked above. For a gate that was removed before, a value other than the
effective one is an error, as it would change scheduling.

| Gate | Removed in Kueue | Effective value |
|---|---|---|
";

const fn gate(
    name: &'static str,
    stage: Stage,
    default: bool,
    parents: &'static [&'static str],
    support: Support,
) -> Gate {
    Gate { name, stage, default, parents, support }
}

const fn retired(name: &'static str, holds: Option<bool>) -> Retired {
    Retired { name, fixed_value: holds, removed_in: None }
}

pub(super) static GATES: &[Gate] = &[
    gate("AdmissionFairSharing", Beta, true, &[], Toggleable),
    gate("AdmissionGatedBy", Beta, true, &[], Toggleable),
    gate("AssignQueueLabelsForPods", Beta, true, &[], Toggleable),
    gate("CleanupProvisioningRequestsOnEviction", Beta, true, &[], Toggleable),
    gate("ConcurrentAdmission", Alpha, false, &[], Unsupported("variants of a Workload are not made")),
    gate("CustomMetricLabels", Alpha, false, &[], Unsupported("metrics have no labels of their own")),
    gate(
        "DeferRayServiceFinalizationForRedisCleanup",
        Beta,
        true,
        &[],
        DefaultOnly("a RayService keeps its quota while KubeRay cleans up Redis"),
    ),
    gate("DisableWaitForPodsReady", Alpha, false, &[], Toggleable),
    gate("ElasticJobsViaWorkloadSlices", Beta, true, &[], Toggleable),
    gate(
        "ElasticJobsViaWorkloadSlicesWithTAS",
        Alpha,
        false,
        &["ElasticJobsViaWorkloadSlices", "TopologyAwareScheduling"],
        Toggleable,
    ),
    gate(
        "FailureRecoveryPolicy",
        Alpha,
        false,
        &[],
        Unsupported("pods stuck on a failed node are not terminated"),
    ),
    gate("FairSharingPreemptWithinNominal", Beta, true, &[], Toggleable),
    gate("FairSharingPrioritizeNonBorrowing", Beta, true, &[], Toggleable),
    gate(
        "FastQuotaReleaseInPodIntegration",
        Alpha,
        false,
        &[],
        Unsupported("the quota of a pod is released when the pod has ended"),
    ),
    gate("FinishOrphanedWorkloads", Beta, true, &[], Toggleable),
    gate("FlavorFungibility", Beta, true, &[], Toggleable),
    gate("FlavorFungibilityPreserveScanProgress", Beta, true, &["FlavorFungibility"], Toggleable),
    gate("KueueDRAIntegration", Beta, true, &[], Unsupported("devices have no quota")),
    gate(
        "KueueDRAIntegrationConsumableCapacity",
        Alpha,
        false,
        &["KueueDRAIntegration"],
        Unsupported("devices have no quota"),
    ),
    gate(
        "KueueDRAIntegrationExtendedResource",
        Beta,
        true,
        &["KueueDRAIntegration"],
        Unsupported("devices have no quota"),
    ),
    gate(
        "KueueDRAIntegrationPartitionableDevices",
        Beta,
        true,
        &["KueueDRAIntegration"],
        Unsupported("devices have no quota"),
    ),
    gate(
        "KueueDRARejectWorkloadsWhenDRADisabled",
        Beta,
        true,
        &[],
        DefaultOnly("pods with resource claims are never admitted uncharged"),
    ),
    gate("LWSImmutableGroupSize", Beta, true, &[], Toggleable),
    gate("LocalQueueMetrics", Beta, true, &[], Toggleable),
    gate("ManagedJobsNamespaceSelectorAlwaysRespected", Stable, true, &[], Locked),
    gate("MetricForWorkloadCreationLatency", Beta, true, &[], Toggleable),
    gate("MetricsForCohorts", Beta, true, &[], Toggleable),
    gate(
        "MultiKueue",
        Beta,
        true,
        &[],
        PartiallySupported(
            "jobs are not sent to other clusters; a ClusterQueue with a check of MultiKueue is inactive",
        ),
    ),
    gate(
        "MultiKueueAdaptersForCustomJobs",
        Beta,
        true,
        &[],
        Unsupported("jobs are not sent to other clusters"),
    ),
    gate("MultiKueueClusterProfile", Alpha, false, &[], Unsupported("jobs are not sent to other clusters")),
    gate(
        "MultiKueueIncrementalDispatcherConfig",
        Beta,
        true,
        &[],
        Unsupported("jobs are not sent to other clusters"),
    ),
    gate(
        "MultiKueueIncrementalDispatcherRespectConfigOrder",
        Beta,
        true,
        &[],
        Unsupported("jobs are not sent to other clusters"),
    ),
    gate(
        "MultiKueueKubeConfigPathValidation",
        Beta,
        true,
        &[],
        Unsupported("jobs are not sent to other clusters"),
    ),
    gate(
        "MultiKueueManagerQuotaAutomation",
        Alpha,
        false,
        &[],
        Unsupported("jobs are not sent to other clusters"),
    ),
    gate(
        "MultiKueueOrchestratedPreemption",
        Alpha,
        false,
        &[],
        Unsupported("jobs are not sent to other clusters"),
    ),
    gate("MultiKueueRemoteSpecSync", Beta, true, &[], Unsupported("jobs are not sent to other clusters")),
    gate("PartialAdmission", Beta, true, &[], Toggleable),
    gate(
        "PodIntegrationValidateGroupOwner",
        Beta,
        true,
        &[],
        DefaultOnly("a pod group never takes the Workload of another job"),
    ),
    gate(
        "PrioritizePreemptorWorkloads",
        Alpha,
        false,
        &[],
        Unsupported("capacity is reserved for preemptors by other means"),
    ),
    gate("PriorityBoost", Alpha, false, &[], Toggleable),
    gate("PrioritySortingWithinCohort", Beta, true, &[], Toggleable),
    gate("QuotaCheckStrategy", Beta, true, &[], Toggleable),
    gate("ReclaimablePods", Beta, true, &[], Toggleable),
    gate("RecomputeAssignmentUponPreemptionTargetsOverlap", Beta, true, &[], Toggleable),
    gate("RejectUpdatesToCQWithInvalidOnFlavors", Alpha, false, &[], Toggleable),
    gate(
        "RemoveFinalizersWithStrictPatch",
        Beta,
        true,
        &[],
        DefaultOnly("every write carries the resourceVersion of the object that it is based on"),
    ),
    gate(
        "SchedulerLibraryIntegration",
        Alpha,
        false,
        &[],
        Unsupported("the library of the Kubernetes scheduler is not used"),
    ),
    gate(
        "SchedulingEquivalenceHashing",
        Beta,
        true,
        &[],
        DefaultOnly("workloads of one equivalence class are parked together"),
    ),
    gate("ShortWorkloadNames", Alpha, false, &[], Unsupported("names of Workloads have one form")),
    gate(
        "SkipAncestorCheckForDeletedWorkloads",
        Beta,
        true,
        &[],
        DefaultOnly("objects that are being deleted are never reviewed"),
    ),
    gate(
        "SkipReassignmentForPodOwnedWorkloads",
        Beta,
        true,
        &[],
        DefaultOnly("the pod of a Workload that a Pod owns keeps its node"),
    ),
    gate("SparkApplicationIntegration", Alpha, false, &[], Toggleable),
    gate(
        "TASAssignmentsEncodingByHostnamePrefix",
        Beta,
        true,
        &[],
        DefaultOnly("assignments are written in the compact form, and read in any"),
    ),
    gate("TASBalancedPlacement", Alpha, false, &["TopologyAwareScheduling"], Toggleable),
    gate("TASCacheNodeMatchResults", Beta, true, &[], PerformanceOnly),
    gate("TASCacheTopologyTree", Beta, true, &[], PerformanceOnly),
    gate("TASCachingRemainingResources", Beta, true, &[], PerformanceOnly),
    gate("TASFailedNodeReplacement", Beta, true, &["TopologyAwareScheduling"], Toggleable),
    gate(
        "TASFailedNodeReplacementFailFast",
        Beta,
        true,
        &["TASFailedNodeReplacement", "TopologyAwareScheduling"],
        Toggleable,
    ),
    gate(
        "TASHandleOverlappingFlavors",
        Beta,
        true,
        &["TopologyAwareScheduling"],
        DefaultOnly("a node of several flavors is counted once"),
    ),
    gate("TASMultiLayerTopology", Beta, true, &["TopologyAwareScheduling"], Toggleable),
    gate("TASProfileMixed", Beta, true, &["TopologyAwareScheduling"], Toggleable),
    gate("TASRecomputeAssignmentWithinSchedulingCycle", Beta, true, &["TopologyAwareScheduling"], Toggleable),
    gate(
        "TASReplaceNodeDueToNotReadyOverFixedTime",
        Deprecated,
        false,
        &["TASFailedNodeReplacement", "TopologyAwareScheduling"],
        Toggleable,
    ),
    gate("TASReplaceNodeOnNodeTaints", Beta, true, &["TopologyAwareScheduling"], Toggleable),
    gate(
        "TASReplaceNodeOnPodTermination",
        Beta,
        true,
        &["TASFailedNodeReplacement", "TopologyAwareScheduling"],
        Toggleable,
    ),
    gate("TASRespectNodeAffinityPreferred", Alpha, false, &["TopologyAwareScheduling"], Toggleable),
    gate("TASValidateWorkloadSliceSize", Beta, true, &[], Toggleable),
    gate("TLSOptions", Stable, true, &[], Locked),
    gate("TopologyAwareScheduling", Beta, true, &[], Toggleable),
    gate(
        "UnadmittedWorkloadsExplicitStatus",
        Beta,
        false,
        &["UnadmittedWorkloadsObservability"],
        Unsupported("a condition is written only when it has a reason"),
    ),
    gate(
        "UnadmittedWorkloadsObservability",
        Beta,
        true,
        &[],
        DefaultOnly("conditions and metrics have the granular reasons only"),
    ),
    gate("ValidateRayAndSparkJobUpdates", Beta, true, &[], Toggleable),
    gate("VectorizedResourceRequests", Beta, true, &[], PerformanceOnly),
    gate("VisibilityOnDemand", Beta, true, &[], Toggleable),
    gate("WorkloadIdentifierAnnotations", Beta, true, &[], Toggleable),
    gate("WorkloadPriorityClassDefaulting", Beta, true, &[], Toggleable),
    gate(
        "WorkloadRequestUseMergePatch",
        Alpha,
        false,
        &[],
        Unsupported("status is written by server-side apply"),
    ),
    gate("WorkloadValidateResourcesAreNonNegative", Beta, true, &[], Toggleable),
    gate("WorkloadValidationForPodSetMetadata", Beta, true, &[], Toggleable),
];

pub(super) static RETIRED: &[Retired] = &[
    retired("AdmissionCheckValidationRules", None),
    retired("ConfigurableResourceTransformations", Some(true)),
    retired("DRAExtendedResources", Some(false)).in_version("0.19"),
    retired("DynamicResourceAllocation", Some(false)).in_version("0.19"),
    retired("ExposeFlavorsInLocalQueue", None),
    retired("FlavorFungibilityImplicitPreferenceDefault", Some(false)),
    retired("HierarchicalCohorts", Some(true)).in_version("0.20"),
    retired("KeepQuotaForProvReqRetry", Some(false)),
    retired("LendingLimit", Some(true)).in_version("0.19"),
    retired("LocalQueueDefaulting", Some(true)).in_version("0.19"),
    retired("ManagedJobsNamespaceSelector", Some(true)),
    retired("MultiKueueAllowInsecureKubeconfigs", Some(false)).in_version("0.20"),
    retired("MultiKueueBatchJobWithManagedBy", Some(true)).in_version("0.19"),
    retired("MultiKueueRedoAdmissionOnEvictionInWorker", None).in_version("0.20"),
    retired("MultiKueueWaitForWorkloadAdmitted", None).in_version("0.20"),
    retired("MultiplePreemptions", Some(true)),
    retired("ObjectRetentionPolicies", Some(true)).in_version("0.20"),
    retired("PropagateBatchJobLabelsToWorkload", Some(true)).in_version("0.20"),
    retired("ProvisioningACC", Some(true)),
    retired("QueueVisibility", None),
    retired("SanitizePodSets", Some(true)).in_version("0.19"),
    retired("SchedulerLongRequeueInterval", None).in_version("0.20"),
    retired("SchedulerTimestampPreemptionBuffer", Some(false)).in_version("0.20"),
    retired("SkipFinalizersForPodsSuspendedByParent", None).in_version("0.20"),
    retired("TASProfileLeastFreeCapacity", Some(false)),
    retired("TASProfileMostFreeCapacity", Some(false)),
    retired("WorkloadResourceRequestsSummary", None),
];

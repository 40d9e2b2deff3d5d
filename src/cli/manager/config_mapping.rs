//! Converts the configuration to the settings of core, scheduler and admission reviews. Pure: no file, argument or clock.
//! Public, so that tests can use configurations as a manager reads them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::admission::AdmissionSettings;
use crate::api::config::{
    self, Configuration, QuotaCheckStrategy, RequeuingTimestamp, TransformationStrategy,
};
use crate::api::validation::Gates;
use crate::lifecycle::{backoff, node_failure, pods_ready, workload};
use crate::metrics::model::MetricFamilies;
use crate::reconciler;
use crate::resources::transform::{Strategy, Transform, Transformation};
use crate::scheduler::{
    AdmissionFairSharing, EngineGates, EngineSettings, FairStrategy, UndeclaredResources,
};
use crate::topology;

/// Returns the settings of the core.
pub fn core_settings(configuration: &Configuration, namespace: &str) -> reconciler::CoreSettings {
    let requeuing = &configuration.wait_for_pods_ready.requeuing_strategy;
    let local_queues = &configuration.metrics.local_queue_metrics;
    let gate = |name: &str| configuration.gates.enabled(name);
    reconciler::CoreSettings {
        lifecycle: lifecycle_settings(configuration),
        manage_jobs_without_queue_name: configuration.manage_jobs_without_queue_name,
        managed_namespaces: configuration.managed_namespaces(namespace),
        copied: copied_keys(configuration),
        transform: resource_transform(&configuration.resources),
        requeue_by_creation: requeuing.timestamp == RequeuingTimestamp::Creation,
        engine: engine_settings(configuration),
        frameworks: frameworks(configuration),
        external_kinds: external_kinds(configuration),
        local_queue_metrics_selector: local_queues.local_queue_selector.clone(),
        gates: reconciler::CoreGates {
            admission_gated_by: gate("AdmissionGatedBy"),
            priority_boost: gate("PriorityBoost"),
            queue_labels_on_pods: gate("AssignQueueLabelsForPods"),
            finish_orphaned_workloads: gate("FinishOrphanedWorkloads"),
            cleanup_provisioning_requests_on_eviction: gate("CleanupProvisioningRequestsOnEviction"),
            reclaimable_pods: gate("ReclaimablePods"),
            identifier_annotations: gate("WorkloadIdentifierAnnotations"),
            elastic_jobs: gate("ElasticJobsViaWorkloadSlices"),
            // Set by a flag.
            provisioning_requests: true,
            history_bytes: reconciler::HISTORY_BYTES,
            node_failures: gate("TASFailedNodeReplacement").then(|| node_failure::NodeFailureGates {
                on_pod_termination: gate("TASReplaceNodeOnPodTermination"),
                on_taints: gate("TASReplaceNodeOnNodeTaints"),
                not_ready_over_fixed_time: gate("TASReplaceNodeDueToNotReadyOverFixedTime"),
            }),
        },
        ..reconciler::CoreSettings::default()
    }
}

/// Returns what Workloads take over from their jobs.
fn copied_keys(configuration: &Configuration) -> reconciler::CopiedKeys {
    let user_label = &configuration.visibility.user_label;
    reconciler::CopiedKeys {
        labels: configuration.integrations.label_keys_to_copy.clone(),
        submitter: Some(user_label.clone()).filter(|key| !key.is_empty()),
    }
}

/// Returns the settings of the scheduler.
fn engine_settings(configuration: &Configuration) -> EngineSettings {
    let gate = |name: &str| configuration.gates.enabled(name);
    let strategy = Some(configuration.resources.quota_check_strategy).filter(|_| gate("QuotaCheckStrategy"));
    let fair = |name: &String| match name.as_str() {
        "LessThanInitialShare" => FairStrategy::LessThanInitialShare,
        _ => FairStrategy::LessThanOrEqualToFinalShare,
    };
    let admission_fair_sharing =
        configuration.admission_fair_sharing.as_ref().filter(|_| gate("AdmissionFairSharing"));
    EngineSettings {
        undeclared_resources: match strategy.unwrap_or(QuotaCheckStrategy::BlockUndeclared) {
            QuotaCheckStrategy::BlockUndeclared => UndeclaredResources::Refuse,
            QuotaCheckStrategy::IgnoreUndeclared => UndeclaredResources::Ignore,
        },
        fair_sharing: configuration
            .fair_sharing
            .as_ref()
            .map(|section| section.preemption_strategies.iter().map(fair).collect()),
        admission_fair_sharing: admission_fair_sharing.map(|section| AdmissionFairSharing {
            half_life: section.usage_half_life_time.signed(),
            sampling_interval: section.usage_sampling_interval.signed(),
            resource_weights: section
                .resource_weights
                .iter()
                .map(|(resource, weight)| (Arc::from(resource.as_str()), *weight))
                .collect(),
        }),
        block_admission: configuration.wait_for_pods_ready.block_admission
            && configuration.waits_for_pods_ready(),
        gates: EngineGates {
            partial_admission: gate("PartialAdmission"),
            flavor_fungibility: gate("FlavorFungibility"),
            preserve_scan_progress: gate("FlavorFungibilityPreserveScanProgress"),
            priority_sorting_within_cohort: gate("PrioritySortingWithinCohort"),
            preempt_within_nominal: gate("FairSharingPreemptWithinNominal"),
            prioritize_non_borrowing: gate("FairSharingPrioritizeNonBorrowing"),
            recompute_on_overlap: gate("RecomputeAssignmentUponPreemptionTargetsOverlap"),
            elastic_slices: gate("ElasticJobsViaWorkloadSlices"),
            elastic_topology: gate("ElasticJobsViaWorkloadSlicesWithTAS"),
            concurrent_admission: gate("ConcurrentAdmission"),
            orchestrated_preemption: gate("MultiKueueOrchestratedPreemption"),
            topology: gate("TopologyAwareScheduling"),
            fail_fast: gate("TASFailedNodeReplacementFailFast"),
            recompute_topology: gate("TASRecomputeAssignmentWithinSchedulingCycle"),
            placement: topology::TasGates {
                mixed_profile: gate("TASProfileMixed"),
                balanced_placement: gate("TASBalancedPlacement"),
                respect_preferred_affinity: gate("TASRespectNodeAffinityPreferred"),
            },
        },
    }
}

/// Returns the settings of admission reviews.
pub fn admission_settings(configuration: &Configuration, namespace: &str) -> AdmissionSettings {
    AdmissionSettings {
        manage_jobs_without_queue_name: configuration.manage_jobs_without_queue_name,
        managed_namespaces: configuration.managed_namespaces(namespace),
        frameworks: frameworks(configuration),
        external_kinds: external_kinds(configuration),
        passing: reconciler::CoreSettings {
            frameworks: frameworks(configuration),
            ..reconciler::CoreSettings::default()
        }
        .passing(),
        gates: Gates::new(configuration.feature_gates.clone()),
        // Set by a flag.
        submitter: None,
    }
}

/// Returns the enabled optional metric families.
pub fn metric_families(configuration: &Configuration) -> MetricFamilies {
    let metrics = &configuration.metrics;
    MetricFamilies {
        cluster_queue_resources: metrics.enable_cluster_queue_resources,
        local_queues: metrics.local_queue_metrics.enable && configuration.gates.enabled("LocalQueueMetrics"),
        cohorts: configuration.gates.enabled("MetricsForCohorts"),
        creation_latency: configuration.gates.enabled("MetricForWorkloadCreationLatency"),
    }
}

/// Returns the enabled frameworks, supported or not: Jobs owned by their objects are managed.
fn frameworks(configuration: &Configuration) -> BTreeSet<String> {
    configuration.integrations.frameworks.iter().cloned().collect()
}

fn external_kinds(configuration: &Configuration) -> BTreeSet<(String, String)> {
    configuration
        .integrations
        .external_frameworks
        .iter()
        .filter_map(|name| parse_external_kind(name))
        .collect()
}

/// Returns group and kind of `Kind.version.group`.
fn parse_external_kind(name: &str) -> Option<(String, String)> {
    let (kind, rest) = name.split_once('.')?;
    let (_, group) = rest.split_once('.')?;
    Some((group.to_owned(), kind.to_owned()))
}

/// Returns the timeouts for waiting until pods are ready; `None` if workloads do not wait for them.
pub(super) fn pods_ready_limits(configuration: &Configuration) -> Option<pods_ready::PodsReadyLimits> {
    let wait = &configuration.wait_for_pods_ready;
    let requeuing = &wait.requeuing_strategy;
    configuration.waits_for_pods_ready().then(|| pods_ready::PodsReadyLimits {
        timeout: wait.timeout.signed(),
        recovery_timeout: wait.recovery().map(config::Duration::signed),
        max_requeues: requeuing.backoff_limit_count,
        backoff_base: backoff::seconds(requeuing.backoff_base_seconds),
        backoff_max: backoff::seconds(requeuing.backoff_max_seconds),
    })
}

fn lifecycle_settings(configuration: &Configuration) -> workload::LifecycleSettings {
    let retention =
        configuration.object_retention_policies.as_ref().and_then(|policies| policies.workloads.as_ref());
    workload::LifecycleSettings {
        pods_ready: pods_ready_limits(configuration),
        retain_finished: retention.and_then(|policy| policy.after_finished).map(config::Duration::signed),
        retain_deactivated: retention
            .and_then(|policy| policy.after_deactivated_by_kueue)
            .map(config::Duration::signed),
    }
}

fn resource_transform(resources: &config::Resources) -> Transform {
    let rule = |rule: &config::ResourceTransformation| {
        let multiply_by = Some(rule.multiply_by.as_str()).filter(|name| !name.is_empty());
        let output = |(name, each): (&String, &config::Quantity)| (Arc::from(name.as_str()), each.0.clone());
        let transformation = Transformation {
            strategy: match rule.strategy {
                TransformationStrategy::Retain => Strategy::Retain,
                TransformationStrategy::Replace => Strategy::Replace,
            },
            multiply_by: multiply_by.map(Arc::from),
            outputs: rule.outputs.iter().map(output).collect(),
        };
        (Arc::from(rule.input.as_str()), transformation)
    };
    Transform {
        exclude_prefixes: resources.exclude_resource_prefixes.clone(),
        transformations: resources.transformations.iter().map(rule).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    /// Disables the gate and all gates that require it and are on by default.
    const WITHOUT_TOPOLOGY: &str =
        "featureGates: {TopologyAwareScheduling: false, TASFailedNodeReplacement: false,
        TASFailedNodeReplacementFailFast: false, TASReplaceNodeOnPodTermination: false,
        TASReplaceNodeOnNodeTaints: false, TASMultiLayerTopology: false, TASHandleOverlappingFlavors: false,
        TASProfileMixed: false, TASRecomputeAssignmentWithinSchedulingCycle: false}";

    fn loaded(body: &str) -> Configuration {
        let head = format!("apiVersion: {}\nkind: Configuration\n", config::API_VERSION);
        config::parse(&format!("{head}{body}\n"), &crate::frameworks::known_frameworks())
            .unwrap()
            .configuration
    }

    fn core_of(body: &str) -> reconciler::CoreSettings {
        core_settings(&loaded(body), "here")
    }

    #[test]
    fn pods_ready_limits_cases() {
        let seconds = SignedDuration::from_secs;
        let standard = pods_ready::PodsReadyLimits {
            timeout: seconds(1800),
            recovery_timeout: Some(seconds(1800)),
            max_requeues: None,
            backoff_base: seconds(60),
            backoff_max: seconds(3600),
        };
        let table = [
            ("", standard.clone()),
            (
                "{timeout: 5m}",
                pods_ready::PodsReadyLimits {
                    timeout: seconds(300),
                    recovery_timeout: Some(seconds(300)),
                    ..standard.clone()
                },
            ),
            (
                "{recoveryTimeout: 0s}",
                pods_ready::PodsReadyLimits { recovery_timeout: None, ..standard.clone() },
            ),
            (
                "{recoveryTimeout: 90s}",
                pods_ready::PodsReadyLimits { recovery_timeout: Some(seconds(90)), ..standard.clone() },
            ),
            (
                "{requeuingStrategy: {backoffLimitCount: 0, backoffBaseSeconds: 1, backoffMaxSeconds: 9}}",
                pods_ready::PodsReadyLimits {
                    max_requeues: Some(0),
                    backoff_base: seconds(1),
                    backoff_max: seconds(9),
                    ..standard
                },
            ),
        ];
        for (section, expected) in table {
            let body =
                if section.is_empty() { String::new() } else { format!("waitForPodsReady: {section}") };
            assert_eq!(core_of(&body).lifecycle.pods_ready, Some(expected), "{section}");
        }
    }

    #[test]
    fn requeue_timestamp_cases() {
        for (timestamp, expected) in [("Creation", true), ("Eviction", false)] {
            let body = format!("waitForPodsReady: {{requeuingStrategy: {{timestamp: {timestamp}}}}}");
            assert_eq!(core_of(&body).requeue_by_creation, expected, "{timestamp}");
        }
        assert!(!core_of("").requeue_by_creation);
    }

    #[test]
    fn retention_cases() {
        let hour = Some(SignedDuration::from_hours(1));
        let table = [
            ("", None),
            ("objectRetentionPolicies: {}", None),
            ("objectRetentionPolicies: {workloads: {afterFinished: 1h}}", hour),
            ("objectRetentionPolicies: {workloads: {afterFinished: 0s}}", Some(SignedDuration::ZERO)),
        ];
        for (body, finished) in table {
            assert_eq!(core_of(body).lifecycle.retain_finished, finished, "{body}");
            let deactivated = core_of(&body.replace("afterFinished", "afterDeactivatedByKueue"));
            assert_eq!(deactivated.lifecycle.retain_deactivated, finished, "{body}");
        }
    }

    #[test]
    fn resource_settings_reach_core() {
        let settings = core_of(
            "resources: {excludeResourcePrefixes: [example.com/], transformations: [
                {input: a/gpu, strategy: Replace, outputs: {a/credits: 5, a/memory: 10Gi}},
                {input: a/slice, multiplyBy: cpu, outputs: {a/share: 500m}}]}",
        );
        assert_eq!(settings.engine.undeclared_resources, UndeclaredResources::Refuse);
        let transform = settings.transform;
        assert_eq!(transform.exclude_prefixes, ["example.com/"]);
        let shown: Vec<String> = transform
            .transformations
            .iter()
            .map(|(input, rule)| {
                let outputs: Vec<String> =
                    rule.outputs.iter().map(|(name, each)| format!("{name}={each}")).collect();
                format!("{input} {:?} {:?} {}", rule.strategy, rule.multiply_by, outputs.join(","))
            })
            .collect();
        let expected =
            ["a/gpu Replace None a/credits=5,a/memory=10Gi", "a/slice Retain Some(\"cpu\") a/share=500m"];
        assert_eq!(shown, expected);
        let ignoring = core_of("resources: {quotaCheckStrategy: IgnoreUndeclared}");
        assert_eq!(ignoring.engine.undeclared_resources, UndeclaredResources::Ignore);
    }

    #[test]
    fn fair_sharing_reaches_scheduler() {
        use FairStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
        let settings = core_of("").engine;
        assert_eq!((settings.fair_sharing, settings.admission_fair_sharing), (None, None));
        let both = core_of(
            "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}",
        );
        let order = Some(vec![LessThanOrEqualToFinalShare, LessThanInitialShare]);
        assert_eq!(both.engine.fair_sharing, order);
        let body = "admissionFairSharing: {usageHalfLifeTime: 1h, resourceWeights: {cpu: 2}}";
        let past = core_of(body).engine.admission_fair_sharing.unwrap();
        assert_eq!(
            (past.half_life, past.sampling_interval),
            (SignedDuration::from_hours(1), SignedDuration::from_mins(5))
        );
        assert_eq!(past.resource_weights.get("cpu").copied(), Some(2.0));
        let off = core_of(&format!(
            "{body}\nfeatureGates: {{AdmissionFairSharing: false, PartialAdmission: false}}"
        ));
        assert_eq!(off.engine.admission_fair_sharing, None);
        assert!(!off.engine.gates.partial_admission && off.engine.gates.flavor_fungibility);
    }

    #[test]
    fn unqueued_job_settings_reach_core_and_reviews() {
        let body = "manageJobsWithoutQueueName: true
managedJobsNamespaceSelector: {matchLabels: {team: a}}
integrations: {frameworks: [batch/job], labelKeysToCopy: [kept]}";
        let (core, reviews) = (core_of(body), admission_settings(&loaded(body), "here"));
        assert!(core.manage_jobs_without_queue_name && reviews.manage_jobs_without_queue_name);
        assert_eq!(core.copied.labels, ["kept"]);
        assert_eq!(core.managed_namespaces, reviews.managed_namespaces);
        assert_eq!(core.managed_namespaces.match_labels.unwrap()["team"], "a");
    }

    #[test]
    fn managed_kinds_cases() {
        let table = [
            ("", vec!["batch/job"], vec![]),
            (
                "integrations: {frameworks: [batch/job, pod, ray.io/rayjob]}",
                vec!["batch/job", "pod", "ray.io/rayjob"],
                vec![],
            ),
            (
                "integrations: {frameworks: [pod], externalFrameworks: [Foo.v1.example.com]}",
                vec!["pod"],
                vec![("example.com", "Foo")],
            ),
        ];
        for (body, frameworks, external) in table {
            let settings = admission_settings(&loaded(body), "here");
            assert_eq!(settings.frameworks.iter().collect::<Vec<_>>(), frameworks, "{body}");
            let external: BTreeSet<_> =
                external.into_iter().map(|(group, kind)| (group.to_owned(), kind.to_owned())).collect();
            assert_eq!(settings.external_kinds, external, "{body}");
        }
    }

    #[test]
    fn gates_reach_core() {
        assert_eq!(core_of("").gates, reconciler::CoreGates::default());
        let off = core_of(
            "featureGates: {AdmissionGatedBy: false, PriorityBoost: true, AssignQueueLabelsForPods: false,
            FinishOrphanedWorkloads: false, CleanupProvisioningRequestsOnEviction: false, ReclaimablePods: false, WorkloadIdentifierAnnotations: false,
            DisableWaitForPodsReady: true, QuotaCheckStrategy: false,
            ElasticJobsViaWorkloadSlices: false, TASBalancedPlacement: true, TASFailedNodeReplacement: false,
            TASFailedNodeReplacementFailFast: false, TASReplaceNodeOnPodTermination: false}
resources: {quotaCheckStrategy: IgnoreUndeclared}",
        );
        let gates = reconciler::CoreGates {
            admission_gated_by: false,
            priority_boost: true,
            queue_labels_on_pods: false,
            finish_orphaned_workloads: false,
            cleanup_provisioning_requests_on_eviction: false,
            reclaimable_pods: false,
            identifier_annotations: false,
            elastic_jobs: false,
            provisioning_requests: true,
            history_bytes: reconciler::HISTORY_BYTES,
            node_failures: None,
        };
        assert_eq!(off.gates, gates);
        assert_eq!(
            (off.lifecycle.pods_ready, off.engine.undeclared_resources),
            (None, UndeclaredResources::Refuse)
        );
        let placement = topology::TasGates { balanced_placement: true, ..topology::TasGates::default() };
        let gates =
            EngineGates { elastic_slices: false, fail_fast: false, placement, ..EngineGates::default() };
        assert_eq!(off.engine.gates, gates);
        assert!(!core_of(WITHOUT_TOPOLOGY).engine.gates.topology);
        assert!(
            core_of("featureGates: {ElasticJobsViaWorkloadSlicesWithTAS: true}")
                .engine
                .gates
                .elastic_topology
        );
        assert_eq!(core_of("").engine.gates, EngineGates::default());
    }

    #[test]
    fn metric_families_cases() {
        let shown = |body: &str| {
            let settings = metric_families(&loaded(body));
            (settings.local_queues, settings.cohorts, settings.creation_latency)
        };
        assert_eq!(shown(""), (true, true, true));
        assert_eq!(shown("metrics: {localQueueMetrics: {enable: false}}"), (false, true, true));
        let off = "featureGates: {LocalQueueMetrics: false, MetricsForCohorts: false, MetricForWorkloadCreationLatency: false}";
        assert_eq!(shown(off), (false, false, false));
    }

    #[test]
    fn gates_reach_reviews() {
        use crate::api::validation::Gate;
        for (body, expected) in [("", true), (WITHOUT_TOPOLOGY, false)] {
            assert_eq!(
                admission_settings(&loaded(body), "here").gates.is_enabled(Gate::TopologyAwareScheduling),
                expected
            );
        }
    }
}

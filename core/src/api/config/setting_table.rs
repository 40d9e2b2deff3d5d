//! Every setting of the configuration: whether it is honoured, and whether a change of it needs a restart.
//!
//! What it means and its default are in the types (`types.rs`). Invariant: the table has a row for each field of the types, so
//! that no setting is accepted without a decision on it. The checks of a file, `sluice config check` and docs/configure.md read it.

/// What becomes of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Support {
    /// It has its meaning.
    Honoured,
    /// It has its meaning unless the feature gate has this value.
    Unless(&'static str, bool),
    /// It has its meaning under a condition; contains what happens otherwise. The check of the condition is in `unsupported`.
    Conditional(&'static str),
    /// Only the default is accepted; contains the reason. The check is in `validate`.
    DefaultOnly(&'static str),
    /// It is accepted with a warning; contains the reason.
    Ignored(&'static str),
    /// It is refused; contains the reason.
    Refused(&'static str),
}
use Support::{Conditional, DefaultOnly, Honoured, Ignored, Refused, Unless};

/// A setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Path from the top of the file; `[]` stands for each entry of a list.
    pub(super) path: &'static str,
    pub(super) support: Support,
    /// The default in words, where the types have none.
    pub(super) default: Option<&'static str>,
    /// Whether a change has its effect without a restart.
    pub(super) live: bool,
}

impl Setting {
    /// Returns the place in a document, or `None` for a field of the entries of a list.
    pub(super) fn pointer(&self) -> Option<String> {
        (!self.path.contains("[]")).then(|| format!("/{}", self.path.replace('.', "/")))
    }

    const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    const fn live(self) -> Self {
        Self { live: true, ..self }
    }
}

/// Returns the setting of this path.
pub(super) fn find(path: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.path == path)
}

const fn row(path: &'static str, support: Support) -> Setting {
    Setting { path, support, default: None, live: false }
}

const fn honoured(path: &'static str) -> Setting {
    row(path, Honoured)
}

const CLUSTERS: Support = Ignored("jobs are not sent to other clusters");
const LABELS: Support = Ignored("metrics have no labels of their own");
const VISIBILITY: Support = Unless("VisibilityOnDemand", false);
const WITHOUT_LOCAL_QUEUES: Support = Unless("LocalQueueMetrics", false);
const WITHOUT_TIMEOUTS: Support = Unless("DisableWaitForPodsReady", true);
const WITHOUT_PAST_USAGE: Support = Unless("AdmissionFairSharing", false);

/// All settings, by section.
pub(super) static SETTINGS: &[Setting] = &[
    honoured("apiVersion"),
    honoured("kind"),
    honoured("namespace").or("the pod's, else kueue-system"),
    honoured("webhook.port"),
    honoured("webhook.host"),
    row(
        "webhook.certDir",
        Conditional("without effect while internalCertManagement is enabled: its Secret is served"),
    ),
    honoured("health.healthProbeBindAddress"),
    honoured("health.readinessEndpointName"),
    honoured("health.livenessEndpointName"),
    honoured("metrics.bindAddress"),
    honoured("metrics.enableClusterQueueResources"),
    row("metrics.localQueueMetrics.enable", WITHOUT_LOCAL_QUEUES),
    row("metrics.localQueueMetrics.localQueueSelector", WITHOUT_LOCAL_QUEUES),
    row("metrics.customLabels", LABELS),
    row("metrics.customLabels[].name", LABELS),
    row("metrics.customLabels[].sourceLabelKey", LABELS),
    row("metrics.customLabels[].sourceAnnotationKey", LABELS),
    row("metrics.customLabels[].sourceKind", LABELS),
    row("metrics.customLabels[].trackedValues", LABELS),
    honoured("leaderElection.leaderElect"),
    honoured("leaderElection.leaseDuration"),
    honoured("leaderElection.renewDeadline"),
    honoured("leaderElection.retryPeriod"),
    row("leaderElection.resourceLock", DefaultOnly("there is no other kind of lock")),
    honoured("leaderElection.resourceName"),
    honoured("leaderElection.resourceNamespace").or("the manager's"),
    row("controller.groupKindConcurrency", Ignored("one task serves all kinds")),
    honoured("controller.cacheSyncTimeout").or("no limit"),
    honoured("tls.minVersion"),
    honoured("tls.cipherSuites"),
    honoured("tls.curvePreferences"),
    row("pprofBindAddress", Ignored("there is no profiler")),
    honoured("manageJobsWithoutQueueName"),
    honoured("managedJobsNamespaceSelector").or("all but kube-system and the manager's"),
    honoured("internalCertManagement.enable"),
    honoured("internalCertManagement.webhookServiceName"),
    honoured("internalCertManagement.webhookSecretName"),
    row("waitForPodsReady.timeout", WITHOUT_TIMEOUTS).live(),
    row("waitForPodsReady.blockAdmission", WITHOUT_TIMEOUTS),
    row("waitForPodsReady.recoveryTimeout", WITHOUT_TIMEOUTS).or("waitForPodsReady.timeout").live(),
    row("waitForPodsReady.requeuingStrategy.timestamp", WITHOUT_TIMEOUTS),
    row("waitForPodsReady.requeuingStrategy.backoffLimitCount", WITHOUT_TIMEOUTS).or("no limit").live(),
    row("waitForPodsReady.requeuingStrategy.backoffBaseSeconds", WITHOUT_TIMEOUTS).live(),
    row("waitForPodsReady.requeuingStrategy.backoffMaxSeconds", WITHOUT_TIMEOUTS).live(),
    honoured("clientConnection.qps"),
    honoured("clientConnection.burst"),
    row(
        "integrations.frameworks",
        Conditional("an empty list enables no framework, where Kueue takes batch/job"),
    )
    .or("batch/job"),
    honoured("integrations.externalFrameworks"),
    honoured("integrations.labelKeysToCopy"),
    row("multiKueue.gcInterval", CLUSTERS),
    row("multiKueue.origin", CLUSTERS),
    row("multiKueue.workerLostTimeout", CLUSTERS),
    row("multiKueue.dispatcherName", CLUSTERS),
    row("multiKueue.incrementalDispatcherConfig.stepSize", CLUSTERS),
    row("multiKueue.externalFrameworks", CLUSTERS),
    row("multiKueue.externalFrameworks[].name", CLUSTERS),
    row("multiKueue.clusterProfile.accessProviders", CLUSTERS),
    row("multiKueue.clusterProfile.accessProviders[].name", CLUSTERS),
    row("multiKueue.clusterProfile.accessProviders[].execConfig", CLUSTERS),
    row("multiKueue.clusterProfile.credentialsProviders", CLUSTERS),
    row("multiKueue.clusterProfile.credentialsProviders[].name", CLUSTERS),
    row("multiKueue.clusterProfile.credentialsProviders[].execConfig", CLUSTERS),
    honoured("fairSharing.preemptionStrategies").or("off without the section"),
    row("admissionFairSharing.usageHalfLifeTime", WITHOUT_PAST_USAGE),
    row("admissionFairSharing.usageSamplingInterval", WITHOUT_PAST_USAGE),
    row("admissionFairSharing.resourceWeights", WITHOUT_PAST_USAGE).or("1 for each resource"),
    honoured("resources.excludeResourcePrefixes"),
    row("resources.quotaCheckStrategy", Unless("QuotaCheckStrategy", false)),
    honoured("resources.transformations"),
    honoured("resources.transformations[].input"),
    honoured("resources.transformations[].strategy"),
    honoured("resources.transformations[].multiplyBy"),
    honoured("resources.transformations[].outputs"),
    row("resources.deviceClassMappings", Refused("devices have no quota")),
    honoured("featureGates"),
    honoured("objectRetentionPolicies.workloads.afterFinished").or("kept"),
    honoured("objectRetentionPolicies.workloads.afterDeactivatedByKueue").or("kept"),
    row("visibilityServer.bindAddress", VISIBILITY),
    row("visibilityServer.bindPort", VISIBILITY),
    honoured("visibility.userLabel").or("sluice.dev/submitter with --record-submitter, else none"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::config::schema_check::leaves;
    use std::collections::BTreeSet;

    /// The table has a row for each field of the types, and no other.
    #[test]
    fn table_is_complete() {
        let named: BTreeSet<String> = SETTINGS.iter().map(|setting| setting.path.to_owned()).collect();
        assert_eq!(named.len(), SETTINGS.len());
        let fields: BTreeSet<String> = leaves().into_iter().map(|(path, _)| path).collect();
        assert_eq!(named, fields);
    }

    /// Each field has a description, which is its meaning in docs/configure.md.
    #[test]
    fn each_field_is_described() {
        for (path, description) in leaves() {
            assert!(!description.is_empty(), "{path}");
        }
    }
}

//! Every setting has an effect, is named in a warning, or is refused.

use super::{ManagerArgs, from_configuration};
use crate::api::config;
use clap::Parser;
use std::collections::BTreeSet;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: ManagerArgs,
}

/// Each field of the configuration, a document that sets it to a value other than its default (with required settings
/// on further lines), and the expected result: used by a part of the manager, warned about, or refused.
const FIELDS: &[(&str, &str, &str)] = &[
    ("namespace", "namespace: elsewhere", "used"),
    ("webhook.port", "webhook: {port: 1}", "used"),
    ("webhook.host", "webhook: {host: '::1'}", "used"),
    ("webhook.certDir", "webhook: {certDir: /a}\ninternalCertManagement: {enable: false}", "used"),
    ("webhook.certDir", "webhook: {certDir: /a}", "warned"),
    ("health.healthProbeBindAddress", "health: {healthProbeBindAddress: ':1'}", "used"),
    ("health.readinessEndpointName", "health: {readinessEndpointName: a}", "used"),
    ("health.livenessEndpointName", "health: {livenessEndpointName: a}", "used"),
    ("metrics.bindAddress", "metrics: {bindAddress: ':1'}", "used"),
    ("metrics.enableClusterQueueResources", "metrics: {enableClusterQueueResources: true}", "used"),
    ("metrics.localQueueMetrics.enable", "metrics: {localQueueMetrics: {enable: false}}", "used"),
    (
        "metrics.localQueueMetrics.localQueueSelector",
        "metrics: {localQueueMetrics: {localQueueSelector: {matchLabels: {a: b}}}}",
        "used",
    ),
    ("metrics.customLabels", "metrics: {customLabels: [{name: a}]}", "warned"),
    ("leaderElection.leaderElect", "leaderElection: {leaderElect: false}", "used"),
    ("leaderElection.leaseDuration", "leaderElection: {leaseDuration: 60s}", "used"),
    ("leaderElection.renewDeadline", "leaderElection: {renewDeadline: 11s}", "used"),
    ("leaderElection.retryPeriod", "leaderElection: {retryPeriod: 1s}", "used"),
    ("leaderElection.resourceLock", "leaderElection: {resourceLock: configmaps}", "refused"),
    ("leaderElection.resourceName", "leaderElection: {resourceName: a}", "used"),
    ("leaderElection.resourceNamespace", "leaderElection: {resourceNamespace: a}", "used"),
    ("controller.groupKindConcurrency", "controller: {groupKindConcurrency: {Pod: 5}}", "warned"),
    ("controller.cacheSyncTimeout", "controller: {cacheSyncTimeout: 1000000000}", "used"),
    ("tls.minVersion", "tls: {minVersion: VersionTLS13}", "used"),
    ("tls.cipherSuites", "tls: {cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}", "used"),
    ("tls.curvePreferences", "tls: {curvePreferences: [29]}", "used"),
    ("pprofBindAddress", "pprofBindAddress: ':1'", "warned"),
    ("manageJobsWithoutQueueName", "manageJobsWithoutQueueName: true", "used"),
    ("managedJobsNamespaceSelector", "managedJobsNamespaceSelector: {matchLabels: {a: b}}", "used"),
    ("internalCertManagement.enable", "internalCertManagement: {enable: false}", "used"),
    ("internalCertManagement.webhookServiceName", "internalCertManagement: {webhookServiceName: a}", "used"),
    ("internalCertManagement.webhookSecretName", "internalCertManagement: {webhookSecretName: a}", "used"),
    ("waitForPodsReady.timeout", "waitForPodsReady: {timeout: 1m}", "used"),
    ("waitForPodsReady.blockAdmission", "waitForPodsReady: {blockAdmission: true}", "used"),
    ("waitForPodsReady.recoveryTimeout", "waitForPodsReady: {recoveryTimeout: 1m}", "used"),
    (
        "waitForPodsReady.requeuingStrategy.timestamp",
        "waitForPodsReady: {requeuingStrategy: {timestamp: Creation}}",
        "used",
    ),
    (
        "waitForPodsReady.requeuingStrategy.backoffLimitCount",
        "waitForPodsReady: {requeuingStrategy: {backoffLimitCount: 1}}",
        "used",
    ),
    (
        "waitForPodsReady.requeuingStrategy.backoffBaseSeconds",
        "waitForPodsReady: {requeuingStrategy: {backoffBaseSeconds: 1}}",
        "used",
    ),
    (
        "waitForPodsReady.requeuingStrategy.backoffMaxSeconds",
        "waitForPodsReady: {requeuingStrategy: {backoffMaxSeconds: 1}}",
        "used",
    ),
    ("clientConnection.qps", "clientConnection: {qps: 1}", "used"),
    ("clientConnection.burst", "clientConnection: {burst: 1}", "used"),
    ("integrations.frameworks", "integrations: {frameworks: [pod]}", "used"),
    ("integrations.externalFrameworks", "integrations: {externalFrameworks: [A.v1.b]}", "used"),
    ("integrations.labelKeysToCopy", "integrations: {labelKeysToCopy: [a]}", "used"),
    ("multiKueue.gcInterval", "multiKueue: {gcInterval: 1s}", "warned"),
    ("multiKueue.origin", "multiKueue: {origin: a}", "warned"),
    ("multiKueue.workerLostTimeout", "multiKueue: {workerLostTimeout: 1s}", "warned"),
    ("multiKueue.dispatcherName", "multiKueue: {dispatcherName: a}", "warned"),
    (
        "multiKueue.incrementalDispatcherConfig.stepSize",
        "multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental,
          incrementalDispatcherConfig: {stepSize: 1}}",
        "warned",
    ),
    ("multiKueue.externalFrameworks", "multiKueue: {externalFrameworks: [{name: A.v1.b}]}", "warned"),
    (
        "multiKueue.clusterProfile.accessProviders",
        "multiKueue: {clusterProfile: {accessProviders: [{name: a}]}}",
        "warned",
    ),
    (
        "multiKueue.clusterProfile.credentialsProviders",
        "multiKueue: {clusterProfile: {credentialsProviders: [{name: a}]}}",
        "warned",
    ),
    (
        "fairSharing.preemptionStrategies",
        "fairSharing: {preemptionStrategies: [LessThanInitialShare]}",
        "used",
    ),
    ("admissionFairSharing.usageHalfLifeTime", "admissionFairSharing: {usageHalfLifeTime: 1s}", "used"),
    (
        "admissionFairSharing.usageSamplingInterval",
        "admissionFairSharing: {usageSamplingInterval: 1s}",
        "used",
    ),
    ("admissionFairSharing.resourceWeights", "admissionFairSharing: {resourceWeights: {cpu: 2}}", "used"),
    ("resources.excludeResourcePrefixes", "resources: {excludeResourcePrefixes: [a]}", "used"),
    ("resources.quotaCheckStrategy", "resources: {quotaCheckStrategy: IgnoreUndeclared}", "used"),
    ("resources.transformations", "resources: {transformations: [{input: a}]}", "used"),
    ("resources.deviceClassMappings", "resources: {deviceClassMappings: [{name: a}]}", "refused"),
    ("featureGates", "featureGates: {PartialAdmission: false}", "used"),
    (
        "objectRetentionPolicies.workloads.afterFinished",
        "objectRetentionPolicies: {workloads: {afterFinished: 1s}}",
        "used",
    ),
    (
        "objectRetentionPolicies.workloads.afterDeactivatedByKueue",
        "objectRetentionPolicies: {workloads: {afterDeactivatedByKueue: 1s}}",
        "used",
    ),
    ("visibilityServer.bindAddress", "visibilityServer: {bindAddress: '::1'}", "used"),
    ("visibilityServer.bindPort", "visibilityServer: {bindPort: 1}", "used"),
    ("visibility.userLabel", "visibility: {userLabel: example.com/user}", "used"),
];

/// Returns the settings of all parts of the manager as text, and the warnings.
fn effect(body: &str) -> Result<(String, Vec<String>), String> {
    let head = format!("apiVersion: {}\nkind: Configuration\n", config::API_VERSION);
    let loaded = config::parse(&format!("{head}{body}\n"), &crate::frameworks::known_frameworks())
        .map_err(|error| error.to_string())?;
    let warnings = loaded.warnings.clone();
    Ok((parts(loaded.configuration)?, warnings))
}

/// Returns the settings of all parts of the manager as text.
pub(super) fn parts(configuration: config::Configuration) -> Result<String, String> {
    let args = Command::parse_from(["manager", "--identity", "a"]).args;
    let settings = from_configuration(args, configuration).map_err(|error| error.to_string())?;
    let configuration = &settings.configuration;
    let lease = settings.lease().map_err(|error| error.to_string())?;
    // Settings of the listeners.
    let listeners = (&settings.listen, &configuration.health, &configuration.tls);
    let parts = (settings.core(), settings.admission(), settings.families(), settings.rate());
    let more = (lease, settings.certificates(), settings.sync_timeout());
    Ok(format!("{listeners:?} {parts:?} {more:?}"))
}

#[test]
fn every_setting_is_used_warned_or_refused() {
    assert_eq!(effect("").unwrap().1, Vec::<String>::new());
    for (path, body, want) in FIELDS {
        let result = effect(body);
        let named = |text: &String| text.starts_with(&format!("{path}: "));
        let section = path.split('.').next().unwrap();
        match result {
            Err(error) => assert!(*want == "refused" && error.contains(path), "{path}: {error}"),
            Ok((parts, warnings)) if warnings.is_empty() => {
                // The required settings on further lines alone must give another result.
                let without = body.split_once('\n').map_or("", |(_, rest)| rest);
                let same = parts == effect(without).unwrap().0;
                assert!(*want == "used" && !same, "{path}: {want}, but not used");
            }
            Ok((_, warnings)) => {
                assert!(*want == "warned" && warnings.iter().any(named), "{path}: {warnings:?}");
                assert!(warnings.iter().all(|text| text.starts_with(section)), "{path}: {warnings:?}");
            }
        }
    }
}

/// The table contains every setting of a configuration.
#[test]
fn field_table_is_complete() {
    let loaded = config::load(config::defaults(), &crate::frameworks::known_frameworks()).unwrap();
    let settings = config::settings_in_force(&serde_json::Value::Null, &loaded.configuration);
    let listed: BTreeSet<&str> = settings.iter().map(|setting| setting.name).collect();
    let named: BTreeSet<&str> = FIELDS.iter().map(|(path, ..)| *path).chain(["apiVersion", "kind"]).collect();
    assert_eq!(named, &listed | &BTreeSet::from(["featureGates"]));
}

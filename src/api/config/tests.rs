//! Tests of accepted files with their warnings and of refused files with their reasons.

use super::*;

fn file(body: &str) -> String {
    format!("apiVersion: {API_VERSION}\nkind: Configuration\n{body}\n")
}

#[test]
fn empty_file_means_defaults() {
    for text in ["", &file("")] {
        let loaded = parse(text).unwrap();
        let configuration = loaded.configuration;
        assert_eq!(loaded.warnings, Vec::<String>::new());
        assert_eq!(configuration.webhook.port, 9443);
        assert_eq!(configuration.integrations.frameworks, [BATCH_JOB]);
        assert_eq!(configuration.wait_for_pods_ready.timeout, Duration::from_secs(1800));
        assert_eq!(configuration.wait_for_pods_ready.recovery(), Some(Duration::from_secs(1800)));
        assert_eq!(configuration.leader_election.resource_name, "c1f6bfd2.kueue.x-k8s.io");
        assert_eq!(configuration.controller.sync_timeout(), None);
        let selector = configuration.managed_namespaces("here").match_expressions.unwrap();
        assert_eq!(selector[0].values.as_deref().unwrap(), ["kube-system", "here"]);
    }
}

#[test]
fn invalid_values_are_refused_with_path() {
    let table = [
        ("nonsense: 1", "nonsense: unknown field"),
        ("webhook: {prot: 1}", "webhook.prot: unknown field"),
        ("metrics: {customLabels: [{nam: a}]}", "metrics.customLabels[0].nam: unknown field"),
        ("webhook: {port: many}", "webhook.port: must be of type integer"),
        ("waitForPodsReady: {timeout: 5}", "waitForPodsReady.timeout: must be of type string"),
        (
            "waitForPodsReady: {timeout: 5d}",
            "waitForPodsReady.timeout: must be a duration such as 5m or 1h30m",
        ),
        ("waitForPodsReady: {timeout: 0s}", "waitForPodsReady.timeout: must be greater than 0"),
        (
            "waitForPodsReady: {recoveryTimeout: -1s}",
            "waitForPodsReady.recoveryTimeout: must not be negative",
        ),
        ("waitForPodsReady: {requeuingStrategy: {timestamp: Never}}", "must be one of Eviction, Creation"),
        (
            "waitForPodsReady: {requeuingStrategy: {backoffBaseSeconds: -1}}",
            "backoffBaseSeconds: must not be negative",
        ),
        ("resources: {deviceClassMappings: [{name: a}]}", "resources.deviceClassMappings: is not supported"),
        (
            "resources: {quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [a]}",
            "resources.excludeResourcePrefixes: cannot be set",
        ),
        (
            "resources: {transformations: [{input: a}, {input: a}]}",
            "resources.transformations[1].input: must be unique",
        ),
        (
            "integrations: {frameworks: [batch/jobs]}",
            "integrations.frameworks[0]: unknown framework batch/jobs",
        ),
        ("integrations: {frameworks: [pod, pod]}", "integrations.frameworks[1]: pod is listed twice"),
        (
            "managedJobsNamespaceSelector: {}",
            "managedJobsNamespaceSelector: must not match namespace kube-system",
        ),
        ("featureGates: {Wonder: true}", "featureGates.Wonder: unknown feature gate"),
        (
            "featureGates: {ConcurrentAdmission: true}",
            "featureGates.ConcurrentAdmission: cannot be set to true",
        ),
        ("featureGates: {PartialAdmission: 1}", "featureGates.PartialAdmission: must be of type boolean"),
        (
            "leaderElection: {leaseDuration: 5s}",
            "leaderElection.leaseDuration: must be greater than renewDeadline",
        ),
        ("tls: {minVersion: VersionTLS13, cipherSuites: [a]}", "tls.cipherSuites: cannot be set"),
        ("tls: {minVersion: VersionTLS11}", "tls.minVersion: must be VersionTLS12 or VersionTLS13"),
        (
            "tls: {cipherSuites: [TLS_AES_128_GCM_SHA256, TLS_RSA_WITH_AES_128_CBC_SHA]}",
            "tls.cipherSuites[1]: TLS_RSA_WITH_AES_128_CBC_SHA is not supported; there are TLS_ECDHE_",
        ),
        ("tls: {curvePreferences: [X25519, 25]}", "tls.curvePreferences[1]: 25 is not supported"),
        ("integrations: {externalFrameworks: [Foo.v1]}", "externalFrameworks[0]: \"Foo.v1\" must be Kind."),
        (
            "integrations: {externalFrameworks: [Job.v1.batch]}",
            "externalFrameworks[0]: batch/job is built in",
        ),
        (
            "integrations: {externalFrameworks: [A.v1.b.c, A.v1.b.c]}",
            "externalFrameworks[1]: A.v1.b.c is listed",
        ),
        (
            "metrics: {localQueueMetrics: {localQueueSelector: {matchExpressions: [{key: a, operator: In}]}}}",
            "metrics.localQueueMetrics.localQueueSelector.matchExpressions[0]: values must be set",
        ),
        (
            "featureGates: {RemoveFinalizersWithStrictPatch: false}",
            "featureGates.RemoveFinalizersWithStrictPatch: cannot be set to false: every write carries",
        ),
        ("visibilityServer: {bindPort: 0}", "visibilityServer.bindPort: must be between"),
        ("internalCertManagement: {webhookServiceName: A_b}", "webhookServiceName: must be a DNS name"),
        ("multiKueue: {incrementalDispatcherConfig: {}}", "multiKueue.incrementalDispatcherConfig: needs"),
        (
            "objectRetentionPolicies: {workloads: {afterFinished: -1s}}",
            "objectRetentionPolicies.workloads.afterFinished: must not be negative",
        ),
    ];
    for (body, reason) in table {
        refused(body, reason);
    }
}

#[test]
fn invalid_custom_labels_are_refused_with_path() {
    let table = [
        ("metrics: {customLabels: [{name: 1a}]}", "customLabels[0].name: must match"),
        ("metrics: {customLabels: [{name: a}, {name: a}]}", "customLabels[1].name: must be unique"),
        (
            "metrics: {customLabels: [{name: a, sourceLabelKey: b, sourceAnnotationKey: c}]}",
            "customLabels[0]: sourceLabelKey and sourceAnnotationKey are mutually exclusive",
        ),
        (
            "metrics: {customLabels: [{name: a, sourceKind: Workload}, {name: b, sourceKind: Workload}, {name: c, sourceKind: Workload}]}",
            "customLabels[2].sourceKind: at most 2 entries may use this sourceKind",
        ),
    ];
    for (body, reason) in table {
        refused(body, reason);
    }
}

fn refused(body: &str, reason: &str) {
    let error = parse(&file(body)).expect_err(body);
    assert!(error.to_string().contains(reason), "{body}: {error}");
}

#[test]
fn invalid_fair_sharing_is_refused_with_path() {
    let table = [
        (
            "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}",
            "fairSharing.preemptionStrategies: must be LessThanOrEqualToFinalShare",
        ),
        ("fairSharing: {}", "fairSharing.preemptionStrategies: must be set"),
        ("fairSharing: {preemptionStrategies: [Fairest]}", "fairSharing.preemptionStrategies: must be"),
        (
            "admissionFairSharing: {usageHalfLifeTime: -1s}",
            "admissionFairSharing.usageHalfLifeTime: must not be negative",
        ),
        (
            "admissionFairSharing: {usageSamplingInterval: 0s}",
            "admissionFairSharing.usageSamplingInterval: must be greater than 0",
        ),
        (
            "admissionFairSharing: {resourceWeights: {cpu: -1}}",
            "admissionFairSharing.resourceWeights.cpu: must be a number",
        ),
    ];
    for (body, reason) in table {
        refused(body, reason);
    }
}

#[test]
fn other_versions_are_refused_by_name() {
    let old = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n";
    let error = parse(old).unwrap_err().to_string();
    assert!(error.contains("v1beta1") && error.contains(API_VERSION), "{error}");
    assert!(parse("kind: Configuration").is_err());
    assert!(parse("{").is_err());
}

#[test]
fn unsupported_values_are_ignored_with_warning() {
    let table = [
        ("multiKueue: {gcInterval: 2m}", "multiKueue"),
        ("visibilityServer: {bindPort: 8083}", "visibilityServer"),
        ("metrics: {customLabels: [{name: team}]}", "metrics.customLabels"),
        (
            "integrations: {frameworks: [batch/job, pod, ray.io/rayjob]}",
            "integrations.frameworks: pod, ray.io/rayjob",
        ),
        ("controller: {groupKindConcurrency: {Job.batch: 5}}", "controller.groupKindConcurrency"),
        ("featureGates: {MultiKueue: true}", "featureGates.MultiKueue"),
        ("pprofBindAddress: ':8083'", "pprofBindAddress"),
        ("webhook: {certDir: /certs}", "webhook.certDir: has no effect: internalCertManagement"),
        ("featureGates: {LendingLimit: true}", "featureGates.LendingLimit: this feature gate is retired"),
        (
            "waitForPodsReady: {}\nfeatureGates: {DisableWaitForPodsReady: true}",
            "waitForPodsReady: has no effect: feature gate DisableWaitForPodsReady is on",
        ),
        (
            "resources: {quotaCheckStrategy: IgnoreUndeclared}\nfeatureGates: {QuotaCheckStrategy: false}",
            "resources.quotaCheckStrategy: has no effect",
        ),
    ];
    for (body, path) in table {
        let warnings = parse(&file(body)).expect(body).warnings;
        assert!(warnings.len() == 1 && warnings[0].starts_with(path), "{body}: {warnings:?}");
    }
}

#[test]
fn supported_values_load_without_warning() {
    let table = [
        "metrics: {localQueueMetrics: {localQueueSelector: {matchLabels: {team: a}}}}",
        "objectRetentionPolicies: {workloads: {afterDeactivatedByKueue: 1h}}",
        "integrations: {externalFrameworks: [Foo.v1.example.com]}",
        "tls: {minVersion: VersionTLS12, cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256], curvePreferences: [29]}",
        "clientConnection: {qps: -1, burst: 0}",
        "controller: {cacheSyncTimeout: 60000000000}",
        "webhook: {certDir: /certs}\ninternalCertManagement: {enable: false}",
        "featureGates: {ReclaimablePods: false, AssignQueueLabelsForPods: false}",
    ];
    for body in table {
        assert_eq!(parse(&file(body)).expect(body).warnings, Vec::<String>::new(), "{body}");
    }
}

#[test]
fn tls_names_map_to_standard_names() {
    let body = "tls: {cipherSuites: [TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305], curvePreferences: [24, X25519]}";
    let tls = parse(&file(body)).unwrap().configuration.tls.unwrap();
    assert!(tls.allows_suite("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"));
    assert!(!tls.allows_suite("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"));
    assert_eq!(tls.curves(), ["secp384r1", "X25519"]);
    assert!(!tls.requires_tls13() && Tls::default().allows_suite("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"));
}

#[test]
fn values_are_parsed() {
    let body = "manageJobsWithoutQueueName: true\nwebhook: null\nclientConnection: {qps: 50, burst: 100}\n\
        waitForPodsReady: {timeout: 1h30m, recoveryTimeout: 0s}\n\
        managedJobsNamespaceSelector: {matchLabels: {team: a}}\n\
        resources: {transformations: [{input: a/b, strategy: Replace, outputs: {c/d: 5, e/f: 10Gi}}]}";
    let configuration = parse(&file(body)).unwrap().configuration;
    assert!(configuration.manage_jobs_without_queue_name);
    assert_eq!(configuration.client_connection.burst, 100);
    assert_eq!(configuration.wait_for_pods_ready.timeout, Duration::from_secs(5400));
    assert_eq!(configuration.wait_for_pods_ready.recovery(), None);
    assert_eq!(configuration.resources.transformations[0].strategy, TransformationStrategy::Replace);
    assert_eq!(configuration.resources.transformations[0].outputs.len(), 2);
}

#[test]
fn kueue_default_configuration_loads() {
    let body = "health: {healthProbeBindAddress: ':8081'}\nmetrics: {bindAddress: ':8443'}\n\
        webhook: {port: 9443}\nleaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}\n\
        controller: {groupKindConcurrency: {Job.batch: 5, Pod: 5, Workload.kueue.x-k8s.io: 10, \
        LocalQueue.kueue.x-k8s.io: 5, Cohort.kueue.x-k8s.io: 1, ClusterQueue.kueue.x-k8s.io: 5, \
        ResourceFlavor.kueue.x-k8s.io: 1}}\nclientConnection: {qps: 300, burst: 500}\n\
        integrations: {frameworks: [batch/job, kubeflow.org/mpijob, ray.io/rayjob, ray.io/raycluster, \
        ray.io/rayservice, jobset.x-k8s.io/jobset, trainer.kubeflow.org/trainjob, \
        workload.codeflare.dev/appwrapper, pod, deployment, statefulset, \
        leaderworkerset.x-k8s.io/leaderworkerset]}";
    let loaded = parse(&file(body)).unwrap();
    assert_eq!(loaded.configuration.integrations.frameworks.len(), 12);
    assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
    assert_eq!(loaded.configuration.unmanaged_frameworks().count(), 11);
}

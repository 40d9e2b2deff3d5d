//! Tests of accepted files with their warnings and of refused files with their reasons.

use super::*;

mod empty_values;

/// Frameworks as the table above has them.
const BATCH_JOB: &str = "batch/job";

fn frameworks() -> Vec<KnownFramework> {
    let names = [
        BATCH_JOB,
        "deployment",
        "jobset.x-k8s.io/jobset",
        "kubeflow.org/mpijob",
        "leaderworkerset.x-k8s.io/leaderworkerset",
        "pod",
        "ray.io/raycluster",
        "ray.io/rayjob",
        "ray.io/rayservice",
        "statefulset",
        "trainer.kubeflow.org/trainjob",
        "workload.codeflare.dev/appwrapper",
    ];
    let known = |name| KnownFramework {
        name,
        kind: "Job.v1.batch".to_owned(),
        by_default: name == BATCH_JOB,
        by_file: false,
        gate: None,
    };
    names.map(known).into()
}

fn parsed(yaml: &str) -> Result<LoadedConfiguration, ConfigError> {
    parse(yaml, &frameworks())
}

fn file(body: &str) -> String {
    format!("apiVersion: {API_VERSION}\nkind: Configuration\n{body}\n")
}

#[test]
fn what_a_file_leaves_out_has_its_default() {
    let without_file = load(defaults(), &frameworks()).unwrap();
    for loaded in [without_file, parsed(&file("")).unwrap()] {
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
        ("waitForPodsReady: {timeout: -1s}", "waitForPodsReady.timeout: must be greater than 0"),
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
            "resources: {excludeResourcePrefixes: [a, '']}",
            "resources.excludeResourcePrefixes[1]: must not be empty",
        ),
        (
            "resources: {transformations: [{input: a, outputs: {b: -1}}]}",
            "resources.transformations[0].outputs[b]: must not be negative",
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
        ("featureGates: {PartialAdmision: true}", "unknown feature gate; was PartialAdmission meant?"),
        ("featureGates: {Wonder: maybe}", "featureGates.Wonder: must be of type boolean"),
        ("featureGates: {Wonder: null}", "featureGates.Wonder: must not be null"),
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

/// A transformation without one of its amounts or names would charge less than configured.
#[test]
fn unreadable_transformations_are_refused_with_path() {
    let reasons = [
        ("'1,5'", "Invalid value: \"1,5\": unknown suffix"),
        ("NaN", "Invalid value: \"NaN\": unknown suffix"),
        ("2 Gi", "Invalid value: \"2 Gi\": unknown suffix"),
        ("abc", "Invalid value: \"abc\": unknown suffix"),
        ("''", "Invalid value: \"\": not a number with an optional suffix"),
        ("1e", "Invalid value: \"1e\": not a number"),
        ("Gi", "Invalid value: \"Gi\": no digits"),
        ("'-'", "Invalid value: \"-\": no digits"),
        ("true", "Invalid value: true: must be a quantity"),
        ("[1]", "Invalid value: [1]: must be a quantity"),
        ("{a: 1}", "Invalid value: {\"a\":1}: must be a quantity"),
        ("~", "must not be null"),
    ];
    for (amount, reason) in reasons {
        let body = format!("resources: {{transformations: [{{input: a/b, outputs: {{a/c: {amount}}}}}]}}");
        refused(&body, &format!("resources.transformations[0].outputs[a/c]: {reason}"));
    }
    let names = [
        ("{input: 'a b'}", "input: Invalid value: \"a b\": "),
        ("{input: a/b/c}", "input: Invalid value: \"a/b/c\": "),
        ("{input: a, multiplyBy: 'b '}", "multiplyBy: Invalid value: \"b \": "),
        ("{input: a, outputs: {/c: 1}}", "outputs[/c]: Invalid value: \"/c\": "),
        ("{outputs: {c: 1}}", "input: must be set"),
    ];
    for (rule, reason) in names {
        refused(
            &format!("resources: {{transformations: [{{input: x}}, {rule}]}}"),
            &format!("resources.transformations[1].{reason}"),
        );
    }
}

#[test]
fn amounts_are_read_as_kubernetes_reads_them() {
    for (amount, canonical) in [
        ("1500m", "1500m"),
        ("'2'", "2"),
        ("2", "2"),
        ("1.5", "1500m"),
        ("1e3", "1k"),
        ("10Gi", "10Gi"),
        ("0", "0"),
        (".5", "500m"),
        ("18446744073709551615", "18446744073709551615"),
    ] {
        let body = format!("resources: {{transformations: [{{input: a/b, outputs: {{a/c: {amount}}}}}]}}");
        let configuration = parsed(&file(&body)).expect(amount).configuration;
        assert_eq!(
            configuration.resources.transformations[0].outputs["a/c"].0.canonical(),
            canonical,
            "{amount}"
        );
    }
}

/// What could not be read, has no effect as written or would fail only later is refused when the file is loaded.
#[test]
fn other_unreadable_values_are_refused_with_path() {
    const SELECTORS: [(&str, &str, &str); 2] = [
        (
            "metrics.localQueueMetrics.localQueueSelector",
            "metrics: {localQueueMetrics: {localQueueSelector: ",
            "}}",
        ),
        ("managedJobsNamespaceSelector", "managedJobsNamespaceSelector: ", ""),
    ];
    let selectors = [
        ("{matchLabels: {team: 'a b'}}", ".matchLabels: Invalid value: \"a b\""),
        ("{matchLabels: {'a b': c}}", ".matchLabels: Invalid value: \"a b\""),
        ("{matchLabels: {team: ~}}", ".matchLabels.team: must not be null"),
        ("{matchExpressions: [{key: a, operator: In}]}", ".matchExpressions[0].values: Required value"),
        (
            "{matchExpressions: [{key: a, operator: Has}]}",
            ".matchExpressions[0].operator: Invalid value: \"Has\"",
        ),
        ("{matchExpressions: [{operator: Exists}]}", ".matchExpressions[0].key: Invalid value: \"\""),
        (
            "{matchExpressions: [{key: a, operator: In, values: ['-']}]}",
            ".matchExpressions[0].values[0]: Invalid",
        ),
        (
            "{matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
            ".matchExpressions[0].values: Forbidden",
        ),
    ];
    for (path, head, tail) in SELECTORS {
        for (selector, reason) in selectors {
            refused(&format!("{head}{selector}{tail}"), &format!("{path}{reason}"));
        }
    }
    let table = [
        ("webhook: {port: 70000}", "webhook.port: must be between 0 and 65535"),
        ("webhook: {port: -1}", "webhook.port: must be between 0 and 65535"),
        ("clientConnection: {burst: 3000000000}", "clientConnection.burst: must be between -2147483648 and"),
        ("clientConnection: {burst: -1}", "clientConnection.burst: must not be negative"),
        ("clientConnection: {qps: 1e39}", "clientConnection.qps: must be between"),
        (
            "controller: {cacheSyncTimeout: 9223372036854775808}",
            "controller.cacheSyncTimeout: must be between",
        ),
        ("controller: {cacheSyncTimeout: 5s}", "controller.cacheSyncTimeout: must be of type integer"),
        (
            "waitForPodsReady: {requeuingStrategy: {backoffLimitCount: 2147483648}}",
            "waitForPodsReady.requeuingStrategy.backoffLimitCount: must be between",
        ),
        ("featureGates: {PartialAdmission: ~}", "featureGates.PartialAdmission: must not be null"),
        ("integrations: {frameworks: [~]}", "integrations.frameworks[0]: must not be null"),
        (
            "integrations: {labelKeysToCopy: ['a b']}",
            "integrations.labelKeysToCopy[0]: Invalid value: \"a b\"",
        ),
        (
            "admissionFairSharing: {resourceWeights: {a/b: ~}}",
            "admissionFairSharing.resourceWeights[a/b]: must not be null",
        ),
        (
            "admissionFairSharing: {resourceWeights: {a/b/c: 1}}",
            "admissionFairSharing.resourceWeights[a/b/c]: Invalid value",
        ),
        ("admissionFairSharing: {resourceWeights: {cpu: .nan}}", "`.nan` is not a finite number"),
        ("namespace: A_b", "namespace: must be a DNS label"),
        ("leaderElection: {resourceNamespace: a.b}", "leaderElection.resourceNamespace: must be a DNS label"),
        ("leaderElection: {resourceName: A}", "leaderElection.resourceName: must be a DNS name"),
        (
            "multiKueue: {clusterProfile: {accessProviders: [{nam: a}]}}",
            "multiKueue.clusterProfile.accessProviders[0].nam: unknown field",
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
    let error = parsed(&file(body)).expect_err(body);
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
            "admissionFairSharing: {usageSamplingInterval: -1s}",
            "admissionFairSharing.usageSamplingInterval: must be greater than 0",
        ),
        (
            "admissionFairSharing: {resourceWeights: {cpu: -1}}",
            "admissionFairSharing.resourceWeights[cpu]: must not be negative",
        ),
    ];
    for (body, reason) in table {
        refused(body, reason);
    }
}

#[test]
fn other_versions_are_refused_by_name() {
    let old = "apiVersion: config.kueue.x-k8s.io/v1alpha1\nkind: Configuration\n";
    let error = parsed(old).unwrap_err().to_string();
    assert!(error.contains("v1alpha1") && error.contains(API_VERSION), "{error}");
    let map = parsed("apiVersion: v1\nkind: ConfigMap\n").unwrap_err().to_string();
    assert!(map.starts_with("kind: this is a ConfigMap"), "{map}");
    assert!(parsed("kind: Configuration").is_err());
    assert!(parsed("{").is_err());
}

#[test]
fn unsupported_values_are_ignored_with_warning() {
    let table = [
        ("multiKueue: {gcInterval: 2m}", "multiKueue"),
        (
            "visibilityServer: {bindPort: 8083}\nfeatureGates: {VisibilityOnDemand: false}",
            "visibilityServer.bindPort: has no effect: feature gate VisibilityOnDemand is off",
        ),
        ("metrics: {customLabels: [{name: team}]}", "metrics.customLabels"),
        ("controller: {groupKindConcurrency: {Job.batch: 5}}", "controller.groupKindConcurrency"),
        ("featureGates: {MultiKueue: true}", "featureGates.MultiKueue"),
        ("pprofBindAddress: ':8083'", "pprofBindAddress"),
        ("integrations: {frameworks: []}", "integrations.frameworks: enables no framework"),
        ("webhook: {certDir: /certs}", "webhook.certDir: has no effect: internalCertManagement"),
        ("featureGates: {LendingLimit: true}", "featureGates.LendingLimit: this feature gate is retired"),
        (
            "waitForPodsReady: {timeout: 1m}\nfeatureGates: {DisableWaitForPodsReady: true}",
            "waitForPodsReady.timeout: has no effect: feature gate DisableWaitForPodsReady is on",
        ),
        (
            "resources: {quotaCheckStrategy: IgnoreUndeclared}\nfeatureGates: {QuotaCheckStrategy: false}",
            "resources.quotaCheckStrategy: has no effect",
        ),
    ];
    for (body, path) in table {
        let warnings = parsed(&file(body)).expect(body).warnings;
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
        assert_eq!(parsed(&file(body)).expect(body).warnings, Vec::<String>::new(), "{body}");
    }
}

#[test]
fn tls_names_map_to_standard_names() {
    let body = "tls: {cipherSuites: [TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305], curvePreferences: [24, X25519]}";
    let tls = parsed(&file(body)).unwrap().configuration.tls.unwrap();
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
    let configuration = parsed(&file(body)).unwrap().configuration;
    assert!(configuration.manage_jobs_without_queue_name);
    assert_eq!(configuration.client_connection.burst, 100);
    assert_eq!(configuration.wait_for_pods_ready.timeout, Duration::from_secs(5400));
    assert_eq!(configuration.wait_for_pods_ready.recovery(), None);
    assert_eq!(configuration.resources.transformations[0].strategy, TransformationStrategy::Replace);
    assert_eq!(configuration.resources.transformations[0].outputs.len(), 2);
}

/// As Kueue completes a configuration: empty text and zero durations are replaced by the default, unless zero has a meaning.
#[test]
fn zero_values_mean_default() {
    let defaults = parsed(&file("")).unwrap().configuration;
    for body in [
        "health: {healthProbeBindAddress: '', readinessEndpointName: '', livenessEndpointName: ''}",
        "metrics: {bindAddress: ''}",
        "leaderElection: {leaseDuration: 0s, renewDeadline: 0s, retryPeriod: '0', resourceLock: '', resourceName: ''}",
        "waitForPodsReady: {timeout: 0s, recoveryTimeout: ~}",
    ] {
        assert_eq!(parsed(&file(body)).expect(body).configuration, defaults, "{body}");
    }
    let sampling = parsed(&file("admissionFairSharing: {usageSamplingInterval: 0s}")).unwrap().configuration;
    assert_eq!(sampling.admission_fair_sharing.unwrap().usage_sampling_interval, Duration::from_secs(300));
    let kept = parsed(&file(
        "waitForPodsReady: {recoveryTimeout: 0s}\nmetrics: {bindAddress: '0'}\n\
         objectRetentionPolicies: {workloads: {afterFinished: 0s}}",
    ));
    let kept = kept.unwrap().configuration;
    assert_eq!((kept.wait_for_pods_ready.recovery(), kept.metrics.bind_address.as_str()), (None, "0"));
    let retention = kept.object_retention_policies.unwrap().workloads.unwrap();
    assert_eq!(retention.after_finished, Some(Duration::default()));
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
    let loaded = parsed(&file(body)).unwrap();
    assert_eq!(loaded.configuration.integrations.frameworks.len(), 12);
    assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
}

#[test]
fn framework_of_a_file_is_enabled_whatever_is_listed() {
    let mut known = frameworks();
    known.push(KnownFramework {
        name: "example.com/render",
        kind: "Render.v1.example.com".to_owned(),
        by_default: false,
        by_file: true,
        gate: None,
    });
    let enabled = |body: &str| parse(&file(body), &known).unwrap().configuration.integrations.frameworks;
    assert_eq!(enabled(""), [BATCH_JOB, "example.com/render"]);
    assert_eq!(enabled("integrations: {frameworks: [batch/job]}"), [BATCH_JOB, "example.com/render"]);
    assert_eq!(enabled("integrations: {frameworks: [example.com/render]}"), ["example.com/render"]);
    let external = file("integrations: {externalFrameworks: [Render.v1.example.com]}");
    let refused = parse(&external, &known).unwrap_err().to_string();
    assert!(refused.contains("example.com/render is described by a file"), "{refused}");
}

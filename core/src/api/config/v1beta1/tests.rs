//! Files of v1beta1 mean what Kueue makes of them.

use super::super::{Configuration, Duration, Integrations, KnownFramework, LoadedConfiguration, parse};
use super::API_VERSION;

fn parsed(body: &str) -> Result<LoadedConfiguration, String> {
    let job = KnownFramework {
        name: "batch/job",
        kind: "Job.v1.batch".to_owned(),
        by_default: true,
        by_file: false,
        gate: None,
    };
    let file = format!("apiVersion: {API_VERSION}\nkind: Configuration\n{body}\n");
    parse(&file, &[job]).map_err(|error| error.to_string())
}

fn loaded(body: &str) -> Configuration {
    parsed(body).expect(body).configuration
}

/// Returns timeout, recovery timeout and whether admission is blocked, if workloads wait for their pods.
fn pods_ready(body: &str) -> Option<(Duration, Option<Duration>, bool)> {
    let configuration = loaded(body);
    let section = &configuration.wait_for_pods_ready;
    let values = (section.timeout, section.recovery(), section.block_admission);
    configuration.waits_for_pods_ready().then_some(values)
}

#[test]
fn waiting_for_pods_is_off_unless_enabled() {
    let minutes = |minutes: i64| Duration::from_secs(minutes * 60);
    let table = [
        ("", None),
        ("waitForPodsReady: {}", None),
        ("waitForPodsReady: {enable: false, timeout: 1m}", None),
        ("waitForPodsReady: {timeout: 1m}", None),
        ("waitForPodsReady: ~", None),
        ("waitForPodsReady: {enable: ~}", None),
        ("waitForPodsReady: {enable: true}", Some((minutes(5), Some(minutes(5)), true))),
        (
            "waitForPodsReady: {enable: true, timeout: 1m, blockAdmission: false}",
            Some((minutes(1), Some(minutes(1)), false)),
        ),
        (
            "waitForPodsReady: {enable: true, recoveryTimeout: 2m, blockAdmission: ~, timeout: ~}",
            Some((minutes(5), Some(minutes(2)), true)),
        ),
        ("waitForPodsReady: {enable: true, recoveryTimeout: 0s}", Some((minutes(5), None, true))),
        ("waitForPodsReady: {enable: true}\nfeatureGates: {DisableWaitForPodsReady: true}", None),
    ];
    for (body, expected) in table {
        assert_eq!(pods_ready(body), expected, "{body}");
    }
    let strategy = loaded("waitForPodsReady: {enable: true}").wait_for_pods_ready.requeuing_strategy;
    assert_eq!((strategy.backoff_base_seconds, strategy.backoff_max_seconds), (60, 3600));
}

#[test]
fn fair_sharing_is_off_unless_enabled() {
    let both = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"].map(ToOwned::to_owned).to_vec();
    let table = [
        ("", None),
        ("fairSharing: {}", None),
        ("fairSharing: {enable: false, preemptionStrategies: [Fairest]}", None),
        ("fairSharing: {preemptionStrategies: [LessThanInitialShare]}", None),
        ("fairSharing: {enable: true}", Some(both.clone())),
        ("fairSharing: {enable: true, preemptionStrategies: []}", Some(both)),
        (
            "fairSharing: {enable: true, preemptionStrategies: [LessThanInitialShare]}",
            Some(vec!["LessThanInitialShare".to_owned()]),
        ),
    ];
    for (body, expected) in table {
        let strategies = loaded(body).fair_sharing.map(|section| section.preemption_strategies);
        assert_eq!(strategies, expected, "{body}");
    }
}

#[test]
fn version_and_removed_fields_are_named_in_warnings() {
    let table = [
        ("", vec![]),
        (
            "queueVisibility: {clusterQueues: {maxCount: 0}, updateIntervalSeconds: 5}",
            vec!["queueVisibility: has no effect"],
        ),
        (
            "integrations: {frameworks: [batch/job], podOptions: {namespaceSelector: {matchLabels: {a: b}}}}",
            vec!["integrations.podOptions: has no effect, as in Kueue"],
        ),
        ("fairSharing: {enable: false}\nwaitForPodsReady: {enable: false}", vec![]),
        (
            "fairSharing: {preemptionStrategies: [LessThanInitialShare]}",
            vec!["fairSharing: has no effect: fairSharing.enable is not true"],
        ),
        (
            "waitForPodsReady: {timeout: 1m}",
            vec!["waitForPodsReady: has no effect: waitForPodsReady.enable is not true"],
        ),
    ];
    for (body, expected) in table {
        let warnings = parsed(body).expect(body).warnings;
        assert!(warnings[0].starts_with("apiVersion: config.kueue.x-k8s.io/v1beta1 is deprecated"));
        assert_eq!(warnings.len(), expected.len() + 1, "{body}: {warnings:?}");
        for (warning, start) in warnings[1..].iter().zip(expected) {
            assert!(warning.starts_with(start), "{body}: {warning}");
        }
    }
}

/// What both versions have means the same in both.
#[test]
fn other_settings_are_those_of_v1beta2() {
    let body = "manageJobsWithoutQueueName: true\nclientConnection: {qps: 50}\nwebhook: {port: 9444}\n\
        metrics: {localQueueMetrics: {enable: false}}\ntls: {minVersion: VersionTLS13}\n\
        resources: {transformations: [{input: a/b, strategy: Replace, outputs: {c/d: 5}}]}\n\
        featureGates: {PartialAdmission: false}";
    let earlier =
        loaded(&format!("{body}\nwaitForPodsReady: {{enable: true, blockAdmission: false, timeout: 30m}}"));
    let file = format!("apiVersion: {}\nkind: Configuration\n{body}\n", super::super::API_VERSION);
    let later = parse(&file, &[]).unwrap().configuration;
    let comparable = |configuration: Configuration| Configuration {
        api_version: String::new(),
        integrations: Integrations::default(),
        ..configuration
    };
    assert_eq!(comparable(earlier), comparable(later));
}

#[test]
fn invalid_files_are_refused_with_path() {
    let table = [
        ("nonsense: 1", "nonsense: unknown field"),
        (
            "queueVisibility: {clusterQueues: {maxcount: 1}}",
            "queueVisibility.clusterQueues.maxcount: unknown field",
        ),
        ("queueVisibility: 5", "queueVisibility: must be of type object"),
        (
            "queueVisibility: {updateIntervalSeconds: often}",
            "queueVisibility.updateIntervalSeconds: must be of type",
        ),
        ("integrations: {podOptions: {selector: {}}}", "integrations.podOptions.selector: unknown field"),
        ("waitForPodsReady: {enable: 1}", "waitForPodsReady.enable: must be of type boolean"),
        ("waitForPodsReady: 5", "waitForPodsReady: must be of type object"),
        ("waitForPodsReady: {timeout: soon}", "waitForPodsReady.timeout: must be a duration"),
        ("waitForPodsReady: {enable: true, timeout: 0s}", "waitForPodsReady.timeout: must be greater than 0"),
        ("fairSharing: {enable: 'yes'}", "fairSharing.enable: must be of type boolean"),
        (
            "fairSharing: {enable: true, preemptionStrategies: [Fairest]}",
            "fairSharing.preemptionStrategies: must be",
        ),
        ("visibilityServer: {}", "visibilityServer: unknown field in config.kueue.x-k8s.io/v1beta1"),
        (
            "resources: {quotaCheckStrategy: BlockUndeclared}",
            "resources.quotaCheckStrategy: unknown field in",
        ),
        ("multiKueue: {clusterProfile: {}}", "multiKueue.clusterProfile: unknown field in"),
        (
            "metrics: {customLabels: [{name: a}, {name: b, trackedValues: [c]}]}",
            "metrics.customLabels[1].trackedValues: unknown field in",
        ),
    ];
    for (body, reason) in table {
        let error = parsed(body).expect_err(body);
        assert!(error.contains(reason), "{body}: {error}");
    }
}

//! What an empty, missing or unusable value means: the default of Kueue, or a reason to refuse the file.

use super::*;

/// Nothing is never taken for the defaults: a manager would lose frameworks, charges and fair sharing that it had.
#[test]
fn a_file_without_content_is_refused() {
    for text in ["", "\n", "# a comment", "null", "~", "---", "--- # a comment\n...\n"] {
        let error = parsed(text).unwrap_err().to_string();
        assert_eq!(error, "the file has no content", "{text:?}");
    }
    let twice = format!("{}---\n{}", file("webhook: {port: 1}"), file("webhook: {port: 2}"));
    for text in [twice.as_str(), "{}", "[]", "\"\"", "0", "apiVersion:\nkind:\n"] {
        assert!(parsed(text).is_err(), "{text:?}");
    }
}

/// Each of these has the default that Kueue, or the server that it starts, gives it.
#[test]
fn empty_and_zero_values_have_the_defaults_of_kueue() {
    for (body, same_as) in [
        (
            "resources: {transformations: [{input: a, strategy: '', outputs: {b: 1}}]}",
            "resources: {transformations: [{input: a, strategy: Retain, outputs: {b: 1}}]}",
        ),
        ("webhook: {port: 0, host: '', certDir: ''}", ""),
        ("health: {healthProbeBindAddress: '', readinessEndpointName: '', livenessEndpointName: ''}", ""),
        ("metrics: {bindAddress: '', customLabels: null}", ""),
        (
            "leaderElection: {resourceLock: '', resourceName: '', leaseDuration: 0s, renewDeadline: '0', retryPeriod: 0ms}",
            "",
        ),
        ("waitForPodsReady: {timeout: 0s}", ""),
        ("webhook: null\nhealth: ~\nmetrics: null\nresources: null\ntls: null\nintegrations: null", ""),
    ] {
        let of = |body: &str| parsed(&file(body)).unwrap().configuration;
        assert_eq!(of(body), of(same_as), "{body}");
    }
    refused("waitForPodsReady: {requeuingStrategy: {timestamp: ''}}", "timestamp: must be one of");
    refused("resources: {quotaCheckStrategy: ''}", "quotaCheckStrategy: must be one of");
}

/// The manager would end when it binds them, or answer only one of two probes.
#[test]
fn addresses_that_cannot_be_served_are_refused_by_path() {
    for (body, reason) in [
        ("metrics: {bindAddress: '8443'}", "metrics.bindAddress: \"8443\" has no port"),
        (
            "health: {healthProbeBindAddress: ':https'}",
            "healthProbeBindAddress: \":https\": port \"https\" must be",
        ),
        ("webhook: {host: webhook.example}", "webhook.host: host \"webhook.example\" must be an IP address"),
        (
            "metrics: {bindAddress: ':8081'}",
            "metrics.bindAddress: is the address of health.healthProbeBindAddress",
        ),
        (
            "health: {healthProbeBindAddress: '127.0.0.1:9443'}",
            "healthProbeBindAddress: is the address of webhook.port",
        ),
        ("visibilityServer: {bindPort: 9443}", "visibilityServer.bindPort: is the address of webhook.port"),
        ("health: {readinessEndpointName: '{a'}", "health.readinessEndpointName: must be a path"),
        ("health: {livenessEndpointName: 'a b'}", "health.livenessEndpointName: must be a path"),
        (
            "health: {readinessEndpointName: up, livenessEndpointName: /up}",
            "livenessEndpointName: must differ",
        ),
    ] {
        refused(body, reason);
    }
    for body in [
        "metrics: {bindAddress: '0'}\nhealth: {healthProbeBindAddress: '0'}",
        "metrics: {bindAddress: '127.0.0.1:1'}\nhealth: {healthProbeBindAddress: '127.0.0.2:1'}",
        "visibilityServer: {bindPort: 9443}\nfeatureGates: {VisibilityOnDemand: false}",
        "health: {readinessEndpointName: /probes/ready}",
        "webhook: {host: localhost}",
    ] {
        parsed(&file(body)).expect(body);
    }
}

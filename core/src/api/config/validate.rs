//! Validation of configuration values; each error contains the path of the invalid field.

use super::{
    Configuration, CustomLabel, Duration, KnownFramework, ListenAddress, NAMESPACE_NAME_LABEL, Problems,
    QuotaCheckStrategy, taken_twice,
};
use crate::api::validation::{Errors, FieldCursor, key_path, syntax};
use crate::api::visibility;
use core::net::IpAddr;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

/// Adds an error for each rule that the configuration violates.
pub(super) fn check(
    document: &Value,
    configuration: &Configuration,
    frameworks: &[KnownFramework],
    problems: &mut Problems,
) {
    listeners(configuration, problems);
    certificates(configuration, problems);
    elections(configuration, problems);
    if configuration.controller.sync_timeout().is_some_and(|limit| limit < Duration::default()) {
        problems.error("controller.cacheSyncTimeout", "must not be negative");
    }
    pods_ready(configuration, problems);
    client_connection(configuration, problems);
    selectors(document, configuration, problems);
    resources(configuration, problems);
    custom_labels(&configuration.metrics.custom_labels, problems);
    multi_kueue(configuration, problems);
    external_frameworks(configuration, frameworks, problems);
    label_keys(configuration, problems);
    user_label(&configuration.visibility.user_label, problems);
    retention(configuration, problems);
    fair_sharing(configuration, problems);
}

/// Checks that each address can be listened at, beside the others. A manager with such a file would end when it binds the second.
fn listeners(configuration: &Configuration, problems: &mut Problems) {
    let mut found: Vec<(&str, ListenAddress)> = Vec::new();
    match ListenAddress::at(&configuration.webhook.host, configuration.webhook.port) {
        Ok(address) => found.push(("webhook.port", address)),
        Err(reason) => problems.error("webhook.host", &reason),
    }
    for (path, text) in [
        ("health.healthProbeBindAddress", &configuration.health.health_probe_bind_address),
        ("metrics.bindAddress", &configuration.metrics.bind_address),
    ] {
        match ListenAddress::parse(text) {
            Ok(address) => found.extend(address.map(|address| (path, address))),
            Err(reason) => problems.error(path, &reason),
        }
    }
    let visibility = &configuration.visibility_server;
    let port = u16::try_from(visibility.bind_port).ok().filter(|port| *port != 0);
    if port.is_none() {
        problems.error("visibilityServer.bindPort", "must be between 1 and 65535");
    }
    if visibility.bind_address.parse::<IpAddr>().is_err() {
        problems.error("visibilityServer.bindAddress", "must be an IP address");
    }
    if configuration.gates.enabled(visibility::GATE) {
        let address = port.and_then(|port| ListenAddress::at(visibility.host(), port).ok());
        found.extend(address.map(|address| ("visibilityServer.bindPort", address)));
    }
    for (path, taken) in taken_twice(&found) {
        problems
            .error(path, &format!("is the address of {taken} as well; one of them could not be listened at"));
    }
    probe_names(configuration, problems);
}

/// Checks that both probes have a path, and each its own: of two with one path only the first is answered.
fn probe_names(configuration: &Configuration, problems: &mut Problems) {
    let names = &configuration.health;
    for (path, name) in [
        ("health.readinessEndpointName", &names.readiness_endpoint_name),
        ("health.livenessEndpointName", &names.liveness_endpoint_name),
    ] {
        let is_path = |c: char| c.is_ascii_alphanumeric() || "-._~/".contains(c);
        if !name.chars().all(is_path) {
            problems.error(path, "must be a path of letters, digits, -, ., _, ~ and /");
        }
    }
    let [readiness, liveness] = [&names.readiness_endpoint_name, &names.liveness_endpoint_name]
        .map(|name| name.trim_start_matches('/'));
    if readiness == liveness {
        problems.error("health.livenessEndpointName", "must differ from readinessEndpointName");
    }
}

fn certificates(configuration: &Configuration, problems: &mut Problems) {
    if let Some(tls) = &configuration.tls {
        super::tls::check(tls, problems);
    }
    let certificates = &configuration.internal_cert_management;
    if certificates.enable {
        let names = [
            ("internalCertManagement.webhookServiceName", &certificates.webhook_service_name, false),
            ("internalCertManagement.webhookSecretName", &certificates.webhook_secret_name, true),
        ];
        for (path, name, dots) in names {
            if !is_dns_name(name, dots) {
                problems.error(path, "must be a DNS name");
            }
        }
    }
}

fn elections(configuration: &Configuration, problems: &mut Problems) {
    let election = &configuration.leader_election;
    let namespaces = [
        ("namespace", configuration.namespace.as_deref().unwrap_or_default()),
        ("leaderElection.resourceNamespace", &election.resource_namespace),
    ];
    for (path, namespace) in namespaces {
        if !namespace.is_empty() && !is_dns_name(namespace, false) {
            problems.error(path, "must be a DNS label");
        }
    }
    if !is_dns_name(&election.resource_name, true) {
        problems.error("leaderElection.resourceName", "must be a DNS name");
    }
    if !election.leader_elect {
        return;
    }
    if election.resource_lock != "leases" {
        problems.error("leaderElection.resourceLock", "must be leases");
    }
    if election.retry_period <= Duration::default() {
        problems.error("leaderElection.retryPeriod", "must be greater than 0");
    }
    if election.renew_deadline <= election.retry_period {
        problems.error("leaderElection.renewDeadline", "must be greater than retryPeriod");
    }
    if election.lease_duration <= election.renew_deadline {
        problems.error("leaderElection.leaseDuration", "must be greater than renewDeadline");
    }
}

fn pods_ready(configuration: &Configuration, problems: &mut Problems) {
    let section = &configuration.wait_for_pods_ready;
    if section.timeout <= Duration::default() {
        problems.error("waitForPodsReady.timeout", "must be greater than 0");
    }
    if section.recovery_timeout.is_some_and(|t| t < Duration::default()) {
        problems.error("waitForPodsReady.recoveryTimeout", "must not be negative");
    }
    let strategy = &section.requeuing_strategy;
    let numbers = [
        ("backoffLimitCount", strategy.backoff_limit_count.unwrap_or(0)),
        ("backoffBaseSeconds", strategy.backoff_base_seconds),
        ("backoffMaxSeconds", strategy.backoff_max_seconds),
    ];
    for (name, number) in numbers {
        if number < 0 {
            problems.error(&format!("waitForPodsReady.requeuingStrategy.{name}"), "must not be negative");
        }
    }
}

/// Checks the burst, which has no effect without a rate limit.
fn client_connection(configuration: &Configuration, problems: &mut Problems) {
    let connection = &configuration.client_connection;
    if connection.burst < 0 && connection.qps >= 0.0 {
        problems.error("clientConnection.burst", "must not be negative");
    }
}

/// Checks the syntax of selectors, and that jobs of the system namespaces are not managed; `kueue-system` stands in for an
/// absent own namespace.
fn selectors(document: &Value, configuration: &Configuration, problems: &mut Problems) {
    const PATH: &str = "managedJobsNamespaceSelector";
    let mut errors = Errors::new();
    for path in [PATH, "metrics.localQueueMetrics.localQueueSelector"] {
        let pointer = format!("/{}", path.replace('.', "/"));
        if let Some(selector) = document.pointer(&pointer) {
            syntax::check_selector(&FieldCursor::at(path, selector), &mut errors);
        }
    }
    problems.field_errors(&errors);
    let Some(selector) = &configuration.managed_jobs_namespace_selector else {
        return;
    };
    let own = configuration.namespace.as_deref().unwrap_or("kueue-system");
    for namespace in ["kube-system", own] {
        if selects(selector, namespace) {
            problems.error(PATH, &format!("must not match namespace {namespace}"));
        }
    }
}

/// Returns whether a selector matches a namespace that has only the name label.
fn selects(selector: &LabelSelector, namespace: &str) -> bool {
    let value = |key: &str| (key == NAMESPACE_NAME_LABEL).then_some(namespace);
    let labels = selector.match_labels.iter().flatten().all(|(k, v)| value(k) == Some(v.as_str()));
    let requirements = selector.match_expressions.iter().flatten().all(|requirement| {
        let actual = value(&requirement.key);
        let listed = actual.is_some_and(|actual| requirement.values.iter().flatten().any(|v| v == actual));
        match requirement.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => actual.is_some(),
            _ => actual.is_none(),
        }
    });
    labels && requirements
}

fn resources(configuration: &Configuration, problems: &mut Problems) {
    let resources = &configuration.resources;
    let ignoring = resources.quota_check_strategy == QuotaCheckStrategy::IgnoreUndeclared;
    if ignoring && !resources.exclude_resource_prefixes.is_empty() {
        problems.error(
            "resources.excludeResourcePrefixes",
            "cannot be set with quotaCheckStrategy IgnoreUndeclared",
        );
    }
    for (index, prefix) in resources.exclude_resource_prefixes.iter().enumerate() {
        if prefix.is_empty() {
            let path = format!("resources.excludeResourcePrefixes[{index}]");
            problems.error(&path, "must not be empty: no resource would be counted");
        }
    }
    for (index, rule) in resources.transformations.iter().enumerate() {
        let path = format!("resources.transformations[{index}]");
        if rule.input.is_empty() {
            problems.error(&format!("{path}.input"), "must be set");
        } else {
            name(&format!("{path}.input"), &rule.input, problems);
        }
        if !rule.multiply_by.is_empty() {
            name(&format!("{path}.multiplyBy"), &rule.multiply_by, problems);
        }
        if resources.transformations.iter().take(index).any(|earlier| earlier.input == rule.input) {
            problems.error(&format!("{path}.input"), "must be unique");
        }
        for (output, amount) in &rule.outputs {
            let path = key_path(&format!("{path}.outputs"), output);
            name(&path, output, problems);
            if amount.0.is_negative() {
                problems.error(&path, "must not be negative: workloads would be charged less than nothing");
            }
        }
    }
}

/// Checks the name of a resource or label. A pod or job cannot have any other: the setting would never apply.
fn name(path: &str, name: &str, problems: &mut Problems) {
    problems.field_errors(&syntax::check_label_name(path, name));
}

fn label_keys(configuration: &Configuration, problems: &mut Problems) {
    for (index, key) in configuration.integrations.label_keys_to_copy.iter().enumerate() {
        name(&format!("integrations.labelKeysToCopy[{index}]"), key, problems);
    }
}

fn user_label(key: &str, problems: &mut Problems) {
    if !key.is_empty() {
        name("visibility.userLabel", key, problems);
    }
}

fn custom_labels(labels: &[CustomLabel], problems: &mut Problems) {
    const PATH: &str = "metrics.customLabels";
    if labels.len() > 20 {
        problems.error(PATH, "must have at most 20 entries");
    }
    for (index, label) in labels.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        let mut letters = label.name.chars();
        let starts = letters.next().is_some_and(|c| c.is_ascii_alphabetic());
        if !starts || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
            problems.error(&format!("{path}.name"), "must match ^[a-zA-Z][a-zA-Z0-9_]*$");
        }
        if labels.iter().take(index).any(|earlier| earlier.name == label.name) {
            problems.error(&format!("{path}.name"), "must be unique");
        }
        if !label.source_label_key.is_empty() && !label.source_annotation_key.is_empty() {
            problems.error(&path, "sourceLabelKey and sourceAnnotationKey are mutually exclusive");
        }
        let (max, min) = if label.source_kind == "Workload" { (12, 1) } else { (16, 0) };
        if !(min..=max).contains(&label.tracked_values.len()) {
            problems.error(&format!("{path}.trackedValues"), &format!("must have {min} to {max} entries"));
        }
        let same = labels.iter().take(index).filter(|l| l.source_kind == label.source_kind).count();
        let limit = if label.source_kind == "Workload" { 2 } else { 6 };
        if same >= limit {
            problems.error(
                &format!("{path}.sourceKind"),
                &format!("at most {limit} entries may use this sourceKind"),
            );
        }
    }
}

fn multi_kueue(configuration: &Configuration, problems: &mut Problems) {
    let Some(section) = &configuration.multi_kueue else {
        return;
    };
    for (name, value) in
        [("gcInterval", section.gc_interval), ("workerLostTimeout", section.worker_lost_timeout)]
    {
        if value < Duration::default() {
            problems.error(&format!("multiKueue.{name}"), "must not be negative");
        }
    }
    if let Some(dispatcher) = &section.incremental_dispatcher_config {
        if section.dispatcher_name != "kueue.x-k8s.io/multikueue-dispatcher-incremental" {
            problems.error("multiKueue.incrementalDispatcherConfig", "needs the incremental dispatcher");
        }
        if dispatcher.step_size < 1 {
            problems.error("multiKueue.incrementalDispatcherConfig.stepSize", "must be at least 1");
        }
    }
}

/// Checks that names are unique, written as `Kind.version.group`, and not built in.
fn external_frameworks(configuration: &Configuration, known: &[KnownFramework], problems: &mut Problems) {
    let names = &configuration.integrations.external_frameworks;
    for (index, name) in names.iter().enumerate() {
        let path = format!("integrations.externalFrameworks[{index}]");
        let parts: Vec<&str> = name.splitn(3, '.').collect();
        let built_in = known.iter().find(|framework| framework.kind == *name);
        if parts.len() < 3 || parts.iter().any(|part| part.is_empty()) {
            problems.error(&path, &format!("{name:?} must be Kind.version.group"));
        } else if let Some(framework) = built_in {
            let origin = if framework.by_file { "described by a file" } else { "built in" };
            problems.error(&path, &format!("{} is {origin}", framework.name));
        } else if names.iter().take(index).any(|earlier| earlier == name) {
            problems.error(&path, &format!("{name} is listed twice"));
        }
    }
}

fn retention(configuration: &Configuration, problems: &mut Problems) {
    let policies = configuration.object_retention_policies.as_ref();
    let Some(section) = policies.and_then(|p| p.workloads.as_ref()) else {
        return;
    };
    let times = [
        ("afterFinished", section.after_finished),
        ("afterDeactivatedByKueue", section.after_deactivated_by_kueue),
    ];
    for (name, time) in times {
        if time.is_some_and(|t| t < Duration::default()) {
            problems.error(&format!("objectRetentionPolicies.workloads.{name}"), "must not be negative");
        }
    }
}

/// Checks that strategies are set, in an order in which each can take effect, and the admission fair sharing values.
fn fair_sharing(configuration: &Configuration, problems: &mut Problems) {
    const PATH: &str = "fairSharing.preemptionStrategies";
    const FINAL: &str = "LessThanOrEqualToFinalShare";
    const INITIAL: &str = "LessThanInitialShare";
    if let Some(section) = &configuration.fair_sharing {
        let names: Vec<&str> = section.preemption_strategies.iter().map(String::as_str).collect();
        match names.as_slice() {
            [FINAL | INITIAL] | [FINAL, INITIAL] => {}
            [] => problems.error(PATH, "must be set"),
            _ => problems.error(
                PATH,
                "must be LessThanOrEqualToFinalShare, LessThanInitialShare, or both in this order",
            ),
        }
    }
    let Some(section) = &configuration.admission_fair_sharing else {
        return;
    };
    if section.usage_half_life_time < Duration::default() {
        problems.error("admissionFairSharing.usageHalfLifeTime", "must not be negative");
    }
    if section.usage_sampling_interval <= Duration::default() {
        problems.error("admissionFairSharing.usageSamplingInterval", "must be greater than 0");
    }
    for (resource, weight) in &section.resource_weights {
        let path = key_path("admissionFairSharing.resourceWeights", resource);
        name(&path, resource, problems);
        if *weight < 0.0 {
            problems.error(&path, "must not be negative");
        }
    }
}

/// Returns whether `name` is a DNS label, or a DNS subdomain if dots are allowed.
fn is_dns_name(name: &str, dots: bool) -> bool {
    let label = |part: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let inner = part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        part.len() <= 63 && inner && edge(part.chars().next()) && edge(part.chars().last())
    };
    if dots { name.len() <= 253 && name.split('.').all(label) } else { label(name) }
}

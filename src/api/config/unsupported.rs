//! Checks for known settings whose feature is not supported by this version.

use super::{Configuration, KnownFramework, Problems};
use serde_json::Value;

/// Sections that can be ignored because the feature does not exist, with the reason shown.
const IGNORED: [(&str, &str); 3] = [
    ("/multiKueue", "jobs are not sent to other clusters"),
    ("/visibilityServer", "the visibility API is not served"),
    ("/pprofBindAddress", "there is no profiler"),
];

/// Settings that have no effect while the feature gate has the given value.
const GATED: [(&str, &str, bool); 5] = [
    ("/metrics/customLabels", "CustomMetricLabels", false),
    ("/metrics/localQueueMetrics", "LocalQueueMetrics", false),
    ("/waitForPodsReady", "DisableWaitForPodsReady", true),
    ("/admissionFairSharing", "AdmissionFairSharing", false),
    ("/resources/quotaCheckStrategy", "QuotaCheckStrategy", false),
];

/// Adds an error for each setting whose absence would change scheduling, and a warning for each other one.
pub(super) fn check(
    document: &Value,
    configuration: &Configuration,
    frameworks: &[KnownFramework],
    problems: &mut Problems,
) {
    let given = |pointer: &str| {
        let empty = |value: &Value| match value {
            Value::String(text) => matches!(text.as_str(), "" | "0"),
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        document.pointer(pointer).is_some_and(|value| !empty(value))
    };
    let path = |pointer: &str| pointer.trim_start_matches('/').replace('/', ".");
    for (pointer, why) in IGNORED.iter().filter(|(pointer, _)| given(pointer)) {
        problems.warn(&path(pointer), &format!("has no effect: {why}"));
    }
    for (pointer, gate, value) in GATED {
        if given(pointer) && configuration.gates.enabled(gate) == value {
            let text = format!("has no effect: feature gate {gate} is {}", if value { "on" } else { "off" });
            problems.warn(&path(pointer), &text);
        }
    }
    if !configuration.resources.device_class_mappings.is_empty() {
        problems.error("resources.deviceClassMappings", "is not supported: devices have no quota");
    }
    if !configuration.controller.group_kind_concurrency.is_empty() {
        let text = "has no effect: one task serves all kinds";
        problems.warn("controller.groupKindConcurrency", text);
    }
    if configuration.certificate_folder().is_none() && given("/webhook/certDir") {
        let text = "has no effect: internalCertManagement is enabled, and its Secret is served";
        problems.warn("webhook.certDir", text);
    }
    check_frameworks(configuration, frameworks, problems);
}

/// Checks the framework names.
fn check_frameworks(configuration: &Configuration, known: &[KnownFramework], problems: &mut Problems) {
    for (index, name) in configuration.integrations.frameworks.iter().enumerate() {
        let path = format!("integrations.frameworks[{index}]");
        if configuration.integrations.frameworks.iter().take(index).any(|earlier| earlier == name) {
            problems.error(&path, &format!("{name} is listed twice"));
        } else {
            match known.iter().find(|framework| framework.name == name) {
                Some(KnownFramework { gate, .. }) => {
                    let off = gate.filter(|gate| !configuration.gates.enabled(gate));
                    if let Some(gate) = off {
                        problems.error(&path, &format!("{name} needs feature gate {gate}"));
                    }
                }
                None => problems.error(&path, &format!("unknown framework {name}")),
            }
        }
    }
}

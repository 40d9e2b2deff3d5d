//! Known settings whose feature is not part of this version.

use super::{BATCH_JOB, Configuration, Problems};
use serde_json::Value;

/// Frameworks that Kueue has, beside the one that is built.
const FRAMEWORKS: &[&str] = &[
    "deployment",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "statefulset",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
];

/// Sections that can be ignored: nothing of what they configure is there.
const IGNORED: &[&str] = &["multiKueue", "visibilityServer", "pprofBindAddress"];

const ABSENT: &str = "the feature is not part of this version";

/// Errors where ignoring a setting would change a decision, warnings elsewhere.
pub(super) fn check(document: &Value, configuration: &Configuration, problems: &mut Problems) {
    for section in IGNORED {
        if document.get(section).is_some_and(|v| !matches!(v.as_str(), Some("" | "0"))) {
            problems.warn(section, ABSENT);
        }
    }
    if !configuration.resources.device_class_mappings.is_empty() {
        problems.error("resources.deviceClassMappings", ABSENT);
    }
    if !configuration.metrics.custom_labels.is_empty() {
        problems.warn("metrics.customLabels", "feature gate CustomMetricLabels is off");
    }
    if !configuration.controller.group_kind_concurrency.is_empty() {
        problems
            .warn("controller.groupKindConcurrency", "one task serves all kinds; the numbers have no effect");
    }
    frameworks(configuration, problems);
}

fn frameworks(configuration: &Configuration, problems: &mut Problems) {
    for (index, name) in configuration.integrations.frameworks.iter().enumerate() {
        let path = format!("integrations.frameworks[{index}]");
        if configuration.integrations.frameworks.iter().take(index).any(|earlier| earlier == name) {
            problems.error(&path, &format!("{name} is listed twice"));
        } else if FRAMEWORKS.contains(&name.as_str()) {
            problems.warn(&path, &format!("{name} is not part of this version"));
        } else if name != BATCH_JOB {
            problems.error(&path, &format!("unknown framework {name}"));
        }
    }
}

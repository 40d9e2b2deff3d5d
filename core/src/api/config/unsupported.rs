//! Checks for known settings whose feature is not supported by this version.

use super::setting_table::{SETTINGS, Setting, Support};
use super::{Configuration, KnownFramework, Problems};
use serde_json::Value;

/// Adds an error for each setting whose absence would change scheduling, and a warning for each other one.
pub(super) fn check(
    document: &Value,
    configuration: &Configuration,
    frameworks: &[KnownFramework],
    problems: &mut Problems,
) {
    for setting in SETTINGS.iter().filter(|setting| is_given(document, setting)) {
        if let Support::Refused(why) = setting.support {
            problems.error(setting.path, &format!("is not supported: {why}"));
        } else if let Some(why) = without_effect(setting, configuration) {
            problems.warn(setting.path, &format!("has no effect: {why}"));
        }
    }
    if configuration.integrations.frameworks.is_empty() {
        let text = "enables no framework; Kueue takes an empty list for batch/job";
        problems.warn("integrations.frameworks", text);
    }
    check_frameworks(configuration, frameworks, problems);
}

/// Returns whether a document sets a setting to anything but an empty value.
pub(super) fn is_given(document: &Value, setting: &Setting) -> bool {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty() || (text == "0" && setting.path == "pprofBindAddress"),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    let pointer = setting.pointer();
    pointer.and_then(|pointer| document.pointer(&pointer)).is_some_and(|value| !empty(value))
}

/// Returns why a setting has no effect with a configuration.
pub(super) fn without_effect(setting: &Setting, configuration: &Configuration) -> Option<String> {
    match setting.support {
        Support::Unless("DisableWaitForPodsReady", _) if configuration.without_pods_ready => {
            Some("waitForPodsReady.enable is not true".to_owned())
        }
        Support::Unless(gate, value) if configuration.gates.enabled(gate) == value => {
            Some(format!("feature gate {gate} is {}", if value { "on" } else { "off" }))
        }
        Support::Ignored(why) => Some(why.to_owned()),
        Support::Conditional(_)
            if setting.path == "webhook.certDir" && configuration.certificate_folder().is_none() =>
        {
            Some("internalCertManagement is enabled, and its Secret is served".to_owned())
        }
        _ => None,
    }
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

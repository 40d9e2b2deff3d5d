//! What is in force with a configuration: the value of each setting and feature gate, where it comes from, and what has no
//! effect and why.

use super::absent::drop_absent;
use super::gate_table::GATES;
use super::setting_table::{SETTINGS, Setting, Support};
use super::unsupported::{is_given, without_effect};
use super::{Configuration, gates, v1beta1};
use serde_json::Value;

/// A setting or feature gate in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Path of the setting, or name of the gate.
    pub name: &'static str,
    /// Value as text, lists separated by commas; `-` if there is none.
    pub value: String,
    /// Whether the file sets it; otherwise the value is the default.
    pub is_set: bool,
    /// Why it has no effect, or what is missing; empty if it has its meaning.
    pub remark: String,
}

/// Returns the settings in force. `document` is the file as it was written, from which the configuration was loaded.
pub fn settings_in_force(document: &Value, configuration: &Configuration) -> Vec<InForce> {
    // The types always serialize.
    let values = serde_json::to_value(configuration).unwrap_or_default();
    let mut document = document.clone();
    drop_absent(&mut document);
    let shown = SETTINGS.iter().filter(|setting| setting.path != "featureGates");
    shown.filter_map(|setting| setting_in_force(setting, &document, &values, configuration)).collect()
}

fn setting_in_force(
    setting: &Setting,
    document: &Value,
    values: &Value,
    configuration: &Configuration,
) -> Option<InForce> {
    let pointer = setting.pointer()?;
    let is_set = is_given(document, setting);
    if let Some(switch) = v1beta1::switched_off_by(document, setting.path).filter(|_| is_set) {
        // What the file has is in force nowhere, and the default is not what it has.
        let written = document.pointer(&pointer).and_then(shown_value);
        return Some(InForce {
            name: setting.path,
            value: written.unwrap_or_else(|| "-".to_owned()),
            is_set,
            remark: format!("no effect: {switch} is not true"),
        });
    }
    let value = values.pointer(&pointer).unwrap_or(&Value::Null);
    let text = shown_value(value).or_else(|| setting.default.map(|default| format!("({default})")));
    // What is absent and unknown by default needs no remark.
    let applies = is_set || text.is_some();
    let remark = without_effect(setting, configuration).filter(|_| applies);
    Some(InForce {
        name: setting.path,
        value: text.unwrap_or_else(|| "-".to_owned()),
        is_set,
        remark: remark.map(|why| format!("no effect: {why}")).unwrap_or_default(),
    })
}

/// Returns all feature gates in force.
pub fn gates_in_force(configuration: &Configuration) -> Vec<InForce> {
    let in_force = |gate: &'static super::gate_table::Gate| InForce {
        name: gate.name,
        value: configuration.gates.enabled(gate.name).to_string(),
        is_set: configuration.feature_gates.contains_key(gate.name),
        remark: gates::remark(gate, &configuration.gates),
    };
    GATES.iter().map(in_force).collect()
}

/// Returns the settings and feature gates that differ between two configurations, and whether a change of each has its effect
/// without a restart. What has no effect at all is left out.
pub fn changed_settings(from: &Configuration, to: &Configuration) -> Vec<(String, bool)> {
    // The types always serialize.
    let [old, new] = [from, to].map(|configuration| serde_json::to_value(configuration).unwrap_or_default());
    let compared = SETTINGS.iter().filter(|setting| {
        !matches!(setting.support, Support::Ignored(_))
            && !["apiVersion", "kind", "featureGates"].contains(&setting.path)
    });
    let mut changed: Vec<(String, bool)> = compared
        .filter(|setting| {
            let value = |document| setting.pointer().and_then(|pointer| Value::pointer(document, &pointer));
            value(&old) != value(&new)
        })
        .map(|setting| (setting.path.to_owned(), setting.live))
        .collect();
    if from.without_pods_ready != to.without_pods_ready {
        changed.push(("waitForPodsReady.enable".to_owned(), false));
    }
    let gates = GATES.iter().filter(|gate| from.gates.enabled(gate.name) != to.gates.enabled(gate.name));
    changed.extend(gates.map(|gate| (format!("featureGates.{}", gate.name), false)));
    changed
}

/// Returns a value as text; `None` if it is empty.
pub(super) fn shown_value(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().filter(|n| n.fract() == 0.0).map_or_else(
            || number.to_string(),
            |whole| number.as_i64().map_or_else(|| format!("{whole}"), |integer| integer.to_string()),
        ),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| shown_value(item).unwrap_or_default()).collect();
            items.join(",")
        }
        Value::Object(members) if members.is_empty() => String::new(),
        other => other.to_string(),
    };
    Some(text).filter(|text| !text.is_empty())
}

//! Files of `config.kueue.x-k8s.io/v1beta1`, which become documents of v1beta2 before they are decoded.
//!
//! v1beta1 has switches where v1beta2 has sections, and other defaults below them. A field that v1beta1 alone has is taken out and
//! checked here; one that it lacks is an unknown field. Invariant: after `convert` the document means in v1beta2 what the file
//! meant in v1beta1.

use super::{Problems, schema_check};
use schemars::{JsonSchema, schema_for};
use serde_json::{Map, Value, json};

/// The API version of these files.
pub(super) const API_VERSION: &str = "config.kueue.x-k8s.io/v1beta1";

/// Fields that v1beta1 alone has; at most one of a section.
const EARLIER: [&str; 4] =
    ["/queueVisibility", "/integrations/podOptions", "/waitForPodsReady/enable", "/fairSharing/enable"];
/// Fields that it lacks; `*` stands for each entry of a list.
const LATER: [&str; 7] = [
    "/visibilityServer",
    "/resources/quotaCheckStrategy",
    "/resources/deviceClassMappings/*/sources",
    "/multiKueue/clusterProfile",
    "/multiKueue/incrementalDispatcherConfig",
    "/metrics/customLabels/*/sourceKind",
    "/metrics/customLabels/*/trackedValues",
];

/// The fields that v1beta1 alone has, for the check of their types.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct Earlier {
    queue_visibility: Option<QueueVisibility>,
    integrations: Option<PodOptionsOfIntegrations>,
    wait_for_pods_ready: Option<Switch>,
    fair_sharing: Option<Switch>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct QueueVisibility {
    cluster_queues: Option<ClusterQueueVisibility>,
    update_interval_seconds: Option<i32>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct ClusterQueueVisibility {
    max_count: Option<i32>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct PodOptionsOfIntegrations {
    pod_options: Option<PodOptions>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct PodOptions {
    namespace_selector: Option<Map<String, Value>>,
    pod_selector: Option<Map<String, Value>>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Switch {
    enable: Option<bool>,
}

/// Takes the fields out of a document that v1beta1 alone has, and returns them. Adds an error for each that has a wrong type, and
/// for each field that v1beta1 lacks.
pub(super) fn split(document: &mut Value, problems: &mut Problems) -> Value {
    let mut earlier = Map::new();
    for pointer in EARLIER {
        let (section, field) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        let Some(Value::Object(members)) = document.pointer_mut(section) else { continue };
        let Some(value) = members.remove(field) else { continue };
        let section = section.trim_start_matches('/');
        if section.is_empty() {
            earlier.insert(field.to_owned(), value);
        } else {
            earlier
                .insert(section.to_owned(), Value::Object([(field.to_owned(), value)].into_iter().collect()));
        }
    }
    let earlier = Value::Object(earlier);
    schema_check::check_against(&schema_for!(Earlier).to_value(), &earlier, problems);
    for pointer in LATER {
        for path in present(document, pointer) {
            problems.error(&path, &format!("unknown field in {API_VERSION}"));
        }
    }
    earlier
}

/// Returns the paths at which a document has a value for a pointer, in the notation of messages.
fn present(document: &Value, pointer: &str) -> Vec<String> {
    let Some((list, field)) = pointer.split_once("/*/") else {
        let path = pointer.trim_start_matches('/').replace('/', ".");
        return document.pointer(pointer).map(|_| path).into_iter().collect();
    };
    let path = list.trim_start_matches('/').replace('/', ".");
    let entries = document.pointer(list).and_then(Value::as_array).into_iter().flatten().enumerate();
    let with_field = entries.filter(|(_, entry)| entry.get(field).is_some());
    with_field.map(|(index, _)| format!("{path}[{index}].{field}")).collect()
}

/// Converts a document without its `earlier` fields. Returns whether workloads wait for their pods to become ready.
pub(super) fn convert(document: &mut Value, earlier: &Value, problems: &mut Problems) -> bool {
    let given = |pointer: &str| earlier.pointer(pointer).is_some_and(|value| !value.is_null());
    problems.warn(
        "apiVersion",
        &format!("{API_VERSION} is deprecated; write the file as {}", super::API_VERSION),
    );
    if given("/queueVisibility") {
        problems.warn("queueVisibility", "has no effect: Kueue has removed the list of pending workloads");
    }
    if given("/integrations/podOptions") {
        let text = "has no effect, as in Kueue 0.17 and later; set managedJobsNamespaceSelector";
        problems.warn("integrations.podOptions", text);
    }
    let enabled = |section: &str| {
        earlier.get(section).and_then(|section| section.get("enable")).and_then(Value::as_bool) == Some(true)
    };
    let Value::Object(sections) = document else { return false };
    for (section, switch) in SWITCHES {
        if !enabled(section) {
            let left = sections.remove(section);
            if left.and_then(|left| left.as_object().map(Map::is_empty)) == Some(false) {
                problems.warn(section, &format!("has no effect: {switch} is not true"));
            }
        }
    }
    if enabled("fairSharing") {
        set_absent(sections, "fairSharing", "preemptionStrategies", json!(STRATEGIES));
    }
    if enabled("waitForPodsReady") {
        set_absent(sections, "waitForPodsReady", "timeout", json!("5m"));
        set_absent(sections, "waitForPodsReady", "blockAdmission", json!(true));
        if document.pointer("/waitForPodsReady/timeout").and_then(Value::as_str).is_some_and(is_zero) {
            problems.error("waitForPodsReady.timeout", "must be greater than 0");
        }
    }
    enabled("waitForPodsReady")
}

/// Sections that a switch of v1beta1 turns on, and the path of the switch.
const SWITCHES: [(&str, &str); 2] =
    [("waitForPodsReady", "waitForPodsReady.enable"), ("fairSharing", "fairSharing.enable")];

/// Returns the switch that leaves a setting of a file of v1beta1 without effect; `None` if the file or the setting has none, or it is
/// on.
pub(super) fn switched_off_by(file: &Value, path: &str) -> Option<&'static str> {
    if file.get("apiVersion").and_then(Value::as_str) != Some(API_VERSION) {
        return None;
    }
    let below = |section: &str| path.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'));
    let (section, switch) = SWITCHES.into_iter().find(|(section, _)| below(section))?;
    let is_on = file.get(section).and_then(|section| section.get("enable")).and_then(Value::as_bool);
    (is_on != Some(true)).then_some(switch)
}

/// Strategies of fair sharing where a file has none.
const STRATEGIES: [&str; 2] = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"];

fn is_zero(duration: &str) -> bool {
    super::Duration::parse(duration) == Some(super::Duration::default())
}

/// Sets a field of a section that is absent, null or an empty list.
fn set_absent(sections: &mut Map<String, Value>, section: &str, field: &str, value: Value) {
    let section = sections.entry(section).or_insert_with(|| json!({}));
    let present = section.get(field).is_some_and(|old| !old.is_null() && *old != json!([]));
    if let Value::Object(fields) = section
        && !present
    {
        fields.insert(field.to_owned(), value);
    }
}

#[cfg(test)]
mod tests;

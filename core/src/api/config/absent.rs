//! Values that equal an absent field, as Go decodes and completes a configuration.

use super::Duration;
use serde_json::Value;

/// Fields whose empty text Kueue replaces by the default; `*` stands for each entry of a list.
const TEXTS: [&str; 9] = [
    "/health/healthProbeBindAddress",
    "/health/readinessEndpointName",
    "/health/livenessEndpointName",
    "/metrics/bindAddress",
    "/metrics/customLabels/*/sourceKind",
    "/leaderElection/resourceLock",
    "/leaderElection/resourceName",
    "/multiKueue/origin",
    "/resources/transformations/*/strategy",
];
/// Durations whose zero Kueue replaces by the default.
const DURATIONS: [&str; 5] = [
    "/leaderElection/leaseDuration",
    "/leaderElection/renewDeadline",
    "/leaderElection/retryPeriod",
    "/waitForPodsReady/timeout",
    "/admissionFairSharing/usageSamplingInterval",
];
/// Numbers whose zero Kueue, or the server that it starts, replaces by the default.
const NUMBERS: [&str; 1] = ["/webhook/port"];

/// Removes fields with a value that equals an absent one. Lists and maps contain no null.
pub(super) fn drop_absent(document: &mut Value) {
    drop_nulls(document);
    drop_empty_texts(document);
    drop_if(document, &DURATIONS, |value| {
        value.as_str().and_then(Duration::parse) == Some(Duration::default())
    });
    drop_if(document, &NUMBERS, |value| value.as_i64() == Some(0));
}

/// Removes texts that equal an absent one. The check of types needs that: an empty text is none of the values of a choice.
pub(super) fn drop_empty_texts(document: &mut Value) {
    drop_if(document, &TEXTS, |value| value.as_str() == Some(""));
}

fn drop_if(document: &mut Value, pointers: &[&str], is_absent: impl Fn(&Value) -> bool) {
    for pointer in pointers {
        let (section, field) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        let sections = match section.strip_suffix("/*") {
            None => document.pointer_mut(section).into_iter().collect(),
            Some(list) => {
                let entries = document.pointer_mut(list).and_then(Value::as_array_mut);
                entries.into_iter().flatten().collect::<Vec<_>>()
            }
        };
        for members in sections.into_iter().filter_map(Value::as_object_mut) {
            if members.get(field).is_some_and(&is_absent) {
                members.remove(field);
            }
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

//! Values that equal an absent field, as Go decodes and completes a configuration.

use super::Duration;
use serde_json::Value;

/// Fields whose empty text Kueue replaces by the default.
const TEXTS: [&str; 7] = [
    "/health/healthProbeBindAddress",
    "/health/readinessEndpointName",
    "/health/livenessEndpointName",
    "/metrics/bindAddress",
    "/leaderElection/resourceLock",
    "/leaderElection/resourceName",
    "/multiKueue/origin",
];
/// Durations whose zero Kueue replaces by the default.
const DURATIONS: [&str; 5] = [
    "/leaderElection/leaseDuration",
    "/leaderElection/renewDeadline",
    "/leaderElection/retryPeriod",
    "/waitForPodsReady/timeout",
    "/admissionFairSharing/usageSamplingInterval",
];

/// Removes fields with a value that equals an absent one. Lists and maps contain no null.
pub(super) fn drop_absent(document: &mut Value) {
    drop_nulls(document);
    drop_if(document, &TEXTS, str::is_empty);
    drop_if(document, &DURATIONS, |text| Duration::parse(text) == Some(Duration::default()));
}

fn drop_if(document: &mut Value, pointers: &[&str], is_zero: impl Fn(&str) -> bool) {
    for pointer in pointers {
        let zero = document.pointer(pointer).and_then(Value::as_str).is_some_and(&is_zero);
        let (section, field) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        if let Some(Value::Object(members)) = document.pointer_mut(section).filter(|_| zero) {
            members.remove(field);
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

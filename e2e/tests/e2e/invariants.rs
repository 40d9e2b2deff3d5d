//! What must not stand between two versions of a Workload: the rules of its life (I14), read from the objects alone.

use serde_json::Value;
use sluice_e2e::objects::{condition, condition_is_true, text};

/// What is wrong between two versions of a Workload in a row, whose pass must not come to anything.
pub(crate) fn transition_violation(before: &Value, after: &Value) -> Option<String> {
    let told = |what: &str| Some(format!("{what}: {} -> {}", before["status"], after["status"]));
    if before["metadata"]["uid"] != after["metadata"]["uid"] {
        return None;
    }
    let types = |w: &Value| -> Vec<String> {
        let all = w.pointer("/status/conditions").and_then(Value::as_array);
        all.into_iter().flatten().map(|c| text(c, "/type").to_owned()).collect()
    };
    let left = types(after);
    if types(before).iter().any(|kind| kind != "DeactivationTarget" && !left.contains(kind)) {
        return told("a condition disappeared");
    }
    let (old, new) = (&before["status"]["admission"], &after["status"]["admission"]);
    if !old.is_null() && !new.is_null() && old != new {
        return told("an assignment landed");
    }
    let was_free = condition(before, "QuotaReserved").status == "False";
    let never = ["QuotaExceeded", "ExceedsMaxQuota", "Suspended"];
    if was_free
        && condition_is_true(after, "QuotaReserved")
        && never.contains(&&*condition(before, "QuotaReserved").reason)
    {
        return told("a reservation came back");
    }
    if condition_is_true(before, "Evicted") && !condition_is_true(after, "Evicted") {
        return told("an eviction was taken back");
    }
    if condition_is_true(before, "Finished") && (!condition_is_true(after, "Finished") || old != new) {
        return told("it changed after its end");
    }
    None
}

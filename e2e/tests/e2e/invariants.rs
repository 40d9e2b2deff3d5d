//! Rules for the lifecycle of a Workload (I14), checked on consecutive revisions of its object.

use serde_json::Value;
use sluice_e2e::objects::{condition, condition_is_true, text};

/// Returns the rule that two consecutive revisions violate, for a Workload whose second pass must not write.
pub(crate) fn transition_violation(before: &Value, after: &Value) -> Option<String> {
    let violation = |what: &str| Some(format!("{what}: {} -> {}", before["status"], after["status"]));
    if before["metadata"]["uid"] != after["metadata"]["uid"] {
        return None;
    }
    let types = |w: &Value| -> Vec<String> {
        let all = w.pointer("/status/conditions").and_then(Value::as_array);
        all.into_iter().flatten().map(|c| text(c, "/type").to_owned()).collect()
    };
    let types_after = types(after);
    if types(before).iter().any(|kind| kind != "DeactivationTarget" && !types_after.contains(kind)) {
        return violation("a condition disappeared");
    }
    let (old, new) = (&before["status"]["admission"], &after["status"]["admission"]);
    if !old.is_null() && !new.is_null() && old != new {
        return violation("an assignment was written");
    }
    let had_no_quota = condition(before, "QuotaReserved").status == "False";
    let not_reservable = ["QuotaExceeded", "ExceedsMaxQuota", "Suspended"];
    if had_no_quota
        && condition_is_true(after, "QuotaReserved")
        && not_reservable.contains(&&*condition(before, "QuotaReserved").reason)
    {
        return violation("a reservation reappeared");
    }
    if condition_is_true(before, "Evicted") && !condition_is_true(after, "Evicted") {
        return violation("an eviction was reverted");
    }
    if condition_is_true(before, "Finished") && (!condition_is_true(after, "Finished") || old != new) {
        return violation("the workload changed after it finished");
    }
    None
}

//! What each rule of a recording permits to change of a Workload.

use super::judge::brief;
use crate::objects::{condition_is_true, number, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What is broken, and the values before and after.
pub(super) type Broken = (String, String, String);

/// Returns what of a rule does not hold.
pub(super) fn broken(rule: &str, before: &Value, after: Option<&Value>) -> Vec<Broken> {
    let Some(after) = after else {
        return if rule == "gone" { Vec::new() } else { vec![("exists".into(), "yes".into(), "no".into())] };
    };
    if before["metadata"]["uid"] != after["metadata"]["uid"] {
        return vec![(
            "uid".into(),
            brief(before.pointer("/metadata/uid")),
            brief(after.pointer("/metadata/uid")),
        )];
    }
    let mut found = Vec::new();
    let mut equal = |pointers: &[&str]| {
        for pointer in pointers {
            let (was, is) = (before.pointer(pointer), after.pointer(pointer));
            found.extend(differences(pointer, was.unwrap_or(&Value::Null), is.unwrap_or(&Value::Null)));
        }
    };
    match rule {
        "same" => equal(&[
            "/spec",
            "/metadata/labels",
            "/metadata/annotations",
            "/metadata/finalizers",
            "/metadata/ownerReferences",
            "/status/admission",
            "/status/admissionChecks",
            "/status/reclaimablePods",
            "/status/requeueState",
            "/status/schedulingStats",
        ]),
        "still" => equal(&["/spec", "/status", "/metadata/finalizers", "/metadata/ownerReferences"]),
        "check" => equal(&[
            "/spec",
            "/metadata/finalizers",
            "/metadata/ownerReferences",
            "/status/admission",
            "/status/admissionChecks",
            "/status/requeueState",
            "/status/schedulingStats",
        ]),
        "open" => equal(&["/metadata/ownerReferences"]),
        "gone" => found.push(("gone".into(), String::new(), "exists".into())),
        _ => {}
    }
    match rule {
        "same" => {
            found.extend(conditions(
                &["QuotaReserved", "Admitted", "Evicted", "Finished", "PodsReady"],
                before,
                after,
            ));
        }
        "check" => {
            found.extend(conditions(&["QuotaReserved", "Evicted", "Finished"], before, after));
            if condition_is_true(after, "Admitted") {
                found.push(("Admitted".into(), "no".into(), brief(Some(condition(after, "Admitted")))));
            }
        }
        "open" => found.extend(open(before, after)),
        "evict" => found.extend(evicted(before, after)),
        "due" => found.extend(due(before, after)),
        "finish" if !condition_is_true(after, "Finished") => {
            found.push(("Finished".into(), "False".into(), brief(after.pointer("/status/conditions"))));
        }
        _ => {}
    }
    found.retain(|(what, ..)| !is_listed(what, after));
    found
}

/// Returns whether COMPATIBILITY.md lists a change: the value of its class replaces another priority of a Workload, as when Kueue starts,
/// and a Workload whose Job was deleted without its pods finishes, as with Kueue since 0.18.
fn is_listed(what: &str, after: &Value) -> bool {
    let of_class = after["spec"]["priorityClassRef"]["kind"] == "WorkloadPriorityClass";
    let orphan = after["metadata"]["ownerReferences"].is_null()
        && condition(after, "Finished")["reason"] == "OwnerNotFound";
    (what == "/spec/priority" && of_class) || (what == "Finished" && orphan)
}

/// Returns the smallest parts that differ, each with its JSON pointer.
pub(crate) fn differences(pointer: &str, was: &Value, is: &Value) -> Vec<Broken> {
    let children = |value: &Value| match value {
        Value::Object(fields) => fields.iter().map(|(name, child)| (name.clone(), child.clone())).collect(),
        // Elements that have a type or a name are compared with those of the same.
        Value::Array(all) => {
            let key = |(index, element): (usize, &Value)| {
                let name = ["type", "name"].iter().find_map(|field| element[*field].as_str());
                (name.map_or_else(|| index.to_string(), str::to_owned), element.clone())
            };
            all.iter().enumerate().map(key).collect()
        }
        _ => BTreeMap::<String, Value>::new(),
    };
    if was == is {
        return Vec::new();
    }
    if (was.is_object() && is.is_object()) || (was.is_array() && is.is_array()) {
        let (was, is) = (children(was), children(is));
        let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
        let found: Vec<Broken> = names
            .into_iter()
            .flat_map(|name| {
                let [was, is] = [&was, &is].map(|of| of.get(name).unwrap_or(&Value::Null));
                differences(&format!("{pointer}/{name}"), was, is)
            })
            .collect();
        if !found.is_empty() {
            return found;
        }
    }
    vec![(pointer.to_owned(), brief(Some(was)), brief(Some(is)))]
}

/// Returns the rule for a Workload that the first manager has left.
pub(super) fn of_left(workload: &Value) -> &'static str {
    let holds = condition_is_true(workload, "QuotaReserved");
    match () {
        () if condition_is_true(workload, "Finished") => "still",
        () if holds
            && condition_is_true(workload, "Admitted")
            && condition_is_true(workload, "PodsReady") =>
        {
            "same"
        }
        () if holds => "due",
        () if workload["spec"]["active"] == false => "still",
        () => "open",
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    all.and_then(|all| all.iter().find(|c| c["type"] == *kind)).unwrap_or(&Value::Null)
}

/// Status, reason and time of these conditions.
fn conditions(kinds: &[&str], before: &Value, after: &Value) -> Vec<Broken> {
    let mut found = Vec::new();
    for kind in kinds {
        let (was, is) = (condition(before, kind), condition(after, kind));
        if ["status", "reason", "lastTransitionTime"].iter().any(|field| was[*field] != is[*field]) {
            found.push(((*kind).to_owned(), brief(Some(was)), brief(Some(is))));
        }
    }
    found
}

/// Number of evictions that are counted.
fn evictions(workload: &Value) -> i64 {
    let counts = workload["status"]["schedulingStats"]["evictions"].as_array();
    counts.into_iter().flatten().map(|entry| number(entry, "/count")).sum()
}

/// Without quota, what happened before is kept; with quota, the eviction is over.
fn open(before: &Value, after: &Value) -> Vec<Broken> {
    let mut found = Vec::new();
    if condition_is_true(before, "Evicted") {
        let is = condition(after, "Evicted");
        let reserved = condition_is_true(after, "QuotaReserved");
        let kept = if reserved { is["status"] == "False" } else { is == condition(before, "Evicted") };
        if !kept {
            found.push((
                "Evicted is kept".into(),
                brief(Some(condition(before, "Evicted"))),
                brief(Some(is)),
            ));
        }
    }
    if evictions(before) != evictions(after) {
        found.push(("evictions".into(), evictions(before).to_string(), evictions(after).to_string()));
    }
    found
}

/// The eviction that had begun is over, and was counted once.
fn evicted(before: &Value, after: &Value) -> Vec<Broken> {
    let mut found = Vec::new();
    if evictions(before) != evictions(after) {
        found.push(("counted once".into(), evictions(before).to_string(), evictions(after).to_string()));
    }
    let (was, is) = (condition(before, "QuotaReserved"), condition(after, "QuotaReserved"));
    let over = is["status"] != "True" || is["lastTransitionTime"] != was["lastTransitionTime"];
    if !over && !condition_is_true(after, "Finished") {
        found.push(("quota is released".into(), brief(Some(was)), brief(after.pointer("/status"))));
    }
    found
}

/// Counts of requeues go on.
fn due(before: &Value, after: &Value) -> Vec<Broken> {
    let pointer = "/status/requeueState/count";
    let (was, is) = (number(before, pointer), number(after, pointer));
    let ended = text(condition(after, "Evicted"), "/reason").starts_with("Deactivated");
    let mut found = Vec::new();
    if is < was && !ended {
        found.push(("requeues go on".into(), was.to_string(), is.to_string()));
    }
    if evictions(after) < evictions(before) {
        found.push(("evictions".into(), evictions(before).to_string(), evictions(after).to_string()));
    }
    found
}

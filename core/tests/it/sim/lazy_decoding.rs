//! Partially decoded Workloads: the core treats them like the same objects decoded in full.

use super::stale_reads::{leading_state, time_at, workload};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use sluice_core::cache::{Kind, WorkloadObject};
use sluice_core::reconciler::{Delta, Effect, Reconciler, Write, WriteOutcome, WriteResult};

/// A Workload as the shell passes it on from its watch: metadata decoded, spec and status as text.
fn partially_decoded(mut object: Value) -> Delta {
    let metadata = serde_json::from_value(object["metadata"].take()).unwrap();
    let text = |part: &Value| (!part.is_null()).then(|| to_raw_value(part).unwrap());
    Delta::Workload(WorkloadObject::new(metadata, text(&object["spec"]), text(&object["status"])))
}

/// Decodes every second version of a Workload partially; all other deltas are unchanged.
pub(super) fn partially_decoded_by_turns(delta: Delta) -> Delta {
    match delta {
        Delta::Applied { kind: Kind::Workload, object } if is_even(&object) => partially_decoded(object),
        other => other,
    }
}

fn is_even(object: &Value) -> bool {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    version.ends_with(['0', '2', '4', '6', '8'])
}

/// A history that changes each part, and makes parts undecodable.
fn versions() -> Vec<Value> {
    let mut versions = Vec::new();
    let mut change = |edit: &dyn Fn(&mut Value)| {
        let version = 100 + versions.len();
        let mut object = versions.last().cloned().unwrap_or_else(|| workload("100"));
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        edit(&mut object);
        versions.push(object);
    };
    change(&|object| object["status"] = json!({}));
    change(&|object| object["metadata"]["annotations"] = json!({"a": "b"}));
    change(&|object| *object = workload("102"));
    change(&|object| object["status"]["conditions"][1]["type"] = json!(7));
    change(&|object| *object = workload("104"));
    change(&|object| {
        object["metadata"]["generation"] = json!(2);
        object["spec"]["podSets"] = json!([{"name": "main", "count": "many"}]);
    });
    change(&|object| object["spec"]["podSets"] = json!("nonsense"));
    change(&|object| object["spec"] = json!(7));
    change(&|object| *object = workload("108"));
    change(&|object| {
        object["metadata"]["generation"] = json!(3);
        object["spec"]["active"] = json!(false);
    });
    change(&|object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object["metadata"]["finalizers"] = json!([]);
    });
    versions
}

/// Applies a version. All its writes fail, so that each version is decided on.
fn apply_with_failing_writes(state: &mut Reconciler, delta: Delta, second: i64) -> String {
    let effects = state.apply(delta, time_at(second));
    for effect in &effects {
        if let Effect::Write(Write { id, kind, key, .. }) = effect {
            let outcome = WriteOutcome::Unavailable { message: "timeout".to_owned() };
            let result = WriteResult { id: *id, kind: *kind, key: key.clone(), outcome };
            state.apply(Delta::Written(result), time_at(second));
        }
    }
    format!("{effects:#?}")
}

#[test]
fn partially_decoded_workload_behaves_like_full_object() {
    let (mut full, mut partial) = (leading_state(), leading_state());
    let mut all_effects = Vec::new();
    for (second, object) in (100..).step_by(100).zip(versions()) {
        let delta = Delta::Applied { kind: Kind::Workload, object: object.clone() };
        let expected = apply_with_failing_writes(&mut full, delta, second);
        assert_eq!(
            apply_with_failing_writes(&mut partial, partially_decoded(object), second),
            expected,
            "version at {second}"
        );
        all_effects.push(expected);
    }
    let count_containing = |word: &str| all_effects.iter().filter(|effects| effects.contains(word)).count();
    assert_eq!(count_containing("cannot be read"), 4, "{all_effects:#?}");
    assert_eq!(count_containing("The workload is admitted"), 2, "{all_effects:#?}");
    assert_eq!(count_containing("Evicted"), 1, "{all_effects:#?}");
    let queues = |state: &Reconciler| format!("{:?}", state.snapshot().queues.cluster_queues);
    assert_eq!(queues(&full), queues(&partial));
}

/// The spec of a known generation is not decoded: here it is invalid.
#[test]
fn spec_of_known_generation_is_not_decoded() {
    let mut state = leading_state();
    state.apply(partially_decoded(workload("100")), time_at(1));
    let mut object = workload("101");
    object["spec"] = json!("nonsense");
    assert!(!apply_with_failing_writes(&mut state, partially_decoded(object), 2).contains("cannot be read"));
    assert_eq!(state.snapshot().queues.cluster_queues["a"].reserving, 1);
}

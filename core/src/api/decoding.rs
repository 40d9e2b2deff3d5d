//! Decodes objects of the API server. An error names the field, so that an event about an unreadable object says what to
//! correct.
//!
//! Invariants: a time that the API server stores is never an error; what is left of an object without the parts that cannot be
//! decoded can be decoded.

use super::time::parse_time;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Error, Segment};
use std::fmt;

/// Number of repairs of an object, after which larger parts are given up: each takes as long as decoding the object.
const MAX_REPAIRS: usize = 32;
/// Depth of the parts that are given up then: fields of the spec and of the status.
const SHALLOW: usize = 2;

/// Why an object, or a part of one, cannot be decoded. As text, `PATH: PROBLEM`, or the problem alone without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Path of the field, such as `spec.podSets[0].count`; empty if the error is not at a field.
    pub path: String,
    /// Description of the error.
    pub problem: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for DecodeError {}

impl From<Error<serde_json::Error>> for DecodeError {
    fn from(error: Error<serde_json::Error>) -> Self {
        let is_known = |segment: &Segment| !matches!(segment, Segment::Unknown);
        let path = if error.path().iter().any(is_known) { error.path().to_string() } else { String::new() };
        Self { path, problem: error.into_inner().to_string() }
    }
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self { path: String::new(), problem: error.to_string() }
    }
}

/// Decodes an object, or a part of one.
///
/// # Errors
/// If it cannot be decoded; the path is that within `value`.
pub fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, DecodeError> {
    // The path costs time, so it is only recorded after a failure.
    T::deserialize(value).or_else(|_| decode_with_odd_times(value))
}

/// Decodes an object in which times are first written as the type of times reads them.
fn decode_with_odd_times<T: DeserializeOwned>(value: &Value) -> Result<T, DecodeError> {
    let mut value = value.clone();
    loop {
        match locate_error(&value) {
            Ok(decoded) => return Ok(decoded),
            Err(error) if normalize_times(&mut value, &segments(&error)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns an object without the parts that cannot be decoded, the smallest that can be left out; `None` if nothing is left.
pub fn readable_part<T: DeserializeOwned>(value: &Value) -> Option<Value> {
    // The decoder would take the items of a list for the fields of an object.
    let mut part = Some(value).filter(|value| value.is_object())?.clone();
    let mut removals = 0_usize;
    loop {
        let Err(error) = locate_error::<T>(&part) else { return Some(part) };
        let path = segments(&error);
        if normalize_times(&mut part, &path) {
            continue;
        }
        let depth = if removals < MAX_REPAIRS { path.len() } else { SHALLOW };
        removals = removals.saturating_add(1);
        if !remove(&mut part, path.get(..depth).unwrap_or(&path)) {
            return None;
        }
    }
}

fn locate_error<T: DeserializeOwned>(value: &Value) -> Result<T, Error<serde_json::Error>> {
    serde_path_to_error::deserialize(value)
}

fn segments<E>(error: &Error<E>) -> Vec<Segment> {
    error.path().iter().cloned().collect()
}

/// Rewrites the time at a path, and those at the same place of other items of the lists on the way. Returns whether a text changed.
fn normalize_times(value: &mut Value, path: &[Segment]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        let Some(time) = value.as_str().and_then(parse_time) else { return false };
        let text = Value::from(time.to_string());
        let changed = *value != text;
        *value = text;
        return changed;
    };
    match (value, first) {
        (Value::Object(fields), Segment::Map { key }) => {
            fields.get_mut(key).is_some_and(|field| normalize_times(field, rest))
        }
        (Value::Array(items), Segment::Seq { .. }) => {
            let mut changed = false;
            for item in items {
                changed |= normalize_times(item, rest);
            }
            changed
        }
        _ => false,
    }
}

/// Removes what is at a path, or the nearest part above it that exists. Returns whether something was removed.
fn remove(value: &mut Value, path: &[Segment]) -> bool {
    let Some((last, parents)) = path.split_last() else { return false };
    let parent = parents.iter().try_fold(&mut *value, |value, segment| match (value, segment) {
        (Value::Object(fields), Segment::Map { key }) => fields.get_mut(key),
        (Value::Array(items), Segment::Seq { index }) => items.get_mut(*index),
        _ => None,
    });
    let removed = match (parent, last) {
        (Some(Value::Object(fields)), Segment::Map { key }) => fields.shift_remove(key).is_some(),
        (Some(Value::Array(items)), Segment::Seq { index }) if *index < items.len() => {
            items.remove(*index);
            true
        }
        _ => false,
    };
    removed || remove(value, parents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::v1beta2::{ClusterQueue, Workload, WorkloadStatus};
    use serde_json::json;

    #[test]
    fn error_names_field_and_value() {
        let object = |spec| json!({"metadata": {"name": "odd"}, "spec": spec});
        assert!(decode::<ClusterQueue>(&object(json!({}))).is_ok());
        let error = decode::<ClusterQueue>(&object(json!({"queueingStrategy": "Sideways"}))).unwrap_err();
        assert_eq!(error.path, "spec.queueingStrategy");
        assert!(error.problem.starts_with("unknown variant `Sideways`"), "{error}");
        assert_eq!(error.to_string(), format!("{}: {}", error.path, error.problem));
        let error = decode::<ClusterQueue>(&json!("nonsense")).unwrap_err();
        assert_eq!((error.path.as_str(), error.to_string()), ("", error.problem.clone()));
    }

    #[test]
    fn odd_times_are_read_wherever_they_are() {
        let odd = "9999-12-31T23:59:59.1234567891Z";
        let condition = |time: &str| json!({"type": "a", "status": "True", "lastTransitionTime": time});
        let status = json!({"requeueState": {"requeueAt": odd},
            "conditions": [condition("2026-01-01T00:00:00Z"), condition(odd), condition(odd)]});
        let read: WorkloadStatus = decode(&status).unwrap();
        assert_eq!(read.requeue_state.unwrap().requeue_at.unwrap().0, jiff::Timestamp::MAX);
        assert_eq!(read.conditions[2].last_transition_time.0, jiff::Timestamp::MAX);
        assert_eq!(read.conditions[0].last_transition_time.0.to_string(), "2026-01-01T00:00:00Z");
        let error = decode::<WorkloadStatus>(&json!({"requeueState": {"requeueAt": "never"}})).unwrap_err();
        assert_eq!(error.path, "requeueState.requeueAt", "{error}");
    }

    #[test]
    fn smallest_unreadable_parts_are_left_out() {
        let check = |name: &str, state: Value| json!({"name": name, "state": state, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let object = json!({
            "metadata": {"name": "w", "labels": {"a": 1, "b": "c"}},
            "spec": {"priority": "high", "queueName": "q"},
            "status": {"admission": {"clusterQueue": "cq"},
                "requeueState": {"count": 3, "requeueAt": "never"},
                "admissionChecks": [check("a", json!("Ready")), check("b", json!(7)), {"state": "Ready"}]},
        });
        let expected = json!({
            "metadata": {"name": "w", "labels": {"b": "c"}},
            "spec": {"queueName": "q"},
            "status": {"admission": {"clusterQueue": "cq"}, "requeueState": {"count": 3},
                "admissionChecks": [check("a", json!("Ready"))]},
        });
        assert_eq!(readable_part::<Workload>(&object), Some(expected));
        assert_eq!(readable_part::<Workload>(&json!("nonsense")), None);
        assert_eq!(readable_part::<Workload>(&json!([])), None);
    }

    #[test]
    fn very_many_unreadable_parts_are_given_up_together() {
        let gates: Vec<Value> = (0..1000).map(|gate| json!({"name": gate, "position": "Open"})).collect();
        let object = json!({"status": {"admission": {"clusterQueue": "cq"}, "preemptionGates": gates}});
        let part = readable_part::<Workload>(&object).unwrap();
        assert_eq!(part, json!({"status": {"admission": {"clusterQueue": "cq"}}}));
    }
}

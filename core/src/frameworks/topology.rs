//! The topology request in the annotations of a pod template.

use super::JobError;
use super::read::path_of;
use super::row::Rank;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
const SLICE_REQUIRED: &str = "kueue.x-k8s.io/podset-slice-required-topology";
const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
const SLICE_CONSTRAINTS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
pub(super) const GROUP: &str = "kueue.x-k8s.io/podset-group-name";

/// Returns the `topologyRequest` of a pod set. With rank labels it exists even without topology annotations, because the
/// flavor may have a topology, and then the index of each pod decides its rank. `place` is the pointer to the annotations, for errors.
pub(super) fn topology_request(
    annotations: &BTreeMap<String, String>,
    rank: &Rank,
    sub_groups: Option<i32>,
    place: &str,
) -> Result<Option<Value>, JobError> {
    let wrong = |key: &str, problem: &str| JobError::Malformed {
        path: format!("{}[{key}]", path_of(place)),
        problem: problem.to_owned(),
    };
    let mut request = Map::new();
    if let Some(level) = annotations.get(REQUIRED) {
        request.insert("required".to_owned(), json!(level));
    } else if let Some(level) = annotations.get(PREFERRED) {
        request.insert("preferred".to_owned(), json!(level));
    } else if let Some(text) = annotations.get(UNCONSTRAINED) {
        let on = parse_bool(text).ok_or_else(|| wrong(UNCONSTRAINED, "must be a boolean"))?;
        request.insert("unconstrained".to_owned(), json!(on));
    }
    let requests_domain = annotations.contains_key(REQUIRED) || annotations.contains_key(PREFERRED);
    if let Some(text) = annotations.get(SLICE_CONSTRAINTS) {
        let layers: Vec<Value> =
            serde_json::from_str(text).map_err(|_| wrong(SLICE_CONSTRAINTS, "must be a JSON array"))?;
        request.insert("podsetSliceRequiredTopologyConstraints".to_owned(), Value::Array(layers));
    } else if let Some(level) = annotations.get(SLICE_REQUIRED) {
        request.insert("podSetSliceRequiredTopology".to_owned(), json!(level));
        if let Some(text) = annotations.get(SLICE_SIZE) {
            let size: i32 = text.parse().map_err(|_| wrong(SLICE_SIZE, "must be an int32"))?;
            request.insert("podSetSliceSize".to_owned(), json!(size));
        }
    }
    if let Some(label) = rank.index_label {
        request.insert("podIndexLabel".to_owned(), json!(label));
    }
    if let Some((groups, count)) = rank.sub_groups.zip(sub_groups) {
        request.insert("subGroupIndexLabel".to_owned(), json!(groups.label));
        request.insert("subGroupCount".to_owned(), json!(count));
    }
    // A group needs a requested domain to share.
    if let Some(group) = annotations.get(GROUP).filter(|_| requests_domain) {
        request.insert("podSetGroupName".to_owned(), json!(group));
    }
    Ok((!request.is_empty()).then_some(Value::Object(request)))
}

/// Parses a boolean like Go's `strconv.ParseBool`.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

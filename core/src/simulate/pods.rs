//! Managed pods in simulations: what a kubelet writes to a pod, from its start to its end.
//!
//! Invariants: a pod starts when it has no scheduling gate, on no particular node; a pod that runs and is deleted stays until its
//! containers have terminated. Pods that are not managed are as their manifests say, and do not change.

use super::job_runner::JobStep;
use super::objects::{field, set, text_at, value_at};
use crate::api::names;
use crate::api::time::parse_time;
use crate::frameworks::PodMember;
use crate::lifecycle::conditions::to_api_time;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Finalizer that stands for the containers of a pod.
const RUNS: &str = "sluice.dev/containers";
/// Node of a pod that its admission puts on none.
const NODE: &str = "simulated";
const NODE_NAME_LABEL: &str = "kubernetes.io/hostname";
const FINALIZERS: &str = "/metadata/finalizers";

/// What a kubelet knows of a managed pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodPhase {
    /// It waits for its gates, or has ended.
    Idle,
    /// It may start.
    Ready,
    /// Its containers run: since when, and whether they are ready.
    Runs(Option<Timestamp>, bool),
    /// It is deleted, and its containers run.
    Ends,
}

/// Reads a pod; `None` if it is not managed.
pub(super) fn phase_of(pod: &Value) -> Option<PodPhase> {
    if !PodMember::is_managed(pod) {
        return None;
    }
    let deleted = value_at(pod, "/metadata/deletionTimestamp").is_some();
    let ended = matches!(text_at(pod, "/status/phase"), "Succeeded" | "Failed");
    let gated =
        value_at(pod, "/spec/schedulingGates").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    let runs = text_at(pod, "/status/phase") == "Running";
    Some(match (runs, deleted) {
        _ if ended => PodPhase::Idle,
        (true, true) => PodPhase::Ends,
        (true, false) => PodPhase::Runs(
            parse_time(text_at(pod, "/status/startTime")),
            super::objects::is_true(pod, "Ready"),
        ),
        (false, true) => PodPhase::Idle,
        (false, false) if gated => PodPhase::Idle,
        (false, false) => PodPhase::Ready,
    })
}

/// Returns whether the pod ends by itself: another controller restarts the pods of the others.
pub(super) fn finishes(pod: &Value) -> bool {
    let annotations = value_at(pod, "/metadata/annotations");
    annotations.is_none_or(|map| field(map, names::SUSPENDING_PARENT_ANNOTATION).is_none())
}

/// Writes a step to a pod.
pub(super) fn apply(step: JobStep, pod: &mut Value, ready: bool, succeeds: bool, now: Timestamp) {
    match step {
        JobStep::Start => {
            let node =
                value_at(pod, "/spec/nodeSelector").and_then(|selector| field(selector, NODE_NAME_LABEL));
            let node = node.and_then(Value::as_str).unwrap_or(NODE).to_owned();
            set(pod, &["spec", "nodeName"], json!(node));
            set(pod, &["status", "phase"], json!("Running"));
            set(pod, &["status", "startTime"], json!(to_api_time(now)));
            set_ready(pod, ready, now);
            let mut finalizers = finalizers(pod);
            finalizers.push(json!(RUNS));
            set(pod, &["metadata", "finalizers"], Value::Array(finalizers));
        }
        JobStep::Ready => set_ready(pod, true, now),
        JobStep::Stop => end(pod, "Failed", now),
        JobStep::End => end(pod, if succeeds { "Succeeded" } else { "Failed" }, now),
    }
}

fn end(pod: &mut Value, phase: &str, now: Timestamp) {
    set(pod, &["status", "phase"], json!(phase));
    set_ready(pod, false, now);
    let mut finalizers = finalizers(pod);
    finalizers.retain(|name| name != RUNS);
    set(pod, &["metadata", "finalizers"], Value::Array(finalizers));
}

fn finalizers(pod: &Value) -> Vec<Value> {
    value_at(pod, FINALIZERS).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn set_ready(pod: &mut Value, ready: bool, now: Timestamp) {
    let known = value_at(pod, "/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let status = if ready { "True" } else { "False" };
    let mut conditions: Vec<Value> =
        known.into_iter().filter(|condition| text_at(condition, "/type") != "Ready").collect();
    conditions.push(json!({"type": "Ready", "status": status, "lastTransitionTime": to_api_time(now)}));
    set(pod, &["status", "conditions"], Value::Array(conditions));
}

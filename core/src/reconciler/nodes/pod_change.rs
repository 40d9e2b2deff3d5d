//! Writes that remove a scheduling gate of a pod, or end the pod.

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::pods::WorkloadPod;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::backoff::elapsed_duration;
use crate::lifecycle::conditions;
use crate::reconciler::messages::{Effect, Observation};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A write that ungates or terminates a pod.
pub(super) struct PodChange {
    pub(super) key: ObjectKey,
    pub(super) body: Value,
    /// Whether the write terminates the pod instead of ungating it.
    pub(super) terminates_pod: bool,
    /// Emitted when the write has landed.
    pub(super) effect: Effect,
}

/// Returns the list of the gates that a pod has beside one, to be written.
pub(super) fn gates_without(pod: &WorkloadPod, name: &str) -> Value {
    let others = pod.gates.iter().filter(|gate| *gate != name);
    let gates: Vec<Value> = others.map(|gate| json!({"name": gate})).collect();
    if gates.is_empty() { Value::Null } else { Value::Array(gates) }
}

/// Returns the observation of a removed gate of a pod of this Workload, with the time since admission.
pub(in crate::reconciler) fn gate_removed_observation(
    record: &WorkloadRecord,
    gate: &'static str,
    now: Timestamp,
) -> Effect {
    let status = &record.status;
    let cluster_queue = status.admission.as_ref().map(|admission| admission.cluster_queue.clone());
    let admitted = conditions::true_since(status, ConditionType::Admitted).unwrap_or(now);
    Effect::Observe(Observation::GateRemoved {
        gate,
        cluster_queue: cluster_queue.unwrap_or_default(),
        is_group: record.annotations.is_pod_group,
        latency: elapsed_duration(admitted, now),
    })
}

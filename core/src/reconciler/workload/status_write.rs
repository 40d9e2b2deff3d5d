//! The write of a Workload's status: a server-side apply, or a merge patch where an apply cannot reach the status.
//!
//! An apply removes only what no other field manager owns. If another client has written a list item, the item stays; if it has
//! written a field of an item that only we own, the API server leaves `null` for a list that becomes empty, and refuses it. So a
//! status from which an apply could not remove something is written by a merge patch with the difference, once; what a merge
//! patch removes, no manager owns afterwards.
//!
//! Invariants: every write carries the resourceVersion that it was decided on; a merge patch contains only what differs, so
//! it takes over the ownership of as little as possible.

use super::WorkloadFacts;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use crate::api::{GROUP, v1beta2};
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::carried::is_fresh;
use crate::lifecycle::conditions;
use crate::reconciler::messages::{Verb, WriteClass};
use crate::reconciler::writes::request::{WritePurpose, WriteRequest, merge_patch};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use std::sync::Arc;

impl WorkloadFacts<'_> {
    /// Returns the write of a Workload's status.
    pub(crate) fn status_write(
        self,
        record: &WorkloadRecord,
        mut status: Box<WorkloadStatus>,
        purpose: WritePurpose,
    ) -> WriteRequest {
        let key = &record.meta.key;
        // The status from the creation is no part of the stored status, so that a difference would leave it out.
        let is_stored = record.annotations.carried_from.is_none() || !is_fresh(&record.status);
        let patches = self.writes.needs_merge_patch(key) || removes_check(&record.status, &status);
        let patches = patches && is_stored;
        let difference = patches.then(|| merge_patch(&json!(*record.status), &json!(*status))).flatten();
        retain_owned_conditions(&mut status);
        let class = match purpose {
            WritePurpose::Admit | WritePurpose::SecondPass => WriteClass::Quota,
            _ if moves_quota(&record.status, &status) => WriteClass::Quota,
            WritePurpose::Explain => WriteClass::Explanation,
            WritePurpose::QueueStatus | WritePurpose::Other => WriteClass::Other,
        };
        let (verb, body) = match difference {
            Some(difference) => {
                let metadata = json!({"resourceVersion": record.meta.resource_version});
                (Verb::Merge, json!({"metadata": metadata, "status": difference}))
            }
            None => (Verb::Apply, apply_identity(record)),
        };
        // With admission checks the full response is needed: pod templates are read from it.
        let response_metadata_only = verb == Verb::Apply
            && record.status.admission_checks.is_empty()
            && status.admission_checks.is_empty()
            && record.status.conditions.iter().all(is_owned)
            && !leaves_out(&record.status, &status);
        let request = WriteRequest::new(Kind::Workload, key.clone(), verb, body).of_status();
        WriteRequest { response_metadata_only, status: Some(Arc::from(status)), purpose, class, ..request }
    }
}

/// Removes the conditions that our field manager does not own.
pub(crate) fn retain_owned_conditions(status: &mut WorkloadStatus) {
    status.conditions.retain(is_owned);
}

/// Adds the conditions that our field manager does not own to a status without them.
pub(crate) fn keep_foreign_conditions(known: &WorkloadStatus, status: &mut WorkloadStatus) {
    status.conditions.extend(known.conditions.iter().filter(|condition| !is_owned(condition)).cloned());
}

fn is_owned(condition: &Condition) -> bool {
    ConditionType::ALL.iter().any(|kind| kind.as_str() == condition.type_)
}

/// Returns whether a write is a step of a reservation: it is made or released, wholly or for pods that are no longer needed, or
/// the Workload is admitted, evicted or finished.
fn moves_quota(known: &WorkloadStatus, new: &WorkloadStatus) -> bool {
    let steps = [
        ConditionType::QuotaReserved,
        ConditionType::Admitted,
        ConditionType::Evicted,
        ConditionType::Finished,
    ];
    let step = |kind: &ConditionType| conditions::is_true(known, *kind) != conditions::is_true(new, *kind);
    steps.iter().any(step) || known.reclaimable_pods != new.reclaimable_pods
}

/// Returns whether a write removes a check. The controller of the check owns at least a part of its state, so an apply
/// could not remove it.
fn removes_check(known: &WorkloadStatus, new: &WorkloadStatus) -> bool {
    let says = |name: &str| new.admission_checks.iter().any(|check| check.name == name);
    known.admission_checks.iter().any(|check| !says(&check.name))
}

/// Returns whether an applied status leaves out something that the known status contains. It stays if another field manager
/// owns it too.
pub(crate) fn leaves_out(known: &WorkloadStatus, new: &WorkloadStatus) -> bool {
    let says = |kind: &str| new.conditions.iter().any(|condition| condition.type_ == kind);
    let left_out = [
        known.conditions.iter().any(|condition| is_owned(condition) && !says(&condition.type_)),
        known.admission.is_some() && known.admission != new.admission,
        known.requeue_state.is_some() && known.requeue_state != new.requeue_state,
        !known.reclaimable_pods.is_empty() && known.reclaimable_pods != new.reclaimable_pods,
        !known.admission_checks.is_empty() && known.admission_checks != new.admission_checks,
        !known.resource_requests.is_empty() && known.resource_requests != new.resource_requests,
        known.accumulated_past_execution_time_seconds.is_some()
            && new.accumulated_past_execution_time_seconds.is_none(),
        known.scheduling_stats.is_some() && known.scheduling_stats != new.scheduling_stats,
        !known.nominated_cluster_names.is_empty()
            && known.nominated_cluster_names != new.nominated_cluster_names,
        known.cluster_name.is_some() && new.cluster_name.is_none(),
        !known.unhealthy_nodes.is_empty() && known.unhealthy_nodes != new.unhealthy_nodes,
        !known.preemption_gates.is_empty() && known.preemption_gates != new.preemption_gates,
    ];
    left_out.contains(&true)
}

/// Returns the apply body without status: the identity and resourceVersion of the object that the write was decided on.
pub(crate) fn apply_identity(record: &WorkloadRecord) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{}", v1beta2::VERSION),
        "kind": "Workload",
        "metadata": {
            "name": record.meta.key.name,
            "namespace": record.meta.key.namespace,
            "uid": record.meta.uid,
            "resourceVersion": record.meta.resource_version,
        },
    })
}

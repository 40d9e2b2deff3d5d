//! Writes on the pods of a unit: a start removes the gates, a stop deletes the pods.

use super::super::JobError;
use super::super::composable::{JobUnit, StopReason};
use super::super::patch::{Action, JobPatch, template_operations};
use super::super::pod_member::PodMember;
use super::super::read;
use super::super::template::TemplateInfo;
use super::super::view::PodSetInfo;
use crate::api::names;
use serde_json::{Value, json};

pub(super) fn start(unit: &JobUnit<'_>, infos: &[PodSetInfo]) -> Result<Vec<Action>, JobError> {
    if unit.summary.startable == 0 {
        return Ok(Vec::new());
    }
    let held = |member: &&PodMember| member.state.gated && !member.state.deleting && !member.terminated();
    unit.iter().filter(held).map(|member| start_pod(member, infos)).collect()
}

fn start_pod(member: &PodMember, infos: &[PodSetInfo]) -> Result<Action, JobError> {
    let info = infos.iter().find(|info| *info.name == *member.role);
    let info = info.ok_or_else(|| JobError::PodSetMismatch { name: member.role.clone() })?;
    let own = TemplateInfo::read(Some(&*member.pod))?;
    let mut target = own.clone();
    // The gate that waits for a topology stays only if this admission assigns one.
    target.scheduling_gates.retain(|gate| gate != names::ADMISSION_GATE && gate != names::TOPOLOGY_GATE);
    target.merge(&info.template)?;
    let label = [(names::POD_SET_LABEL.to_owned(), member.role.clone())].into();
    target.merge(&TemplateInfo { labels: label, ..TemplateInfo::default() })?;
    let patch = JobPatch::json(template_operations("", true, &own, &target));
    Ok(Action::Patch { member: member.key.clone(), patch })
}

pub(super) fn stop(unit: &JobUnit<'_>, reason: &StopReason<'_>) -> Vec<Action> {
    if unit.summary.stoppable == 0 && !reason.workload_deleted {
        return Vec::new();
    }
    let condition = json!({
        "type": "TerminationTarget", "status": "True", "reason": reason.reason, "message": reason.message,
        "lastTransitionTime": reason.now,
    });
    let goes = |member: &&PodMember| {
        let waits_or_ended = member.state.gated || member.terminated();
        !member.state.deleting && (reason.workload_deleted || !waits_or_ended)
    };
    let delete = |member: &PodMember| Action::Delete {
        member: member.key.clone(),
        condition: Some(condition.clone()),
    };
    unit.iter().filter(goes).map(delete).collect()
}

pub(super) fn release(member: &PodMember) -> Option<Action> {
    let finalizers = read::list(&member.pod, "/metadata/finalizers").ok()?;
    let rest: Vec<&Value> = finalizers.iter().filter(|name| **name != names::MANAGED_LABEL).collect();
    let path = "/metadata/finalizers";
    let operation = if rest.is_empty() {
        json!({ "op": "remove", "path": path })
    } else {
        json!({ "op": "add", "path": path, "value": rest })
    };
    let patch = JobPatch::json(vec![operation]);
    member.state.has_finalizer.then(|| Action::Patch { member: member.key.clone(), patch })
}

pub(super) fn remove(member: &PodMember) -> Vec<Action> {
    let delete = Action::Delete { member: member.key.clone(), condition: None };
    release(member).into_iter().chain([delete]).collect()
}

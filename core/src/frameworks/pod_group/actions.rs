//! Writes on the pods of a unit: a start removes the gates, a stop deletes the pods.

use super::super::JobError;
use super::super::patch::{Action, Change, JobPatch, template_operations};
use super::super::pod_member::PodMember;
use super::super::read;
use super::super::template::TemplateInfo;
use super::super::unit::{Stop, StopScope, Unit};
use super::super::view::PodSetInfo;
use crate::api::names;
use serde_json::{Value, json};

pub(super) fn start(unit: &Unit<'_>, infos: &[PodSetInfo]) -> Result<Vec<Action>, JobError> {
    if unit.summary.startable == 0 {
        return Ok(Vec::new());
    }
    let info_of = |member: &PodMember| infos.iter().find(|info| *info.name == *member.role);
    let held = |member: &&PodMember| member.state.gated && !member.state.deleting && !member.terminated();
    // A member of a role that the Workload does not have waits: an error would end the Workload under the pods that run.
    let starts = unit.iter().filter(held).filter_map(|member| Some((member, info_of(member)?)));
    starts.map(|(member, info)| start_pod(member, info)).collect()
}

fn start_pod(member: &PodMember, info: &PodSetInfo) -> Result<Action, JobError> {
    let own = TemplateInfo::read(Some(&*member.pod))?;
    let mut target = own.clone();
    // The gate that waits for a topology stays only if this admission assigns one.
    target.scheduling_gates.retain(|gate| gate != names::ADMISSION_GATE && gate != names::TOPOLOGY_GATE);
    target.merge(&info.template)?;
    // One that runs on the quota of an object above it has the pod set of that.
    target.labels.entry(names::POD_SET_LABEL.to_owned()).or_insert_with(|| member.role.clone());
    let patch = JobPatch::json(template_operations("", true, &own, &target));
    Ok(Action::patch_member(member.key.clone(), patch, Change::Start))
}

pub(super) fn stop(unit: &Unit<'_>, stop: &Stop<'_>) -> Vec<Action> {
    if unit.summary.stoppable == 0 && stop.scope == StopScope::Running {
        return Vec::new();
    }
    let condition = json!({
        "type": "TerminationTarget", "status": "True", "reason": stop.reason, "message": stop.message,
        "lastTransitionTime": stop.now,
    });
    let goes = |member: &&PodMember| {
        let waits_or_ended = member.state.gated || member.terminated();
        let goes_anyway = match stop.scope {
            StopScope::Running => false,
            StopScope::All(deletion) => !member.state.gated || member.created <= deletion,
        };
        !member.state.deleting && (goes_anyway || !waits_or_ended)
    };
    let delete =
        |member: &PodMember| Action::delete_member(member.key.clone(), Some(condition.clone()), Change::Stop);
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
    member.state.has_finalizer.then(|| Action::patch_member(member.key.clone(), patch, Change::None))
}

pub(super) fn remove(member: &PodMember) -> Vec<Action> {
    let delete = Action::delete_member(member.key.clone(), None, Change::Remove);
    release(member).into_iter().chain([delete]).collect()
}

//! A pod as a member of a job unit, read once for each version of the pod.

use super::JobError;
use super::pod_group::role_hash;
use super::read;
use crate::api::{ObjectKey, names};
use crate::lifecycle::pod_blocker::PodBlocker;
use crate::resources::{Requests, pod_requests};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pod, with what decides on its unit.
#[derive(Clone, Debug)]
pub struct PodMember {
    /// The raw pod.
    pub pod: Arc<Value>,
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Arc<str>,
    /// Version of the object.
    pub resource_version: String,
    /// Creation time.
    pub created: Timestamp,
    /// End of the grace period of a pod that is being deleted.
    pub grace_ends: Option<Timestamp>,
    /// Since when the pod no longer counts: its deletion, or the failure of its containers.
    pub last_active: Option<Timestamp>,
    /// State of the pod.
    pub state: PodState,
    /// What keeps the pod from running once its Workload is admitted.
    pub blocker: Option<PodBlocker>,
    /// What the pod says about its group, if it names one.
    pub group: Option<GroupMarks>,
    /// Name of the pod set.
    pub role: String,
    /// The LocalQueue.
    pub queue: Option<String>,
    /// The WorkloadPriorityClass.
    pub priority_class: Option<Arc<str>>,
}

/// State of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodState {
    /// Phase of the pod.
    pub phase: Phase,
    /// Whether the pod is deleted.
    pub deleting: bool,
    /// Whether the pod is bound to a node.
    pub bound: bool,
    /// Whether the pod waits for admission.
    pub gated: bool,
    /// Whether the pod is ready.
    pub ready: bool,
    /// Whether it has the finalizer.
    pub has_finalizer: bool,
}

/// Phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It does not run yet, or its state is unknown.
    Pending,
    /// Containers run.
    Running,
    /// All containers succeeded.
    Succeeded,
    /// A container failed, or, in a group, the pod was stopped before its containers had ended: exit code 0 then says that they
    /// shut down well, and not that the work is done.
    Failed,
}

/// What a pod says about its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMarks {
    /// Name of the group.
    pub name: String,
    /// Number of pods.
    pub total: i32,
    /// Whether the Workload is made from the first pod.
    pub fast_admission: bool,
    /// Whether the group never finishes.
    pub serving: bool,
    /// Whether failed pods are not replaced.
    pub unretriable: bool,
    /// Whether the pod names a Workload that exists for the group.
    pub prebuilt: bool,
    /// Rank of the pod, if it has one.
    pub index: Option<String>,
}

/// How long a pod that is deleted counts as running after its grace period. A pod is past it for seconds while its node ends it,
/// and for ever if its node is lost.
const LOST_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Returns when a pod that is bound to a node and is being deleted counts as ended: it needs no quota, and no room on its node.
/// `grace_ends` is the time in its metadata.
pub fn bound_pod_counts_as_ended_at(grace_ends: Timestamp) -> Timestamp {
    grace_ends.checked_add(LOST_AFTER).unwrap_or(Timestamp::MAX)
}

/// Reason of the end of pods whose group does not fit the Workload that it names.
pub const OUT_OF_SYNC: &str = "OutOfSync";

/// Pod set of a pod that is in no group.
pub(super) const SINGLE: &str = "main";

impl PodMember {
    /// Returns whether a pod is managed: it has the label, or the finalizer, which nothing else would remove when a user has
    /// taken the label away.
    pub fn is_managed(pod: &Value) -> bool {
        let labels = pod.pointer("/metadata/labels");
        let labelled = || {
            labels.and_then(|labels| labels.get(names::MANAGED_LABEL)).is_some_and(|value| value == "true")
        };
        let finalizers = pod.pointer("/metadata/finalizers").and_then(Value::as_array);
        let finalized = || finalizers.is_some_and(|all| all.iter().any(|name| name == names::MANAGED_LABEL));
        labelled() || finalized()
    }

    /// Reads a pod. Returns `None` if it is not managed.
    pub fn read(raw: Arc<Value>) -> Result<Option<Self>, JobError> {
        let pod = &*raw;
        if !Self::is_managed(pod) {
            return Ok(None);
        }
        let labels = read::string_map(pod, "/metadata/labels")?;
        let annotations = read::string_map(pod, "/metadata/annotations")?;
        let view = read::common_view(pod)?;
        let group = GroupMarks::read(&labels, &annotations, view.options.prebuilt_workload.is_some())?;
        let role = match &group {
            Some(_) => {
                let given = annotations.get(names::ROLE_HASH_ANNOTATION).filter(|hash| !hash.is_empty());
                let own = || role_hash(pod.get("spec").unwrap_or(&Value::Null));
                given.cloned().unwrap_or_else(own)
            }
            None => SINGLE.to_owned(),
        };
        let mut state = PodState::read(pod)?;
        if group.is_some() && state.phase == Phase::Succeeded && state.deleting && ended_by_stop(pod) {
            state.phase = Phase::Failed;
        }
        Ok(Some(Self {
            key: view.key,
            uid: view.uid,
            resource_version: view.resource_version,
            created: view.created,
            grace_ends: read::time(pod, "/metadata/deletionTimestamp")?,
            last_active: last_active(pod)?,
            state,
            blocker: blocker(pod, state)?,
            group,
            role,
            queue: view.queue_name.map(|queue| queue.to_string()),
            priority_class: view.options.priority_class,
            pod: raw,
        }))
    }

    /// Returns whether the pod counts for its group: it has not failed, and was not deleted before it was bound. In a group that
    /// serves, success is the end of a pod that was deleted.
    pub const fn counts(&self) -> bool {
        let ended = self.failed() || (self.serves() && self.state.deleting && self.terminated());
        !ended && (self.state.bound || !self.state.deleting)
    }

    /// Returns what a pod requests that was changed while it waits: a waiting pod can be resized, and its pod set is that of
    /// the pod as it was created. `None` if it was not changed, does not wait, or cannot be read.
    pub fn changed_requests(&self) -> Option<Requests> {
        let changed = self.pod.pointer("/metadata/generation").and_then(Value::as_i64).is_some_and(|g| g > 1);
        (self.state.gated && changed).then(|| self.requests()).flatten()
    }

    /// Returns what the pod requests; `None` if its spec cannot be read.
    pub(super) fn requests(&self) -> Option<Requests> {
        PodSpec::deserialize(self.pod.get("spec")?).ok().map(|spec| pod_requests(&spec))
    }

    /// Returns the UID of the pod's controller.
    pub fn controller_uid(&self) -> Option<&str> {
        read::controller_reference(&self.pod)?.get("uid")?.as_str()
    }

    /// Returns whether the group of the pod never finishes.
    pub const fn serves(&self) -> bool {
        matches!(&self.group, Some(GroupMarks { serving: true, .. }))
    }

    /// Returns whether containers of the pod may run, or start, as far as its phase and its node say.
    pub const fn may_run(&self) -> bool {
        !self.terminated() && (matches!(self.state.phase, Phase::Running) || self.state.bound)
    }

    /// Returns when a pod that is being deleted counts as ended, if its status does not say so before. Without a node, nothing
    /// runs that would have to end.
    pub fn counts_as_ended_at(&self) -> Option<Timestamp> {
        let end = self.grace_ends?;
        Some(if self.state.bound { bound_pod_counts_as_ended_at(end) } else { end })
    }

    /// Returns whether the pod has ended without having done its work.
    pub const fn failed(&self) -> bool {
        matches!(self.state.phase, Phase::Failed)
    }

    /// Returns whether the status says why the pod is deleted.
    pub fn is_termination_target(&self) -> bool {
        termination(&self.pod).is_some()
    }

    /// Returns whether the pod was stopped because its group does not fit the Workload that it names.
    pub fn is_out_of_sync(&self) -> bool {
        let reason = termination(&self.pod).and_then(|stop| stop.get("reason"));
        reason.is_some_and(|reason| reason == OUT_OF_SYNC)
    }

    /// Returns whether the pod has ended.
    pub const fn terminated(&self) -> bool {
        matches!(self.state.phase, Phase::Failed | Phase::Succeeded)
    }
}

impl PodState {
    fn read(pod: &Value) -> Result<Self, JobError> {
        let has = |pointer: &str, name: &str| -> Result<bool, JobError> {
            Ok(read::list(pod, pointer)?.iter().any(|item| item.get("name").unwrap_or(item) == name))
        };
        Ok(Self {
            phase: match read::string(pod, "/status/phase")? {
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Pending,
            },
            deleting: read::string(pod, "/metadata/deletionTimestamp")?.is_some(),
            bound: read::string(pod, "/spec/nodeName")?.is_some_and(|node| !node.is_empty()),
            gated: has("/spec/schedulingGates", names::ADMISSION_GATE)?,
            ready: read::true_condition(pod, "Ready")?.is_some(),
            has_finalizer: has("/metadata/finalizers", names::MANAGED_LABEL)?,
        })
    }
}

impl GroupMarks {
    fn read(
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
        prebuilt: bool,
    ) -> Result<Option<Self>, JobError> {
        let key = names::POD_GROUP_NAME;
        let name = annotations.get(key).or_else(|| labels.get(key)).filter(|name| !name.is_empty());
        let Some(name) = name else { return Ok(None) };
        let total = annotations.get(names::POD_GROUP_TOTAL_COUNT_ANNOTATION);
        let total = total.and_then(|text| text.parse::<i32>().ok()).filter(|total| *total >= 1);
        let problem =
            || read::malformed("/metadata/annotations", "the total count of the pod group is missing");
        let is = |key: &str, value: &str| annotations.get(key).is_some_and(|text| text == value);
        Ok(Some(Self {
            name: name.clone(),
            total: total.ok_or_else(problem)?,
            fast_admission: is(names::POD_GROUP_FAST_ADMISSION_ANNOTATION, "true"),
            serving: is(names::POD_GROUP_SERVING_ANNOTATION, "true"),
            unretriable: is(names::RETRIABLE_IN_GROUP_ANNOTATION, "false"),
            prebuilt,
            index: labels.get(names::POD_GROUP_INDEX_LABEL).cloned(),
        }))
    }
}

/// Returns the condition that says why the manager has deleted a pod.
fn termination(pod: &Value) -> Option<&Value> {
    let conditions = pod.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| {
        condition.get("type").is_some_and(|kind| kind == "TerminationTarget")
            && condition.get("status").is_some_and(|status| status == "True")
    })
}

/// Returns whether a pod that has ended was stopped before: all of its containers ended before that otherwise. Both times are of
/// whole seconds, and of two clocks.
fn ended_by_stop(pod: &Value) -> bool {
    let Some(stop) = termination(pod) else { return false };
    let time = |value: &Value, pointer: &str| read::time(value, pointer).ok().flatten();
    let Some(stopped) = time(stop, "/lastTransitionTime") else { return true };
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let ended = |status: &Value| time(status, "/state/terminated/finishedAt");
    let before = |status: &Value| ended(status).is_some_and(|end| end.as_second() < stopped.as_second());
    !statuses.is_some_and(|all| !all.is_empty() && all.iter().all(before))
}

/// Returns what keeps a pod from running that waits for a node.
fn blocker(pod: &Value, state: PodState) -> Result<Option<PodBlocker>, JobError> {
    if state.bound || state.deleting || state.phase != Phase::Pending {
        return Ok(None);
    }
    let gates = read::list(pod, "/spec/schedulingGates")?;
    let gates = gates.iter().filter_map(|gate| gate.get("name").unwrap_or(gate).as_str());
    let mut message = None;
    for condition in read::list(pod, "/status/conditions")? {
        if read::string(condition, "/type")? == Some("PodScheduled")
            && read::string(condition, "/status")? == Some("False")
            && read::string(condition, "/reason")? == Some("Unschedulable")
        {
            message = read::string(condition, "/message")?.or(Some("unschedulable"));
        }
    }
    Ok(PodBlocker::of(gates, message))
}

/// Returns the earliest time at which the pod stopped to count.
fn last_active(pod: &Value) -> Result<Option<Timestamp>, JobError> {
    let mut times = Vec::from_iter(read::time(pod, "/metadata/deletionTimestamp")?);
    for condition in read::list(pod, "/status/conditions")? {
        let failed = read::string(condition, "/type")? == Some("ContainersReady")
            && read::string(condition, "/status")? == Some("False")
            && read::string(condition, "/reason")? == Some("PodFailed");
        if failed {
            times.extend(read::time(condition, "/lastTransitionTime")?);
        }
    }
    Ok(times.into_iter().min())
}

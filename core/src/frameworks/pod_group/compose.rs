//! The Workload of a pod or a pod group: roles by hash, their counts, and the checks before it is made.

use super::super::pod_member::{GroupMarks, PodMember, SINGLE};
use super::super::read;
use super::super::row::Rank;
use super::super::topology::topology_request;
use super::super::unit::{ComposeError, Composed, Unit};
use super::super::view::{Gvk, JobView};
use super::super::workload::{
    MAX_POD_SETS, WorkloadParts, WorkloadRequest, annotations, clean_template, workload_object,
};
use super::super::{JobError, workload_name};
use super::actions::remove;
use crate::api::names;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Returns the first member, from which everything is read on which all must agree.
pub(super) fn first<'a>(unit: &Unit<'a>) -> Result<&'a PodMember, JobError> {
    unit.first().ok_or_else(|| read::malformed("/members", "a unit needs a pod"))
}

/// Returns what the first member says about its group.
pub(super) fn group<'a>(unit: &Unit<'a>) -> Option<&'a GroupMarks> {
    unit.first()?.group.as_ref()
}

pub(super) fn view(unit: &Unit<'_>) -> Result<JobView, JobError> {
    let suspended = unit.summary.waiting_or_ended > 0;
    let deleting = unit.summary.is_deleting();
    let mut view = JobView { deleting, suspended, ..read::common_view(&first(unit)?.pod)? };
    if !unit.kind.flags.prebuilt {
        view.options.prebuilt_workload = None;
    }
    Ok(view)
}

pub(super) fn name(unit: &Unit<'_>) -> Result<String, JobError> {
    let view = view(unit)?;
    if let Some(name) = view.options.prebuilt_workload {
        return Ok(name.to_string());
    }
    let Gvk { group, kind, .. } = unit.kind.gvk;
    let own = || workload_name(group, kind, &view.key.name, &view.uid, None);
    Ok(self::group(unit).map_or_else(own, |group| group.name.clone()))
}

/// Returns members with those first that stay when there are too many. Where the group serves, one that has ended gives its place
/// to another.
pub(super) fn by_precedence(mut members: Vec<&PodMember>) -> Vec<&PodMember> {
    members.sort_by_key(|member| {
        let ended = member.serves() && member.terminated();
        (ended, !member.state.has_finalizer, member.state.gated, member.created)
    });
    members
}

/// Returns whether a member that is too many waits for the end of another one. Its controller would create a pod that is removed
/// again at once, without end.
pub(super) fn waits_for_place(member: &PodMember) -> bool {
    member.state.gated && (member.serves() || read::controller_reference(&member.pod).is_some())
}

pub(super) fn pod_sets(unit: &Unit<'_>) -> Result<Vec<Value>, ComposeError> {
    let runnable = unit.iter().filter(|member| member.counts()).collect();
    pod_sets_of(unit, runnable)
}

fn pod_sets_of(unit: &Unit<'_>, members: Vec<&PodMember>) -> Result<Vec<Value>, ComposeError> {
    let rank = &unit.kind.pods.rank;
    let Some(group) = group(unit) else {
        return Ok(vec![pod_set(first(unit)?, SINGLE, 1, rank)?]);
    };
    if group.fast_admission {
        let first = members.first().ok_or(ComposeError::TooFewMembers)?;
        return Ok(vec![pod_set(first, &first.role, group.total, rank)?]);
    }
    let mut roles: BTreeMap<&str, (&PodMember, i32)> = BTreeMap::new();
    for member in members {
        let (_, count) = roles.entry(&member.role).or_insert((member, 0));
        *count = count.saturating_add(1);
    }
    if roles.len() > MAX_POD_SETS {
        return Err(ComposeError::TooManyPodSets(roles.len()));
    }
    let sets = roles.into_iter().map(|(name, (member, count))| pod_set(member, name, count, rank));
    Ok(sets.collect::<Result<_, _>>()?)
}

/// Returns a pod set with the spec of a pod. Its metadata is left out, as it differs from pod to pod.
fn pod_set(member: &PodMember, name: &str, count: i32, rank: &Rank) -> Result<Value, JobError> {
    let spec = member.pod.get("spec").filter(|spec| spec.is_object());
    let spec = spec.ok_or_else(|| read::malformed("/spec", "is required"))?;
    let template = clean_template(&json!({ "spec": spec }));
    let annotations = read::string_map(&member.pod, "/metadata/annotations")?;
    let mut set = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("template".to_owned(), template),
        ("count".to_owned(), json!(count)),
    ]);
    if let Some(request) = topology_request(&annotations, rank, None, "/metadata/annotations")? {
        set.insert("topologyRequest".to_owned(), request);
    }
    Ok(Value::Object(set))
}

pub(super) fn compose(unit: &Unit<'_>, request: &WorkloadRequest<'_>) -> Result<Composed, ComposeError> {
    let first = first(unit)?;
    let view = view(unit)?;
    let mut members: Vec<&PodMember> = unit.iter().filter(|member| member.counts()).collect();
    let mut removals = Vec::new();
    let total = group(unit).map_or(1, |group| group.total);
    if let Some(group) = group(unit) {
        check_group(unit, first, group, members.len())?;
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        if members.len() > total {
            let sorted = by_precedence(members);
            let excess: Vec<&PodMember> = sorted.into_iter().skip(total).collect();
            let removed = excess.iter().filter(|member| !waits_for_place(member));
            removals.extend(removed.flat_map(|member| remove(member)));
            members = unit
                .iter()
                .filter(|member| member.counts() && excess.iter().all(|gone| gone.key != member.key))
                .collect();
        }
    } else {
        members = vec![first];
    }
    let mut annotations = annotations(&view);
    if group(unit).is_some() {
        annotations.insert(names::GROUP_WORKLOAD_ANNOTATION.to_owned(), json!("true"));
    }
    let parts = WorkloadParts {
        labels: labels(unit, &members, &view, request.label_keys_to_copy)?,
        annotations,
        owners: members
            .iter()
            .map(|member| owner(member, group(unit).is_none()))
            .collect::<Result<_, _>>()?,
        pod_sets: pod_sets_of(unit, members)?,
    };
    Ok(Composed { workload: workload_object(parts, &view, request), removals })
}

fn check_group(
    unit: &Unit<'_>,
    first: &PodMember,
    group: &GroupMarks,
    runnable: usize,
) -> Result<(), ComposeError> {
    if let Some(index) = &group.index {
        let index = index.parse::<u32>().ok().and_then(|index| i32::try_from(index).ok());
        if index.is_none_or(|index| index >= group.total) {
            let problem = "the pod index must be less than the total count of the group";
            return Err(read::malformed("/metadata/labels", problem).into());
        }
    }
    let total = usize::try_from(group.total).unwrap_or(usize::MAX);
    if !group.fast_admission && runnable < total {
        return Err(ComposeError::TooFewMembers);
    }
    for member in unit.iter().filter(|member| !member.failed()) {
        if member.queue != first.queue {
            return Err(ComposeError::DifferentQueues);
        }
        if member.group.as_ref().map(|group| group.total) != Some(group.total) {
            return Err(ComposeError::DifferentTotals);
        }
    }
    Ok(())
}

/// A field of pods on which the members of a group must agree: the map that has it, its key, and the value that an absent one has.
type SharedField = (&'static str, &'static str, &'static str);

const SHARED: [SharedField; 5] = [
    ("annotations", names::POD_GROUP_SERVING_ANNOTATION, "false"),
    ("annotations", names::POD_GROUP_FAST_ADMISSION_ANNOTATION, "false"),
    ("annotations", names::RETRIABLE_IN_GROUP_ANNOTATION, "true"),
    ("labels", names::PRIORITY_CLASS_LABEL, ""),
    ("labels", names::MAX_EXEC_TIME_LABEL, ""),
];

/// Returns in which fields a member disagrees with the first one, which decides for the group; one pod that may not be retried
/// decides that for all.
pub(super) fn disagreement(unit: &Unit<'_>, member: &PodMember) -> Option<String> {
    let first = unit.first().filter(|first| first.group.is_some() && first.key != member.key)?;
    if read::string_map(&first.pod, "/metadata/annotations")
        .is_ok_and(|map| map.contains_key(names::SUSPENDING_PARENT_ANNOTATION))
    {
        // The parent decides for its pods.
        return None;
    }
    let faults = SHARED.iter().filter_map(|(map, key, absent)| {
        let value = |member: &PodMember| {
            let found = member.pod.pointer("/metadata").and_then(|metadata| metadata.get(map)?.get(key));
            found.and_then(Value::as_str).filter(|text| !text.is_empty()).unwrap_or(absent).to_owned()
        };
        let (own, decides) = (value(member), value(first));
        let name = &member.key.name;
        (own != decides).then(|| {
            format!(
                "pod {name}: metadata.{map}[{key}] is {own:?}, and {decides:?} in pod {} of the group",
                first.key.name
            )
        })
    });
    let faults: Vec<String> = faults.collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// Returns the labels that the Workload takes from its pods. The pods of a group must agree on them.
fn labels(
    unit: &Unit<'_>,
    members: &[&PodMember],
    view: &JobView,
    keys: &[String],
) -> Result<Map<String, Value>, ComposeError> {
    let mut labels = Map::new();
    for member in members {
        for (key, value) in read::string_map(&member.pod, "/metadata/labels")? {
            if !keys.contains(&key) {
                continue;
            }
            if labels.get(&key).is_some_and(|known| *known != value) {
                return Err(ComposeError::DifferentLabels(key));
            }
            labels.insert(key, json!(value));
        }
    }
    if group(unit).is_none() {
        labels.insert(names::JOB_UID_LABEL.to_owned(), json!(&*view.uid));
    }
    Ok(labels)
}

/// Returns the owner reference to a pod. The pods of a group are equal owners, so none of them controls the Workload.
pub(super) fn owner(member: &PodMember, controls: bool) -> Result<Value, JobError> {
    let uid = read::string(&member.pod, "/metadata/uid")?.unwrap_or_default();
    let mut owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": &*member.key.name, "uid": uid });
    if let Some(fields) = owner.as_object_mut().filter(|_| controls) {
        fields.insert("controller".to_owned(), Value::Bool(true));
        fields.insert("blockOwnerDeletion".to_owned(), Value::Bool(true));
    }
    Ok(owner)
}

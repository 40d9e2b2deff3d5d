//! Objects with a Workload for their pods, such as StatefulSets, or with one for the pods of each replica, such as
//! LeaderWorkerSets. The object makes the Workload; its pods are members of a pod group of the Workload's name, by whose rules they
//! are started and stopped.
//!
//! Invariants: a pod of a marked template gets its queue and its group from the object, never from itself; it gets them only when
//! the Workload asks for as many pods as the object, and starts only by the admission of the Workload, whatever its revision.

use super::JobError;
use super::job_kind::JobKind;
use super::pod_set_sources::{ALL_TOGETHER, LEADER, WORKER};
use super::read;
use super::row::{PodGrouping, Role, WebhookHandler};
use super::table::framework_named;
use super::unit::{
    Component, ComposeError, Composed, Membership, PodSetCount, Sources, Stop, Unit, UnitKey, UnitRules,
    UnitStatus,
};
use super::view::{JobView, PodSetInfo};
use super::workload::{
    WorkloadParts, WorkloadRequest, annotations, labels, own_workload_key, replica_workload_key,
    workload_object,
};
use crate::api::{ObjectKey, names};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Rules of the objects. Their pods have the rules of pod groups.
#[derive(Debug)]
pub(super) struct SetsOfPods;

fn owner<'a>(unit: &Unit<'a>) -> Result<&'a JobView, JobError> {
    unit.owner.ok_or_else(|| read::malformed("/metadata", "the owner of the pods is missing"))
}

impl UnitRules for SetsOfPods {
    fn view(&self, unit: &Unit<'_>) -> Result<JobView, JobError> {
        owner(unit).cloned()
    }

    fn workload_name(&self, unit: &Unit<'_>) -> Result<String, JobError> {
        let (kind, owner) = (unit.kind, owner(unit)?);
        let key = match unit.component {
            Component::Replica(index) => replica_workload_key(&kind, owner, index),
            Component::Object | Component::PodGroup => own_workload_key(&kind, owner),
        };
        Ok(key.name.to_string())
    }

    fn pod_sets(&self, unit: &Unit<'_>, sources: Sources<'_>) -> Result<Vec<Value>, ComposeError> {
        let object =
            sources.owner.ok_or_else(|| read::malformed("/spec", "the owner of the pods is missing"))?;
        let mut sets = unit.kind.pod_sets_with(object, sources.beside)?.known()?;
        for template in sets.iter_mut().filter_map(|set| set.get_mut("template")?.as_object_mut()) {
            match unit.kind.flags.pod_grouping {
                PodGrouping::Together => drop(template.shift_remove("metadata")),
                PodGrouping::ByReplica { name, .. } => remove_controller_marks(template, name),
            }
        }
        Ok(sets)
    }

    fn compose(
        &self,
        unit: &Unit<'_>,
        sources: Sources<'_>,
        request: &WorkloadRequest<'_>,
    ) -> Result<Composed, ComposeError> {
        let view = owner(unit)?;
        let mut annotations = annotations(view);
        annotations.extend(owner_annotations(unit.kind, unit.component, view));
        let copied = if unit.kind.has_replicas() { request.label_keys_to_copy } else { &[] };
        let parts = WorkloadParts {
            labels: labels(sources.owner.unwrap_or(&Value::Null), view, copied)?,
            annotations,
            owners: vec![owner_reference(unit.kind, view)],
            pod_sets: self.pod_sets(unit, sources)?,
        };
        Ok(Composed { workload: workload_object(parts, view, request), removals: Vec::new() })
    }

    fn membership(&self, _unit: &Unit<'_>, _pod_sets: &[PodSetCount<'_>], _finished: bool) -> Membership {
        Membership { matches: true, ..Membership::default() }
    }

    fn status(&self, _unit: &Unit<'_>, _now: Timestamp) -> UnitStatus {
        UnitStatus { suspended: true, ..UnitStatus::default() }
    }

    fn start(&self, _unit: &Unit<'_>, _infos: &[PodSetInfo]) -> Result<Vec<super::Action>, JobError> {
        Ok(Vec::new())
    }

    fn stop(&self, _unit: &Unit<'_>, _stop: &Stop<'_>) -> Vec<super::Action> {
        Vec::new()
    }
}

/// Removes what the controller of an object adds to the labels and annotations of its pods: names below the domain of `name`. The
/// name itself tells the pods of one object from others.
fn remove_controller_marks(template: &mut Map<String, Value>, name: &str) {
    let domain = name.split_once('/').map_or(name, |(domain, _)| domain);
    let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for map in ["labels", "annotations"] {
        if let Some(map) = metadata.get_mut(map).and_then(Value::as_object_mut) {
            map.retain(|key, _| key == name || !key.starts_with(domain));
        }
    }
}

/// Returns the annotations of a Workload that name the object whose pods it is for, and the replica.
pub(crate) fn owner_annotations(kind: JobKind, component: Component, view: &JobView) -> Map<String, Value> {
    let gvk = kind.gvk;
    let kind = format!("{}, Kind={}", gvk.api_version(), gvk.kind);
    let mut annotations = Map::from_iter([
        (names::GROUP_WORKLOAD_ANNOTATION.to_owned(), json!("true")),
        (names::JOB_OWNER_GVK_ANNOTATION.to_owned(), json!(kind)),
        (names::JOB_OWNER_NAME_ANNOTATION.to_owned(), json!(&*view.key.name)),
    ]);
    if let Component::Replica(index) = component {
        annotations.insert(names::COMPONENT_INDEX_ANNOTATION.to_owned(), json!(index.to_string()));
    }
    annotations
}

/// Returns the owner reference to an object. Its pods are owners too, so it does not control the Workload.
pub(crate) fn owner_reference(kind: JobKind, view: &JobView) -> Value {
    let gvk = kind.gvk;
    json!({ "apiVersion": gvk.api_version(), "kind": gvk.kind, "name": &*view.key.name, "uid": &*view.uid })
}

/// Returns whether another framework marked the template of an object: its pods belong to an owner of the object.
pub fn belongs_to_other_framework(kind: JobKind, view: &JobView) -> bool {
    let parents = view.pod_sets.iter().filter_map(|set| {
        let annotations = &set.template.annotations;
        annotations.get(names::SUSPENDING_PARENT_ANNOTATION)
    });
    parents.into_iter().any(|parent| parent != kind.name)
}

/// A pod of a marked template, before and after it became a member of a group.
#[derive(Clone, Debug)]
pub struct OwnedPod {
    /// The object that says its group, or the replica.
    pub unit: UnitKey,
    /// UID of its controller.
    controller: Arc<str>,
    /// Whether it is the leader of its replica.
    leads: bool,
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Arc<str>,
    /// Version of the pod.
    pub resource_version: String,
    /// The LocalQueue.
    queue: Option<String>,
    /// The group that it is in.
    group: Option<String>,
    /// Whether it waits for admission.
    pub gated: bool,
    /// Whether it may still become a member: it is neither deleted nor has it ended.
    waits: bool,
    /// Creation time.
    created: Timestamp,
}

impl OwnedPod {
    /// Reads a pod. Returns `None` if no template was marked for it by a framework whose objects have a Workload for their pods.
    pub fn read(pod: &Value) -> Result<Option<Self>, JobError> {
        let annotations = read::string_map(pod, "/metadata/annotations")?;
        let parent = annotations.get(names::SUSPENDING_PARENT_ANNOTATION);
        let row = parent.and_then(|name| framework_named(name)).filter(|row| row.role == Role::PodsOfOwner);
        let Some(row) = row else { return Ok(None) };
        let view = read::common_view(pod)?;
        let Some(controller) = view.controller else { return Ok(None) };
        let kind = JobKind::new(row);
        let labels = read::string_map(pod, "/metadata/labels")?;
        let object = |name: &str| ObjectKey { namespace: view.key.namespace.clone(), name: Arc::from(name) };
        let (unit, leads) = match row.flags.pod_grouping {
            PodGrouping::Together => {
                if controller.group() != row.gvk.group || controller.kind != row.gvk.kind {
                    return Ok(None);
                }
                (UnitKey::of_object(kind, object(&controller.name)), false)
            }
            PodGrouping::ByReplica { name, index, leader } => {
                let index = labels.get(index).and_then(|index| index.parse().ok());
                // The controller of the object labels a leader after it was made.
                let Some((name, index)) = labels.get(name).zip(index) else { return Ok(None) };
                (UnitKey::of_replica(kind, object(name), index), !annotations.contains_key(leader))
            }
        };
        let ended = matches!(read::string(pod, "/status/phase")?, Some("Succeeded" | "Failed"));
        let gates = read::list(pod, "/spec/schedulingGates")?;
        Ok(Some(Self {
            unit,
            controller: Arc::from(controller.uid.as_str()),
            leads,
            gated: gates
                .iter()
                .any(|gate| gate.get("name").is_some_and(|name| name == names::ADMISSION_GATE)),
            key: view.key,
            uid: view.uid,
            resource_version: view.resource_version,
            queue: view.queue_name.map(|queue| queue.to_string()),
            group: annotations
                .get(names::POD_GROUP_NAME)
                .or_else(|| labels.get(names::POD_GROUP_NAME))
                .cloned(),
            waits: !view.deleting && !ended,
            created: view.created,
        }))
    }

    /// Returns since when it is held back, if it may still become a member.
    pub fn held_since(&self) -> Option<Timestamp> {
        (self.gated && self.waits).then_some(self.created)
    }

    /// Returns the group that the pod is in, if that is another one than that of the Workload of its owner: a pod stays in its group.
    pub fn other_group(&self, owner: &JobView, workload: &str) -> Option<&str> {
        let group = self.group.as_deref().filter(|group| !group.is_empty() && *group != workload);
        group.filter(|_| self.waits && !self.is_foreign(owner))
    }

    /// Returns whether another object controls the pod. The pods of a replica are controlled by an object in between.
    fn is_foreign(&self, owner: &JobView) -> bool {
        self.unit.kind.flags.pod_grouping == PodGrouping::Together && self.controller != owner.uid
    }

    /// Returns the merge patch that makes the pod a member of the group of a Workload, or gives it the queue of its owner; `None`
    /// if it has both, or is in another group.
    pub fn marks(&self, owner: &JobView, workload: &str, total: i32) -> Option<Value> {
        let grouping = self.unit.kind.flags.pod_grouping;
        if !self.waits || self.is_foreign(owner) || self.other_group(owner, workload).is_some() {
            return None;
        }
        let queue = owner.queue_name.as_deref();
        // The templates of replicas have the labels: a pod that runs keeps those that it was made with.
        let queue = queue.filter(|_| self.gated || grouping == PodGrouping::Together);
        let mut metadata = if self.group.as_deref() == Some(workload) {
            let queue = queue.filter(|queue| self.queue.as_deref() != Some(*queue))?;
            json!({"labels": {names::QUEUE_NAME_LABEL: queue}})
        } else {
            let class = owner.options.priority_class.as_deref();
            let class = class.filter(|_| grouping == PodGrouping::Together);
            let mut labels = Map::from_iter([(names::MANAGED_LABEL.to_owned(), json!("true"))]);
            for (key, value) in [(names::QUEUE_NAME_LABEL, queue), (names::PRIORITY_CLASS_LABEL, class)] {
                labels.extend(value.map(|value| (key.to_owned(), json!(value))));
            }
            json!({"labels": labels, "annotations": self.group_annotations(owner, workload, total)})
        };
        metadata.as_object_mut()?.insert("resourceVersion".to_owned(), json!(self.resource_version));
        Some(json!({ "metadata": metadata }))
    }

    fn group_annotations(&self, owner: &JobView, workload: &str, total: i32) -> Map<String, Value> {
        let role = match owner.pod_sets.as_slice() {
            [_] => ALL_TOGETHER,
            _ if self.leads => LEADER,
            _ => WORKER,
        };
        let mut annotations = Map::from_iter([
            (names::POD_GROUP_NAME.to_owned(), json!(workload)),
            (names::PREBUILT_WORKLOAD.to_owned(), json!(workload)),
            (names::POD_GROUP_TOTAL_COUNT_ANNOTATION.to_owned(), json!(total.to_string())),
            (names::ROLE_HASH_ANNOTATION.to_owned(), json!(role)),
        ]);
        if self.unit.kind.flags.pod_grouping == PodGrouping::Together {
            annotations.insert(names::POD_GROUP_FAST_ADMISSION_ANNOTATION.to_owned(), json!("true"));
            annotations.insert(names::POD_GROUP_SERVING_ANNOTATION.to_owned(), json!("true"));
            let label = self.unit.kind.pods.rank.index_label.map(|label| json!(label));
            annotations
                .extend(label.map(|label| (names::POD_GROUP_INDEX_LABEL_ANNOTATION.to_owned(), label)));
        }
        annotations
    }
}

/// Returns whether a template of this object was marked for another framework than its own; for the webhook, which has no view.
pub fn is_marked_for_other_framework(kind: &super::Framework, object: &Value) -> bool {
    let WebhookHandler::MarkTemplates(marks) = kind.webhooks.handler else { return false };
    let parent = |template: &Value| {
        let annotations = template.get("metadata")?.get("annotations")?;
        annotations.get(names::SUSPENDING_PARENT_ANNOTATION)?.as_str().map(str::to_owned)
    };
    let templates = marks.templates.iter().filter_map(|pointer| object.pointer(pointer));
    templates.filter_map(parent).any(|parent| parent != kind.name)
}

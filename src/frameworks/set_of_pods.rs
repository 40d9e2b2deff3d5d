//! Objects with a Workload for their pods, such as StatefulSets. The object makes the Workload; its pods are members of a pod
//! group of the Workload's name, by whose rules they are started and stopped.
//!
//! Invariants: a pod of a marked template gets its queue and its group from the object, never from itself; it gets them only when
//! the Workload asks for as many pods as the object, and starts only by the admission of the Workload, whatever its revision.

use super::JobError;
use super::job_kind::JobKind;
use super::read;
use super::row::{Role, WebhookHandler};
use super::table::framework_named;
use super::unit::{
    ComposeError, Composed, Membership, PodSetCount, Sources, Stop, Unit, UnitRules, UnitStatus,
};
use super::view::{JobView, PodSetInfo};
use super::workload::{WorkloadParts, WorkloadRequest, annotations, own_workload_key, workload_object};
use crate::api::{ObjectKey, names};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Role of the pods of an object with one pod set, which is the name of the pod set.
const ROLE: &str = "main";

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
        Ok(own_workload_key(&unit.kind, owner(unit)?).name.to_string())
    }

    fn pod_sets(&self, unit: &Unit<'_>, sources: Sources<'_>) -> Result<Vec<Value>, ComposeError> {
        let object =
            sources.owner.ok_or_else(|| read::malformed("/spec", "the owner of the pods is missing"))?;
        let mut sets = unit.kind.pod_sets_with(object, sources.related)?.known()?;
        for template in sets.iter_mut().filter_map(|set| set.get_mut("template")?.as_object_mut()) {
            template.shift_remove("metadata");
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
        annotations.extend(owner_annotations(unit.kind, view));
        let label = (names::JOB_UID_LABEL.to_owned(), json!(&*view.uid));
        let parts = WorkloadParts {
            labels: Map::from_iter([label]),
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

/// Returns the annotations of a Workload that name the object whose pods it is for.
pub(crate) fn owner_annotations(kind: JobKind, view: &JobView) -> Map<String, Value> {
    let gvk = kind.gvk;
    let kind = format!("{}, Kind={}", gvk.api_version(), gvk.kind);
    Map::from_iter([
        (names::GROUP_WORKLOAD_ANNOTATION.to_owned(), json!("true")),
        (names::JOB_OWNER_GVK_ANNOTATION.to_owned(), json!(kind)),
        (names::JOB_OWNER_NAME_ANNOTATION.to_owned(), json!(&*view.key.name)),
    ])
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
    /// Kind and key of the object that says its group.
    pub owner: (JobKind, ObjectKey),
    /// UID of its controller.
    pub controller: Arc<str>,
    /// Namespace and name.
    pub key: ObjectKey,
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
        let of_kind = controller.group() == row.gvk.group && controller.kind == row.gvk.kind;
        if !of_kind {
            return Ok(None);
        }
        let name = Arc::from(controller.name.as_str());
        let ended = matches!(read::string(pod, "/status/phase")?, Some("Succeeded" | "Failed"));
        let gates = read::list(pod, "/spec/schedulingGates")?;
        Ok(Some(Self {
            owner: (JobKind::new(row), ObjectKey { namespace: view.key.namespace.clone(), name }),
            controller: Arc::from(controller.uid.as_str()),
            key: view.key,
            resource_version: view.resource_version,
            gated: gates
                .iter()
                .any(|gate| gate.get("name").is_some_and(|name| name == names::ADMISSION_GATE)),
            queue: view.queue_name.map(|queue| queue.to_string()),
            group: annotations.get(names::POD_GROUP_NAME).cloned(),
            waits: !view.deleting && !ended,
        }))
    }

    /// Returns the merge patch that makes the pod a member of the group of a Workload, or gives it the queue of its owner; `None`
    /// if it has both.
    pub fn marks(&self, owner: &JobView, workload: &str, total: i32) -> Option<Value> {
        if !self.waits || self.controller != owner.uid {
            return None;
        }
        let queue = owner.queue_name.as_deref();
        let metadata = if self.group.as_deref() == Some(workload) {
            let queue = queue.filter(|queue| self.queue.as_deref() != Some(*queue))?;
            json!({"labels": {names::QUEUE_NAME_LABEL: queue}})
        } else {
            let mut labels = Map::from_iter([(names::MANAGED_LABEL.to_owned(), json!("true"))]);
            let class = owner.options.priority_class.as_deref();
            for (key, value) in [(names::QUEUE_NAME_LABEL, queue), (names::PRIORITY_CLASS_LABEL, class)] {
                labels.extend(value.map(|value| (key.to_owned(), json!(value))));
            }
            json!({"labels": labels, "annotations": self.group_annotations(workload, total)})
        };
        let mut metadata = metadata;
        metadata.as_object_mut()?.insert("resourceVersion".to_owned(), json!(self.resource_version));
        Some(json!({ "metadata": metadata }))
    }

    fn group_annotations(&self, workload: &str, total: i32) -> Map<String, Value> {
        let mut annotations = Map::from_iter([
            (names::POD_GROUP_NAME.to_owned(), json!(workload)),
            (names::PREBUILT_WORKLOAD.to_owned(), json!(workload)),
            (names::POD_GROUP_TOTAL_COUNT_ANNOTATION.to_owned(), json!(total.to_string())),
            (names::POD_GROUP_FAST_ADMISSION_ANNOTATION.to_owned(), json!("true")),
            (names::POD_GROUP_SERVING_ANNOTATION.to_owned(), json!("true")),
            (names::ROLE_HASH_ANNOTATION.to_owned(), json!(ROLE)),
        ]);
        if let Some(label) = self.owner.0.rank.index_label {
            annotations.insert(names::POD_GROUP_INDEX_LABEL_ANNOTATION.to_owned(), json!(label));
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

//! The fields of a job under review, read where the row of its kind says that they are.

use serde_json::{Map, Value};
use std::convert::Infallible;

use super::child_size::{ChildGroup, template_requests};
use super::count::CountFields;
use super::hooks::ReviewField;
use super::pod_set_sources::{RoleFields, RoleName, RoleReader};
use super::read;
use super::related::{Beside, PodSets};
use super::row::{Count, Elastic, Framework, Pointer, WebhookHandler};
use super::spark_texts::integer;
use super::table::framework;
use super::view::OwnerRef;
use crate::api::names::{
    ADMISSION_GATE, ELASTIC_JOB_ANNOTATION, POD_SET_LABEL, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL,
};
use crate::api::validation::{Errors, FieldCursor, FieldError, Gate, Gates, key_path};
use crate::resources::Requests;

/// The fields of a job that rules read. Distinct from the reconciler's `JobView`, which is for stored objects and fails at
/// the first malformed field: a job under review may lack name and uid, an empty label differs from an absent one, a
/// number may be out of range, and every malformed field is an error of the answer.
#[derive(Debug)]
pub struct JobUnderReview<'a> {
    /// The row of its kind.
    pub row: &'static Framework,
    object: &'a Value,
    /// UID; empty in a new object.
    pub uid: &'a str,
    /// The queue-name label, as it is.
    pub queue: Option<&'a str>,
    /// The priority-class label, as it is.
    pub priority_class: Option<&'a str>,
    /// Whether the job is suspended.
    pub suspended: bool,
    /// The controller that the job names, when not empty.
    pub managed_by: Option<&'a str>,
    labels: Option<&'a Map<String, Value>>,
    annotations: Option<&'a Map<String, Value>>,
    /// The pod sets.
    pub pod_sets: Vec<PodSetUnderReview<'a>>,
}

/// A pod set of a job under review.
#[derive(Debug)]
pub struct PodSetUnderReview<'a> {
    /// Its name, where a field says it.
    pub name: Option<FieldCursor<'a>>,
    /// Scheduling gates of the pod template.
    pub gates: FieldCursor<'a>,
    /// Number of pods that can run at the same time.
    pub pods: i64,
    /// Fields of this number that contradict each other, or are negative.
    contradictions: Vec<FieldError>,
    /// Annotations of the pod template.
    pub annotations: Option<&'a Map<String, Value>>,
    /// Path of these annotations.
    pub annotations_path: String,
    /// The pod set that a label of the pod template names.
    pub pod_set_label: Option<&'a str>,
    /// Spec of the pod template; absent if the pods are described by other fields.
    pub spec: FieldCursor<'a>,
}

impl PodSetUnderReview<'_> {
    /// Returns the faults of its number of pods that it does not share with an earlier version of itself.
    fn new_contradictions(&self, old: Option<&Self>) -> impl Iterator<Item = &FieldError> {
        let known = old.map_or(&[][..], |old| &old.contradictions);
        self.contradictions.iter().filter(|fault| !known.contains(fault))
    }

    /// Returns what one pod requests by its template; `None` if that cannot be read.
    pub fn requests(&self) -> Option<Requests> {
        template_requests(self.spec.value)
    }

    /// Returns whether the pod template has a scheduling gate.
    pub fn has_gate(&self, name: &str) -> bool {
        let gates = self.gates.value.as_array().into_iter().flatten();
        gates.into_iter().any(|gate| gate.get("name").is_some_and(|own| own == name))
    }
}

/// A pod set that is made from other objects than the job under review.
#[derive(Debug)]
pub struct MadePodSet {
    /// Number of pods.
    pub pods: i64,
    /// Annotations of the pod template.
    pub annotations: Value,
    /// What messages call them.
    pub annotations_path: String,
}

impl<'a> JobUnderReview<'a> {
    /// Returns whether another object controls the job.
    pub fn has_controller(&self) -> bool {
        read::controller_reference(self.object).is_some()
    }

    /// Reads the fields that every kind has, and checks that those are texts that the rules of the kind read as such.
    pub fn read(row: &'static Framework, object: &'a Value, errors: &mut Errors) -> Self {
        let root = FieldCursor::root(object);
        let metadata = root.get("metadata", errors);
        let labels = string_map(&metadata.get("labels", errors), errors);
        let annotations = string_map(&metadata.get("annotations", errors), errors);
        let uid = metadata.get("uid", errors).text(errors).unwrap_or_default();
        let suspended = read_suspended(row, &root, errors);
        let managed_by =
            row.fields.managed_by.and_then(|rule| root.at_pointer(rule.field, errors).text(errors));
        for field in row.hooks.review_fields() {
            let cursor = root.at_pointer(field.pointer(), errors);
            match field {
                ReviewField::Text(_) => drop(cursor.text(errors)),
                ReviewField::Boolean(_) => drop(cursor.boolean(errors)),
                ReviewField::Map(_) => drop(cursor.map(errors)),
                ReviewField::Integer(_) => drop(cursor.int(errors)),
            }
        }
        Self {
            row,
            object,
            uid,
            queue: map_text(labels, QUEUE_NAME_LABEL),
            priority_class: map_text(labels, PRIORITY_CLASS_LABEL),
            suspended,
            managed_by: managed_by.filter(|name| !name.is_empty()),
            labels,
            annotations,
            pod_sets: read_pod_sets(row, &root, errors),
        }
    }

    /// Returns the groups of pods, as a job above compares them with its pod sets.
    pub fn groups(&self) -> Vec<ChildGroup> {
        let group = |set: &PodSetUnderReview<'_>| ChildGroup {
            label: set.pod_set_label.map(str::to_owned),
            name: set.name.as_ref().and_then(|name| name.value.as_str()).map(str::to_lowercase),
            pods: set.pods,
        };
        self.pod_sets.iter().map(group).collect()
    }

    /// Returns the pod sets that are made from other objects and whose templates are under review; none while they are not known.
    pub fn made_pod_sets(&self, beside: Beside<'_>) -> Vec<MadePodSet> {
        if !self.row.fields.roles.is_decided_at_start() {
            return Vec::new();
        }
        let Ok(PodSets::Known(sets)) = self.row.pod_sets_with(self.object, beside) else {
            return Vec::new();
        };
        let made = |mut set: Value| {
            let name = set.get("name")?.as_str()?;
            let annotations_path = format!("{}.annotations", self.row.hooks.place_under_review(name)?);
            let pods = set.get("count").and_then(Value::as_i64).unwrap_or(1);
            let annotations = set.pointer_mut("/template/metadata/annotations").map(Value::take);
            Some(MadePodSet { pods, annotations: annotations.unwrap_or_default(), annotations_path })
        };
        sets.into_iter().filter_map(made).collect()
    }

    /// Returns fields of numbers of pods that contradict each other or are negative, but not those that an earlier version of the job has as well.
    pub fn contradicting_counts(&self, old: Option<&Self>) -> Vec<FieldError> {
        let before = |index: usize| old.and_then(|old| old.pod_sets.get(index));
        let sets = self.pod_sets.iter().enumerate();
        sets.flat_map(|(index, set)| set.new_contradictions(before(index))).cloned().collect()
    }

    /// Returns a label.
    pub fn label(&self, key: &str) -> Option<&'a str> {
        map_text(self.labels, key)
    }

    /// Returns an annotation.
    pub fn annotation(&self, key: &str) -> Option<&'a str> {
        map_text(self.annotations, key)
    }

    /// Returns a part of the object that a rule of the kind needs.
    pub fn value(&self, pointer: Pointer) -> Option<&'a Value> {
        self.object.pointer(pointer)
    }

    /// Returns an integer that a rule of the kind needs.
    pub fn int(&self, pointer: Pointer) -> Option<i64> {
        self.object.pointer(pointer)?.as_i64()
    }

    /// Returns whether a boolean that a rule of the kind needs is true.
    pub fn is_true(&self, pointer: Pointer) -> bool {
        self.object.pointer(pointer).is_some_and(|value| *value == true)
    }

    /// Returns a part of the object that a rule of the kind needs, if it is present.
    pub fn part(&self, pointer: Pointer) -> Option<&'a Value> {
        self.object.pointer(pointer).filter(|part| !part.is_null())
    }

    /// Returns a text that a rule of the kind needs.
    pub fn text(&self, pointer: Pointer) -> Option<&'a str> {
        self.object.pointer(pointer)?.as_str()
    }

    /// Returns whether the job may be resized while it runs.
    pub fn elastic(&self, gates: &Gates) -> bool {
        self.row.flags.elastic != Elastic::No && self.asks_for_elasticity(gates)
    }

    /// Returns whether the job asks to be resized while it runs, also if its kind does not allow it.
    pub fn asks_for_elasticity(&self, gates: &Gates) -> bool {
        gates.is_enabled(Gate::ElasticJobsViaWorkloadSlices)
            && self.annotation(ELASTIC_JOB_ANNOTATION) == Some("true")
    }
}

impl JobUnderReview<'_> {
    /// Returns pointers to the pod templates that get the gate of elastic jobs. `owner` is the object that is queued in place of
    /// the job: the gate is removed from its pods only if that object is elastic.
    pub fn templates_to_gate(&self, owner: Option<&OwnerRef>, gates: &Gates) -> Vec<String> {
        let elastic_owner = |owner: &OwnerRef| {
            framework(owner.group(), &owner.kind).is_some_and(|row| row.flags.elastic != Elastic::No)
        };
        let gated = self.elastic(gates)
            && self.row.flags.elastic == Elastic::GatedTemplates
            && owner.is_none_or(elastic_owner);
        if gated { self.row.template_pointers(self.object) } else { Vec::new() }
    }
}

/// Reads whether a job under review is kept from running.
fn read_suspended(row: &Framework, root: &FieldCursor<'_>, errors: &mut Errors) -> bool {
    match row.webhooks.handler {
        WebhookHandler::Suspend => {
            let suspend = row.fields.suspend.and_then(|field| root.at_pointer(field, errors).boolean(errors));
            suspend.unwrap_or(false)
        }
        WebhookHandler::HoldPod => {
            let gates = root.descend(&["spec", "schedulingGates"], errors).items(errors);
            gates.iter().any(|gate| gate.value.get("name").is_some_and(|name| name == ADMISSION_GATE))
        }
        WebhookHandler::MarkTemplates(marks) => {
            root.at_pointer(marks.ready, errors).int(errors).is_none_or(|ready| ready == 0)
        }
    }
}

/// Reads the pod sets of a job under review. A place is the cursor of a role.
struct ReviewedRoles<'a, 'b> {
    row: &'b Framework,
    root: FieldCursor<'a>,
    errors: &'b mut Errors,
    pod_sets: Vec<PodSetUnderReview<'a>>,
}

impl<'a> RoleReader for ReviewedRoles<'a, '_> {
    type Place = FieldCursor<'a>;
    type Error = Infallible;

    fn object(&mut self) -> FieldCursor<'a> {
        self.root.clone()
    }

    fn has(&mut self, field: Pointer) -> bool {
        self.root.at_pointer(field, self.errors).exists()
    }

    fn items(&mut self, list: Pointer) -> Result<Vec<FieldCursor<'a>>, Infallible> {
        Ok(self.root.at_pointer(list, self.errors).items(self.errors))
    }

    fn entry(&mut self, map: Pointer, key: &'static str) -> Option<FieldCursor<'a>> {
        let map = self.root.at_pointer(map, self.errors);
        let role = map.get(key, self.errors);
        Some(FieldCursor::at(key_path(&map.path, key), role.value)).filter(FieldCursor::exists)
    }

    fn role(&mut self, place: FieldCursor<'a>, fields: RoleFields<'_>) -> Result<(), Infallible> {
        let mut set = read_pod_set(&place, fields, self.row, self.errors);
        set.annotations_path = self.row.hooks.shown_path(set.annotations_path);
        self.pod_sets.push(set);
        Ok(())
    }
}

fn read_pod_sets<'a>(
    row: &Framework,
    root: &FieldCursor<'a>,
    errors: &mut Errors,
) -> Vec<PodSetUnderReview<'a>> {
    if row.is_pod() {
        // A pod says itself where it wants to be.
        let fields =
            RoleFields { name: RoleName::Fixed("main"), template: "", count: &Count::One, indexed: true };
        return vec![read_pod_set(root, fields, row, errors)];
    }
    let mut reader = ReviewedRoles { row, root: root.clone(), errors, pod_sets: Vec::new() };
    for source in row.pod_sets {
        let Ok(()) = source.walk(&mut reader);
    }
    reader.pod_sets
}

fn read_pod_set<'a>(
    role: &FieldCursor<'a>,
    fields: RoleFields<'_>,
    row: &Framework,
    errors: &mut Errors,
) -> PodSetUnderReview<'a> {
    let template = role.at_pointer(fields.template, errors);
    let injected = row.fields.roles.injected();
    let annotations = template.at_pointer(injected.annotations, errors);
    let gates = template.at_pointer(injected.scheduling_gates, errors);
    gates.items(errors);
    let name = match fields.name {
        RoleName::Fixed(_) => None,
        RoleName::Field(pointer) => Some(role.at_pointer(pointer, errors)),
    };
    if let Some(name) = &name {
        name.text(errors);
    }
    let mut counted = ReviewedRole { role, errors, contradictions: Vec::new() };
    let Ok(pods) = fields.count.read(&mut counted);
    let contradictions = counted.contradictions;
    PodSetUnderReview {
        name,
        gates,
        pods,
        contradictions,
        annotations: string_map(&annotations, errors),
        annotations_path: annotations.path.into_owned(),
        pod_set_label: map_text(
            template.at_pointer("/metadata/labels", &mut Errors::new()).value.as_object(),
            POD_SET_LABEL,
        ),
        spec: template.at_pointer("/spec", &mut Errors::new()),
    }
}

/// A role of a job under review.
struct ReviewedRole<'a, 'b> {
    role: &'b FieldCursor<'a>,
    errors: &'b mut Errors,
    contradictions: Vec<FieldError>,
}

impl CountFields for ReviewedRole<'_, '_> {
    type Error = Infallible;

    fn count(&mut self, field: Pointer) -> Result<Option<i64>, Infallible> {
        self.number(field)
    }

    fn number(&mut self, field: Pointer) -> Result<Option<i64>, Infallible> {
        Ok(self.role.at_pointer(field, self.errors).int(self.errors))
    }

    fn text(&mut self, field: Pointer) -> Result<Option<i64>, Infallible> {
        let text = self.role.at_pointer(field, self.errors).text(self.errors);
        Ok(text.and_then(integer).map(i64::from))
    }

    fn boolean(&mut self, field: Pointer) -> Result<Option<bool>, Infallible> {
        Ok(self.role.at_pointer(field, self.errors).boolean(self.errors))
    }

    fn below(&mut self, field: Pointer, number: i64, least: i64, said_by: Option<Pointer>) {
        let path = |field: Pointer| self.role.at_pointer(field, &mut Errors::new()).path.into_owned();
        let source = said_by.map(|field| format!(", as {} says", path(field))).unwrap_or_default();
        let detail = format!("must be at least {least}{source}");
        self.contradictions.push(FieldError::invalid(path(field), number, detail));
    }
}

/// Returns a text of a map of labels or annotations.
pub fn map_text<'a>(map: Option<&'a Map<String, Value>>, key: &str) -> Option<&'a str> {
    map?.get(key)?.as_str()
}

fn string_map<'a>(map: &FieldCursor<'a>, errors: &mut Errors) -> Option<&'a Map<String, Value>> {
    for (_, value) in map.entries(errors) {
        value.text(errors);
    }
    map.map(errors)
}

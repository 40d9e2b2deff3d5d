//! Rules of the webhook for objects with a Workload for their pods: what must not change while the Workload is charged for it.

use super::hooks::{Hooks, ReviewField, RuleSettings};
use super::int_or_percent::IntOrPercent;
use super::job_under_review::JobUnderReview;
use super::patch::FieldChange;
use super::pod_group::pod_shape;
use super::row::Pointer;
use super::topology::GROUP;
use super::{JobError, read};
use crate::api::names;
use crate::api::validation::{Errors, FieldError, Gate, Gates};
use serde_json::{Map, Value, json};

const REPLICAS: &str = "/spec/replicas";

/// The rules of StatefulSets.
#[derive(Debug)]
pub(super) struct StatefulSetHooks;

impl Hooks for StatefulSetHooks {
    fn rolls(&self, set: &Value) -> Result<bool, JobError> {
        let revision = |field: &str| read::string(set, field);
        let (old, new) = (revision("/status/currentRevision")?, revision("/status/updateRevision")?);
        Ok(old.is_some() && new.is_some() && old != new)
    }

    fn validate_change(
        &self,
        set: &JobUnderReview<'_>,
        old: Option<&JobUnderReview<'_>>,
        _settings: RuleSettings<'_>,
        errors: &mut Errors,
    ) {
        let Some(old) = old.filter(|_| set.queue.is_some_and(|queue| !queue.is_empty())) else { return };
        let spec =
            |set: &JobUnderReview<'_>| pod_shape(set.value("/spec/template/spec").unwrap_or(&Value::Null));
        compare_shapes(&spec(set), &spec(old), "spec.template.spec", errors);
        validate_scaling(set, old, 1, errors);
    }

    fn validate_scale(&self, scale: &JobUnderReview<'_>, old: &JobUnderReview<'_>, errors: &mut Errors) {
        // A Scale leaves out a zero.
        validate_scaling(scale, old, 0, errors);
    }
}

const LEADER_TEMPLATE: &str = "/spec/leaderWorkerTemplate/leaderTemplate";
const WORKER_TEMPLATE: &str = "/spec/leaderWorkerTemplate/workerTemplate";
const SIZE: &str = "/spec/leaderWorkerTemplate/size";
const NAME: &str = "/metadata/name";
const MAX_SURGE: &str = "/spec/rolloutStrategy/rollingUpdateConfiguration/maxSurge";
const MAX_UNAVAILABLE: &str = "/spec/rolloutStrategy/rollingUpdateConfiguration/maxUnavailable";
/// Maximum number of replicas, each of which has a Workload.
const MAX_REPLICAS: i64 = 1_000_000;
/// Maximum length of the value of a label.
const MAX_LABEL: usize = 63;

/// The rules of LeaderWorkerSets.
#[derive(Debug)]
pub(super) struct LeaderWorkerSetHooks;

impl Hooks for LeaderWorkerSetHooks {
    /// Returns the number of replicas; in a roll-out, those beyond it that surge as well.
    fn replicas(&self, set: &Value) -> Result<u32, JobError> {
        let wanted = read::count(set, REPLICAS)?.unwrap_or(1);
        if i64::from(wanted) > MAX_REPLICAS {
            return Err(read::malformed(REPLICAS, format!("{wanted} must be at most {MAX_REPLICAS}")));
        }
        if read::string(set, NAME)?.is_some_and(|name| name.len() > MAX_LABEL) {
            // Its pods have the name as the value of a label, by which they are found.
            return Err(read::malformed(NAME, format!("must have at most {MAX_LABEL} characters")));
        }
        let surge = set.pointer(MAX_SURGE).and_then(IntOrPercent::read);
        let surges = surge.is_some_and(|surge| surge.of_rounded_up(wanted) > 0) && updated(set)? < wanted;
        let existing = if surges { read::count(set, "/status/replicas")?.unwrap_or(0) } else { 0 };
        let existing = i64::from(existing).min(MAX_REPLICAS);
        Ok(u32::try_from(existing.max(wanted.into())).unwrap_or(0))
    }

    fn rolls(&self, set: &Value) -> Result<bool, JobError> {
        Ok(updated(set)? < read::count(set, "/status/replicas")?.unwrap_or(0))
    }

    fn review_fields(&self) -> &'static [ReviewField] {
        &[ReviewField::Integer(REPLICAS)]
    }

    fn reviewed_parts(&self) -> &'static [Pointer] {
        &[MAX_SURGE, MAX_UNAVAILABLE]
    }

    /// Returns the offset of the workers behind a leader with a template of its own: pods of both have indexes of one sequence.
    fn template_marks(&self, set: &Value, gates: &Gates) -> Vec<FieldChange> {
        let worker = set.pointer(WORKER_TEMPLATE);
        let group = worker.and_then(|template| template.get("metadata")?.get("annotations")?.get(GROUP));
        let apart = group.and_then(Value::as_str).is_none_or(str::is_empty);
        let led = set.pointer(LEADER_TEMPLATE).is_some_and(Value::is_object);
        if !led || !apart || !gates.is_enabled(Gate::TopologyAwareScheduling) {
            return Vec::new();
        }
        let path = WORKER_TEMPLATE.split('/').skip(1);
        let path: Vec<&str> =
            path.chain(["metadata", "annotations", names::POD_INDEX_OFFSET_ANNOTATION]).collect();
        vec![FieldChange::new(&path, json!("1"))]
    }

    fn validate(&self, set: &JobUnderReview<'_>, errors: &mut Errors) {
        let wrong = set.int(REPLICAS).filter(|replicas| !(0..=MAX_REPLICAS).contains(replicas));
        if let Some(replicas) = wrong {
            let detail = format!("must be between 0 and {MAX_REPLICAS}");
            errors.push(FieldError::invalid("spec.replicas", replicas, detail));
        }
    }

    fn validate_change(
        &self,
        set: &JobUnderReview<'_>,
        old: Option<&JobUnderReview<'_>>,
        settings: RuleSettings<'_>,
        errors: &mut Errors,
    ) {
        if !settings.manages(set) {
            return;
        }
        for pointer in [MAX_SURGE, MAX_UNAVAILABLE] {
            // What an earlier version took may stay.
            let value = set.value(pointer);
            let changed = value.filter(|value| old.and_then(|old| old.value(pointer)) != Some(*value));
            errors.extend(IntOrPercent::fault(&read::path_of(pointer), changed));
        }
        let Some(old) = old else { return };
        let template = |set: &JobUnderReview<'_>, pointer| {
            let template = set.value(pointer).filter(|template| template.is_object());
            template.map(|template| pod_shape(template.get("spec").unwrap_or(&Value::Null)))
        };
        for pointer in [LEADER_TEMPLATE, WORKER_TEMPLATE] {
            let path = read::path_of(pointer);
            match (template(set, pointer), template(old, pointer)) {
                (Some(new), Some(old)) => compare_shapes(&new, &old, &format!("{path}.spec"), errors),
                (None, None) => {}
                (new, _) => {
                    let shown = if new.is_some() { "a template" } else { "no template" };
                    errors.push(FieldError::immutable(path, shown));
                }
            }
        }
        let size = |set: &JobUnderReview<'_>| set.int(SIZE).unwrap_or(1);
        if settings.gates.is_enabled(Gate::LWSImmutableGroupSize) && size(set) != size(old) {
            errors.push(FieldError::immutable("spec.leaderWorkerTemplate.size", size(set)));
        }
    }
}

/// Returns the number of replicas of a LeaderWorkerSet that are made from its present templates.
fn updated(set: &Value) -> Result<i32, JobError> {
    Ok(read::count(set, "/status/updatedReplicas")?.unwrap_or(0))
}

/// Checks the number of pods: the Workload is for all of them, so it changes only to and from zero.
/// An absent number is `absent`.
fn validate_scaling(set: &JobUnderReview<'_>, old: &JobUnderReview<'_>, absent: i64, errors: &mut Errors) {
    let replicas = |set: &JobUnderReview<'_>| set.int(REPLICAS).unwrap_or(absent);
    let (now, before) = (replicas(set), replicas(old));
    if now != before && now != 0 && before != 0 {
        errors.push(FieldError::immutable("spec.replicas", now));
    } else if before == 0 && now > 0 && set.int("/status/replicas").unwrap_or(0) > 0 {
        errors.push(FieldError::forbidden("spec.replicas", "scaling down is still in progress"));
    }
}

/// Checks that pods ask for the same as before. Containers are compared one by one if their number is the same.
fn compare_shapes(new: &Map<String, Value>, old: &Map<String, Value>, path: &str, errors: &mut Errors) {
    let of_container = path.ends_with(']');
    let added = old.keys().filter(|key| !new.contains_key(*key));
    for key in new.keys().chain(added) {
        let (new, old) = (new.get(key).unwrap_or(&Value::Null), old.get(key).unwrap_or(&Value::Null));
        let path = format!("{path}.{key}");
        match (new, old) {
            (Value::Array(new), Value::Array(old))
                if new.len() == old.len() && key.to_lowercase().ends_with("containers") =>
            {
                for (index, (new, old)) in new.iter().zip(old).enumerate() {
                    if let (Some(new), Some(old)) = (new.as_object(), old.as_object()) {
                        compare_shapes(new, old, &format!("{path}[{index}]"), errors);
                    }
                }
            }
            (Value::Object(new), Value::Object(old)) if of_container && key == "resources" => {
                compare_shapes(new, old, &path, errors);
            }
            (new, old) if new != old => errors.push(FieldError::immutable(path, new.to_string())),
            _ => {}
        }
    }
}

//! Rules of the webhook for objects with a Workload for their pods: what must not change while the Workload is charged for it.

use super::hooks::{Hooks, RuleSettings};
use super::job_under_review::JobUnderReview;
use super::pod_group::pod_shape;
use super::{JobError, read};
use crate::api::validation::{Errors, FieldError};
use serde_json::{Map, Value};

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
        validate_scaling(set, old, errors);
    }
}

/// Checks the number of pods: the Workload is for all of them, so it changes only to and from zero.
fn validate_scaling(set: &JobUnderReview<'_>, old: &JobUnderReview<'_>, errors: &mut Errors) {
    let replicas = |set: &JobUnderReview<'_>| set.int(REPLICAS).unwrap_or(1);
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

//! Rules of the webhook for pods, beyond those for every job: what a pod says about its group.
//!
//! Invariant: a pod stays in its group and its role. Otherwise its quota would be that of other pods.

use super::super::hooks::{Hooks, RuleSettings};
use super::super::job_under_review::JobUnderReview;
use super::super::read::path_of;
use crate::api::names::{
    ADMISSION_GATE, MANAGED_LABEL, POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT_ANNOTATION as TOTAL_COUNT,
    PREBUILT_WORKLOAD, RETRIABLE_IN_GROUP_ANNOTATION as RETRIABLE, ROLE_HASH_ANNOTATION,
    SUSPENDING_PARENT_ANNOTATION,
};
use crate::api::validation::syntax::{invalid_each, parse_int, subdomain};
use crate::api::validation::{Errors, FieldError, Gate, Gates, key_path};
use serde_json::Value;

/// The rules of pods.
#[derive(Debug)]
pub(super) struct PodHooks;

impl Hooks for PodHooks {
    fn validate_change(
        &self,
        pod: &JobUnderReview<'_>,
        old: Option<&JobUnderReview<'_>>,
        settings: RuleSettings<'_>,
        errors: &mut Errors,
    ) {
        let gates = settings.gates;
        if let Some(value) = pod.label(MANAGED_LABEL).filter(|value| *value != "true") {
            let detail = format!("managed label value can only be \"true\", not {value:?}");
            errors.push(FieldError::forbidden(label(MANAGED_LABEL), detail));
        }
        let group = named(pod, POD_GROUP_NAME, gates);
        validate_group(pod, &group, gates, errors);
        if let Some(old) = old {
            validate_managed_label(pod, old, errors);
            validate_group_change(pod, old, &group, gates, errors);
        }
    }
}

fn label(key: &str) -> String {
    key_path("metadata.labels", key)
}

fn annotation(key: &str) -> String {
    key_path("metadata.annotations", key)
}

/// Checks that a pod keeps its label while it waits, or has the finalizer: clients that know only the label, such as a manager of
/// Kueue, would neither start nor release it.
fn validate_managed_label(pod: &JobUnderReview<'_>, old: &JobUnderReview<'_>, errors: &mut Errors) {
    if old.label(MANAGED_LABEL).is_none() || pod.label(MANAGED_LABEL).is_some() {
        return;
    }
    let has = |pointer, name: &str| {
        let list = pod.value(pointer).and_then(Value::as_array);
        list.is_some_and(|list| list.iter().any(|item| item.get("name").unwrap_or(item) == name))
    };
    let held = [("/metadata/finalizers", MANAGED_LABEL), ("/spec/schedulingGates", ADMISSION_GATE)];
    if let Some((pointer, name)) = held.into_iter().find(|(pointer, name)| has(pointer, name)) {
        let field = path_of(pointer);
        let detail = format!("must stay while {field} has {name}");
        errors.push(FieldError::forbidden(label(MANAGED_LABEL), detail));
    }
}

/// A name that a pod gives by an annotation or a label.
struct Named<'a> {
    path: String,
    name: Option<&'a str>,
}

/// Returns a name and the path of what gives it. The annotation has precedence.
fn named<'a>(pod: &JobUnderReview<'a>, key: &str, gates: &Gates) -> Named<'a> {
    let annotations = gates.is_enabled(Gate::WorkloadIdentifierAnnotations);
    match pod.annotation(key).filter(|_| annotations) {
        Some(name) => Named { path: annotation(key), name: Some(name) },
        None => Named { path: label(key), name: pod.label(key) },
    }
}

fn validate_group(pod: &JobUnderReview<'_>, group: &Named<'_>, gates: &Gates, errors: &mut Errors) {
    let total = pod.annotation(TOTAL_COUNT);
    let both = format!("{TOTAL_COUNT} and {POD_GROUP_NAME} must be set together");
    let Some(name) = group.name.filter(|name| !name.is_empty()) else {
        if total.is_some() {
            errors.push(FieldError::required(group.path.clone(), both));
        }
        return;
    };
    errors.extend(invalid_each(&group.path, name, subdomain(name)));
    match total.map(|text| (text, parse_int(text))) {
        None => errors.push(FieldError::required(annotation(TOTAL_COUNT), both)),
        Some((text, Err(fault))) => errors.push(FieldError::invalid(annotation(TOTAL_COUNT), text, fault)),
        Some((text, Ok(number))) if !(1..=i64::from(i32::MAX)).contains(&number) => {
            let detail = format!("should be between 1 and {}", i32::MAX);
            errors.push(FieldError::invalid(annotation(TOTAL_COUNT), text, detail));
        }
        Some((_, Ok(_))) => {}
    }
    let prebuilt = named(pod, PREBUILT_WORKLOAD, gates);
    if let Some(workload) = prebuilt.name.filter(|workload| !workload.is_empty() && *workload != name) {
        let detail = "the prebuilt Workload must have the name of the group";
        errors.push(FieldError::invalid(prebuilt.path, workload, detail));
    }
}

fn validate_group_change(
    pod: &JobUnderReview<'_>,
    old: &JobUnderReview<'_>,
    group: &Named<'_>,
    gates: &Gates,
    errors: &mut Errors,
) {
    let name = group.name.unwrap_or_default();
    let before = named(old, POD_GROUP_NAME, gates).name.unwrap_or_default();
    if !before.is_empty() && name != before {
        errors.push(FieldError::immutable(group.path.clone(), name));
    }
    let unretriable = |pod: &JobUnderReview<'_>| pod.annotation(RETRIABLE) == Some("false");
    if !name.is_empty() && unretriable(old) && !unretriable(pod) {
        let detail = "a group whose failed pods are not replaced cannot be made retriable";
        errors.push(FieldError::forbidden(annotation(RETRIABLE), detail));
    }
    // The controller of a marked template gives its pods their roles when it knows them.
    let marked = old.annotation(SUSPENDING_PARENT_ANNOTATION).is_some();
    let role = |pod: &JobUnderReview<'_>| pod.annotation(ROLE_HASH_ANNOTATION).map(str::to_owned);
    if !marked && role(old).is_some() && role(pod) != role(old) {
        let role = role(pod).unwrap_or_default();
        errors.push(FieldError::immutable(annotation(ROLE_HASH_ANNOTATION), role));
    }
}

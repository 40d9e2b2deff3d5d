//! Validation of new and changed batch/v1 Jobs.

use super::AdmissionSettings;
use super::job_view::JobFields;
use super::topology::{self, PREFERRED, REQUIRED};
use crate::api::names::{
    ADMISSION_GATED_BY_ANNOTATION, ELASTIC_JOB_ANNOTATION,
    JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION as SYNC, JOB_MIN_PARALLELISM_ANNOTATION as MIN_PARALLELISM,
    MAX_EXEC_TIME_LABEL, PREBUILT_WORKLOAD, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL,
};
use crate::api::validation::syntax::{invalid_each, parse_bool, parse_int, subdomain};
use crate::api::validation::{Errors, FieldError, Gate, gated_by, key_path};

const LABEL_VALUE_MAX: usize = 63;
const TEMPLATE_ANNOTATIONS: &str = "spec.template.metadata.annotations";

fn label(key: &str) -> String {
    key_path("metadata.labels", key)
}

fn annotation(key: &str) -> String {
    key_path("metadata.annotations", key)
}

/// Checks the minimum parallelism if it is new or changed. Later changes of other fields do not make it invalid.
pub(super) fn validate_min_parallelism(
    job: &JobFields<'_>,
    old: Option<&JobFields<'_>>,
    settings: &AdmissionSettings,
    errors: &mut Errors,
) {
    // An empty annotation equals an absent one, as in Kueue, which reads "" for an absent annotation.
    let text = |job: &JobFields<'_>| job.annotation(MIN_PARALLELISM).unwrap_or_default().to_owned();
    let same = |old: &JobFields<'_>| text(old) == text(job);
    if !old.is_some_and(same) {
        validate_partial_admission(job, settings, errors);
    }
}

/// Checks the rules for every Job, new or changed.
pub(super) fn validate_create(job: &JobFields<'_>, settings: &AdmissionSettings, errors: &mut Errors) {
    if let Some(queue) = job.queue {
        errors.extend(invalid_each(&label(QUEUE_NAME_LABEL), queue, subdomain(queue)));
    }
    validate_prebuilt(job, settings, errors);
    if let Some(seconds) = job.label(MAX_EXEC_TIME_LABEL) {
        match parse_int(seconds) {
            Err(fault) => errors.push(FieldError::invalid(label(MAX_EXEC_TIME_LABEL), seconds, fault)),
            Ok(number) if number <= 0 => {
                errors.push(FieldError::invalid(
                    label(MAX_EXEC_TIME_LABEL),
                    number,
                    "should be greater than 0",
                ));
            }
            Ok(_) => {}
        }
    }
    if settings.gates.is_enabled(Gate::AdmissionGatedBy) {
        gated_by::check(job.annotation(ADMISSION_GATED_BY_ANNOTATION), errors);
    }
    validate_synced_completions(job, errors);
    validate_topology(job, settings, errors);
}

/// Returns the name of the prebuilt Workload and the path of the annotation or label that names it. The annotation has
/// precedence.
fn prebuilt_name<'a>(job: &JobFields<'a>, settings: &AdmissionSettings) -> (String, Option<&'a str>) {
    let from_annotation = job
        .annotation(PREBUILT_WORKLOAD)
        .filter(|_| settings.gates.is_enabled(Gate::WorkloadIdentifierAnnotations));
    match (from_annotation, job.label(PREBUILT_WORKLOAD)) {
        (Some(name), _) => (annotation(PREBUILT_WORKLOAD), Some(name)),
        (None, Some(name)) if name.len() > LABEL_VALUE_MAX => (annotation(PREBUILT_WORKLOAD), Some(name)),
        (None, name) => (label(PREBUILT_WORKLOAD), name),
    }
}

fn validate_prebuilt(job: &JobFields<'_>, settings: &AdmissionSettings, errors: &mut Errors) {
    let (path, name) = prebuilt_name(job, settings);
    if let Some(name) = name {
        errors.extend(invalid_each(&path, name, subdomain(name)));
    }
}

fn validate_partial_admission(job: &JobFields<'_>, settings: &AdmissionSettings, errors: &mut Errors) {
    let Some(min) = job.annotation(MIN_PARALLELISM) else {
        return;
    };
    let path = annotation(MIN_PARALLELISM);
    match parse_int(min) {
        Err(fault) => errors.push(FieldError::invalid(path.clone(), min, fault)),
        Ok(number) if number <= 0 || number >= job.pods() => {
            let detail = format!("should be between 0 and {}", job.pods().saturating_sub(1));
            errors.push(FieldError::invalid(path.clone(), number, detail));
        }
        Ok(_) => {}
    }
    if job.elastic(settings) {
        let detail = "partial admission and elastic job cannot be used together";
        errors.push(FieldError::invalid(path, min, detail));
    }
}

fn validate_synced_completions(job: &JobFields<'_>, errors: &mut Errors) {
    let Some(flag) = job.annotation(SYNC) else { return };
    match parse_bool(flag) {
        None => errors.push(FieldError::invalid(annotation(SYNC), flag, "must be a boolean value")),
        Some(false) => {}
        Some(true) => {
            if !job.indexed {
                let detail = "should not be enabled for NonIndexed jobs";
                errors.push(FieldError::invalid(annotation(SYNC), flag, detail));
            }
            let completions = job.completions.unwrap_or(1);
            if completions != job.parallelism {
                let detail = format!("should be equal to parallelism when {SYNC} is true");
                errors.push(FieldError::invalid("spec.completions", completions, detail));
            }
        }
    }
}

fn validate_topology(job: &JobFields<'_>, settings: &AdmissionSettings, errors: &mut Errors) {
    let annotations = job.template_annotations;
    if settings.gates.is_enabled(Gate::TopologyAwareScheduling) {
        let topology_errors = topology::check(annotations, TEMPLATE_ANNOTATIONS, job.pods(), &settings.gates);
        if !topology_errors.is_empty() {
            // Invalid annotations are not checked any further.
            errors.extend(topology_errors);
            return;
        }
    }
    if job.elastic(settings) {
        for (key, word) in [(REQUIRED, "required"), (PREFERRED, "preferred")] {
            if super::job_view::map_text(annotations, key).is_some() {
                let detail = format!("{word} topology is not supported with elastic jobs");
                errors.push(FieldError::forbidden(format!("{TEMPLATE_ANNOTATIONS}.{key}"), detail));
            }
        }
    }
}

/// Checks the rules for a changed Job. `default_queue`: whether the namespace has a default LocalQueue.
pub(super) fn validate_update(
    job: &JobFields<'_>,
    old: &JobFields<'_>,
    default_queue: bool,
    settings: &AdmissionSettings,
    errors: &mut Errors,
) {
    let queue = |job: &JobFields<'_>| job.queue.unwrap_or_default().to_owned();
    if !job.suspended && queue(job) != queue(old) {
        errors.push(FieldError::immutable(label(QUEUE_NAME_LABEL), queue(job)));
    }
    if default_queue && queue(job).is_empty() && !queue(old).is_empty() {
        let detail = "may not be removed where a default LocalQueue exists";
        errors.push(FieldError::invalid(label(QUEUE_NAME_LABEL), "", detail));
    }
    // A suspended Job may change its prebuilt Workload; the rules for new Jobs were already checked.
    let ((path, name), (_, old_name)) = (prebuilt_name(job, settings), prebuilt_name(old, settings));
    if !job.suspended && !old.elastic(settings) && name.unwrap_or_default() != old_name.unwrap_or_default() {
        errors.push(FieldError::immutable(path, name.unwrap_or_default()));
    }
    let seconds = |job: &JobFields<'_>| job.label(MAX_EXEC_TIME_LABEL).unwrap_or_default().to_owned();
    if !(job.suspended && old.suspended) && seconds(job) != seconds(old) {
        errors.push(FieldError::immutable(label(MAX_EXEC_TIME_LABEL), seconds(job)));
    }
    validate_priority_class(job, old, errors);
    if job.elastic(settings) != old.elastic(settings) {
        errors.push(FieldError::immutable(annotation(ELASTIC_JOB_ANNOTATION), job.elastic(settings)));
    }
    if settings.gates.is_enabled(Gate::AdmissionGatedBy) {
        let gates = |job: &JobFields<'_>| job.annotation(ADMISSION_GATED_BY_ANNOTATION).map(str::to_owned);
        gated_by::check_update(gates(job).as_deref(), gates(old).as_deref(), errors);
    }
    if old.annotation(MIN_PARALLELISM).is_some() && !old.suspended && job.parallelism != old.parallelism {
        let detail = "cannot change when partial admission is enabled and the job is not suspended";
        errors.push(FieldError::forbidden("spec.parallelism", detail));
    }
    let synced = |job: &JobFields<'_>| job.annotation(SYNC).and_then(parse_bool).unwrap_or(false);
    if !job.suspended && !old.suspended && synced(job) != synced(old) {
        let detail = "field is immutable while the job is not suspended";
        errors.push(FieldError::forbidden(annotation(SYNC), detail));
    }
}

/// Checks the priority class: it may be changed at any time, added only while suspended, and never removed.
fn validate_priority_class(job: &JobFields<'_>, old: &JobFields<'_>, errors: &mut Errors) {
    let (class, old_class) = (job.priority_class.unwrap_or_default(), old.priority_class.unwrap_or_default());
    let path = label(PRIORITY_CLASS_LABEL);
    if !job.suspended && old_class.is_empty() && !class.is_empty() {
        let detail = "WorkloadPriorityClass cannot be added to a non-suspended workload";
        errors.push(FieldError::invalid(path, class, detail));
    } else if class.is_empty() && !old_class.is_empty() {
        errors.push(FieldError::invalid(path, "", "WorkloadPriorityClass cannot be removed"));
    }
}

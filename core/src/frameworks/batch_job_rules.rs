//! Rules of new and changed batch/v1 Jobs, beyond those for every job.

use super::batch_job::{COMPLETION_MODE, COMPLETIONS, PARALLELISM};
use super::job_under_review::JobUnderReview;
use crate::api::names::{
    JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION as SYNC, JOB_MIN_PARALLELISM_ANNOTATION as MIN_PARALLELISM,
};
use crate::api::validation::syntax::{parse_bool, parse_int};
use crate::api::validation::{Errors, FieldError, Gates, key_path};

fn annotation(key: &str) -> String {
    key_path("metadata.annotations", key)
}

fn parallelism(job: &JobUnderReview<'_>) -> i64 {
    job.int(PARALLELISM).unwrap_or(1)
}

pub(super) fn validate_synced_completions(job: &JobUnderReview<'_>, errors: &mut Errors) {
    let Some(flag) = job.annotation(SYNC) else { return };
    match parse_bool(flag) {
        None => errors.push(FieldError::invalid(annotation(SYNC), flag, "must be a boolean value")),
        Some(false) => {}
        Some(true) => {
            if job.text(COMPLETION_MODE) != Some("Indexed") {
                let detail = "should not be enabled for NonIndexed jobs";
                errors.push(FieldError::invalid(annotation(SYNC), flag, detail));
            }
            let completions = job.int(COMPLETIONS).unwrap_or(1);
            if completions != parallelism(job) {
                let detail = format!("should be equal to parallelism when {SYNC} is true");
                errors.push(FieldError::invalid("spec.completions", completions, detail));
            }
        }
    }
}

pub(super) fn validate_change(
    job: &JobUnderReview<'_>,
    old: Option<&JobUnderReview<'_>>,
    gates: &Gates,
    errors: &mut Errors,
) {
    if let Some(old) = old {
        if old.annotation(MIN_PARALLELISM).is_some() && !old.suspended && parallelism(job) != parallelism(old)
        {
            let detail = "cannot change when partial admission is enabled and the job is not suspended";
            errors.push(FieldError::forbidden("spec.parallelism", detail));
        }
        let synced = |job: &JobUnderReview<'_>| job.annotation(SYNC).and_then(parse_bool).unwrap_or(false);
        if !job.suspended && !old.suspended && synced(job) != synced(old) {
            let detail = "field is immutable while the job is not suspended";
            errors.push(FieldError::forbidden(annotation(SYNC), detail));
        }
    }
    // Checked only if it is new or changed: later changes of other fields do not make it invalid. An empty annotation
    // equals an absent one, as in Kueue, which reads "" for an absent annotation.
    let text = |job: &JobUnderReview<'_>| job.annotation(MIN_PARALLELISM).unwrap_or_default().to_owned();
    if old.is_none_or(|old| text(old) != text(job)) {
        validate_partial_admission(job, gates, errors);
    }
}

fn validate_partial_admission(job: &JobUnderReview<'_>, gates: &Gates, errors: &mut Errors) {
    let Some(min) = job.annotation(MIN_PARALLELISM) else {
        return;
    };
    let path = annotation(MIN_PARALLELISM);
    let pods = job.pod_sets.first().map_or(0, |set| set.pods);
    match parse_int(min) {
        Err(fault) => errors.push(FieldError::invalid(path.clone(), min, fault)),
        Ok(number) if number <= 0 || number >= pods => {
            let detail = match pods.saturating_sub(1) {
                most if most >= 1 => format!("should be between 1 and {most}"),
                _ => format!("should be less than the parallelism, which is {pods}"),
            };
            errors.push(FieldError::invalid(path.clone(), number, detail));
        }
        Ok(_) => {}
    }
    if job.elastic(gates) {
        let detail = "partial admission and elastic job cannot be used together";
        errors.push(FieldError::invalid(path, min, detail));
    }
}

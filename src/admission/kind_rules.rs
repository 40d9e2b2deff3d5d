//! Rules of single job kinds, beyond those for every job.
//!
//! Invariant: a kind is reviewed only if it is listed here, so that no kind is served without its rules.

use super::AdmissionSettings;
use super::job_under_review::JobUnderReview;
use crate::api::names::{
    JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION as SYNC, JOB_MIN_PARALLELISM_ANNOTATION as MIN_PARALLELISM,
};
use crate::api::validation::syntax::{parse_bool, parse_int};
use crate::api::validation::{Errors, FieldError, key_path};
use crate::frameworks::batch_job::{COMPLETION_MODE, COMPLETIONS, PARALLELISM};
use crate::frameworks::{Framework, Pointer};

/// Rules of a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct KindRules {
    /// Fields of type string that only these rules read.
    pub(super) texts: &'static [Pointer],
    /// Checks a new or changed job.
    pub(super) validate: fn(&JobUnderReview<'_>, &mut Errors),
    /// Checks a change, or a new job if there is no old one. Called after all other rules.
    pub(super) validate_change:
        fn(&JobUnderReview<'_>, Option<&JobUnderReview<'_>>, &AdmissionSettings, &mut Errors),
}

/// Returns the rules of a kind, or `None` if this version does not review it.
pub(super) fn kind_rules(row: &Framework) -> Option<&'static KindRules> {
    match row.name {
        "batch/job" => Some(&BATCH_JOB),
        _ => None,
    }
}

static BATCH_JOB: KindRules = KindRules {
    texts: &[COMPLETION_MODE],
    validate: validate_synced_completions,
    validate_change: validate_batch_job_change,
};

fn annotation(key: &str) -> String {
    key_path("metadata.annotations", key)
}

fn parallelism(job: &JobUnderReview<'_>) -> i64 {
    job.int(PARALLELISM).unwrap_or(1)
}

fn validate_synced_completions(job: &JobUnderReview<'_>, errors: &mut Errors) {
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

fn validate_batch_job_change(
    job: &JobUnderReview<'_>,
    old: Option<&JobUnderReview<'_>>,
    settings: &AdmissionSettings,
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
        validate_partial_admission(job, settings, errors);
    }
}

fn validate_partial_admission(job: &JobUnderReview<'_>, settings: &AdmissionSettings, errors: &mut Errors) {
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
    if job.elastic(settings) {
        let detail = "partial admission and elastic job cannot be used together";
        errors.push(FieldError::invalid(path, min, detail));
    }
}

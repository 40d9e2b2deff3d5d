//! Rules for making and changing a batch/v1 Job.

use super::AdmissionSettings;
use super::view::JobView;
use crate::api::validation::FieldError;

/// Rules that hold for every Job, new or changed.
pub(super) fn create(_job: &JobView<'_>, _settings: &AdmissionSettings, _errors: &mut Vec<FieldError>) {}

/// Rules for a change.
pub(super) fn update(
    _job: &JobView<'_>,
    _old: &JobView<'_>,
    _default_queue: bool,
    _settings: &AdmissionSettings,
    _errors: &mut Vec<FieldError>,
) {
}

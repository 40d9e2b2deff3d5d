//! Validation of Kueue's kinds by rules that schemas cannot express.

use super::response::ReviewResponse;
use super::review::ReviewRequest;
use super::submitter;
use crate::api::{names, validation};

pub(super) fn workload(request: &ReviewRequest<'_>) -> ReviewResponse {
    // The manager itself takes reclaimed pods back, when they run again.
    let by_manager = request.field_manager == names::FIELD_MANAGER;
    let old = request.old;
    let gates = &request.ctx.settings.gates;
    let mut errors = validation::Errors::new();
    submitter::check_workload_change(request, &mut errors);
    let mut all = errors.take();
    all.extend(validation::workload_written(request.object, old, gates, by_manager));
    ReviewResponse::from_errors(&all)
}

pub(super) fn cluster_queue(request: &ReviewRequest<'_>) -> ReviewResponse {
    ReviewResponse::from_errors(&validation::cluster_queue(
        request.object,
        request.old,
        &request.ctx.settings.gates,
    ))
}

pub(super) fn cohort(request: &ReviewRequest<'_>) -> ReviewResponse {
    ReviewResponse::from_errors(&validation::cohort(request.object, request.old))
}

pub(super) fn resource_flavor(request: &ReviewRequest<'_>) -> ReviewResponse {
    ReviewResponse::from_errors(&validation::resource_flavor(request.object, request.old))
}

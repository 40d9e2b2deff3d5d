//! Validation of Kueue's kinds by rules that schemas cannot express.

use super::response::ReviewResponse;
use super::review::ReviewRequest;
use crate::api::validation;

pub(super) fn workload(request: &ReviewRequest<'_>) -> ReviewResponse {
    ReviewResponse::from_errors(&validation::workload(
        request.object,
        request.old,
        &request.ctx.settings.gates,
    ))
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

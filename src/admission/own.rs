//! Judging of our own kinds: rules that their schemas cannot say.

use super::response::Answer;
use super::review::Request;
use crate::api::validation;

pub(super) fn workload(request: &Request<'_>) -> Answer {
    Answer::judged(&validation::workload(
        request.object,
        request.old,
        &request.ctx.settings.gates,
    ))
}

pub(super) fn cluster_queue(request: &Request<'_>) -> Answer {
    Answer::judged(&validation::cluster_queue(
        request.object,
        request.old,
        &request.ctx.settings.gates,
    ))
}

pub(super) fn cohort(request: &Request<'_>) -> Answer {
    Answer::judged(&validation::cohort(request.object))
}

pub(super) fn resource_flavor(request: &Request<'_>) -> Answer {
    Answer::judged(&validation::resource_flavor(request.object))
}

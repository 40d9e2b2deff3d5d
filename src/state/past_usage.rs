//! Past usage of LocalQueues: read once, when a LocalQueue appears, from where the last replica wrote it.

use crate::api::v1beta2::{self, FairSharing};
use crate::resources::Quantity;
use crate::scheduler::LocalQueue;
use std::sync::Arc;

/// What admission fair sharing knows of a LocalQueue. Time in which nobody ran does not count.
pub(super) fn of(object: &v1beta2::LocalQueue) -> LocalQueue {
    let status = object.status.fair_sharing.as_ref().and_then(|s| s.admission_fair_sharing_status.as_ref());
    let amount = |(resource, amount): (&String, &k8s_openapi::apimachinery::pkg::api::resource::Quantity)| {
        Some((Arc::from(resource.as_str()), Quantity::parse(&amount.0).ok()?.float()))
    };
    LocalQueue {
        cluster_queue: Arc::from(object.spec.cluster_queue.as_deref().unwrap_or_default()),
        weight: object.spec.fair_sharing.as_ref().and_then(FairSharing::number),
        consumed: status.into_iter().flat_map(|s| &s.consumed_resources).filter_map(amount).collect(),
        sampled_at: None,
    }
}

//! Membership: whether a Workload is charged, queued, or neither.

mod placement;
mod pods_ready;

use super::writes::assumed::AssumedAdmissions;
use pods_ready::NotReadyWorkloads;

/// State of membership that is not in the objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Membership {
    pub(super) assumed: AssumedAdmissions,
    not_ready: NotReadyWorkloads,
}

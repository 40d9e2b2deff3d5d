//! ClusterQueues, LocalQueues and Cohorts: activity, status, counts and shares.

mod activity;
pub(super) mod counts;
pub(super) mod fair_sharing;
mod own_checks;
pub(super) mod status;

//! Decisions whose write has not been confirmed. They count as usage until the write is known to have failed.

use crate::scheduler::Assignment;
use std::sync::Arc;

/// A decision to admit.
#[derive(Clone, Debug)]
pub(in crate::reconciler) struct AssumedAdmission {
    /// UID of the Workload that it was decided for.
    pub(in crate::reconciler) uid: Arc<str>,
    /// What is granted.
    pub(in crate::reconciler) assignment: Assignment,
}

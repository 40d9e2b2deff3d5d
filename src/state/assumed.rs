//! Decisions whose write has not been confirmed. They count as usage until the write is known to have failed.

use crate::scheduler::Assignment;
use std::sync::Arc;

/// A decision to admit.
#[derive(Clone, Debug)]
pub(super) struct AssumedAdmission {
    /// UID of the Workload that it was decided for.
    pub(super) uid: Arc<str>,
    /// What is granted.
    pub(super) assignment: Assignment,
}

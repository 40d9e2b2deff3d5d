//! The interface to estimates of admission.

use futures::future::BoxFuture;

use crate::visibility::access::Access;
use crate::visibility::views::{Estimate, Verdict};

/// Computes when workloads may be admitted.
pub trait AskEstimate: Send + Sync {
    /// Returns when the workload of a verdict may be admitted, from what a reader with this access may see. The work is bounded: a
    /// question beyond the bounds is an answer, too. It is counted by the name of the user.
    fn estimate(&self, verdict: Verdict, access: Access, user: String) -> BoxFuture<'_, Estimate>;
}

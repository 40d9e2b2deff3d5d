//! Questions to the core about its inner state. It answers between two rounds, so an answer costs only when it is asked for.
//!
//! Invariant: few questions wait at once, and the lists of an answer are bounded.

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use crate::reconciler::Reconciler;
use crate::snapshot::{Inspection, QueueListing};

/// Maximum number of questions that wait.
pub(super) const CAPACITY: usize = 2;
/// Maximum number of entries of a list in an inspection.
const INSPECTED: usize = 100;
/// Maximum number of names of a list of workloads.
const LISTED: usize = 1_000;

/// A question to the core.
pub(super) enum CoreQuery {
    /// Writes and timers.
    Inspect(oneshot::Sender<Inspection>),
    /// Queues and the names of their workloads.
    ListQueues(oneshot::Sender<QueueListing>),
}

impl CoreQuery {
    /// Sends the answer. A dropped receiver has given up, which is no error.
    pub(super) fn answer(self, state: &Reconciler, now: Timestamp) {
        match self {
            Self::Inspect(reply) => drop(reply.send(state.inspect(INSPECTED, now))),
            Self::ListQueues(reply) => drop(reply.send(state.list_queues(LISTED))),
        }
    }
}

/// Asks the core. `None` if too many questions wait, or if the core has ended; never resolves while the core hangs.
pub(super) async fn ask<T>(
    queries: &mpsc::Sender<CoreQuery>,
    question: impl FnOnce(oneshot::Sender<T>) -> CoreQuery,
) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    queries.try_send(question(reply)).ok()?;
    answer.await.ok()
}

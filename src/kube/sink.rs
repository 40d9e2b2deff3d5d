//! The receiver of an API server's data: the deltas of its watches and the results of its writes.
//!
//! Watches and executor know only their sink: a process that follows several API servers gives each a sink of its own, so that
//! an object of one never reaches the state of another.
//!
//! Invariants: deltas are delivered in order; a watch or an executor whose sink is full waits, and delays no other one.

use tokio::sync::mpsc;

use crate::reconciler::Delta;

/// Receives the deltas of one API server.
pub trait DeltaSink: Send + Sync + 'static {
    /// Passes a delta on as soon as the sink has capacity.
    ///
    /// # Errors
    /// The receiver is dropped; no further delta can be delivered.
    fn deliver(&self, delta: Delta) -> impl Future<Output = Result<(), SinkClosed>> + Send;
}

/// The receiver of a sink is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the receiver of deltas is dropped")]
pub struct SinkClosed;

/// The channel to the core, with the objects of the cluster that the process manages.
impl DeltaSink for mpsc::Sender<Delta> {
    async fn deliver(&self, delta: Delta) -> Result<(), SinkClosed> {
        self.send(delta).await.map_err(|_| SinkClosed)
    }
}

//! Writes that another object needs, and retries of failed writes.

use super::in_flight::{WriteRequest, Writes};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::reconciler::work_queue::{ReconcileKey, WorkQueue};
use jiff::Timestamp;

impl Writes {
    /// Starts a write that another object needs. During a backoff, adds that object to the work queue for its end
    /// instead.
    pub(crate) fn write_for(
        &mut self,
        item: ReconcileKey,
        request: WriteRequest,
        queue: &mut WorkQueue,
        now: Timestamp,
    ) {
        if self.may_write(request.kind, &request.key, now) {
            self.start(request.on_behalf_of(item), now);
        } else {
            self.retry_after_backoff((request.kind, &request.key), item, queue, now);
        }
    }

    /// Adds an object to the work queue for the end of a failed write's backoff. No time is needed while a write is in
    /// flight: its end adds the object anyway.
    pub(crate) fn retry_after_backoff(
        &self,
        (kind, key): (Kind, &ObjectKey),
        item: ReconcileKey,
        queue: &mut WorkQueue,
        now: Timestamp,
    ) {
        if let Some(until) = self.backoff_until(kind, key).filter(|until| *until > now) {
            queue.add_at(item, until);
        }
    }
}

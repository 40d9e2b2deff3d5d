//! Writes that another object needs, and retries of failed writes.

use super::in_flight::WriteRequest;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::reconciler::{ReconcileKey, Reconciler};
use jiff::Timestamp;

impl Reconciler {
    /// Starts a write that another object needs. During a backoff, adds that object to the work queue for its end
    /// instead.
    pub(crate) fn write_for(&mut self, item: ReconcileKey, request: WriteRequest, now: Timestamp) {
        if self.writes.may_write(request.kind, &request.key, now) {
            self.writes.start(request.on_behalf_of(item), now);
        } else {
            self.retry_after_backoff(request.kind, &request.key, item, now);
        }
    }

    /// Adds an object to the work queue for the end of a failed write's backoff. No time is needed while a write is in
    /// flight: its end adds the object anyway.
    pub(crate) fn retry_after_backoff(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        item: ReconcileKey,
        now: Timestamp,
    ) {
        if let Some(until) = self.writes.backoff_until(kind, key).filter(|until| *until > now) {
            self.work_queue.add_at(item, until);
        }
    }
}

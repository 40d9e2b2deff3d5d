//! Bounds the total size of small request bodies being received.
//!
//! Invariant: a new body always gets capacity. Above the limit the oldest body is cancelled: an API server sends a body within
//! milliseconds, and a slow client would otherwise hold the capacity of others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The shared budget.
#[derive(Clone)]
pub(super) struct BodyBudget {
    limit: usize,
    table: Arc<Mutex<BodyTable>>,
}

#[derive(Default)]
struct BodyTable {
    next: u64,
    bytes: usize,
    /// Oldest first.
    reservations: BTreeMap<u64, (usize, oneshot::Sender<()>)>,
}

/// Capacity reserved for a body until dropped.
pub(super) struct BodyReservation {
    number: u64,
    bodies: BodyBudget,
}

impl BodyBudget {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, table: Arc::default() }
    }

    /// Reserves `bytes`. The receiver fires if the capacity is given to a newer body.
    pub(super) fn reserve(&self, bytes: usize) -> (BodyReservation, oneshot::Receiver<()>) {
        let (cancel, cancelled) = oneshot::channel();
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.bytes += bytes;
        while table.bytes > self.limit
            && let Some((_, (size, oldest))) = table.reservations.pop_first()
        {
            table.bytes -= size;
            // If the receiver is dropped, the request has just ended and its capacity is free as well.
            let _ = oldest.send(());
        }
        table.reservations.insert(number, (bytes, cancel));
        drop(table);
        (BodyReservation { number, bodies: self.clone() }, cancelled)
    }

    fn table(&self) -> MutexGuard<'_, BodyTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        let mut table = self.bodies.table();
        if let Some((size, _)) = table.reservations.remove(&self.number) {
            table.bytes -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_body_is_dropped_for_newest() {
        let bodies = BodyBudget::new(100);
        let (first, mut first_cancelled) = bodies.reserve(60);
        let (second, mut second_cancelled) = bodies.reserve(40);
        assert!(first_cancelled.try_recv().is_err() && second_cancelled.try_recv().is_err());
        let (third, mut third_cancelled) = bodies.reserve(50);
        assert!(first_cancelled.try_recv().is_ok() && second_cancelled.try_recv().is_err());
        assert_eq!(bodies.table().bytes, 90);
        drop((first, second));
        assert_eq!(bodies.table().bytes, 50);
        let (_large, _) = bodies.reserve(1_000);
        assert!(third_cancelled.try_recv().is_ok(), "also for a body larger than the limit");
        drop(third);
        assert_eq!(bodies.table().bytes, 1_000);
    }
}

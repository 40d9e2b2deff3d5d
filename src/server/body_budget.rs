//! Small bodies under way, and what they take together.
//!
//! Invariant: the last to come has room. Beyond the bound the body that has been coming for longest is given up: an API
//! server's is there within milliseconds, and a client that sends slowly would otherwise hold the room of others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The bodies that are held.
#[derive(Clone)]
pub(super) struct BodyBudget {
    limit: usize,
    table: Arc<Mutex<BodyTable>>,
}

#[derive(Default)]
struct BodyTable {
    next: u64,
    bytes: usize,
    /// In the order in which they came.
    reservations: BTreeMap<u64, (usize, oneshot::Sender<()>)>,
}

/// Room for a body until it is dropped.
pub(super) struct BodyReservation {
    number: u64,
    bodies: BodyBudget,
}

impl BodyBudget {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, table: Arc::default() }
    }

    /// Room for a body of so many bytes; what comes back with it fires when the room is needed for others.
    pub(super) fn reserve(&self, bytes: usize) -> (BodyReservation, oneshot::Receiver<()>) {
        let (release, given_up) = oneshot::channel();
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.bytes += bytes;
        while table.bytes > self.limit
            && let Some((_, (size, oldest))) = table.reservations.pop_first()
        {
            table.bytes -= size;
            // Gone meanwhile: its room is free as well.
            let _ = oldest.send(());
        }
        table.reservations.insert(number, (bytes, release));
        drop(table);
        (BodyReservation { number, bodies: self.clone() }, given_up)
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
        let (first, mut gone_first) = bodies.reserve(60);
        let (second, mut gone_second) = bodies.reserve(40);
        assert!(gone_first.try_recv().is_err() && gone_second.try_recv().is_err());
        let (third, mut gone_third) = bodies.reserve(50);
        assert!(gone_first.try_recv().is_ok() && gone_second.try_recv().is_err());
        assert_eq!(bodies.table().bytes, 90);
        drop((first, second));
        assert_eq!(bodies.table().bytes, 50);
        let (_large, _) = bodies.reserve(1_000);
        assert!(gone_third.try_recv().is_ok(), "also for one that is larger than all");
        drop(third);
        assert_eq!(bodies.table().bytes, 1_000);
    }
}

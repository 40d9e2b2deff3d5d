//! Connection slots: which connections are kept, and which are closed when there are too many.
//!
//! Invariants: a new connection is accepted unless all others have a request being answered; the one closed for it has had
//! no request yet, or is the slowest; the connections of a peer never exceed its share, so one peer cannot close the
//! connections of others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The slots of a listener.
#[derive(Clone)]
pub(super) struct ConnectionSlots {
    total: usize,
    per_peer: usize,
    table: Arc<Mutex<SlotTable>>,
}

#[derive(Default)]
struct SlotTable {
    next: u64,
    slots: BTreeMap<u64, SlotEntry>,
}

struct SlotEntry {
    peer: IpAddr,
    activity: Arc<ConnectionActivity>,
    task: Option<AbortHandle>,
}

/// A slot, held until dropped.
pub(super) struct ConnectionSlot {
    number: u64,
    slots: ConnectionSlots,
    pub(super) activity: Arc<ConnectionActivity>,
}

impl ConnectionSlots {
    pub(super) fn new(total: usize, per_peer: usize) -> Self {
        Self { total, per_peer, table: Arc::default() }
    }

    /// Acquires a slot for a peer, closing another connection if necessary. `None` if none may be closed.
    pub(super) fn acquire(&self, peer: IpAddr) -> Option<ConnectionSlot> {
        let peer = peer_group(peer);
        let mut table = self.table();
        let peer_count = table.slots.values().filter(|entry| entry.peer == peer).count();
        let peer_at_limit = peer_count >= self.per_peer;
        let evicted = if peer_at_limit || table.slots.len() >= self.total {
            Some(table.evict_lowest(|entry| !peer_at_limit || entry.peer == peer)?)
        } else {
            None
        };
        let number = table.next;
        table.next += 1;
        let activity = Arc::new(ConnectionActivity::default());
        table.slots.insert(number, SlotEntry { peer, activity: Arc::clone(&activity), task: None });
        drop(table);
        // Only after unlocking, because a task that ends releases its slot.
        if let Some(task) = evicted.and_then(|entry| entry.task) {
            task.abort();
        }
        Some(ConnectionSlot { number, slots: self.clone(), activity })
    }

    /// Sets the task to abort when the slot is given to another connection.
    pub(super) fn attach_task(&self, number: u64, task: AbortHandle) {
        if let Some(entry) = self.table().slots.get_mut(&number) {
            entry.task = Some(task);
        }
    }

    fn table(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotTable {
    /// Removes the entry with the lowest eviction rank among the entries that pass the filter.
    fn evict_lowest(&mut self, filter: impl Fn(&SlotEntry) -> bool) -> Option<SlotEntry> {
        let candidates = self.slots.iter().filter(|(_, entry)| filter(entry));
        let lowest =
            candidates.filter_map(|(number, entry)| Some((entry.activity.eviction_rank()?, *number))).min();
        lowest.and_then(|(_, number)| self.slots.remove(&number))
    }
}

impl ConnectionSlot {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.table().slots.remove(&self.number);
    }
}

/// Returns the address that limits count by: an IPv6 /64 network counts as one peer.
fn peer_group(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

/// Activity of a connection.
#[derive(Default)]
pub(super) struct ConnectionActivity(Mutex<ActivityState>);

#[derive(Default)]
struct ActivityState {
    had_request: bool,
    /// Requests whose body is not received completely.
    receiving: usize,
    /// Requests being answered.
    responding: usize,
    since: Option<Instant>,
}

/// Order of eviction, lowest first; then the one that has been in its state longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// No request yet, in any phase of the connection.
    NoRequest,
    /// A request body is being received.
    ReceivingBody(Option<Instant>),
    /// All requests are answered.
    Idle(Option<Instant>),
}

impl ConnectionActivity {
    /// Returns whether there has been any request.
    pub(super) fn had_request(&self) -> bool {
        self.state().had_request
    }

    fn eviction_rank(&self) -> Option<EvictionRank> {
        let state = self.state();
        match (state.had_request, state.responding, state.receiving) {
            (false, ..) => Some(EvictionRank::NoRequest),
            (true, 0, 0) => Some(EvictionRank::Idle(state.since)),
            (true, 0, _) => Some(EvictionRank::ReceivingBody(state.since)),
            (true, ..) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, ActivityState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request, until its response is complete.
pub(super) struct InFlightRequest {
    activity: Arc<ConnectionActivity>,
    body_received: Mutex<bool>,
}

impl InFlightRequest {
    /// Records a request. `complete` is true if it has no body to receive.
    pub(super) fn new(activity: Arc<ConnectionActivity>, complete: bool) -> Arc<Self> {
        let mut state = activity.state();
        state.had_request = true;
        state.since = Some(Instant::now());
        *(if complete { &mut state.responding } else { &mut state.receiving }) += 1;
        drop(state);
        Arc::new(Self { activity, body_received: Mutex::new(complete) })
    }

    /// Records that the body has been received. Repeated calls have no effect.
    pub(super) fn mark_body_received(&self) {
        let mut received = self.body_received.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *received, true) {
            let mut state = self.activity.state();
            state.receiving -= 1;
            state.responding += 1;
        }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let received = *self.body_received.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.activity.state();
        *(if received { &mut state.responding } else { &mut state.receiving }) -= 1;
        state.since = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    fn seated(slots: &ConnectionSlots, number: u64) -> bool {
        slots.table().slots.contains_key(&number)
    }

    #[test]
    fn least_valuable_connection_is_closed_first() {
        let slots = ConnectionSlots::new(4, 4);
        let connections: Vec<ConnectionSlot> = (1..=4).filter_map(|last| slots.acquire(peer(last))).collect();
        let answering = InFlightRequest::new(Arc::clone(&connections[0].activity), true);
        let arriving = InFlightRequest::new(Arc::clone(&connections[1].activity), false);
        drop(InFlightRequest::new(Arc::clone(&connections[2].activity), true));
        let _newer = slots.acquire(peer(5)).unwrap();
        assert!(!seated(&slots, connections[3].number()), "a connection without a request goes first");
        let newest = slots.acquire(peer(6)).unwrap();
        assert!(
            seated(&slots, connections[1].number()) && seated(&slots, connections[2].number()),
            "connections without a request go before all others"
        );
        let _now = InFlightRequest::new(Arc::clone(&newest.activity), true);
        let next = slots.acquire(peer(7)).unwrap();
        assert!(
            !seated(&slots, connections[1].number()),
            "then a connection whose request body is incomplete"
        );
        let _now = InFlightRequest::new(Arc::clone(&next.activity), true);
        let last = slots.acquire(peer(8)).unwrap();
        assert!(!seated(&slots, connections[2].number()), "then an idle connection");
        let _now = InFlightRequest::new(Arc::clone(&last.activity), true);
        assert!(
            slots.acquire(peer(9)).is_none() && seated(&slots, connections[0].number()),
            "never a connection that awaits a response"
        );
        drop(answering);
        assert!(slots.acquire(peer(9)).is_some());
        drop(arriving);
    }

    #[test]
    fn peer_above_share_closes_own_connections() {
        let slots = ConnectionSlots::new(10, 3);
        let other = slots.acquire(peer(1)).unwrap();
        let connections: Vec<ConnectionSlot> = (0..5).filter_map(|_| slots.acquire(peer(2))).collect();
        assert!(seated(&slots, other.number()));
        let remaining: Vec<bool> =
            connections.iter().map(|connection| seated(&slots, connection.number())).collect();
        assert_eq!(remaining, [false, false, true, true, true]);
        drop(connections);
        assert_eq!(slots.table().slots.len(), 1, "dropped slots are released");
    }

    #[test]
    fn neighbouring_addresses_count_as_one_peer() {
        let same = |a: &str, b: &str| peer_group(a.parse().unwrap()) == peer_group(b.parse().unwrap());
        assert!(same("::ffff:127.0.0.1", "127.0.0.1") && same("2001:db8::1", "2001:db8::ffff:0:0:2"));
        assert!(!same("127.0.0.1", "127.0.0.2") && !same("2001:db8:0:1::1", "2001:db8:0:2::1"));
    }

    #[test]
    fn completed_body_protects_connection() {
        let activity = Arc::new(ConnectionActivity::default());
        assert_eq!(activity.eviction_rank(), Some(EvictionRank::NoRequest));
        let request = InFlightRequest::new(Arc::clone(&activity), false);
        assert!(
            matches!(activity.eviction_rank(), Some(EvictionRank::ReceivingBody(_)))
                && activity.had_request()
        );
        request.mark_body_received();
        request.mark_body_received();
        assert_eq!(activity.eviction_rank(), None);
        drop(request);
        assert!(matches!(activity.eviction_rank(), Some(EvictionRank::Idle(_))));
    }
}

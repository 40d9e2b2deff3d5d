//! Which clients hold a connection, and which give way when there are too many.
//!
//! Invariants: a client that comes is let in unless all others are being answered; the one that goes for it has asked for
//! nothing yet, or is the slowest; a peer's connections take no more than their share, so that one peer cannot send away
//! what others hold.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The seats of a listener.
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

/// A seat until it is dropped.
pub(super) struct ConnectionSlot {
    number: u64,
    slots: ConnectionSlots,
    pub(super) activity: Arc<ConnectionActivity>,
}

impl ConnectionSlots {
    pub(super) fn new(total: usize, per_peer: usize) -> Self {
        Self { total, per_peer, table: Arc::default() }
    }

    /// A seat for this peer, which another connection may lose by it; none if all that could go are being answered.
    pub(super) fn acquire(&self, peer: IpAddr) -> Option<ConnectionSlot> {
        let peer = peer_group(peer);
        let mut table = self.table();
        let own = table.slots.values().filter(|place| place.peer == peer).count();
        let crowded = own >= self.per_peer;
        let gone = if crowded || table.slots.len() >= self.total {
            Some(table.evict_lowest(|place| !crowded || place.peer == peer)?)
        } else {
            None
        };
        let number = table.next;
        table.next += 1;
        let standing = Arc::new(ConnectionActivity::default());
        table.slots.insert(number, SlotEntry { peer, activity: Arc::clone(&standing), task: None });
        drop(table);
        // Not before: what ends gives its seat back.
        if let Some(task) = gone.and_then(|place| place.task) {
            task.abort();
        }
        Some(ConnectionSlot { number, slots: self.clone(), activity: standing })
    }

    /// What ends when the seat is given to another.
    pub(super) fn attach_task(&self, number: u64, task: AbortHandle) {
        if let Some(place) = self.table().slots.get_mut(&number) {
            place.task = Some(task);
        }
    }

    fn table(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotTable {
    /// Takes the seat of the connection that has least to lose.
    fn evict_lowest(&mut self, among: impl Fn(&SlotEntry) -> bool) -> Option<SlotEntry> {
        let among = self.slots.iter().filter(|(_, place)| among(place));
        let last = among.filter_map(|(number, place)| Some((place.activity.eviction_rank()?, *number))).min();
        last.and_then(|(_, number)| self.slots.remove(&number))
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

/// What share of seats an address counts for: a network of IPv6 is one machine's.
fn peer_group(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

/// What a connection is about.
#[derive(Default)]
pub(super) struct ConnectionActivity(Mutex<ActivityState>);

#[derive(Default)]
struct ActivityState {
    had_request: bool,
    /// Requests whose body is not there yet.
    receiving: usize,
    /// Requests that are being answered.
    responding: usize,
    since: Option<Instant>,
}

/// How soon a connection goes: least first, then the one that has been so for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// No request yet, in whatever phase.
    NoRequest,
    /// A body is on its way.
    ReceivingBody(Option<Instant>),
    /// All requests are answered.
    Idle(Option<Instant>),
}

impl ConnectionActivity {
    /// Whether any request came.
    pub(super) fn had_request(&self) -> bool {
        self.state().had_request
    }

    fn eviction_rank(&self) -> Option<EvictionRank> {
        let doing = self.state();
        match (doing.had_request, doing.responding, doing.receiving) {
            (false, ..) => Some(EvictionRank::NoRequest),
            (true, 0, 0) => Some(EvictionRank::Idle(doing.since)),
            (true, 0, _) => Some(EvictionRank::ReceivingBody(doing.since)),
            (true, ..) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, ActivityState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request until it is answered.
pub(super) struct InFlightRequest {
    activity: Arc<ConnectionActivity>,
    body_received: Mutex<bool>,
}

impl InFlightRequest {
    /// A request came, all of it or its head.
    pub(super) fn new(standing: Arc<ConnectionActivity>, whole: bool) -> Arc<Self> {
        let mut doing = standing.state();
        doing.had_request = true;
        doing.since = Some(Instant::now());
        *(if whole { &mut doing.responding } else { &mut doing.receiving }) += 1;
        drop(doing);
        Arc::new(Self { activity: standing, body_received: Mutex::new(whole) })
    }

    /// Its body is there.
    pub(super) fn mark_body_received(&self) {
        let mut arrived = self.body_received.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *arrived, true) {
            let mut doing = self.activity.state();
            doing.receiving -= 1;
            doing.responding += 1;
        }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let arrived = *self.body_received.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut doing = self.activity.state();
        *(if arrived { &mut doing.responding } else { &mut doing.receiving }) -= 1;
        doing.since = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    fn seated(seats: &ConnectionSlots, number: u64) -> bool {
        seats.table().slots.contains_key(&number)
    }

    #[test]
    fn least_valuable_connection_is_closed_first() {
        let seats = ConnectionSlots::new(4, 4);
        let taken: Vec<ConnectionSlot> = (1..=4).filter_map(|last| seats.acquire(peer(last))).collect();
        let answering = InFlightRequest::new(Arc::clone(&taken[0].activity), true);
        let arriving = InFlightRequest::new(Arc::clone(&taken[1].activity), false);
        drop(InFlightRequest::new(Arc::clone(&taken[2].activity), true));
        let _newer = seats.acquire(peer(5)).unwrap();
        assert!(!seated(&seats, taken[3].number()), "one that said nothing");
        let newest = seats.acquire(peer(6)).unwrap();
        assert!(seated(&seats, taken[1].number()) && seated(&seats, taken[2].number()), "before all others");
        let _now = InFlightRequest::new(Arc::clone(&newest.activity), true);
        let next = seats.acquire(peer(7)).unwrap();
        assert!(!seated(&seats, taken[1].number()), "then one whose request does not end");
        let _now = InFlightRequest::new(Arc::clone(&next.activity), true);
        let last = seats.acquire(peer(8)).unwrap();
        assert!(!seated(&seats, taken[2].number()), "then one that asks for nothing more");
        let _now = InFlightRequest::new(Arc::clone(&last.activity), true);
        assert!(
            seats.acquire(peer(9)).is_none() && seated(&seats, taken[0].number()),
            "never one that waits"
        );
        drop(answering);
        assert!(seats.acquire(peer(9)).is_some());
        drop(arriving);
    }

    #[test]
    fn peer_above_share_closes_own_connections() {
        let seats = ConnectionSlots::new(10, 3);
        let other = seats.acquire(peer(1)).unwrap();
        let own: Vec<ConnectionSlot> = (0..5).filter_map(|_| seats.acquire(peer(2))).collect();
        assert!(seated(&seats, other.number()));
        let left: Vec<bool> = own.iter().map(|seat| seated(&seats, seat.number())).collect();
        assert_eq!(left, [false, false, true, true, true]);
        drop(own);
        assert_eq!(seats.table().slots.len(), 1, "seats are given back");
    }

    #[test]
    fn neighbouring_addresses_count_as_one_peer() {
        let same = |a: &str, b: &str| peer_group(a.parse().unwrap()) == peer_group(b.parse().unwrap());
        assert!(same("::ffff:127.0.0.1", "127.0.0.1") && same("2001:db8::1", "2001:db8::ffff:0:0:2"));
        assert!(!same("127.0.0.1", "127.0.0.2") && !same("2001:db8:0:1::1", "2001:db8:0:2::1"));
    }

    #[test]
    fn completed_body_protects_connection() {
        let standing = Arc::new(ConnectionActivity::default());
        assert_eq!(standing.eviction_rank(), Some(EvictionRank::NoRequest));
        let asked = InFlightRequest::new(Arc::clone(&standing), false);
        assert!(
            matches!(standing.eviction_rank(), Some(EvictionRank::ReceivingBody(_)))
                && standing.had_request()
        );
        asked.mark_body_received();
        asked.mark_body_received();
        assert_eq!(standing.eviction_rank(), None);
        drop(asked);
        assert!(matches!(standing.eviction_rank(), Some(EvictionRank::Idle(_))));
    }
}

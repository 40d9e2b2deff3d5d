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
pub(super) struct Seats {
    total: usize,
    per_peer: usize,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    next: u64,
    taken: BTreeMap<u64, Place>,
}

struct Place {
    peer: IpAddr,
    standing: Arc<Standing>,
    task: Option<AbortHandle>,
}

/// A seat until it is dropped.
pub(super) struct Seat {
    number: u64,
    seats: Seats,
    pub(super) standing: Arc<Standing>,
}

impl Seats {
    pub(super) fn new(total: usize, per_peer: usize) -> Self {
        Self { total, per_peer, table: Arc::default() }
    }

    /// A seat for this peer, which another connection may lose by it; none if all that could go are being answered.
    pub(super) fn take(&self, peer: IpAddr) -> Option<Seat> {
        let peer = neighbourhood(peer);
        let mut table = self.table();
        let own = table.taken.values().filter(|place| place.peer == peer).count();
        let crowded = own >= self.per_peer;
        let gone = if crowded || table.taken.len() >= self.total {
            Some(table.give_up(|place| !crowded || place.peer == peer)?)
        } else {
            None
        };
        let number = table.next;
        table.next += 1;
        let standing = Arc::new(Standing::default());
        table.taken.insert(number, Place { peer, standing: Arc::clone(&standing), task: None });
        drop(table);
        // Not before: what ends gives its seat back.
        if let Some(task) = gone.and_then(|place| place.task) {
            task.abort();
        }
        Some(Seat { number, seats: self.clone(), standing })
    }

    /// What ends when the seat is given to another.
    pub(super) fn seated(&self, number: u64, task: AbortHandle) {
        if let Some(place) = self.table().taken.get_mut(&number) {
            place.task = Some(task);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Takes the seat of the connection that has least to lose.
    fn give_up(&mut self, among: impl Fn(&Place) -> bool) -> Option<Place> {
        let among = self.taken.iter().filter(|(_, place)| among(place));
        let last = among.filter_map(|(number, place)| Some((place.standing.worth()?, *number))).min();
        last.and_then(|(_, number)| self.taken.remove(&number))
    }
}

impl Seat {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.table().taken.remove(&self.number);
    }
}

/// What share of seats an address counts for: a network of IPv6 is one machine's.
fn neighbourhood(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

/// What a connection is about.
#[derive(Default)]
pub(super) struct Standing(Mutex<Doing>);

#[derive(Default)]
struct Doing {
    asked: bool,
    /// Requests whose body is not there yet.
    arriving: usize,
    /// Requests that are being answered.
    answering: usize,
    since: Option<Instant>,
}

/// How soon a connection goes: least first, then the one that has been so for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// No request yet, in whatever phase.
    Silent,
    /// A body is on its way.
    Arriving(Option<Instant>),
    /// All requests are answered.
    Idle(Option<Instant>),
}

impl Standing {
    /// Whether any request came.
    pub(super) fn asked(&self) -> bool {
        self.doing().asked
    }

    fn worth(&self) -> Option<Worth> {
        let doing = self.doing();
        match (doing.asked, doing.answering, doing.arriving) {
            (false, ..) => Some(Worth::Silent),
            (true, 0, 0) => Some(Worth::Idle(doing.since)),
            (true, 0, _) => Some(Worth::Arriving(doing.since)),
            (true, ..) => None,
        }
    }

    fn doing(&self) -> MutexGuard<'_, Doing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request until it is answered.
pub(super) struct Asked {
    standing: Arc<Standing>,
    arrived: Mutex<bool>,
}

impl Asked {
    /// A request came, all of it or its head.
    pub(super) fn new(standing: Arc<Standing>, whole: bool) -> Arc<Self> {
        let mut doing = standing.doing();
        doing.asked = true;
        doing.since = Some(Instant::now());
        *(if whole { &mut doing.answering } else { &mut doing.arriving }) += 1;
        drop(doing);
        Arc::new(Self { standing, arrived: Mutex::new(whole) })
    }

    /// Its body is there.
    pub(super) fn arrive(&self) {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *arrived, true) {
            let mut doing = self.standing.doing();
            doing.arriving -= 1;
            doing.answering += 1;
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let arrived = *self.arrived.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut doing = self.standing.doing();
        *(if arrived { &mut doing.answering } else { &mut doing.arriving }) -= 1;
        doing.since = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    fn seated(seats: &Seats, number: u64) -> bool {
        seats.table().taken.contains_key(&number)
    }

    #[test]
    fn whoever_has_least_to_lose_goes_first() {
        let seats = Seats::new(4, 4);
        let taken: Vec<Seat> = (1..=4).filter_map(|last| seats.take(peer(last))).collect();
        let answering = Asked::new(Arc::clone(&taken[0].standing), true);
        let arriving = Asked::new(Arc::clone(&taken[1].standing), false);
        drop(Asked::new(Arc::clone(&taken[2].standing), true));
        let _newer = seats.take(peer(5)).unwrap();
        assert!(!seated(&seats, taken[3].number()), "one that said nothing");
        let newest = seats.take(peer(6)).unwrap();
        assert!(seated(&seats, taken[1].number()) && seated(&seats, taken[2].number()), "before all others");
        let _now = Asked::new(Arc::clone(&newest.standing), true);
        let next = seats.take(peer(7)).unwrap();
        assert!(!seated(&seats, taken[1].number()), "then one whose request does not end");
        let _now = Asked::new(Arc::clone(&next.standing), true);
        let last = seats.take(peer(8)).unwrap();
        assert!(!seated(&seats, taken[2].number()), "then one that asks for nothing more");
        let _now = Asked::new(Arc::clone(&last.standing), true);
        assert!(seats.take(peer(9)).is_none() && seated(&seats, taken[0].number()), "never one that waits");
        drop(answering);
        assert!(seats.take(peer(9)).is_some());
        drop(arriving);
    }

    #[test]
    fn a_peer_sends_away_its_own() {
        let seats = Seats::new(10, 3);
        let other = seats.take(peer(1)).unwrap();
        let own: Vec<Seat> = (0..5).filter_map(|_| seats.take(peer(2))).collect();
        assert!(seated(&seats, other.number()));
        let left: Vec<bool> = own.iter().map(|seat| seated(&seats, seat.number())).collect();
        assert_eq!(left, [false, false, true, true, true]);
        drop(own);
        assert_eq!(seats.table().taken.len(), 1, "seats are given back");
    }

    #[test]
    fn neighbours_are_one() {
        let same = |a: &str, b: &str| neighbourhood(a.parse().unwrap()) == neighbourhood(b.parse().unwrap());
        assert!(same("::ffff:127.0.0.1", "127.0.0.1") && same("2001:db8::1", "2001:db8::ffff:0:0:2"));
        assert!(!same("127.0.0.1", "127.0.0.2") && !same("2001:db8:0:1::1", "2001:db8:0:2::1"));
    }

    #[test]
    fn a_body_that_arrives_is_answered() {
        let standing = Arc::new(Standing::default());
        assert_eq!(standing.worth(), Some(Worth::Silent));
        let asked = Asked::new(Arc::clone(&standing), false);
        assert!(matches!(standing.worth(), Some(Worth::Arriving(_))) && standing.asked());
        asked.arrive();
        asked.arrive();
        assert_eq!(standing.worth(), None);
        drop(asked);
        assert!(matches!(standing.worth(), Some(Worth::Idle(_))));
    }
}

//! Events that wait to be written: fair over namespaces, Warnings before other events, none older than a limit.
//!
//! Invariants: a namespace waits at most one turn of each other namespace, however many events the others have; of four
//! events at most three are Warnings while others wait, so that a burst of Warnings delays the others, but not forever; a
//! full queue drops the oldest event of the namespace with the most; each event is returned or counted as dropped.
//! Time is an argument.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::reconciler::Event;

/// Of this many events one is no Warning, if one waits.
const TURNS: u8 = 4;

/// Why an event is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The queue was full.
    Full,
    /// It waited longer than the limit.
    Expired,
    /// The API server did not accept it.
    Refused,
    /// This replica lost the lease, or stops.
    Stopped,
}

impl DropReason {
    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Expired => "expired",
            Self::Refused => "refused",
            Self::Stopped => "stopped",
        }
    }
}

/// An event that waits.
#[derive(Clone, Debug)]
struct Waiting {
    event: Event,
    /// Time of the event.
    time: Timestamp,
    /// Time at which it was queued, on the clock of the process.
    since: Duration,
}

/// Events of one type, by namespace.
#[derive(Clone, Debug, Default)]
struct FairQueue {
    by_namespace: BTreeMap<Arc<str>, VecDeque<Waiting>>,
    /// Namespaces with events, the next one first.
    turns: VecDeque<Arc<str>>,
}

impl FairQueue {
    fn push(&mut self, waiting: Waiting) {
        let namespace = Arc::clone(&waiting.event.key.namespace);
        let list = self.by_namespace.entry(Arc::clone(&namespace)).or_default();
        if list.is_empty() {
            self.turns.push_back(namespace);
        }
        list.push_back(waiting);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let namespace = self.turns.pop_front()?;
        let list = self.by_namespace.get_mut(&namespace)?;
        let waiting = list.pop_front();
        if list.is_empty() {
            self.by_namespace.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        waiting
    }

    /// Drops the oldest event of the namespace with the most. Returns whether there was one.
    fn drop_one(&mut self) -> bool {
        let longest = self.by_namespace.iter().max_by_key(|(_, list)| list.len());
        let Some(namespace) = longest.map(|(namespace, _)| Arc::clone(namespace)) else { return false };
        let Some(list) = self.by_namespace.get_mut(&namespace) else { return false };
        list.pop_front();
        if list.is_empty() {
            self.by_namespace.remove(&namespace);
            self.turns.retain(|other| *other != namespace);
        }
        true
    }
}

/// Events that wait to be written.
#[derive(Clone, Debug)]
pub struct EventQueue {
    warnings: FairQueue,
    others: FairQueue,
    len: usize,
    capacity: usize,
    max_age: Duration,
    turn: u8,
}

impl EventQueue {
    /// Creates an empty queue for this many events, none of which is written after this time.
    pub fn new(capacity: usize, max_age: Duration) -> Self {
        let (warnings, others) = (FairQueue::default(), FairQueue::default());
        Self { warnings, others, len: 0, capacity: capacity.max(1), max_age, turn: 0 }
    }

    /// Returns the number of events.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no event waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event. Returns whether another one was dropped for it: no Warning if there are others.
    pub fn push(&mut self, event: Event, time: Timestamp, now: Duration) -> bool {
        let full = self.len >= self.capacity && (self.others.drop_one() || self.warnings.drop_one());
        let queue = if event.is_warning() { &mut self.warnings } else { &mut self.others };
        queue.push(Waiting { event, time, since: now });
        if !full {
            self.len = self.len.saturating_add(1);
        }
        full
    }

    /// Removes and returns the next event and its time, and the number of events that are too old.
    pub fn pop(&mut self, now: Duration) -> (Option<(Event, Timestamp)>, u64) {
        let mut expired = 0_u64;
        loop {
            self.turn = self.turn.saturating_add(1) % TURNS;
            let next = if self.turn == 0 {
                self.others.pop().or_else(|| self.warnings.pop())
            } else {
                self.warnings.pop().or_else(|| self.others.pop())
            };
            let Some(waiting) = next else { return (None, expired) };
            self.len = self.len.saturating_sub(1);
            if now.saturating_sub(waiting.since) <= self.max_age {
                return (Some((waiting.event, waiting.time)), expired);
            }
            expired = expired.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectKey;
    use crate::cache::Kind;
    use crate::reconciler::EventType;
    use proptest::prelude::*;

    const MAX_AGE: Duration = Duration::from_mins(5);

    fn event(namespace: &str, event_type: EventType, number: u64) -> Event {
        let key = ObjectKey::new(namespace, "w");
        let (reason, note) = ("R".to_owned(), number.to_string());
        Event { kind: Kind::Workload, key, uid: String::new(), event_type, reason, note, once: false }
    }

    fn event_types() -> impl Strategy<Value = EventType> {
        prop_oneof![Just(EventType::Normal), Just(EventType::Warning)]
    }

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn burst_of_one_namespace_does_not_delay_others() {
        let mut queue = EventQueue::new(8192, MAX_AGE);
        for number in 0..4_000 {
            let event_type = if number % 2 == 0 { EventType::Warning } else { EventType::Normal };
            assert!(!queue.push(event("noisy", event_type, number), Timestamp::UNIX_EPOCH, second(0)));
        }
        queue.push(event("quiet", EventType::Normal, 1), Timestamp::UNIX_EPOCH, second(0));
        queue.push(event("quiet", EventType::Warning, 2), Timestamp::UNIX_EPOCH, second(0));
        let first: Vec<Event> =
            (0..12).filter_map(|_| queue.pop(second(1)).0).map(|(event, _)| event).collect();
        let at = |kind| first.iter().position(|e| &*e.key.namespace == "quiet" && e.event_type == kind);
        assert!(at(EventType::Warning).is_some_and(|at| at < 3), "{first:?}");
        assert!(at(EventType::Normal).is_some_and(|at| at < 8), "{first:?}");
    }

    proptest! {
        /// Each event is returned or counted, in order within its namespace and type; none is too old; no namespace waits for
        /// more than its turn.
        #[test]
        fn every_event_is_returned_or_counted(
            steps in proptest::collection::vec((0_u8..5, event_types(), 0_u64..120), 1..400),
            capacity in 1_usize..40,
        ) {
            let mut queue = EventQueue::new(capacity, MAX_AGE);
            let (mut pushed, mut returned, mut dropped, mut now) = (0_u64, 0_u64, 0_u64, 0_u64);
            let mut last: BTreeMap<(String, EventType), u64> = BTreeMap::new();
            for (kind, event_type, wait) in steps {
                if kind < 3 {
                    pushed += 1;
                    let pushed_event = event(&format!("n{kind}"), event_type, pushed);
                    dropped += u64::from(queue.push(pushed_event, Timestamp::UNIX_EPOCH, second(now)));
                } else {
                    now += wait;
                    let (next, expired) = queue.pop(second(now));
                    dropped += expired;
                    if let Some((event, _)) = next {
                        returned += 1;
                        let number: u64 = event.note.parse().unwrap();
                        let before = last.insert((event.key.namespace.to_string(), event.event_type), number);
                        prop_assert!(before.is_none_or(|before| before < number));
                    } else {
                        prop_assert!(queue.is_empty());
                    }
                }
                prop_assert!(queue.len() <= capacity);
                let waiting = u64::try_from(queue.len()).unwrap();
                prop_assert_eq!(pushed, returned + dropped + waiting);
            }
        }

        /// Whatever waits, an event of a namespace comes within four turns of each namespace that has events.
        #[test]
        fn wait_is_bounded_by_number_of_namespaces(
            noisy in proptest::collection::vec((0_u8..6, event_types()), 0..300),
            event_type in event_types(),
        ) {
            let mut queue = EventQueue::new(1_000, MAX_AGE);
            let namespaces: std::collections::BTreeSet<u8> = noisy.iter().map(|(n, _)| *n).collect();
            for (number, (namespace, event_type)) in noisy.into_iter().enumerate() {
                let noise = event(&format!("n{namespace}"), event_type, u64::try_from(number).unwrap());
                queue.push(noise, Timestamp::UNIX_EPOCH, second(0));
            }
            queue.push(event("quiet", event_type, 0), Timestamp::UNIX_EPOCH, second(0));
            let turns = (namespaces.len() + 1) * usize::from(TURNS) + 1;
            let found = (0..turns)
                .filter_map(|_| queue.pop(second(0)).0)
                .any(|(event, _)| &*event.key.namespace == "quiet");
            prop_assert!(found, "not among the first {turns}");
        }
    }
}

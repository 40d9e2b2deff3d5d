//! Workloads whose next write waits for room among those under way: what it says is decided only when its turn comes,
//! on the newest object, so that no write is overtaken while it waits.
//!
//! The order: first what admits, evicts or ends, the more important Workload first, then whoever asked first; last those
//! in the queue, who can only be told why they wait.

use super::State;
use super::interface::Kind;
use crate::api::ObjectKey;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    waits: bool,
    priority: Reverse<i64>,
    number: u64,
}

/// The line.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    next: u64,
    line: BTreeMap<Rank, ObjectKey>,
    places: BTreeMap<ObjectKey, Rank>,
}

impl Turns {
    /// Lines a Workload up. One that stands there already keeps its time, wherever it belongs by now.
    fn push(&mut self, key: &ObjectKey, waits: bool, priority: i64) {
        let known = self.places.get(key).copied();
        let number = known.map_or(self.next, |rank| rank.number);
        let rank = Rank { waits, priority: Reverse(priority), number };
        if known == Some(rank) {
            return;
        }
        match known {
            Some(old) => drop(self.line.remove(&old)),
            None => self.next = self.next.saturating_add(1),
        }
        self.places.insert(key.clone(), rank);
        self.line.insert(rank, key.clone());
    }

    /// The first in the line.
    fn pop(&mut self) -> Option<ObjectKey> {
        let (_, key) = self.line.pop_first()?;
        self.places.remove(&key);
        Some(key)
    }

    /// The first of those who can only be told why they wait.
    fn waiting(&self) -> Option<&ObjectKey> {
        let first = Rank { waits: true, priority: Reverse(i64::MAX), number: 0 };
        self.line.range(first..).next().map(|(_, key)| key)
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(rank) = self.places.remove(key) {
            self.line.remove(&rank);
        }
    }

    /// Whether somebody stands in line who can only be told why it waits.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting().is_some()
    }

    /// Nobody stands in line any more.
    pub(super) fn clear(&mut self) {
        self.line.clear();
        self.places.clear();
    }
}

impl State {
    /// Lines a Workload up for its next write.
    pub(super) fn line_up(&mut self, key: &ObjectKey) {
        let own = || self.workloads.get(key).map_or(0, |record| i64::from(record.priority));
        // A victim goes for the sake of another.
        let preemptor = self.engine.preemption_of(key).and_then(|found| {
            let record = self.workloads.get(&found.preemptor)?;
            Some(i64::from(record.priority))
        });
        let waits = self.engine.workload(key).is_some() && !self.assumed.contains_key(key);
        self.turns.push(key, waits, preemptor.unwrap_or_else(own));
    }

    /// Takes the next steps of Workloads as long as there is room for their writes. One explanation may be under way
    /// besides: however much there is to write, those who wait are told why in the end.
    pub(super) fn take_turns(&mut self, now: Timestamp) {
        while self.writes.room(self.settings.status_writes_at_once) > 0 {
            let Some(key) = self.turns.pop() else { return };
            self.take_turn(&key, now);
        }
        while self.writes.explanations() == 0 {
            let Some(key) = self.turns.waiting().cloned() else { return };
            self.turns.remove(&key);
            self.take_turn(&key, now);
        }
    }

    fn take_turn(&mut self, key: &ObjectKey, now: Timestamp) {
        if self.writes.may_write(Kind::Workload, key, now) {
            self.step_workload(key, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_come_last_and_nobody_loses_time_by_asking_again() {
        let mut turns = Turns::default();
        let key = |name: &str| ObjectKey::new("ns", name);
        for (name, waits, priority) in
            [("told", true, 9), ("a", false, 0), ("b", false, 0), ("high", false, 5)]
        {
            turns.push(&key(name), waits, priority);
        }
        turns.push(&key("a"), false, 0);
        turns.push(&key("told"), false, 0);
        turns.push(&key("last"), true, 9);
        assert_eq!(turns.waiting(), Some(&key("last")));
        turns.remove(&key("last"));
        let order: Vec<_> = std::iter::from_fn(|| turns.pop()).map(|key| key.name.to_string()).collect();
        assert_eq!(order, ["high", "told", "a", "b"]);
        assert!(turns.places.is_empty());
    }
}

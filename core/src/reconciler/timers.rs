//! Timers: each item has one due time, the earliest that was requested.

use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Items with the time at which they are due.
#[derive(Clone, Debug)]
pub(crate) struct Timers<T> {
    queue: BTreeSet<(Timestamp, T)>,
    due: BTreeMap<T, Timestamp>,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { queue: BTreeSet::new(), due: BTreeMap::new() }
    }
}

impl<T: Clone + Ord> Timers<T> {
    /// Sets the due time of an item, unless it is already due earlier.
    pub(crate) fn wake(&mut self, item: T, at: Timestamp) {
        if let Some(before) = self.due.get(&item).copied() {
            if before <= at {
                return;
            }
            self.queue.remove(&(before, item.clone()));
        }
        self.due.insert(item.clone(), at);
        self.queue.insert((at, item));
    }

    /// Removes and returns the items that are due.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<T> {
        let mut items = Vec::new();
        while self.queue.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, item)) = self.queue.pop_first() else { break };
            self.due.remove(&item);
            items.push(item);
        }
        items
    }

    /// Returns all items with their due times, the earliest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Timestamp, &T)> {
        self.queue.iter().map(|(at, item)| (*at, item))
    }

    /// Returns the earliest due time.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.queue.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_time_per_item_wins() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let mut timers = Timers::default();
        timers.wake("a", at(5));
        timers.wake("a", at(3));
        timers.wake("a", at(9));
        timers.wake("b", at(4));
        assert_eq!(timers.next(), Some(at(3)));
        assert_eq!(timers.take_due(at(4)), ["a", "b"]);
        assert_eq!(timers.next(), None);
    }
}

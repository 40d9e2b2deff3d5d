//! Writes that tell and decide nothing: so many a second, and at most a second's worth at once.
//!
//! The status of queues and the reasons of those that wait share it, so that neither takes the API server's time from
//! admissions. Who comes too late is given a time of its own, one after the other.

use crate::api::ObjectKey;
use crate::lifecycle::backoff;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// What can be saved up.
const BURST: SignedDuration = SignedDuration::from_secs(1);

/// Least time between two turns.
const LEAST: SignedDuration = SignedDuration::from_millis(1);

/// How much may be told.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    /// Time that one write takes of it; none without a limit.
    each: Option<SignedDuration>,
    /// Until when it would be spent if nothing were saved up.
    spent_until: Timestamp,
    /// The latest time that was given to somebody.
    given_until: Timestamp,
    /// Times to come, and whose they are.
    given: BTreeMap<Timestamp, ObjectKey>,
    turns: BTreeMap<ObjectKey, Timestamp>,
}

impl Allowance {
    pub(super) fn new(per_second: Option<u32>) -> Self {
        let each = per_second.map(|number| {
            let number = i32::try_from(number.max(1)).unwrap_or(i32::MAX);
            SignedDuration::from_secs(1) / number
        });
        Self {
            each,
            spent_until: Timestamp::UNIX_EPOCH,
            given_until: Timestamp::UNIX_EPOCH,
            given: BTreeMap::new(),
            turns: BTreeMap::new(),
        }
    }

    /// Counts a write.
    pub(super) fn spend(&mut self, now: Timestamp) {
        if let Some(each) = self.each {
            self.spent_until = backoff::after(self.spent_until.max(now), each);
        }
    }

    /// When a write is within the allowance: now, or later.
    pub(super) fn free_at(&self, now: Timestamp) -> Timestamp {
        if self.each.is_none() {
            return now;
        }
        self.spent_until.checked_sub(BURST).map_or(now, |free| free.max(now))
    }

    /// When there will be room for one more.
    pub(super) fn next(&self, now: Timestamp) -> Timestamp {
        backoff::after(self.free_at(now), self.each.unwrap_or_default())
    }

    /// A time at which one that comes too late may try again; nobody else is given the same, and it keeps the one it has.
    pub(super) fn turn(&mut self, key: &ObjectKey, now: Timestamp) -> Timestamp {
        while let Some(over) = self.given.first_entry().filter(|entry| *entry.key() <= now) {
            self.turns.remove(&over.remove());
        }
        if let Some(turn) = self.turns.get(key) {
            return *turn;
        }
        let each = self.each.unwrap_or_default().max(LEAST);
        self.given_until = backoff::after(self.given_until.max(self.free_at(now)), each);
        self.given.insert(self.given_until, key.clone());
        self.turns.insert(key.clone(), self.given_until);
        self.given_until
    }

    /// Whether one was given a time that is still to come.
    pub(super) fn has_turn(&self, key: &ObjectKey, now: Timestamp) -> bool {
        self.turns.get(key).is_some_and(|turn| *turn > now)
    }

    /// How many writes are within the allowance now.
    pub(super) fn room(&self, now: Timestamp) -> usize {
        let Some(each) = self.each else { return usize::MAX };
        let saved = BURST - self.spent_until.duration_since(now).max(SignedDuration::ZERO);
        let number = saved.as_nanos().checked_div(each.as_nanos()).unwrap_or(0);
        usize::try_from(number).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_000_000 + millis).unwrap()
    }

    #[test]
    fn a_second_at_once_and_then_one_by_one() {
        let mut allowance = Allowance::new(Some(10));
        assert_eq!(allowance.room(at(0)), 10);
        for _ in 0..10 {
            assert_eq!(allowance.free_at(at(0)), at(0));
            allowance.spend(at(0));
        }
        assert_eq!((allowance.room(at(0)), allowance.free_at(at(0))), (0, at(0)));
        allowance.spend(at(0));
        assert_eq!(allowance.free_at(at(0)), at(100));
        let (a, b) = (ObjectKey::new("ns", "a"), ObjectKey::new("ns", "b"));
        assert_eq!((allowance.turn(&a, at(0)), allowance.turn(&b, at(0))), (at(200), at(300)));
        assert_eq!(allowance.turn(&a, at(150)), at(200), "who asks again keeps the turn that it has");
        assert_eq!(allowance.turn(&a, at(200)), at(400));
        assert_eq!((allowance.room(at(350)), allowance.free_at(at(350))), (2, at(350)));
        assert_eq!(Allowance::new(None).room(at(0)), usize::MAX);
    }
}

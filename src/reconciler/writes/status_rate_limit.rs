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
const MIN_SLOT_INTERVAL: SignedDuration = SignedDuration::from_millis(1);

/// How much may be told.
#[derive(Clone, Debug)]
pub(crate) struct StatusRateLimiter {
    /// Time that one write takes of it; none without a limit.
    interval: Option<SignedDuration>,
    /// Until when it would be spent if nothing were saved up.
    consumed_until: Timestamp,
    /// The latest time that was given to somebody.
    last_slot: Timestamp,
    /// Times to come, and whose they are.
    slots: BTreeMap<Timestamp, ObjectKey>,
    slot_by_key: BTreeMap<ObjectKey, Timestamp>,
}

impl StatusRateLimiter {
    pub(crate) fn new(per_second: Option<u32>) -> Self {
        let each = per_second.map(|number| {
            let number = i32::try_from(number.max(1)).unwrap_or(i32::MAX);
            SignedDuration::from_secs(1) / number
        });
        Self {
            interval: each,
            consumed_until: Timestamp::UNIX_EPOCH,
            last_slot: Timestamp::UNIX_EPOCH,
            slots: BTreeMap::new(),
            slot_by_key: BTreeMap::new(),
        }
    }

    /// Counts a write.
    pub(crate) fn consume(&mut self, now: Timestamp) {
        if let Some(each) = self.interval {
            self.consumed_until = backoff::after(self.consumed_until.max(now), each);
        }
    }

    /// When a write is within the allowance: now, or later.
    pub(crate) fn earliest(&self, now: Timestamp) -> Timestamp {
        if self.interval.is_none() {
            return now;
        }
        self.consumed_until.checked_sub(BURST).map_or(now, |free| free.max(now))
    }

    /// When there will be room for one more.
    pub(crate) fn next_available(&self, now: Timestamp) -> Timestamp {
        backoff::after(self.earliest(now), self.interval.unwrap_or_default())
    }

    /// A time at which one that comes too late may try again; nobody else is given the same, and it keeps the one it has.
    pub(crate) fn reserve_slot(&mut self, key: &ObjectKey, now: Timestamp) -> Timestamp {
        while let Some(over) = self.slots.first_entry().filter(|entry| *entry.key() <= now) {
            self.slot_by_key.remove(&over.remove());
        }
        if let Some(turn) = self.slot_by_key.get(key) {
            return *turn;
        }
        let each = self.interval.unwrap_or_default().max(MIN_SLOT_INTERVAL);
        self.last_slot = backoff::after(self.last_slot.max(self.earliest(now)), each);
        self.slots.insert(self.last_slot, key.clone());
        self.slot_by_key.insert(key.clone(), self.last_slot);
        self.last_slot
    }

    /// Whether one was given a time that is still to come.
    pub(crate) fn has_slot(&self, key: &ObjectKey, now: Timestamp) -> bool {
        self.slot_by_key.get(key).is_some_and(|turn| *turn > now)
    }

    /// How many writes are within the allowance now.
    pub(crate) fn available(&self, now: Timestamp) -> usize {
        let Some(each) = self.interval else { return usize::MAX };
        let saved = BURST - self.consumed_until.duration_since(now).max(SignedDuration::ZERO);
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
    fn rate_limiter_allows_burst_then_single_slots() {
        let mut allowance = StatusRateLimiter::new(Some(10));
        assert_eq!(allowance.available(at(0)), 10);
        for _ in 0..10 {
            assert_eq!(allowance.earliest(at(0)), at(0));
            allowance.consume(at(0));
        }
        assert_eq!((allowance.available(at(0)), allowance.earliest(at(0))), (0, at(0)));
        allowance.consume(at(0));
        assert_eq!(allowance.earliest(at(0)), at(100));
        let (a, b) = (ObjectKey::new("ns", "a"), ObjectKey::new("ns", "b"));
        assert_eq!(
            (allowance.reserve_slot(&a, at(0)), allowance.reserve_slot(&b, at(0))),
            (at(200), at(300))
        );
        assert_eq!(allowance.reserve_slot(&a, at(150)), at(200), "who asks again keeps the turn that it has");
        assert_eq!(allowance.reserve_slot(&a, at(200)), at(400));
        assert_eq!((allowance.available(at(350)), allowance.earliest(at(350))), (2, at(350)));
        assert_eq!(StatusRateLimiter::new(None).available(at(0)), usize::MAX);
    }
}

//! Writes that tell and decide nothing: so many a second, and at most a second's worth at once.
//!
//! The status of queues and the reasons of those that wait share it, so that neither takes the API server's time from
//! admissions. Who comes too late is given a time of its own, one after the other.

use crate::api::ObjectKey;
use crate::lifecycle::backoff;
use crate::lifecycle::token_bucket::TokenBucket;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// What can be saved up.
const BURST: SignedDuration = SignedDuration::from_secs(1);

/// Least time between two turns.
const MIN_SLOT_INTERVAL: SignedDuration = SignedDuration::from_millis(1);

/// How much may be told.
#[derive(Clone, Debug)]
pub(crate) struct StatusRateLimiter {
    /// One token per write; none without a limit.
    bucket: Option<TokenBucket>,
    /// The latest time that was given to somebody.
    last_slot: Timestamp,
    /// Times to come, and whose they are.
    slots: BTreeMap<Timestamp, ObjectKey>,
    slot_by_key: BTreeMap<ObjectKey, Timestamp>,
}

impl StatusRateLimiter {
    pub(crate) fn new(per_second: Option<u32>) -> Self {
        let bucket = per_second.map(|number| {
            let number = i32::try_from(number.max(1)).unwrap_or(i32::MAX);
            TokenBucket::new(SignedDuration::from_secs(1) / number, BURST)
        });
        Self {
            bucket,
            last_slot: Timestamp::UNIX_EPOCH,
            slots: BTreeMap::new(),
            slot_by_key: BTreeMap::new(),
        }
    }

    /// Counts a write.
    pub(crate) fn consume(&mut self, now: Timestamp) {
        if let Some(bucket) = &mut self.bucket {
            bucket.take(now.as_duration());
        }
    }

    /// When a write is within the allowance: now, or later.
    pub(crate) fn earliest(&self, now: Timestamp) -> Timestamp {
        self.bucket.as_ref().map_or(now, |bucket| backoff::after(now, bucket.wait(now.as_duration())))
    }

    /// When there will be room for one more.
    pub(crate) fn next_available(&self, now: Timestamp) -> Timestamp {
        backoff::after(self.earliest(now), self.interval())
    }

    /// A time at which one that comes too late may try again; nobody else is given the same, and it keeps the one it has.
    pub(crate) fn reserve_slot(&mut self, key: &ObjectKey, now: Timestamp) -> Timestamp {
        while let Some(over) = self.slots.first_entry().filter(|entry| *entry.key() <= now) {
            self.slot_by_key.remove(&over.remove());
        }
        if let Some(turn) = self.slot_by_key.get(key) {
            return *turn;
        }
        let each = self.interval().max(MIN_SLOT_INTERVAL);
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
        self.bucket.as_ref().map_or(usize::MAX, |bucket| bucket.covered(now.as_duration()))
    }

    fn interval(&self) -> SignedDuration {
        self.bucket.as_ref().map(TokenBucket::interval).unwrap_or_default()
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

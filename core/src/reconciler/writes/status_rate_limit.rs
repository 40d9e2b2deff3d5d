//! Rate limiter for low-priority status writes, with a burst of one second's tokens.
//!
//! Queue statuses and pending reasons share it, so that they do not delay admissions at the API server. A Workload over
//! the limit gets its own retry time (a slot); slots are one interval apart.

use crate::api::ObjectKey;
use crate::lifecycle::backoff;
use crate::lifecycle::token_bucket::TokenBucket;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// Duration of the rate that may be used at once.
const BURST: SignedDuration = SignedDuration::from_secs(1);

/// Minimum time between two slots.
const MIN_SLOT_INTERVAL: SignedDuration = SignedDuration::from_millis(1);

/// Rate limiter for queue statuses and pending reasons.
#[derive(Clone, Debug)]
pub(crate) struct StatusRateLimiter {
    /// One token per write; `None` if there is no limit.
    bucket: Option<TokenBucket>,
    /// The latest slot that was reserved.
    last_slot: Timestamp,
    /// Reserved slots and their Workloads.
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

    /// Returns when a token is available: now or later.
    pub(crate) fn earliest(&self, now: Timestamp) -> Timestamp {
        self.bucket.as_ref().map_or(now, |bucket| backoff::after(now, bucket.wait(now.as_duration())))
    }

    /// Returns the time one interval after a token is available.
    pub(crate) fn next_available(&self, now: Timestamp) -> Timestamp {
        backoff::after(self.earliest(now), self.interval())
    }

    /// Returns the retry time of a Workload over the limit. No two Workloads get the same time, and a Workload keeps
    /// the time that it has until it has passed.
    pub(crate) fn reserve_slot(&mut self, key: &ObjectKey, now: Timestamp) -> Timestamp {
        while let Some(expired) = self.slots.first_entry().filter(|entry| *entry.key() <= now) {
            self.slot_by_key.remove(&expired.remove());
        }
        if let Some(slot) = self.slot_by_key.get(key) {
            return *slot;
        }
        let interval = self.interval().max(MIN_SLOT_INTERVAL);
        self.last_slot = backoff::after(self.last_slot.max(self.earliest(now)), interval);
        self.slots.insert(self.last_slot, key.clone());
        self.slot_by_key.insert(key.clone(), self.last_slot);
        self.last_slot
    }

    /// Returns whether a Workload has a slot in the future.
    pub(crate) fn has_slot(&self, key: &ObjectKey, now: Timestamp) -> bool {
        self.slot_by_key.get(key).is_some_and(|slot| *slot > now)
    }

    /// Returns how many tokens are available now.
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
        let mut rate_limiter = StatusRateLimiter::new(Some(10));
        assert_eq!(rate_limiter.available(at(0)), 10);
        for _ in 0..10 {
            assert_eq!(rate_limiter.earliest(at(0)), at(0));
            rate_limiter.consume(at(0));
        }
        assert_eq!((rate_limiter.available(at(0)), rate_limiter.earliest(at(0))), (0, at(0)));
        rate_limiter.consume(at(0));
        assert_eq!(rate_limiter.earliest(at(0)), at(100));
        let (a, b) = (ObjectKey::new("ns", "a"), ObjectKey::new("ns", "b"));
        assert_eq!(
            (rate_limiter.reserve_slot(&a, at(0)), rate_limiter.reserve_slot(&b, at(0))),
            (at(200), at(300))
        );
        assert_eq!(rate_limiter.reserve_slot(&a, at(150)), at(200), "a Workload keeps the slot that it has");
        assert_eq!(rate_limiter.reserve_slot(&a, at(200)), at(400));
        assert_eq!((rate_limiter.available(at(350)), rate_limiter.earliest(at(350))), (2, at(350)));
        assert_eq!(StatusRateLimiter::new(None).available(at(0)), usize::MAX);
    }
}

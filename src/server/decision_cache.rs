//! Cache of the API server's decisions about requests with bearer tokens.
//!
//! Invariants: time is an argument; only digests of tokens are stored; both tables are bounded, and denied tokens cannot
//! displace an allowed one.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sha2::{Digest, Sha256};

/// How long an allowed token is not reviewed again.
const ALLOWED_TTL: Duration = Duration::from_mins(1);
/// How long a denied token is not reviewed again: shorter, because access may just have been granted.
const DENIED_TTL: Duration = Duration::from_secs(10);
/// How long a token allowed before is reviewed with priority over unknown tokens.
const RECENTLY_ALLOWED_TTL: Duration = Duration::from_hours(1);
/// Maximum number of allowed tokens; service accounts renew theirs about once an hour.
const MAX_ALLOWED: usize = 256;
/// Maximum number of denied tokens.
const MAX_DENIED: usize = 4096;

/// SHA-256 of a token with the verb and the path that it is used for.
pub(super) type RequestDigest = [u8; 32];

pub(super) fn request_digest(token: &str, verb: &str, path: &str) -> RequestDigest {
    // No part contains a line break: tokens come from a header.
    Sha256::digest(format!("{verb}\n{path}\n{token}").as_bytes()).into()
}

/// The API server's decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessDecision {
    /// The request is permitted.
    Allowed,
    /// The token is valid and does not permit it.
    Forbidden,
    /// The token is not valid.
    Unauthenticated,
}

/// The cached decision about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachedDecision {
    /// A decision that is still valid.
    Decided(AccessDecision),
    /// Allowed before; must be reviewed again.
    RecentlyAllowed,
    /// No decision is cached.
    Unknown,
}

/// Decisions with the time at which they were made.
#[derive(Debug)]
pub(super) struct DecisionCache {
    allowed_ttl: Duration,
    allowed: BTreeMap<RequestDigest, Duration>,
    denied: BTreeMap<RequestDigest, (AccessDecision, Duration)>,
    /// Denied tokens, oldest first.
    denied_by_age: VecDeque<(RequestDigest, Duration)>,
}

impl Default for DecisionCache {
    fn default() -> Self {
        Self::with_allowed_ttl(ALLOWED_TTL)
    }
}

impl DecisionCache {
    /// Returns a cache in which allowed requests are not reviewed again for this time.
    pub(super) fn with_allowed_ttl(allowed_ttl: Duration) -> Self {
        Self {
            allowed_ttl,
            allowed: BTreeMap::new(),
            denied: BTreeMap::new(),
            denied_by_age: VecDeque::new(),
        }
    }

    /// Returns the cached decision about a token at `now`.
    pub(super) fn get(&self, token: &RequestDigest, now: Duration) -> CachedDecision {
        if let Some(decided_at) = self.allowed.get(token) {
            match now.saturating_sub(*decided_at) {
                age if age < self.allowed_ttl => return CachedDecision::Decided(AccessDecision::Allowed),
                age if age < RECENTLY_ALLOWED_TTL => return CachedDecision::RecentlyAllowed,
                _ => {}
            }
        }
        match self.denied.get(token) {
            Some((decision, decided_at)) if now.saturating_sub(*decided_at) < DENIED_TTL => {
                CachedDecision::Decided(*decision)
            }
            _ => CachedDecision::Unknown,
        }
    }

    /// Stores a decision made at `now`.
    pub(super) fn insert(&mut self, token: RequestDigest, decision: AccessDecision, now: Duration) {
        if decision == AccessDecision::Allowed {
            self.denied.remove(&token);
            self.allowed.insert(token, now);
            if self.allowed.len() > MAX_ALLOWED
                && let Some(oldest) =
                    self.allowed.iter().min_by_key(|(_, decided_at)| **decided_at).map(|(token, _)| *token)
            {
                self.allowed.remove(&oldest);
            }
            return;
        }
        self.allowed.remove(&token);
        self.denied.insert(token, (decision, now));
        self.denied_by_age.push_back((token, now));
        let is_expired =
            |(_, decided_at): &(RequestDigest, Duration)| now.saturating_sub(*decided_at) >= DENIED_TTL;
        while self.denied_by_age.front().is_some_and(is_expired) || self.denied_by_age.len() > MAX_DENIED {
            let Some((token, decided_at)) = self.denied_by_age.pop_front() else { break };
            // A newer decision about the same token stays.
            if self.denied.get(&token).is_some_and(|(_, newest)| *newest == decided_at) {
                self.denied.remove(&token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_digest(token: &str) -> RequestDigest {
        request_digest(token, "get", "/metrics")
    }

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn cached_decision_lifetime_depends_on_decision() {
        let mut cache = DecisionCache::default();
        let (good, bad) = (token_digest("good"), token_digest("bad"));
        cache.insert(good, AccessDecision::Allowed, at(0));
        cache.insert(bad, AccessDecision::Unauthenticated, at(0));
        for (token, secs, expected) in [
            (good, 59, CachedDecision::Decided(AccessDecision::Allowed)),
            (good, 60, CachedDecision::RecentlyAllowed),
            (good, 3599, CachedDecision::RecentlyAllowed),
            (good, 3600, CachedDecision::Unknown),
            (bad, 9, CachedDecision::Decided(AccessDecision::Unauthenticated)),
            (bad, 10, CachedDecision::Unknown),
            (token_digest("other"), 0, CachedDecision::Unknown),
        ] {
            assert_eq!(cache.get(&token, at(secs)), expected, "after {secs} s");
        }
        cache.insert(good, AccessDecision::Forbidden, at(61));
        assert_eq!(cache.get(&good, at(62)), CachedDecision::Decided(AccessDecision::Forbidden));
        cache.insert(good, AccessDecision::Allowed, at(80));
        assert_eq!(cache.get(&good, at(81)), CachedDecision::Decided(AccessDecision::Allowed));
        for other in
            [request_digest("good", "put", "/metrics"), request_digest("good", "get", "/debug/state")]
        {
            assert_eq!(
                cache.get(&other, at(81)),
                CachedDecision::Unknown,
                "a decision is about one verb and path"
            );
        }
    }

    #[test]
    fn tables_are_bounded_and_keep_allowed_tokens() {
        let mut cache = DecisionCache::default();
        cache.insert(token_digest("good"), AccessDecision::Allowed, at(0));
        for number in 0..50_000_u64 {
            cache.insert(
                token_digest(&format!("junk {number}")),
                AccessDecision::Unauthenticated,
                at(number / 10_000),
            );
        }
        assert!(cache.denied.len() <= MAX_DENIED && cache.denied_by_age.len() <= MAX_DENIED);
        assert_eq!(cache.get(&token_digest("good"), at(5)), CachedDecision::Decided(AccessDecision::Allowed));
        for number in 0..1_000_u64 {
            cache.insert(token_digest(&format!("good {number}")), AccessDecision::Allowed, at(number));
        }
        assert_eq!(cache.allowed.len(), MAX_ALLOWED);
        // Repeated decisions about one token take one entry.
        for second in 0..10_000 {
            cache.insert(token_digest("again"), AccessDecision::Unauthenticated, at(second));
        }
        assert!(cache.denied_by_age.len() <= 11 && cache.denied.len() <= 11, "expired decisions are removed");
    }
}

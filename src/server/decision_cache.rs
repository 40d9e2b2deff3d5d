//! What the API server said about tokens, for a while.
//!
//! Invariants: time is an argument; a digest is kept, never a token; both tables are bounded, and tokens that are refused
//! cannot displace one that is allowed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sha2::{Digest, Sha256};

/// How long an allowed token is not asked about again.
const ALLOWED_TTL: Duration = Duration::from_mins(1);
/// How long a refused token is not asked about again: shorter, because a right may just have been granted.
const DENIED_TTL: Duration = Duration::from_secs(10);
/// How long a token that was allowed goes before tokens that were not.
const RECENTLY_ALLOWED_TTL: Duration = Duration::from_hours(1);
/// Tokens that are allowed; service accounts renew theirs about once an hour.
const MAX_ALLOWED: usize = 256;
/// Tokens that are refused.
const MAX_DENIED: usize = 4096;

/// A token, as far as it is kept.
pub(super) type TokenDigest = [u8; 32];

/// The digest of a token.
pub(super) fn token_digest(token: &str) -> TokenDigest {
    Sha256::digest(token.as_bytes()).into()
}

/// What the API server says about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessDecision {
    /// It may read the metrics.
    Allowed,
    /// It is valid and may not.
    Forbidden,
    /// It is not valid.
    Unauthenticated,
}

/// What is known of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachedDecision {
    /// The answer.
    Decided(AccessDecision),
    /// It was allowed lately; whether it still is must be asked.
    RecentlyAllowed,
    /// Nothing.
    Unknown,
}

/// Answers with the time at which they were given.
#[derive(Debug, Default)]
pub(super) struct DecisionCache {
    allowed: BTreeMap<TokenDigest, Duration>,
    denied: BTreeMap<TokenDigest, (AccessDecision, Duration)>,
    /// Those that are refused, the oldest first.
    denied_by_age: VecDeque<(TokenDigest, Duration)>,
}

impl DecisionCache {
    /// What is known of a token now.
    pub(super) fn get(&self, token: &TokenDigest, now: Duration) -> CachedDecision {
        if let Some(at) = self.allowed.get(token) {
            match now.saturating_sub(*at) {
                age if age < ALLOWED_TTL => return CachedDecision::Decided(AccessDecision::Allowed),
                age if age < RECENTLY_ALLOWED_TTL => return CachedDecision::RecentlyAllowed,
                _ => {}
            }
        }
        match self.denied.get(token) {
            Some((verdict, at)) if now.saturating_sub(*at) < DENIED_TTL => CachedDecision::Decided(*verdict),
            _ => CachedDecision::Unknown,
        }
    }

    /// Keeps an answer.
    pub(super) fn insert(&mut self, token: TokenDigest, verdict: AccessDecision, now: Duration) {
        if verdict == AccessDecision::Allowed {
            self.denied.remove(&token);
            self.allowed.insert(token, now);
            if self.allowed.len() > MAX_ALLOWED
                && let Some(oldest) = self.allowed.iter().min_by_key(|(_, at)| **at).map(|(token, _)| *token)
            {
                self.allowed.remove(&oldest);
            }
            return;
        }
        self.allowed.remove(&token);
        self.denied.insert(token, (verdict, now));
        self.denied_by_age.push_back((token, now));
        let over = |(_, at): &(TokenDigest, Duration)| now.saturating_sub(*at) >= DENIED_TTL;
        while self.denied_by_age.front().is_some_and(over) || self.denied_by_age.len() > MAX_DENIED {
            let Some((token, at)) = self.denied_by_age.pop_front() else { break };
            // A newer answer about the same token stays.
            if self.denied.get(&token).is_some_and(|(_, newest)| *newest == at) {
                self.denied.remove(&token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn cached_decision_lifetime_depends_on_decision() {
        let mut verdicts = DecisionCache::default();
        let (good, bad) = (token_digest("good"), token_digest("bad"));
        verdicts.insert(good, AccessDecision::Allowed, at(0));
        verdicts.insert(bad, AccessDecision::Unauthenticated, at(0));
        for (token, secs, known) in [
            (good, 59, CachedDecision::Decided(AccessDecision::Allowed)),
            (good, 60, CachedDecision::RecentlyAllowed),
            (good, 3599, CachedDecision::RecentlyAllowed),
            (good, 3600, CachedDecision::Unknown),
            (bad, 9, CachedDecision::Decided(AccessDecision::Unauthenticated)),
            (bad, 10, CachedDecision::Unknown),
            (token_digest("other"), 0, CachedDecision::Unknown),
        ] {
            assert_eq!(verdicts.get(&token, at(secs)), known, "after {secs} s");
        }
        verdicts.insert(good, AccessDecision::Forbidden, at(61));
        assert_eq!(verdicts.get(&good, at(62)), CachedDecision::Decided(AccessDecision::Forbidden));
        verdicts.insert(good, AccessDecision::Allowed, at(80));
        assert_eq!(verdicts.get(&good, at(81)), CachedDecision::Decided(AccessDecision::Allowed));
    }

    #[test]
    fn tables_are_bounded_and_keep_allowed_tokens() {
        let mut verdicts = DecisionCache::default();
        verdicts.insert(token_digest("good"), AccessDecision::Allowed, at(0));
        for number in 0..50_000_u64 {
            verdicts.insert(
                token_digest(&format!("junk {number}")),
                AccessDecision::Unauthenticated,
                at(number / 10_000),
            );
        }
        assert!(verdicts.denied.len() <= MAX_DENIED && verdicts.denied_by_age.len() <= MAX_DENIED);
        assert_eq!(
            verdicts.get(&token_digest("good"), at(5)),
            CachedDecision::Decided(AccessDecision::Allowed)
        );
        for number in 0..1_000_u64 {
            verdicts.insert(token_digest(&format!("good {number}")), AccessDecision::Allowed, at(number));
        }
        assert_eq!(verdicts.allowed.len(), MAX_ALLOWED);
        // The same token again and again takes one place.
        for second in 0..10_000 {
            verdicts.insert(token_digest("again"), AccessDecision::Unauthenticated, at(second));
        }
        assert!(verdicts.denied_by_age.len() <= 11 && verdicts.denied.len() <= 11, "what is over goes");
    }
}

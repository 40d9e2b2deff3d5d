//! What the API server said about tokens, for a while.
//!
//! Invariants: time is an argument; a digest is kept, never a token; both tables are bounded, and tokens that are refused
//! cannot displace one that is allowed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sha2::{Digest, Sha256};

/// How long an allowed token is not asked about again.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
/// How long a refused token is not asked about again: shorter, because a right may just have been granted.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How long a token that was allowed goes before tokens that were not.
const FAMILIAR_FOR: Duration = Duration::from_hours(1);
/// Tokens that are allowed; service accounts renew theirs about once an hour.
const ALLOWED: usize = 256;
/// Tokens that are refused.
const REFUSED: usize = 4096;

/// A token, as far as it is kept.
pub(super) type TokenDigest = [u8; 32];

/// The digest of a token.
pub(super) fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token.as_bytes()).into()
}

/// What the API server says about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may read the metrics.
    Allowed,
    /// It is valid and may not.
    Forbidden,
    /// It is not valid.
    Unknown,
}

/// What is known of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The answer.
    Verdict(Verdict),
    /// It was allowed lately; whether it still is must be asked.
    Familiar,
    /// Nothing.
    Nothing,
}

/// Answers with the time at which they were given.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    allowed: BTreeMap<TokenDigest, Duration>,
    refused: BTreeMap<TokenDigest, (Verdict, Duration)>,
    /// Those that are refused, the oldest first.
    oldest: VecDeque<(TokenDigest, Duration)>,
}

impl Verdicts {
    /// What is known of a token now.
    pub(super) fn look(&self, token: &TokenDigest, now: Duration) -> Known {
        if let Some(at) = self.allowed.get(token) {
            match now.saturating_sub(*at) {
                age if age < ALLOWED_FOR => return Known::Verdict(Verdict::Allowed),
                age if age < FAMILIAR_FOR => return Known::Familiar,
                _ => {}
            }
        }
        match self.refused.get(token) {
            Some((verdict, at)) if now.saturating_sub(*at) < REFUSED_FOR => Known::Verdict(*verdict),
            _ => Known::Nothing,
        }
    }

    /// Keeps an answer.
    pub(super) fn store(&mut self, token: TokenDigest, verdict: Verdict, now: Duration) {
        if verdict == Verdict::Allowed {
            self.refused.remove(&token);
            self.allowed.insert(token, now);
            if self.allowed.len() > ALLOWED
                && let Some(oldest) = self.allowed.iter().min_by_key(|(_, at)| **at).map(|(token, _)| *token)
            {
                self.allowed.remove(&oldest);
            }
            return;
        }
        self.allowed.remove(&token);
        self.refused.insert(token, (verdict, now));
        self.oldest.push_back((token, now));
        let over = |(_, at): &(TokenDigest, Duration)| now.saturating_sub(*at) >= REFUSED_FOR;
        while self.oldest.front().is_some_and(over) || self.oldest.len() > REFUSED {
            let Some((token, at)) = self.oldest.pop_front() else { break };
            // A newer answer about the same token stays.
            if self.refused.get(&token).is_some_and(|(_, newest)| *newest == at) {
                self.refused.remove(&token);
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
    fn answers_last_as_long_as_they_may() {
        let mut verdicts = Verdicts::default();
        let (good, bad) = (digest("good"), digest("bad"));
        verdicts.store(good, Verdict::Allowed, at(0));
        verdicts.store(bad, Verdict::Unknown, at(0));
        for (token, secs, known) in [
            (good, 59, Known::Verdict(Verdict::Allowed)),
            (good, 60, Known::Familiar),
            (good, 3599, Known::Familiar),
            (good, 3600, Known::Nothing),
            (bad, 9, Known::Verdict(Verdict::Unknown)),
            (bad, 10, Known::Nothing),
            (digest("other"), 0, Known::Nothing),
        ] {
            assert_eq!(verdicts.look(&token, at(secs)), known, "after {secs} s");
        }
        verdicts.store(good, Verdict::Forbidden, at(61));
        assert_eq!(verdicts.look(&good, at(62)), Known::Verdict(Verdict::Forbidden));
        verdicts.store(good, Verdict::Allowed, at(80));
        assert_eq!(verdicts.look(&good, at(81)), Known::Verdict(Verdict::Allowed));
    }

    #[test]
    fn tables_are_bounded_and_junk_displaces_no_good_token() {
        let mut verdicts = Verdicts::default();
        verdicts.store(digest("good"), Verdict::Allowed, at(0));
        for number in 0..50_000_u64 {
            verdicts.store(digest(&format!("junk {number}")), Verdict::Unknown, at(number / 10_000));
        }
        assert!(verdicts.refused.len() <= REFUSED && verdicts.oldest.len() <= REFUSED);
        assert_eq!(verdicts.look(&digest("good"), at(5)), Known::Verdict(Verdict::Allowed));
        for number in 0..1_000_u64 {
            verdicts.store(digest(&format!("good {number}")), Verdict::Allowed, at(number));
        }
        assert_eq!(verdicts.allowed.len(), ALLOWED);
        // The same token again and again takes one place.
        for second in 0..10_000 {
            verdicts.store(digest("again"), Verdict::Unknown, at(second));
        }
        assert!(verdicts.oldest.len() <= 11 && verdicts.refused.len() <= 11, "what is over goes");
    }
}

//! Permissions of users: the API server decides, by a SubjectAccessReview.
//!
//! Invariants: a decision is used for ten seconds at most, for exactly the user and request that it was made for; the reviews
//! have a rate of their own, so that users cannot slow down the scheduler's writes; a failed review grants nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::front_proxy::User;
use super::group::ResourcePath;
use crate::kube::client::{CallError, Caller, Rate};

/// How long a decision is used: as in API servers that delegate.
const DECISION_TTL: Duration = Duration::from_secs(10);
/// Most decisions that are kept.
const MAX_DECISIONS: usize = 4_096;
/// Rate of reviews.
const REVIEW_RATE: Rate = Rate { per_second: 50.0, burst: 100.0 };
/// Most requests that wait for a review.
const MAX_WAITING: usize = 128;

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccessError {
    #[error("too many requests wait for an access review")]
    TooManyWaiting,
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Asks the API server.
#[derive(Clone)]
pub struct AccessReviewer {
    caller: Caller,
    waiting: Arc<Semaphore>,
    decisions: Arc<Mutex<Decisions>>,
    origin: Instant,
}

/// Decisions by digest of user and request, with their time.
#[derive(Debug, Default)]
struct Decisions(BTreeMap<[u8; 32], (bool, Duration)>);

impl Decisions {
    fn get(&self, digest: &[u8; 32], now: Duration) -> Option<bool> {
        let (allowed, at) = self.0.get(digest)?;
        (now.saturating_sub(*at) < DECISION_TTL).then_some(*allowed)
    }

    fn insert(&mut self, digest: [u8; 32], allowed: bool, now: Duration) {
        if self.0.len() >= MAX_DECISIONS {
            self.0.retain(|_, (_, at)| now.saturating_sub(*at) < DECISION_TTL);
        }
        if self.0.len() >= MAX_DECISIONS {
            // All decisions are recent. Without them the next requests are reviewed again.
            self.0.clear();
        }
        self.0.insert(digest, (allowed, now));
    }
}

impl AccessReviewer {
    /// Returns a reviewer that uses this caller's client with its own rate limit.
    pub fn new(caller: &Caller) -> Self {
        Self {
            caller: caller.clone().with_rate(Some(REVIEW_RATE)),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            decisions: Arc::default(),
            origin: Instant::now(),
        }
    }

    /// Returns whether a user may do this.
    pub(super) async fn allows(
        &self,
        user: &User,
        verb: &str,
        path: &ResourcePath,
    ) -> Result<bool, AccessError> {
        let mut spec = json!(user);
        if let Value::Object(fields) = &mut spec {
            let attributes = json!({
                "group": path.group, "version": path.version, "resource": path.resource,
                "subresource": path.subresource, "namespace": path.namespace, "name": path.name, "verb": verb,
            });
            fields.insert("resourceAttributes".into(), attributes);
        }
        let digest: [u8; 32] = Sha256::digest(spec.to_string().as_bytes()).into();
        let decisions = || self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(allowed) = decisions().get(&digest, self.origin.elapsed()) {
            return Ok(allowed);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| AccessError::TooManyWaiting)?;
        let review =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let response =
            self.caller.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?;
        let allowed = response.pointer("/status/allowed") == Some(&Value::Bool(true));
        decisions().insert(digest, allowed, self.origin.elapsed());
        Ok(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_end_and_are_bounded() {
        let at = Duration::from_secs;
        let mut decisions = Decisions::default();
        decisions.insert([1; 32], true, at(0));
        decisions.insert([2; 32], false, at(5));
        assert_eq!(decisions.get(&[1; 32], at(9)), Some(true));
        assert_eq!(decisions.get(&[1; 32], at(10)), None);
        assert_eq!(decisions.get(&[2; 32], at(14)), Some(false));
        for number in 0..20_000_u64 {
            let digest: [u8; 32] = Sha256::digest(number.to_le_bytes()).into();
            decisions.insert(digest, true, at(number / 1_000));
            assert!(decisions.0.len() <= MAX_DECISIONS);
            assert_eq!(decisions.get(&digest, at(number / 1_000)), Some(true));
        }
    }
}

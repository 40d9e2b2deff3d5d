//! The user of a bearer token and that user's rights, as reviewed by the API server.
//!
//! Invariants: only digests of tokens are stored; tables are bounded; reviews of tokens that were never valid have a queue and
//! a rate of their own, so that they delay no user; a failed review grants nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::apis::front_proxy::User;
use super::authorizer::{MAX_TOKEN_BYTES, ReviewError, ReviewQueue, UNKNOWN_TOKEN_RATE};
use super::decision_cache::{self, AccessDecision, CachedDecision, DecisionCache, RequestDigest};
use crate::kube::client::{Caller, Rate};

/// Rate of reviews of users whose token was valid before.
const USER_RATE: Rate = Rate { per_second: 50.0, burst: 100.0 };
/// How long a review is used. Together with the interval at which streams ask for reviews, a removed role ends streams within a
/// minute.
const ALLOWED_TTL: Duration = Duration::from_secs(40);
/// How long after a valid review the reviews of a token have priority.
const KNOWN_TTL: Duration = Duration::from_hours(1);
/// Most users that are remembered.
const MAX_USERS: usize = 1_024;

/// Why there is no review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoReview {
    /// Too many reviews wait.
    TooMany,
    /// The API server does not answer.
    Failed,
}

impl From<ReviewError> for NoReview {
    fn from(error: ReviewError) -> Self {
        match error {
            ReviewError::TooManyWaiting => Self::TooMany,
            ReviewError::Call(error) => {
                tracing::warn!(%error, "access review failed");
                Self::Failed
            }
        }
    }
}

/// A right to list a resource of an aggregated API group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRight<'a> {
    /// API group.
    pub group: &'a str,
    /// Resource.
    pub resource: &'a str,
    /// Namespace; empty for the cluster.
    pub namespace: &'a str,
}

/// A right to objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right<'a> {
    /// Verb of the API.
    pub verb: &'a str,
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Version of the group.
    pub version: &'a str,
    /// Resource.
    pub resource: &'a str,
    /// Namespace; empty for the cluster.
    pub namespace: &'a str,
    /// Name of the object; empty for all.
    pub name: &'a str,
}

/// Users by token, with the time of their last review.
#[derive(Debug, Default)]
struct Users(BTreeMap<RequestDigest, (Arc<User>, Duration)>);

impl Users {
    /// Returns the user of a token that need not be reviewed at `now`.
    fn current(&self, token: &RequestDigest, now: Duration) -> Option<Arc<User>> {
        let (user, at) = self.0.get(token)?;
        (now.saturating_sub(*at) < ALLOWED_TTL).then(|| Arc::clone(user))
    }

    fn is_known(&self, token: &RequestDigest, now: Duration) -> bool {
        self.0.get(token).is_some_and(|(_, at)| now.saturating_sub(*at) < KNOWN_TTL)
    }

    fn insert(&mut self, token: RequestDigest, user: Arc<User>, now: Duration) {
        self.0.insert(token, (user, now));
        if self.0.len() > MAX_USERS
            && let Some(oldest) = self.0.iter().min_by_key(|(_, (_, at))| *at).map(|(token, _)| *token)
        {
            self.0.remove(&oldest);
        }
    }
}

/// Reviews tokens and rights.
#[derive(Clone)]
pub struct UserAuthorizer {
    unknown_tokens: ReviewQueue,
    users: ReviewQueue,
    /// Required audience of tokens; empty for that of the API server.
    audience: Arc<str>,
    known: Arc<Mutex<Users>>,
    decisions: Arc<Mutex<DecisionCache>>,
    origin: Instant,
}

impl UserAuthorizer {
    /// Returns a reviewer that uses this caller's client with its own rate limits.
    pub fn new(caller: &Caller, audience: &str) -> Self {
        Self {
            unknown_tokens: ReviewQueue::new(caller.clone(), UNKNOWN_TOKEN_RATE),
            users: ReviewQueue::new(caller.clone(), USER_RATE),
            audience: audience.into(),
            known: Arc::default(),
            decisions: Arc::new(Mutex::new(DecisionCache::with_allowed_ttl(ALLOWED_TTL))),
            origin: Instant::now(),
        }
    }

    /// Returns the required audience of tokens.
    pub fn audience(&self) -> &str {
        &self.audience
    }

    fn cached(&self, digest: &RequestDigest) -> CachedDecision {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).get(digest, self.origin.elapsed())
    }

    fn decide(&self, digest: RequestDigest, decision: AccessDecision) {
        let now = self.origin.elapsed();
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, decision, now);
    }

    /// Returns the user of a token, or `None` if the token is not valid.
    ///
    /// # Errors
    /// There is no review.
    pub async fn identify(&self, token: &str) -> Result<Option<Arc<User>>, NoReview> {
        if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
            return Ok(None);
        }
        let digest = decision_cache::request_digest(token, "authenticate", "");
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(user) = known().current(&digest, self.origin.elapsed()) {
            return Ok(Some(user));
        }
        if let CachedDecision::Decided(_) = self.cached(&digest) {
            return Ok(None);
        }
        let is_known = known().is_known(&digest, self.origin.elapsed());
        let queue = if is_known { &self.users } else { &self.unknown_tokens };
        let mut review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        if !self.audience.is_empty()
            && let Some(Value::Object(spec)) = review.get_mut("spec")
        {
            spec.insert("audiences".to_owned(), json!([&*self.audience]));
        }
        let decided = || match known().current(&digest, self.origin.elapsed()) {
            Some(user) => Some(Some(user)),
            None => matches!(self.cached(&digest), CachedDecision::Decided(_)).then_some(None),
        };
        let read = |response: &Value| self.user_of(response).map(Arc::new);
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let user = queue.review(path, &review, (decided, read)).await?;
        if let Some(user) = &user {
            known().insert(digest, Arc::clone(user), self.origin.elapsed());
        } else {
            known().0.remove(&digest);
            self.decide(digest, AccessDecision::Unauthenticated);
        }
        Ok(user)
    }

    /// Reads a TokenReview. If the API server does not support audiences, the token is accepted only for the API server's own
    /// audience.
    fn user_of(&self, response: &Value) -> Option<User> {
        let status = response.get("status")?;
        let audiences = status.get("audiences").and_then(Value::as_array);
        let for_us = self.audience.is_empty()
            || audiences.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(&*self.audience)));
        if status.get("authenticated") != Some(&Value::Bool(true)) || !for_us {
            return None;
        }
        let user = status.get("user")?;
        let text = |field: &str| user.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let read = |field: &str| user.get(field).cloned().unwrap_or_default();
        Some(User {
            name: text("username"),
            uid: text("uid"),
            groups: serde_json::from_value(read("groups")).unwrap_or_default(),
            extra: serde_json::from_value(read("extra")).unwrap_or_default(),
        })
    }

    /// Returns whether the user of a token may list objects.
    ///
    /// # Errors
    /// There is no review.
    pub async fn may_list(&self, token: &str, user: &User, right: ListRight<'_>) -> Result<bool, NoReview> {
        let ListRight { group, resource, namespace } = right;
        let listed = Right { verb: "list", group, version: "v1alpha1", resource, namespace, name: "" };
        self.may(token, user, listed).await
    }

    /// Returns whether the user of a token has a right.
    ///
    /// # Errors
    /// There is no review.
    pub async fn may(&self, token: &str, user: &User, right: Right<'_>) -> Result<bool, NoReview> {
        let Right { verb, group, version, resource, namespace, name } = right;
        let path = format!("{group}/{resource}/{namespace}/{name}");
        let digest = decision_cache::request_digest(token, verb, &path);
        let decided = || match self.cached(&digest) {
            CachedDecision::Decided(decision) => Some(decision == AccessDecision::Allowed),
            CachedDecision::RecentlyAllowed | CachedDecision::Unknown => None,
        };
        if let Some(allowed) = decided() {
            return Ok(allowed);
        }
        let mut spec = json!(user);
        if let Value::Object(fields) = &mut spec {
            let attributes = json!({
                "group": group, "version": version, "resource": resource, "namespace": namespace, "name": name, "verb": verb,
            });
            fields.insert("resourceAttributes".to_owned(), attributes);
        }
        let review =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let read = |response: &Value| response.pointer("/status/allowed") == Some(&Value::Bool(true));
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let allowed = self.users.review(path, &review, (decided, read)).await?;
        self.decide(digest, if allowed { AccessDecision::Allowed } else { AccessDecision::Forbidden });
        Ok(allowed)
    }
}

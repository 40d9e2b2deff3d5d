//! Lets only authorized clients read metrics and debug endpoints: their bearer token must permit the verb on the path.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use http::header::AUTHORIZATION;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::decision_cache::{self, AccessDecision, CachedDecision, DecisionCache, RequestDigest};
use super::webhooks::status_response;
use crate::kube::client::{CallError, Caller, Rate};

/// Rate of reviews of unknown tokens.
pub(super) const UNKNOWN_TOKEN_RATE: Rate = Rate { per_second: 10.0, burst: 20.0 };
/// Rate of reviews of recently allowed tokens.
const KNOWN_TOKEN_RATE: Rate = Rate { per_second: 5.0, burst: 10.0 };
/// Maximum number of waiting requests: at the rates above none waits longer than a scrape may take.
const MAX_WAITING: usize = 64;
/// Maximum number of concurrent reviews. Bounds the load that unauthenticated clients cause at the API server.
const MAX_CONCURRENT_REVIEWS: usize = 4;
/// Maximum length of a token in bytes; tokens of service accounts have about a thousand.
pub(super) const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Authenticates and authorizes clients with the API server, and caches the decisions.
///
/// Its calls have their own rate limits, so that invalid tokens cannot slow down the scheduler's writes. Recently allowed
/// tokens have a limit that other tokens cannot exhaust; all others wait in one queue, in order of arrival.
#[derive(Clone)]
pub struct Authorizer {
    unknown_tokens: ReviewQueue,
    known_tokens: ReviewQueue,
    decisions: Arc<Mutex<DecisionCache>>,
    origin: Instant,
}

/// A rate-limited queue of reviews.
#[derive(Clone)]
pub(super) struct ReviewQueue {
    caller: Caller,
    waiting: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

impl ReviewQueue {
    pub(super) fn new(caller: Caller, rate: Rate) -> Self {
        let permits = |count| Arc::new(Semaphore::new(count));
        Self {
            caller: caller.with_rate(Some(rate)),
            waiting: permits(MAX_WAITING),
            running: permits(MAX_CONCURRENT_REVIEWS),
        }
    }

    /// Waits in the queue, and makes one review unless `decided` has an answer by then.
    pub(super) async fn review<T>(
        &self,
        path: &str,
        body: &Value,
        (decided, read): (impl Fn() -> Option<T>, impl Fn(&Value) -> T),
    ) -> Result<T, ReviewError> {
        let _waiting = self.waiting.try_acquire().map_err(|_| ReviewError::TooManyWaiting)?;
        let _running = self.running.acquire().await.map_err(|_| ReviewError::TooManyWaiting)?;
        if let Some(answer) = decided() {
            return Ok(answer);
        }
        Ok(read(&self.caller.post(path, body).await?))
    }
}

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error("too many pending authorization requests")]
    TooManyWaiting,
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Authorizer {
    /// Returns an authorizer that uses this caller's client with its own rate limits.
    pub fn new(caller: &Caller) -> Self {
        Self {
            unknown_tokens: ReviewQueue::new(caller.clone(), UNKNOWN_TOKEN_RATE),
            known_tokens: ReviewQueue::new(caller.clone(), KNOWN_TOKEN_RATE),
            decisions: Arc::default(),
            origin: Instant::now(),
        }
    }

    fn cached(&self, request: &RequestDigest) -> CachedDecision {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).get(request, self.origin.elapsed())
    }

    async fn authorize(&self, token: &str, verb: &str, path: &str) -> Result<AccessDecision, ReviewError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Ok(AccessDecision::Unauthenticated);
        }
        let digest = decision_cache::request_digest(token, verb, path);
        let queue = match self.cached(&digest) {
            CachedDecision::Decided(decision) => return Ok(decision),
            CachedDecision::RecentlyAllowed => &self.known_tokens,
            CachedDecision::Unknown => &self.unknown_tokens,
        };
        let _waiting = queue.waiting.try_acquire().map_err(|_| ReviewError::TooManyWaiting)?;
        let _running = queue.running.acquire().await.map_err(|_| ReviewError::TooManyWaiting)?;
        // Another request with the same token may have been decided since.
        if let CachedDecision::Decided(decision) = self.cached(&digest) {
            return Ok(decision);
        }
        let decision = review_token(&queue.caller, token, verb, path).await?;
        let now = self.origin.elapsed();
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, decision, now);
        Ok(decision)
    }
}

async fn review_token(
    caller: &Caller,
    token: &str,
    verb: &str,
    path: &str,
) -> Result<AccessDecision, CallError> {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
    });
    let response = caller.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await?;
    if response.pointer("/status/authenticated") != Some(&Value::Bool(true)) {
        return Ok(AccessDecision::Unauthenticated);
    }
    let user = |field: &str| response.pointer(&format!("/status/user/{field}")).cloned();
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": user("username"), "groups": user("groups"), "uid": user("uid"), "extra": user("extra"),
            "nonResourceAttributes": {"path": path, "verb": verb},
        },
    });
    let response = caller.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?;
    let allowed = response.pointer("/status/allowed") == Some(&Value::Bool(true));
    Ok(if allowed { AccessDecision::Allowed } else { AccessDecision::Forbidden })
}

/// Lets only authorized clients call the routes of a router. Other paths are not found without a review, so that clients
/// cannot choose what is reviewed.
pub fn guarded(router: Router, authorizer: Authorizer) -> Router {
    router.route_layer(middleware::from_fn_with_state(authorizer, authorize_request))
}

async fn authorize_request(State(authorizer): State<Authorizer>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned) else {
        return status_response(StatusCode::UNAUTHORIZED, "Unauthorized", "a bearer token is required");
    };
    let verb = if request.method() == Method::PUT { "put" } else { "get" };
    let path = request.uri().path().to_owned();
    match authorizer.authorize(&token, verb, &path).await {
        Ok(AccessDecision::Allowed) => next.run(request).await,
        Ok(AccessDecision::Forbidden) => {
            let message = format!("the token does not permit the verb {verb} on the path {path}");
            status_response(StatusCode::FORBIDDEN, "Forbidden", &message)
        }
        Ok(AccessDecision::Unauthenticated) => {
            status_response(StatusCode::UNAUTHORIZED, "Unauthorized", "the token is not valid")
        }
        Err(ReviewError::TooManyWaiting) => {
            status_response(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "too many callers at once")
        }
        Err(ReviewError::Call(error)) => {
            tracing::warn!(%error, "access review failed");
            status_response(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "the access review failed")
        }
    }
}

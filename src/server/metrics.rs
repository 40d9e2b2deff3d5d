//! The metrics listener: text, for callers who may read it.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::decision_cache::{self, AccessDecision, CachedDecision, DecisionCache, TokenDigest};
use super::webhooks::status_response;
use crate::kube::client::{CallError, Caller, Rate};

/// Renders all families.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// Questions about tokens of which nothing is known.
const UNKNOWN_TOKEN_RATE: Rate = Rate { per_second: 10.0, burst: 20.0 };
/// Questions about tokens that were allowed lately.
const KNOWN_TOKEN_RATE: Rate = Rate { per_second: 5.0, burst: 10.0 };
/// Requests that wait for their turn: at the rate above none waits longer than a scrape may take.
const MAX_WAITING: usize = 64;
/// Questions at a time.
const MAX_CONCURRENT_REVIEWS: usize = 4;
/// Longest token: those of service accounts have about a thousand characters.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Asks the API server who calls and whether they may, and remembers the answers.
///
/// Its calls have budgets of their own, so that junk tokens take nothing from the scheduler's writes; a token that was
/// allowed lately is asked about out of a budget that other tokens cannot spend; all others wait in one line, the first
/// one first.
#[derive(Clone)]
pub struct MetricsAuthorizer {
    unknown_tokens: ReviewQueue,
    known_tokens: ReviewQueue,
    decisions: Arc<Mutex<DecisionCache>>,
    origin: Instant,
}

/// Where questions are asked.
#[derive(Clone)]
struct ReviewQueue {
    caller: Caller,
    waiting: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

impl ReviewQueue {
    fn new(caller: Caller, rate: Rate) -> Self {
        let seats = |number| Arc::new(Semaphore::new(number));
        Self {
            caller: caller.with_rate(Some(rate)),
            waiting: seats(MAX_WAITING),
            running: seats(MAX_CONCURRENT_REVIEWS),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum AuthorizeError {
    #[error("too many callers wait")]
    TooManyWaiting,
    #[error(transparent)]
    Call(#[from] CallError),
}

impl MetricsAuthorizer {
    /// A gatekeeper that asks through this caller's client, at rates of its own.
    pub fn new(caller: &Caller) -> Self {
        Self {
            unknown_tokens: ReviewQueue::new(caller.clone(), UNKNOWN_TOKEN_RATE),
            known_tokens: ReviewQueue::new(caller.clone(), KNOWN_TOKEN_RATE),
            decisions: Arc::default(),
            origin: Instant::now(),
        }
    }

    fn cached(&self, token: &TokenDigest) -> CachedDecision {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).get(token, self.origin.elapsed())
    }

    async fn authorize(&self, token: &str) -> Result<AccessDecision, AuthorizeError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Ok(AccessDecision::Unauthenticated);
        }
        let digest = decision_cache::token_digest(token);
        let desk = match self.cached(&digest) {
            CachedDecision::Decided(verdict) => return Ok(verdict),
            CachedDecision::RecentlyAllowed => &self.known_tokens,
            CachedDecision::Unknown => &self.unknown_tokens,
        };
        let _place = desk.waiting.try_acquire().map_err(|_| AuthorizeError::TooManyWaiting)?;
        let _turn = desk.running.acquire().await.map_err(|_| AuthorizeError::TooManyWaiting)?;
        // Another request may have asked meanwhile.
        if let CachedDecision::Decided(verdict) = self.cached(&digest) {
            return Ok(verdict);
        }
        let verdict = review_token(&desk.caller, token).await?;
        let now = self.origin.elapsed();
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, verdict, now);
        Ok(verdict)
    }
}

async fn review_token(caller: &Caller, token: &str) -> Result<AccessDecision, CallError> {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
    });
    let answer = caller.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await?;
    if answer.pointer("/status/authenticated") != Some(&Value::Bool(true)) {
        return Ok(AccessDecision::Unauthenticated);
    }
    let user = |field: &str| answer.pointer(&format!("/status/user/{field}")).cloned();
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": user("username"), "groups": user("groups"), "uid": user("uid"), "extra": user("extra"),
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        },
    });
    let answer = caller.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?;
    let allowed = answer.pointer("/status/allowed") == Some(&Value::Bool(true));
    Ok(if allowed { AccessDecision::Allowed } else { AccessDecision::Forbidden })
}

/// `/metrics`, open to all or guarded.
pub fn router(render: Render, gatekeeper: Option<MetricsAuthorizer>) -> Router {
    let router = Router::new().route("/metrics", get(scrape)).with_state(render);
    match gatekeeper {
        Some(gatekeeper) => router.layer(middleware::from_fn_with_state(gatekeeper, authorize_request)),
        None => router,
    }
}

async fn scrape(State(render): State<Render>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], render()).into_response()
}

async fn authorize_request(
    State(gatekeeper): State<MetricsAuthorizer>,
    request: Request,
    next: Next,
) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned) else {
        return status_response(StatusCode::UNAUTHORIZED, "Unauthorized", "a bearer token is required");
    };
    match gatekeeper.authorize(&token).await {
        Ok(AccessDecision::Allowed) => next.run(request).await,
        Ok(AccessDecision::Forbidden) => {
            status_response(StatusCode::FORBIDDEN, "Forbidden", "reading /metrics is not allowed")
        }
        Ok(AccessDecision::Unauthenticated) => {
            status_response(StatusCode::UNAUTHORIZED, "Unauthorized", "the token is not valid")
        }
        Err(AuthorizeError::TooManyWaiting) => {
            status_response(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "too many callers at once")
        }
        Err(AuthorizeError::Call(error)) => {
            tracing::warn!(%error, "access review");
            status_response(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "the access review failed")
        }
    }
}

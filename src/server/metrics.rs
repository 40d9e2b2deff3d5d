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

use super::verdicts::{self, Known, TokenDigest, Verdict, Verdicts};
use super::webhooks::problem;
use crate::kube::client::{CallError, Caller, Rate};

/// Renders all families.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// Questions about tokens of which nothing is known.
const STRANGERS: Rate = Rate { per_second: 10.0, burst: 20.0 };
/// Questions about tokens that were allowed lately.
const FAMILIARS: Rate = Rate { per_second: 5.0, burst: 10.0 };
/// Requests that wait for their turn: at the rate above none waits longer than a scrape may take.
const LINE: usize = 64;
/// Questions at a time.
const AT_ONCE: usize = 4;
/// Longest token: those of service accounts have about a thousand characters.
const TOKEN: usize = 16 << 10;

/// Asks the API server who calls and whether they may, and remembers the answers.
///
/// Its calls have budgets of their own, so that junk tokens take nothing from the scheduler's writes; a token that was
/// allowed lately is asked about out of a budget that other tokens cannot spend; all others wait in one line, the first
/// one first.
#[derive(Clone)]
pub struct Gatekeeper {
    strangers: Desk,
    familiars: Desk,
    verdicts: Arc<Mutex<Verdicts>>,
    began: Instant,
}

/// Where questions are asked.
#[derive(Clone)]
struct Desk {
    caller: Caller,
    line: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

impl Desk {
    fn new(caller: Caller, rate: Rate) -> Self {
        let seats = |number| Arc::new(Semaphore::new(number));
        Self { caller: caller.limited(Some(rate)), line: seats(LINE), turns: seats(AT_ONCE) }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error("too many callers wait")]
    Crowded,
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Gatekeeper {
    /// A gatekeeper that asks through this caller's client, at rates of its own.
    pub fn new(caller: &Caller) -> Self {
        Self {
            strangers: Desk::new(caller.clone(), STRANGERS),
            familiars: Desk::new(caller.clone(), FAMILIARS),
            verdicts: Arc::default(),
            began: Instant::now(),
        }
    }

    fn known(&self, token: &TokenDigest) -> Known {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner).look(token, self.began.elapsed())
    }

    async fn check(&self, token: &str) -> Result<Verdict, CheckError> {
        if token.len() > TOKEN {
            return Ok(Verdict::Unknown);
        }
        let digest = verdicts::digest(token);
        let desk = match self.known(&digest) {
            Known::Verdict(verdict) => return Ok(verdict),
            Known::Familiar => &self.familiars,
            Known::Nothing => &self.strangers,
        };
        let _place = desk.line.try_acquire().map_err(|_| CheckError::Crowded)?;
        let _turn = desk.turns.acquire().await.map_err(|_| CheckError::Crowded)?;
        // Another request may have asked meanwhile.
        if let Known::Verdict(verdict) = self.known(&digest) {
            return Ok(verdict);
        }
        let verdict = ask(&desk.caller, token).await?;
        let now = self.began.elapsed();
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner).store(digest, verdict, now);
        Ok(verdict)
    }
}

async fn ask(caller: &Caller, token: &str) -> Result<Verdict, CallError> {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
    });
    let answer = caller.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await?;
    if answer.pointer("/status/authenticated") != Some(&Value::Bool(true)) {
        return Ok(Verdict::Unknown);
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
    Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden })
}

/// `/metrics`, open to all or guarded.
pub fn router(render: Render, gatekeeper: Option<Gatekeeper>) -> Router {
    let router = Router::new().route("/metrics", get(scrape)).with_state(render);
    match gatekeeper {
        Some(gatekeeper) => router.layer(middleware::from_fn_with_state(gatekeeper, guard)),
        None => router,
    }
}

async fn scrape(State(render): State<Render>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], render()).into_response()
}

async fn guard(State(gatekeeper): State<Gatekeeper>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned) else {
        return problem(StatusCode::UNAUTHORIZED, "Unauthorized", "a bearer token is required");
    };
    match gatekeeper.check(&token).await {
        Ok(Verdict::Allowed) => next.run(request).await,
        Ok(Verdict::Forbidden) => {
            problem(StatusCode::FORBIDDEN, "Forbidden", "reading /metrics is not allowed")
        }
        Ok(Verdict::Unknown) => problem(StatusCode::UNAUTHORIZED, "Unauthorized", "the token is not valid"),
        Err(CheckError::Crowded) => {
            problem(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "too many callers at once")
        }
        Err(CheckError::Call(error)) => {
            tracing::warn!(%error, "access review");
            problem(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "the access review failed")
        }
    }
}

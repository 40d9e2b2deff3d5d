//! The metrics listener: text, for callers who may read it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::webhooks::problem;
use crate::kube::client::{CallError, Caller};

/// Renders all families.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// Asks the API server who calls and whether they may.
#[derive(Clone)]
pub struct Gatekeeper {
    caller: Caller,
    /// Strangers cannot make us flood the API server.
    turns: Arc<Semaphore>,
}

impl Gatekeeper {
    /// A gatekeeper that asks through this caller.
    pub fn new(caller: Caller) -> Self {
        Self { caller, turns: Arc::new(Semaphore::new(4)) }
    }

    async fn check(&self, token: &str) -> Result<Verdict, CallError> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let answer = self.caller.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await?;
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
        let answer = self.caller.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?;
        let allowed = answer.pointer("/status/allowed") == Some(&Value::Bool(true));
        Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden })
    }
}

enum Verdict {
    Allowed,
    Forbidden,
    Unknown,
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
    let Ok(turn) = gatekeeper.turns.try_acquire() else {
        return problem(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "too many callers at once");
    };
    let verdict = gatekeeper.check(&token).await;
    drop(turn);
    match verdict {
        Ok(Verdict::Allowed) => next.run(request).await,
        Ok(Verdict::Forbidden) => {
            problem(StatusCode::FORBIDDEN, "Forbidden", "reading /metrics is not allowed")
        }
        Ok(Verdict::Unknown) => problem(StatusCode::UNAUTHORIZED, "Unauthorized", "the token is not valid"),
        Err(error) => {
            tracing::warn!(%error, "access review");
            problem(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "the access review failed")
        }
    }
}

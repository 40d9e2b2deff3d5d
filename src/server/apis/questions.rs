//! The private path between processes of this installation. They ask the leader for what only it knows, and the replica whose
//! history began first for what it recorded.
//!
//! Invariants: a question is accepted only with a token of one of this installation's ServiceAccounts for the audience of this
//! path, which the API server reviews; the rights of that account do not matter, because the question carries the access of the
//! user; a replica that does not lead does not answer questions for the leader.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::status;
use crate::kube::client::{CallError, Caller, Rate};
use crate::visibility::questions::{LeaderAnswer, Question};

/// The path.
pub const QUESTIONS_PATH: &str = "/private/questions";
/// Audience of the tokens.
pub const AUDIENCE: &str = "leader.visibility.sluice.dev";
/// Most bytes of a question.
const MAX_QUESTION_BYTES: usize = 64 << 10;
/// Most bytes of a token.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// How long a review is used.
const REVIEW_TTL: Duration = Duration::from_mins(1);
/// Most reviews that are kept.
const MAX_REVIEWS: usize = 64;
/// Rate of reviews.
const REVIEW_RATE: Rate = Rate { per_second: 5.0, burst: 20.0 };

/// Answers questions that only some processes can answer.
pub trait AnswerQuestions: Send + Sync {
    /// Returns the answer; `None` if no process can answer at present.
    fn answer(&self, question: Question) -> BoxFuture<'static, Option<LeaderAnswer>>;
}

/// The private path of a replica.
pub struct PrivatePath {
    /// Reviews tokens.
    pub reviewer: TokenReviewer,
    /// Whether this replica leads.
    pub leads: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Answers from the state of this replica.
    pub local: Arc<dyn AnswerQuestions>,
}

/// Asks the API server whether a token belongs to one of this installation's ServiceAccounts and has the audience of the path.
pub struct TokenReviewer {
    caller: Caller,
    /// Names of the accounts, as `system:serviceaccount:NAMESPACE:NAME`.
    accounts: Vec<String>,
    reviews: Mutex<BTreeMap<[u8; 32], (bool, Instant)>>,
}

impl TokenReviewer {
    /// Returns a reviewer that accepts these accounts.
    pub fn new(caller: &Caller, accounts: Vec<String>) -> Self {
        Self { caller: caller.clone().with_rate(Some(REVIEW_RATE)), accounts, reviews: Mutex::default() }
    }

    async fn accepts(&self, token: &str) -> Result<bool, CallError> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let reviews = || self.reviews.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((accepted, at)) = reviews().get(&digest).copied()
            && at.elapsed() < REVIEW_TTL
        {
            return Ok(accepted);
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        });
        let response = self.caller.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await?;
        let accepted = is_accepted(&response, &self.accounts);
        let mut reviews = reviews();
        if reviews.len() >= MAX_REVIEWS {
            reviews.clear();
        }
        reviews.insert(digest, (accepted, Instant::now()));
        Ok(accepted)
    }
}

/// Whether a review accepts the token: valid, for the audience of the path, of one of these accounts.
fn is_accepted(review: &Value, accounts: &[String]) -> bool {
    let at = |pointer: &str| review.pointer(pointer);
    let audiences = at("/status/audiences").and_then(Value::as_array);
    let name = at("/status/user/username").and_then(Value::as_str);
    at("/status/authenticated") == Some(&Value::Bool(true))
        && audiences.is_some_and(|all| all.iter().any(|one| one == AUDIENCE))
        && name.is_some_and(|name| accounts.iter().any(|account| account == name))
}

impl PrivatePath {
    /// Answers a request to the path.
    pub async fn respond(&self, request: Request<Body>) -> Response {
        if *request.method() != Method::POST {
            return status::method_not_allowed("only POST is supported here");
        }
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
        let Some(token) = token.filter(|token| token.len() <= MAX_TOKEN_BYTES) else {
            return status::not_ours();
        };
        match self.reviewer.accepts(&token).await {
            Ok(true) => {}
            Ok(false) => return status::not_ours(),
            Err(error) => {
                tracing::warn!(%error, "review of a token for the leader failed");
                return status::unavailable("the token review failed");
            }
        }
        let Ok(body) = Limited::new(request.into_body(), MAX_QUESTION_BYTES).collect().await else {
            return status::bad_request("the question is too large or cannot be read");
        };
        let question: Question = match serde_json::from_slice(&body.to_bytes()) {
            Ok(question) => question,
            Err(error) => return status::bad_request(&format!("the question cannot be read: {error}")),
        };
        if !(self.leads)() && !question.is_for_any_replica() {
            return status::unavailable("this replica does not lead");
        }
        match self.local.answer(question).await {
            Some(answer) => axum::Json(answer).into_response(),
            None => status::too_many("too many questions at once"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_of_our_accounts_for_our_audience_are_accepted() {
        let accounts = ["system:serviceaccount:kueue-system:kueue-controller-manager".to_owned()];
        let review = |authenticated: bool, audiences: Value, name: &str| json!({"status": {"authenticated": authenticated, "audiences": audiences, "user": {"username": name}}});
        let own = &*accounts[0];
        for (found, expected) in [
            (review(true, json!([AUDIENCE]), own), true),
            (review(true, json!(["other", AUDIENCE]), own), true),
            (review(false, json!([AUDIENCE]), own), false),
            (review(true, json!([]), own), false),
            (review(true, json!(["https://kubernetes.default.svc"]), own), false),
            (review(true, Value::Null, own), false),
            (review(true, json!([AUDIENCE]), "system:serviceaccount:other:kueue-controller-manager"), false),
            (review(true, json!([AUDIENCE]), "system:serviceaccount:kueue-system:default"), false),
            (review(true, json!([AUDIENCE]), "admin"), false),
            (json!({}), false),
        ] {
            assert_eq!(is_accepted(&found, &accounts), expected, "{found}");
        }
    }
}

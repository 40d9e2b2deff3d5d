//! Admission webhooks over HTTP: the body within a limit, then the pure review.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Value, json};

use crate::kube::object::read_review;

/// Answers an AdmissionReview by path and content.
pub type Review = Arc<dyn Fn(&str, &Value) -> Value + Send + Sync>;

/// A review carries the object twice, each as large as the API server takes.
pub const BODY_LIMIT: usize = 8 << 20;
/// A client that sends slower than this is not an API server in good health.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// From this size on a body is parsed beside the connections' threads.
const LARGE: usize = 256 << 10;

/// The webhook routes.
pub fn router(review: Review) -> Router {
    Router::new()
        .route("/{*path}", post(answer))
        .fallback(absent)
        .method_not_allowed_fallback(method)
        .with_state(review)
}

async fn answer(State(review): State<Review>, uri: Uri, headers: HeaderMap, body: Body) -> Response {
    let body = match read(&headers, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let path = uri.path().to_owned();
    let answer = if body.len() < LARGE {
        Ok(answer_bytes(&review, &path, &body))
    } else {
        tokio::task::spawn_blocking(move || answer_bytes(&review, &path, &body)).await
    };
    match answer {
        Ok(Ok(answer)) => axum::Json(answer).into_response(),
        Ok(Err(error)) => {
            problem(StatusCode::BAD_REQUEST, "BadRequest", &format!("not an AdmissionReview: {error}"))
        }
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "the review failed"),
    }
}

fn answer_bytes(review: &Review, path: &str, body: &Bytes) -> Result<Value, serde_json::Error> {
    Ok(review(path, &read_review(body)?))
}

/// The whole body. One that says it is too large is refused unread.
async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
    let too_large =
        || problem(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", "the body is larger than 8 MiB");
    let said = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if said.is_some_and(|length| length > BODY_LIMIT) {
        return Err(too_large());
    }
    let json = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !json.is_some_and(|kind| kind.starts_with("application/json")) {
        let message = "the content type must be application/json";
        return Err(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message));
    }
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_LIMIT).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => Err(too_large()),
        Ok(Err(error)) => Err(problem(StatusCode::BAD_REQUEST, "BadRequest", &error.to_string())),
        Err(_) => Err(problem(StatusCode::REQUEST_TIMEOUT, "Timeout", "the body took too long")),
    }
}

async fn absent() -> Response {
    problem(StatusCode::NOT_FOUND, "NotFound", "no such webhook")
}

async fn method() -> Response {
    problem(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "webhooks are called by POST")
}

/// An error as the API server words its own.
pub(super) fn problem(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, axum::Json(status)).into_response()
}

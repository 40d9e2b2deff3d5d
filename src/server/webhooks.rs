//! Admission webhooks over HTTP: the body within its limits, then the pure review.
//!
//! Invariants: what bodies, parsed values and answers take together is bounded, whichever client sends them; a small review never
//! waits for a large one; a review that panics is answered and counted, and the process goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::BytesMut;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::body_budget::{BodyBudget, BodyReservation};
use crate::admission::{ReadError, read_heavy, read_light};
use crate::api::config;
use crate::view::counters::ReviewMetrics;

/// Answers an AdmissionReview by path and content.
pub type Review = Arc<dyn Fn(&str, &Value) -> Value + Send + Sync>;

/// An API server takes objects of 3 MiB, and sends the one before as well, in an envelope.
pub const MAX_BODY_BYTES: usize = (6 << 20) + (256 << 10);
/// Up to this size a review is small: it waits for nothing.
pub const SMALL_BODY_BYTES: usize = 256 << 10;
/// Small bodies under way at a time, in bytes. Beyond it the one that has been coming for longest is given up.
const SMALL_BODIES_TOTAL_BYTES: usize = 24 << 20;
/// Large bodies under way at a time, in KiB. Others wait unread, in their order.
const LARGE_BODIES_TOTAL_KIB: usize = 16 << 10;
/// Answers of more than this are counted, and so many KiB of them may be under way: a client may take long to read them.
const SMALL_RESPONSE_BYTES: usize = 4 << 10;
const LARGE_RESPONSES_TOTAL_KIB: usize = 4 << 10;
/// No rule has so much to say.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// For a review whose caller does not say how long it waits.
const DEFAULT_REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that sends slower than this is not an API server in good health: for any body, and more for each MiB.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
const BODY_TIMEOUT_PER_MIB: Duration = Duration::from_millis(500);

/// The webhook routes. What becomes of reviews is counted.
pub fn router(review: Review, counted: ReviewMetrics) -> Router {
    let desk = ReviewHandler {
        review,
        metrics: counted,
        small_bodies: BodyBudget::new(SMALL_BODIES_TOTAL_BYTES),
        large_bodies: Arc::new(Semaphore::new(LARGE_BODIES_TOTAL_KIB)),
        heavy_reviews: Arc::new(Semaphore::new(1)),
        responses: Arc::new(Semaphore::new(LARGE_RESPONSES_TOTAL_KIB)),
    };
    Router::new()
        .route("/{*path}", post(handle))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Arc::new(desk))
}

/// Where reviews are judged, and what the ones under way may take.
struct ReviewHandler {
    review: Review,
    metrics: ReviewMetrics,
    small_bodies: BodyBudget,
    large_bodies: Arc<Semaphore>,
    /// Reviews of many values are judged one at a time: each takes up to fifty megabytes.
    heavy_reviews: Arc<Semaphore>,
    responses: Arc<Semaphore>,
}

/// Why a review is not answered.
enum ReviewError {
    TooLarge(String),
    /// Its time was up before its turn came.
    Busy,
    BodyTimeout,
    Malformed(String),
    NotJson,
    Panicked,
}

impl ReviewError {
    /// As metrics name it.
    const fn metric_label(&self) -> &'static str {
        match self {
            Self::TooLarge(_) => "too_large",
            Self::Busy => "busy",
            Self::BodyTimeout => "slow",
            Self::Malformed(_) | Self::NotJson => "malformed",
            Self::Panicked => "panicked",
        }
    }
}

impl From<ReadError> for ReviewError {
    fn from(unread: ReadError) -> Self {
        match unread {
            ReadError::Malformed(error) => Self::Malformed(error),
            ReadError::TooManyValues(error) => Self::TooLarge(format!("the review holds {error}")),
        }
    }
}

impl IntoResponse for ReviewError {
    fn into_response(self) -> Response {
        let (code, reason, message) = match self {
            Self::TooLarge(message) => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message),
            Self::Busy => {
                let message = "too many large reviews at once: try again".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
            }
            Self::BodyTimeout => {
                (StatusCode::REQUEST_TIMEOUT, "Timeout", "the body took too long".to_owned())
            }
            Self::Malformed(error) => {
                (StatusCode::BAD_REQUEST, "BadRequest", format!("not an AdmissionReview: {error}"))
            }
            Self::NotJson => {
                let message = "the content type must be application/json".to_owned();
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
            }
            Self::Panicked => {
                (StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "the review failed".to_owned())
            }
        };
        status_response(code, reason, &message)
    }
}

async fn handle(
    State(desk): State<Arc<ReviewHandler>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let _under_way = desk.metrics.begin();
    let began = Instant::now();
    let answer = desk.handle_review(&uri, &headers, body, began + review_timeout(&uri)).await;
    match answer {
        Ok(answer) => {
            desk.metrics.observe_duration(uri.path(), began.elapsed());
            answer
        }
        Err(refusal) => {
            desk.metrics.count_refused(refusal.metric_label());
            refusal.into_response()
        }
    }
}

/// How long the caller waits, as API servers say in the query; a refusal should reach it in time.
fn review_timeout(uri: &Uri) -> Duration {
    let said = uri.query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let said = said.and_then(config::Duration::parse).and_then(|said| Duration::try_from(said.signed()).ok());
    said.map_or(DEFAULT_REVIEW_TIMEOUT, |said| said.min(DEFAULT_REVIEW_TIMEOUT) * 9 / 10)
}

impl ReviewHandler {
    async fn handle_review(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: Body,
        until: Instant,
    ) -> Result<Response, ReviewError> {
        let said = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let length = said(CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
        if length.is_some_and(|length| length > MAX_BODY_BYTES) {
            return Err(too_large());
        }
        if !said(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json")) {
            return Err(ReviewError::NotJson);
        }
        let answer = match length {
            Some(length) if length <= SMALL_BODY_BYTES => {
                self.review_small(uri.path(), body, length, until).await?
            }
            // A length that is not said may be any.
            _ => self.review_large(uri.path(), body, length.unwrap_or(MAX_BODY_BYTES), until).await?,
        };
        self.to_response(answer)
    }

    /// Judged at once, unless it holds many values for its size.
    async fn review_small(
        &self,
        path: &str,
        body: Body,
        length: usize,
        until: Instant,
    ) -> Result<Bytes, ReviewError> {
        let (held, mut given_up) = self.small_bodies.reserve(length);
        let body = tokio::select! {
            body = read_body(body, length, until) => body?,
            _ = &mut given_up => return Err(ReviewError::BodyTimeout),
        };
        match run_review(&self.review, path, &body, read_light) {
            Err(ReviewError::TooLarge(_)) => {}
            judged => return judged,
        }
        tokio::select! {
            answer = self.review_heavy(path, body, HeldCapacity::Small(held), until) => answer,
            _ = given_up => Err(ReviewError::Busy),
        }
    }

    /// Waits for its turn before it is read.
    async fn review_large(
        &self,
        path: &str,
        body: Body,
        length: usize,
        until: Instant,
    ) -> Result<Bytes, ReviewError> {
        let size = u32::try_from(length.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        let turn = timeout_at(until, Arc::clone(&self.large_bodies).acquire_many_owned(size)).await;
        let Ok(Ok(turn)) = turn else {
            return Err(ReviewError::Busy);
        };
        let body = read_body(body, length, until).await?;
        self.review_heavy(path, body, HeldCapacity::Large(turn), until).await
    }

    /// Judges it beside the connections' threads, after the others of its kind. What it keeps is given back when it is
    /// judged, also where the caller is gone meanwhile.
    async fn review_heavy(
        &self,
        path: &str,
        body: Bytes,
        keeping: HeldCapacity,
        until: Instant,
    ) -> Result<Bytes, ReviewError> {
        let Ok(Ok(turn)) = timeout_at(until, Arc::clone(&self.heavy_reviews).acquire_owned()).await else {
            return Err(ReviewError::Busy);
        };
        let (review, path) = (Arc::clone(&self.review), path.to_owned());
        let judged = tokio::task::spawn_blocking(move || {
            let judged = run_review(&review, &path, &body, read_heavy);
            drop((turn, body, keeping));
            judged
        });
        judged.await.unwrap_or(Err(ReviewError::Panicked))
    }

    /// A long answer takes of what answers may take until the client has it.
    fn to_response(&self, answer: Bytes) -> Result<Response, ReviewError> {
        let body = if answer.len() <= SMALL_RESPONSE_BYTES {
            Body::from(answer)
        } else {
            let size = u32::try_from(answer.len().div_ceil(1 << 10)).unwrap_or(u32::MAX);
            let room = Arc::clone(&self.responses).try_acquire_many_owned(size);
            let counted = BoundedResponse { body: answer, _permit: room.map_err(|_| ReviewError::Busy)? };
            Body::from(Bytes::from_owner(counted))
        };
        Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
    }
}

/// An answer whose room is free again once nothing of it is left to send.
struct BoundedResponse {
    body: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for BoundedResponse {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// What a review that waits holds.
#[expect(dead_code, reason = "held until it is dropped")]
enum HeldCapacity {
    Small(BodyReservation),
    Large(OwnedSemaphorePermit),
}

/// Reads and judges. A panic is a fault of one review, not of the reviews beside it.
fn run_review(
    review: &Review,
    path: &str,
    body: &[u8],
    read: fn(&str, &[u8]) -> Result<Value, ReadError>,
) -> Result<Bytes, ReviewError> {
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let answer = review(path, &read(path, body)?);
        serde_json::to_vec(&answer).map_err(|error| ReadError::Malformed(error.to_string()))
    }));
    match judged {
        Ok(Ok(answer)) if answer.len() > MAX_RESPONSE_BYTES => {
            Err(ReviewError::TooLarge("the answer to the review would be too large".to_owned()))
        }
        Ok(Ok(answer)) => Ok(answer.into()),
        Ok(Err(unread)) => Err(unread.into()),
        Err(_) => {
            tracing::error!(path, "a review panicked");
            Err(ReviewError::Panicked)
        }
    }
}

/// The whole body, of no more than so many bytes.
async fn read_body(mut body: Body, limit: usize, until: Instant) -> Result<Bytes, ReviewError> {
    let mib = u32::try_from(limit >> 20).unwrap_or(u32::MAX);
    let until = until.min(Instant::now() + BODY_TIMEOUT + BODY_TIMEOUT_PER_MIB * mib);
    let mut whole = BytesMut::with_capacity(limit.min(SMALL_BODY_BYTES));
    loop {
        let frame = match timeout_at(until, body.frame()).await {
            Err(_) => return Err(ReviewError::BodyTimeout),
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Err(error))) => return Err(ReviewError::Malformed(error.to_string())),
            Ok(Some(Ok(frame))) => frame,
        };
        let data = frame.into_data().unwrap_or_default();
        if whole.len().saturating_add(data.len()) > limit {
            return Err(too_large());
        }
        whole.extend_from_slice(&data);
    }
}

fn too_large() -> ReviewError {
    ReviewError::TooLarge(format!("the body is larger than {MAX_BODY_BYTES} bytes"))
}

async fn not_found() -> Response {
    status_response(StatusCode::NOT_FOUND, "NotFound", "no such webhook")
}

async fn method_not_allowed() -> Response {
    status_response(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "webhooks are called by POST")
}

/// An error as the API server words its own.
pub(super) fn status_response(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, axum::Json(status)).into_response()
}

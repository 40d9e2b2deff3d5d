//! Webhooks over HTTP: reads the body within its limits, then runs the pure review, of an admission or a conversion.
//!
//! Invariants: the total size of bodies, parsed values and responses is bounded over all clients; a small review never waits
//! for a large one; a review that panics is answered and counted, and the process continues (I23). Conversions need only the
//! object, so they are answered from the start, whether this replica is ready or not.

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
use crate::admission::{ReadError, may_change_soon, read_heavy, read_light};
use crate::api::config;
use crate::api::v1beta1::CONVERSION_PATH;
use crate::conversion;
use crate::metrics::counters::ReviewMetrics;

/// Reviews an AdmissionReview by path and content, and returns its response.
pub type Review = Arc<dyn Fn(&str, &Value) -> Value + Send + Sync>;

/// API servers accept objects of 3 MiB, and send old and new object with an envelope.
pub const MAX_BODY_BYTES: usize = (6 << 20) + (256 << 10);
/// Bodies up to this size are small: they never wait.
pub const SMALL_BODY_BYTES: usize = 256 << 10;
/// Limit of all small bodies being received, in bytes. Above it the oldest is cancelled.
const SMALL_BODIES_TOTAL_BYTES: usize = 24 << 20;
/// Limit of all large bodies being handled, in KiB. Others wait in order, unread.
const LARGE_BODIES_TOTAL_KIB: usize = 16 << 10;
/// Responses above this size count towards the next limit, in KiB, until the client, possibly slow, has read them.
const SMALL_RESPONSE_BYTES: usize = 4 << 10;
const LARGE_RESPONSES_TOTAL_KIB: usize = 4 << 10;
/// Maximum size of the response to an admission review; no legitimate one reaches it.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Maximum size of the response to a conversion review: a Workload on a hundred thousand nodes takes half of it.
const MAX_CONVERSION_BYTES: usize = 16 << 20;
/// Limit of all large responses to conversions, in KiB. Others wait for it: an object that is not converted cannot be read.
const LARGE_CONVERSIONS_TOTAL_KIB: usize = 24 << 10;
/// Time for a review whose caller does not set a timeout.
const DEFAULT_REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a small review waits for an object on which its answer depends: the watch delivers the owner of a new object within
/// milliseconds, and a refusal would show on the owner as a failure. It is reviewed again after the first time, then after twice
/// as long, and so on.
const FIRST_WAIT_FOR_OBJECT: Duration = Duration::from_millis(20);
const LAST_WAIT_FOR_OBJECT: Duration = Duration::from_millis(320);
/// Time to receive any body, plus time for each MiB. A healthy API server is much faster.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
const BODY_TIMEOUT_PER_MIB: Duration = Duration::from_millis(500);

/// Returns the webhook routes. Reviews are counted in `metrics`.
pub fn router(review: Review, metrics: ReviewMetrics) -> Router {
    let handler = ReviewHandler {
        review,
        metrics,
        small_bodies: BodyBudget::new(SMALL_BODIES_TOTAL_BYTES),
        large_bodies: Arc::new(Semaphore::new(LARGE_BODIES_TOTAL_KIB)),
        heavy_reviews: Arc::new(Semaphore::new(1)),
        responses: Arc::new(Semaphore::new(LARGE_RESPONSES_TOTAL_KIB)),
        conversions: Arc::new(Semaphore::new(LARGE_CONVERSIONS_TOTAL_KIB)),
    };
    Router::new()
        .route("/{*path}", post(handle))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Arc::new(handler))
}

/// Runs reviews within the limits of concurrent reviews.
struct ReviewHandler {
    review: Review,
    metrics: ReviewMetrics,
    small_bodies: BodyBudget,
    large_bodies: Arc<Semaphore>,
    /// Runs reviews with many values one at a time: each takes up to 50 MB.
    heavy_reviews: Arc<Semaphore>,
    responses: Arc<Semaphore>,
    conversions: Arc<Semaphore>,
}

/// How many values of a review are decoded.
#[derive(Clone, Copy)]
enum Weight {
    Light,
    Heavy,
}

/// Why a review failed.
enum ReviewError {
    TooLarge(String),
    /// It timed out while waiting for capacity.
    Busy,
    BodyTimeout,
    Malformed(String),
    NotJson,
    Panicked,
}

impl ReviewError {
    /// Returns the value of the metric label.
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
    fn from(read_error: ReadError) -> Self {
        match read_error {
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
                (StatusCode::BAD_REQUEST, "BadRequest", format!("not a review: {error}"))
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
    State(handler): State<Arc<ReviewHandler>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let _in_flight = handler.metrics.begin();
    let start = Instant::now();
    let result = handler.handle_review(&uri, &headers, body, start + review_timeout(&uri)).await;
    match result {
        Ok(response) => {
            handler.metrics.observe_duration(uri.path(), start.elapsed());
            response
        }
        Err(error) => {
            handler.metrics.count_refused(error.metric_label());
            error.into_response()
        }
    }
}

/// Returns 90% of the caller's timeout (from the query, at most 10 s), so that an error reaches the caller in time.
fn review_timeout(uri: &Uri) -> Duration {
    let timeout =
        uri.query().unwrap_or_default().split('&').find_map(|parameter| parameter.strip_prefix("timeout="));
    let timeout = timeout
        .and_then(config::Duration::parse)
        .and_then(|timeout| Duration::try_from(timeout.signed()).ok());
    timeout.map_or(DEFAULT_REVIEW_TIMEOUT, |timeout| timeout.min(DEFAULT_REVIEW_TIMEOUT) * 9 / 10)
}

impl ReviewHandler {
    async fn handle_review(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: Body,
        until: Instant,
    ) -> Result<Response, ReviewError> {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let length = header(CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
        if length.is_some_and(|length| length > MAX_BODY_BYTES) {
            return Err(too_large());
        }
        if !header(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json")) {
            return Err(ReviewError::NotJson);
        }
        let response = match length {
            Some(length) if length <= SMALL_BODY_BYTES => {
                self.review_small(uri.path(), body, length, until).await?
            }
            // An unknown length may be any.
            _ => self.review_large(uri.path(), body, length.unwrap_or(MAX_BODY_BYTES), until).await?,
        };
        let permit = self.response_permit(uri.path(), response.len(), until).await?;
        let body = match permit {
            Some(permit) => {
                Body::from(Bytes::from_owner(BoundedResponse { body: response, _permit: permit }))
            }
            None => Body::from(response),
        };
        Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
    }

    /// Runs a small review immediately, unless it holds many values for its size.
    async fn review_small(
        &self,
        path: &str,
        body: Body,
        length: usize,
        until: Instant,
    ) -> Result<Bytes, ReviewError> {
        let (reservation, mut cancelled) = self.small_bodies.reserve(length);
        let body = tokio::select! {
            body = read_body(body, length, until) => body?,
            _ = &mut cancelled => return Err(ReviewError::BodyTimeout),
        };
        let mut wait = FIRST_WAIT_FOR_OBJECT;
        loop {
            let answer = match run_review(&self.review, path, &body, Weight::Light) {
                Err(ReviewError::TooLarge(_)) => break,
                result => result?,
            };
            if !answer.may_change || wait > LAST_WAIT_FOR_OBJECT || Instant::now() + wait > until {
                return Ok(answer.body);
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => wait *= 2,
                _ = &mut cancelled => return Ok(answer.body),
            }
        }
        tokio::select! {
            response = self.review_heavy(path, body, HeldCapacity::Small(reservation), until) => response,
            _ = cancelled => Err(ReviewError::Busy),
        }
    }

    /// Waits for capacity before reading the body.
    async fn review_large(
        &self,
        path: &str,
        body: Body,
        length: usize,
        until: Instant,
    ) -> Result<Bytes, ReviewError> {
        let size = u32::try_from(length.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        let permit = timeout_at(until, Arc::clone(&self.large_bodies).acquire_many_owned(size)).await;
        let Ok(Ok(permit)) = permit else {
            return Err(ReviewError::Busy);
        };
        let body = read_body(body, length, until).await?;
        self.review_heavy(path, body, HeldCapacity::Large(permit), until).await
    }

    /// Runs a review on a blocking thread, one at a time. `held_capacity` is released when the review ends, even if the client
    /// has disconnected.
    async fn review_heavy(
        &self,
        path: &str,
        body: Bytes,
        held_capacity: HeldCapacity,
        until: Instant,
    ) -> Result<Bytes, ReviewError> {
        let Ok(Ok(permit)) = timeout_at(until, Arc::clone(&self.heavy_reviews).acquire_owned()).await else {
            return Err(ReviewError::Busy);
        };
        let (review, path) = (Arc::clone(&self.review), path.to_owned());
        let result = tokio::task::spawn_blocking(move || {
            let result = run_review(&review, &path, &body, Weight::Heavy);
            drop((permit, body, held_capacity));
            result
        });
        result.await.unwrap_or(Err(ReviewError::Panicked)).map(|answer| answer.body)
    }

    /// Returns what a large response holds until it is sent.
    async fn response_permit(
        &self,
        path: &str,
        length: usize,
        until: Instant,
    ) -> Result<Option<OwnedSemaphorePermit>, ReviewError> {
        if length <= SMALL_RESPONSE_BYTES {
            return Ok(None);
        }
        let size = u32::try_from(length.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        if path == CONVERSION_PATH {
            let permit = timeout_at(until, Arc::clone(&self.conversions).acquire_many_owned(size)).await;
            return permit.ok().and_then(Result::ok).map(Some).ok_or(ReviewError::Busy);
        }
        let permit = Arc::clone(&self.responses).try_acquire_many_owned(size);
        permit.map(Some).map_err(|_| ReviewError::Busy)
    }
}

/// A response body that releases its permit once it is sent completely.
struct BoundedResponse {
    body: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for BoundedResponse {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Capacity held by a waiting review.
#[expect(dead_code, reason = "held until it is dropped")]
enum HeldCapacity {
    Small(BodyReservation),
    Large(OwnedSemaphorePermit),
}

/// The answer to a review.
struct Answer {
    body: Bytes,
    /// Whether a later review of the same request may answer differently.
    may_change: bool,
}

/// Parses and runs a review. A panic fails only this review, not concurrent ones.
fn run_review(review: &Review, path: &str, body: &[u8], weight: Weight) -> Result<Answer, ReviewError> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let response = evaluate(review, path, body, weight)?;
        let text = serde_json::to_vec(&response).map_err(|error| ReadError::Malformed(error.to_string()))?;
        Ok::<_, ReadError>((text, may_change_soon(&response)))
    }));
    let limit = if path == CONVERSION_PATH { MAX_CONVERSION_BYTES } else { MAX_RESPONSE_BYTES };
    match result {
        Ok(Ok((response, _))) if response.len() > limit => {
            Err(ReviewError::TooLarge("the answer to the review would be too large".to_owned()))
        }
        Ok(Ok((response, may_change))) => Ok(Answer { body: response.into(), may_change }),
        Ok(Err(read_error)) => Err(ReviewError::from(read_error)),
        Err(_) => {
            tracing::error!(path, "a review panicked");
            Err(ReviewError::Panicked)
        }
    }
}

fn evaluate(review: &Review, path: &str, body: &[u8], weight: Weight) -> Result<Value, ReadError> {
    if path == CONVERSION_PATH {
        let values = match weight {
            Weight::Light => conversion::MAX_LIGHT_VALUES,
            Weight::Heavy => conversion::MAX_VALUES,
        };
        return conversion::answer(body, values);
    }
    let read = match weight {
        Weight::Light => read_light,
        Weight::Heavy => read_heavy,
    };
    Ok(review(path, &read(path, body)?))
}

/// Reads the whole body, at most `limit` bytes.
async fn read_body(mut body: Body, limit: usize, until: Instant) -> Result<Bytes, ReviewError> {
    let mib = u32::try_from(limit >> 20).unwrap_or(u32::MAX);
    let until = until.min(Instant::now() + BODY_TIMEOUT + BODY_TIMEOUT_PER_MIB * mib);
    let mut buffer = BytesMut::with_capacity(limit.min(SMALL_BODY_BYTES));
    loop {
        let frame = match timeout_at(until, body.frame()).await {
            Err(_) => return Err(ReviewError::BodyTimeout),
            Ok(None) => return Ok(buffer.freeze()),
            Ok(Some(Err(error))) => return Err(ReviewError::Malformed(error.to_string())),
            Ok(Some(Ok(frame))) => frame,
        };
        let data = frame.into_data().unwrap_or_default();
        if buffer.len().saturating_add(data.len()) > limit {
            return Err(too_large());
        }
        buffer.extend_from_slice(&data);
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

/// Returns an error in the API server's format.
pub(super) fn status_response(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, axum::Json(status)).into_response()
}

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

use super::bodies::{Bodies, Held};
use crate::admission::{Unread, read_heavy, read_light};
use crate::api::config;
use crate::view::counters::Reviews;

/// Answers an AdmissionReview by path and content.
pub type Review = Arc<dyn Fn(&str, &Value) -> Value + Send + Sync>;

/// An API server takes objects of 3 MiB, and sends the one before as well, in an envelope.
pub const BODY_LIMIT: usize = (6 << 20) + (256 << 10);
/// Up to this size a review is small: it waits for nothing.
pub const SMALL: usize = 256 << 10;
/// Small bodies under way at a time, in bytes. Beyond it the one that has been coming for longest is given up.
const SMALL_BYTES: usize = 24 << 20;
/// Large bodies under way at a time, in KiB. Others wait unread, in their order.
const LARGE_KIB: usize = 16 << 10;
/// Answers of more than this are counted, and so many KiB of them may be under way: a client may take long to read them.
const SHORT_ANSWER: usize = 4 << 10;
const ANSWERS_KIB: usize = 4 << 10;
/// No rule has so much to say.
const LONGEST_ANSWER: usize = 1 << 20;
/// For a review whose caller does not say how long it waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// A client that sends slower than this is not an API server in good health: for any body, and more for each MiB.
const BODY_TIME: Duration = Duration::from_secs(5);
const BODY_TIME_PER_MIB: Duration = Duration::from_millis(500);

/// The webhook routes. What becomes of reviews is counted.
pub fn router(review: Review, counted: Reviews) -> Router {
    let desk = Desk {
        review,
        counted,
        small: Bodies::new(SMALL_BYTES),
        large: Arc::new(Semaphore::new(LARGE_KIB)),
        heavy: Arc::new(Semaphore::new(1)),
        answers: Arc::new(Semaphore::new(ANSWERS_KIB)),
    };
    Router::new()
        .route("/{*path}", post(answer))
        .fallback(absent)
        .method_not_allowed_fallback(method)
        .with_state(Arc::new(desk))
}

/// Where reviews are judged, and what the ones under way may take.
struct Desk {
    review: Review,
    counted: Reviews,
    small: Bodies,
    large: Arc<Semaphore>,
    /// Reviews of many values are judged one at a time: each takes up to fifty megabytes.
    heavy: Arc<Semaphore>,
    answers: Arc<Semaphore>,
}

/// Why a review is not answered.
enum Refusal {
    TooLarge(String),
    /// Its time was up before its turn came.
    Busy,
    Slow,
    Malformed(String),
    NotJson,
    Panicked,
}

impl Refusal {
    /// As metrics name it.
    const fn word(&self) -> &'static str {
        match self {
            Self::TooLarge(_) => "too_large",
            Self::Busy => "busy",
            Self::Slow => "slow",
            Self::Malformed(_) | Self::NotJson => "malformed",
            Self::Panicked => "panicked",
        }
    }
}

impl From<Unread> for Refusal {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Malformed(error) => Self::Malformed(error),
            Unread::TooMany(error) => Self::TooLarge(format!("the review holds {error}")),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (code, reason, message) = match self {
            Self::TooLarge(message) => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message),
            Self::Busy => {
                let message = "too many large reviews at once: try again".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
            }
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "Timeout", "the body took too long".to_owned()),
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
        problem(code, reason, &message)
    }
}

async fn answer(State(desk): State<Arc<Desk>>, uri: Uri, headers: HeaderMap, body: Body) -> Response {
    let _under_way = desk.counted.begin();
    let began = Instant::now();
    let answer = desk.answer(&uri, &headers, body, began + patience(&uri)).await;
    match answer {
        Ok(answer) => {
            desk.counted.answered(uri.path(), began.elapsed());
            answer
        }
        Err(refusal) => {
            desk.counted.refused(refusal.word());
            refusal.into_response()
        }
    }
}

/// How long the caller waits, as API servers say in the query; a refusal should reach it in time.
fn patience(uri: &Uri) -> Duration {
    let said = uri.query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let said = said.and_then(config::Duration::parse).and_then(|said| Duration::try_from(said.signed()).ok());
    said.map_or(PATIENCE, |said| said.min(PATIENCE) * 9 / 10)
}

impl Desk {
    async fn answer(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: Body,
        until: Instant,
    ) -> Result<Response, Refusal> {
        let said = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let length = said(CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
        if length.is_some_and(|length| length > BODY_LIMIT) {
            return Err(too_large());
        }
        if !said(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json")) {
            return Err(Refusal::NotJson);
        }
        let answer = match length {
            Some(length) if length <= SMALL => self.small(uri.path(), body, length, until).await?,
            // A length that is not said may be any.
            _ => self.large(uri.path(), body, length.unwrap_or(BODY_LIMIT), until).await?,
        };
        self.send(answer)
    }

    /// Judged at once, unless it holds many values for its size.
    async fn small(&self, path: &str, body: Body, length: usize, until: Instant) -> Result<Bytes, Refusal> {
        let (held, mut given_up) = self.small.hold(length);
        let body = tokio::select! {
            body = read(body, length, until) => body?,
            _ = &mut given_up => return Err(Refusal::Slow),
        };
        match judge(&self.review, path, &body, read_light) {
            Err(Refusal::TooLarge(_)) => {}
            judged => return judged,
        }
        tokio::select! {
            answer = self.alone(path, body, Keeping::Small(held), until) => answer,
            _ = given_up => Err(Refusal::Busy),
        }
    }

    /// Waits for its turn before it is read.
    async fn large(&self, path: &str, body: Body, length: usize, until: Instant) -> Result<Bytes, Refusal> {
        let size = u32::try_from(length.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        let turn = timeout_at(until, Arc::clone(&self.large).acquire_many_owned(size)).await;
        let Ok(Ok(turn)) = turn else {
            return Err(Refusal::Busy);
        };
        let body = read(body, length, until).await?;
        self.alone(path, body, Keeping::Large(turn), until).await
    }

    /// Judges it beside the connections' threads, after the others of its kind. What it keeps is given back when it is
    /// judged, also where the caller is gone meanwhile.
    async fn alone(
        &self,
        path: &str,
        body: Bytes,
        keeping: Keeping,
        until: Instant,
    ) -> Result<Bytes, Refusal> {
        let Ok(Ok(turn)) = timeout_at(until, Arc::clone(&self.heavy).acquire_owned()).await else {
            return Err(Refusal::Busy);
        };
        let (review, path) = (Arc::clone(&self.review), path.to_owned());
        let judged = tokio::task::spawn_blocking(move || {
            let judged = judge(&review, &path, &body, read_heavy);
            drop((turn, body, keeping));
            judged
        });
        judged.await.unwrap_or(Err(Refusal::Panicked))
    }

    /// A long answer takes of what answers may take until the client has it.
    fn send(&self, answer: Bytes) -> Result<Response, Refusal> {
        let body = if answer.len() <= SHORT_ANSWER {
            Body::from(answer)
        } else {
            let size = u32::try_from(answer.len().div_ceil(1 << 10)).unwrap_or(u32::MAX);
            let room = Arc::clone(&self.answers).try_acquire_many_owned(size);
            let counted = Counted { answer, _room: room.map_err(|_| Refusal::Busy)? };
            Body::from(Bytes::from_owner(counted))
        };
        Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
    }
}

/// An answer whose room is free again once nothing of it is left to send.
struct Counted {
    answer: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

/// What a review that waits holds.
#[expect(dead_code, reason = "held until it is dropped")]
enum Keeping {
    Small(Held),
    Large(OwnedSemaphorePermit),
}

/// Reads and judges. A panic is a fault of one review, not of the reviews beside it.
fn judge(
    review: &Review,
    path: &str,
    body: &[u8],
    read: fn(&str, &[u8]) -> Result<Value, Unread>,
) -> Result<Bytes, Refusal> {
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let answer = review(path, &read(path, body)?);
        serde_json::to_vec(&answer).map_err(|error| Unread::Malformed(error.to_string()))
    }));
    match judged {
        Ok(Ok(answer)) if answer.len() > LONGEST_ANSWER => {
            Err(Refusal::TooLarge("the answer to the review would be too large".to_owned()))
        }
        Ok(Ok(answer)) => Ok(answer.into()),
        Ok(Err(unread)) => Err(unread.into()),
        Err(_) => {
            tracing::error!(path, "a review panicked");
            Err(Refusal::Panicked)
        }
    }
}

/// The whole body, of no more than so many bytes.
async fn read(mut body: Body, limit: usize, until: Instant) -> Result<Bytes, Refusal> {
    let mib = u32::try_from(limit >> 20).unwrap_or(u32::MAX);
    let until = until.min(Instant::now() + BODY_TIME + BODY_TIME_PER_MIB * mib);
    let mut whole = BytesMut::with_capacity(limit.min(SMALL));
    loop {
        let frame = match timeout_at(until, body.frame()).await {
            Err(_) => return Err(Refusal::Slow),
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Err(error))) => return Err(Refusal::Malformed(error.to_string())),
            Ok(Some(Ok(frame))) => frame,
        };
        let data = frame.into_data().unwrap_or_default();
        if whole.len().saturating_add(data.len()) > limit {
            return Err(too_large());
        }
        whole.extend_from_slice(&data);
    }
}

fn too_large() -> Refusal {
    Refusal::TooLarge(format!("the body is larger than {BODY_LIMIT} bytes"))
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

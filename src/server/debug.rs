//! The debug endpoints: the state of the process as JSON, its history, and the log level.
//!
//! Invariants: a request ends in bounded time, also while the core hangs: the answer then has only what is known without the
//! core; a refused log level changes nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::StatusCode;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::webhooks::status_response;
use crate::snapshot::Inspection;

/// Maximum time for which a request waits for the core.
const CORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of a log level in bytes.
const MAX_LEVEL_BYTES: usize = 4 << 10;

/// State of the process that needs no answer of the core.
pub type ReadShell = Arc<dyn Fn() -> Map<String, Value> + Send + Sync>;
/// Asks the core. `None` if it cannot be asked.
pub type AskCore<T> = Arc<dyn Fn() -> BoxFuture<'static, Option<T>> + Send + Sync>;

/// The level of the logs.
pub trait LogLevel: Send + Sync {
    /// Returns the current level, or list of levels by module.
    fn get(&self) -> String;

    /// Sets the level.
    ///
    /// # Errors
    /// The text is no level; the error names what is wrong. The level is not changed.
    fn set(&self, level: &str) -> Result<(), String>;
}

/// What the endpoints read and set.
#[derive(Clone)]
pub struct DebugSources {
    /// State of the process that needs no answer of the core.
    pub shell: ReadShell,
    /// The core.
    pub core: AskCore<Inspection>,
    /// The core's history, as JSON.
    pub history: AskCore<Value>,
    /// The level of the logs.
    pub log_level: Arc<dyn LogLevel>,
}

#[derive(Clone)]
struct DebugState {
    sources: DebugSources,
    /// Held while the core is asked, so that requests cannot keep it from its work.
    asking: Arc<Semaphore>,
}

/// Returns the routes `/debug/state`, `/debug/history` and `/debug/log-level`, open to all clients: see `authorizer`.
pub fn router(sources: DebugSources) -> Router {
    Router::new()
        .route("/debug/state", get(read_state))
        .route("/debug/history", get(read_history))
        .route("/debug/log-level", get(read_level).put(set_level))
        .with_state(DebugState { sources, asking: Arc::new(Semaphore::new(1)) })
}

async fn read_state(State(debug): State<DebugState>) -> Response {
    let Ok(_asking) = debug.asking.try_acquire() else { return busy() };
    let mut state = (debug.sources.shell)();
    let core =
        ask(&debug.sources.core).await.map_or_else(|error| json!({"error": error}), |found| json!(found));
    state.insert("core".to_owned(), core);
    Json(state).into_response()
}

async fn read_history(State(debug): State<DebugState>) -> Response {
    let Ok(_asking) = debug.asking.try_acquire() else { return busy() };
    match ask(&debug.sources.history).await {
        Ok(history) => Json(history).into_response(),
        Err(error) => status_response(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", &error),
    }
}

fn busy() -> Response {
    let message = "another request is being answered";
    status_response(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
}

async fn ask<T>(core: &AskCore<T>) -> Result<T, String> {
    match tokio::time::timeout(CORE_TIMEOUT, core()).await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err("the core cannot be asked: it has ended, or too many questions wait".to_owned()),
        Err(_) => Err(format!("the core has not answered within {CORE_TIMEOUT:?}")),
    }
}

async fn read_level(State(debug): State<DebugState>) -> String {
    debug.sources.log_level.get() + "\n"
}

async fn set_level(State(debug): State<DebugState>, body: Bytes) -> Response {
    let refuse = |message: &str| status_response(StatusCode::BAD_REQUEST, "BadRequest", message);
    if body.len() > MAX_LEVEL_BYTES {
        return refuse(&format!("a log level has at most {MAX_LEVEL_BYTES} bytes"));
    }
    let Ok(text) = std::str::from_utf8(&body) else { return refuse("the body is not UTF-8") };
    match debug.sources.log_level.set(text.trim()) {
        Ok(()) => read_level(State(debug)).await.into_response(),
        Err(error) => refuse(&error),
    }
}

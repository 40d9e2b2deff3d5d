//! Views as the body of an answer.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use serde::Serialize;

use crate::server::apis::status;
use crate::snapshot::Snapshot;
use crate::visibility::views::{Role, Source, SourceKind};

/// Returns the time up to which a process has received all changes; `None` while its watches are silent. An unchanged state is
/// not published again, and is valid up to this time.
pub type HeardUntil = Arc<dyn Fn() -> Option<Timestamp> + Send + Sync>;

/// Returns the origin of answers from a snapshot.
pub fn source_of(snapshot: &Snapshot, replica: &str, heard_until: Option<Timestamp>) -> Source {
    Source {
        kind: SourceKind::Manager,
        replica: replica.to_owned(),
        role: Some(if snapshot.leading { Role::Leader } else { Role::Follower }),
        state_version: snapshot.version,
        time: snapshot.published_at.max(heard_until.filter(|_| snapshot.synced)),
    }
}

/// An object with its type.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Typed<T> {
    pub(super) api_version: String,
    pub(super) kind: String,
    #[serde(flatten)]
    pub(super) object: T,
}

/// Returns an answer with a value.
pub(super) fn send(body: &impl Serialize) -> Response {
    match serde_json::to_string(body) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a view cannot be written");
            status::unavailable("the answer cannot be written")
        }
    }
}

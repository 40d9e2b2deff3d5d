//! The metrics endpoint.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;

/// Renders all metric families.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// Returns the route `/metrics`, open to all clients: see `authorizer`.
pub fn router(render: Render) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(render)
}

async fn scrape(State(render): State<Render>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], render()).into_response()
}

//! Liveness and readiness.

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;

/// What stands between this replica and readiness, or between it and being alive, in words; empty when nothing does.
pub type NotReadyReasons = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// `/livez`, and liveness and readiness under the configured names.
pub fn router(readiness: &str, liveness: &str, ready: NotReadyReasons, alive: NotReadyReasons) -> Router {
    let ready = get(move || std::future::ready(probe_response("not ready", &ready)));
    let live = get(move || std::future::ready(probe_response("not alive", &alive)));
    let mut paths: Vec<(String, _)> = Vec::new();
    for (path, route) in [
        (with_leading_slash(readiness), &ready),
        (with_leading_slash(liveness), &live),
        ("/readyz".to_owned(), &ready),
        ("/livez".to_owned(), &live),
        ("/healthz".to_owned(), &live),
    ] {
        if paths.iter().all(|(known, _)| *known != path) {
            paths.push((path, route.clone()));
        }
    }
    paths.into_iter().fold(Router::new(), |router, (path, route)| router.route(&path, route))
}

fn with_leading_slash(name: &str) -> String {
    format!("/{}", name.trim_start_matches('/'))
}

fn probe_response(what: &str, obstacles: &NotReadyReasons) -> Response {
    let obstacles = obstacles();
    if obstacles.is_empty() {
        (StatusCode::OK, "ok").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{what}: {}\n", obstacles.join("; "))).into_response()
    }
}

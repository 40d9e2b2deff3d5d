//! Liveness and readiness.

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;

/// Returns the reasons why this replica is not ready, or not alive; none if it is.
pub type NotReadyReasons = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// Returns the routes `/livez`, `/readyz`, `/healthz`, and the configured names of both probes.
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
        if paths.iter().all(|(existing, _)| *existing != path) {
            paths.push((path, route.clone()));
        }
    }
    paths.into_iter().fold(Router::new(), |router, (path, route)| router.route(&path, route))
}

fn with_leading_slash(name: &str) -> String {
    format!("/{}", name.trim_start_matches('/'))
}

fn probe_response(what: &str, reasons: &NotReadyReasons) -> Response {
    let reasons = reasons();
    if reasons.is_empty() {
        (StatusCode::OK, "ok").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{what}: {}\n", reasons.join("; "))).into_response()
    }
}

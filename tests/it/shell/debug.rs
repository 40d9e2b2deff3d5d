//! The debug endpoints behind the authorizer, against a scripted API server: who may call them, and what they answer while
//! the core does not.

use crate::fixtures::scripted_client::scripted_client_with_body;
use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use sluice::kube::client::Caller;
use sluice::reconciler::{CoreSettings, Reconciler};
use sluice::server::authorizer::{Authorizer, guarded};
use sluice::server::debug::{AskCore, DebugSources, LogLevel, router};
use sluice::snapshot::Inspection;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tower::ServiceExt;

/// Accepts the level `debug` only.
struct OneLevel(Mutex<String>);

impl LogLevel for OneLevel {
    fn get(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    fn set(&self, level: &str) -> Result<(), String> {
        if level != "debug" {
            return Err(format!("{level:?} is no level"));
        }
        level.clone_into(&mut self.0.lock().unwrap());
        Ok(())
    }
}

fn answering_core() -> AskCore<Inspection> {
    Arc::new(|| {
        let state = Reconciler::new(CoreSettings::default());
        let now = jiff::Timestamp::UNIX_EPOCH;
        Box::pin(async move { Some(state.inspect(10, now)) })
    })
}

fn debug_router(core: AskCore<Inspection>) -> Router {
    let shell: Map<String, Value> = [("version".to_owned(), json!("1"))].into_iter().collect();
    let log_level = Arc::new(OneLevel(Mutex::new("info".to_owned())));
    let history: AskCore<Value> = Arc::new(|| Box::pin(async { Some(json!({"lines": []})) }));
    router(DebugSources { shell: Arc::new(move || shell.clone()), core, history, log_level })
}

/// Token `reader` may get all paths, `writer` may also put the log level, `scraper` may get `/metrics`.
fn guarded_router() -> Router {
    let permitted = |spec: &Value| {
        let attribute =
            |name: &str| spec["nonResourceAttributes"][name].as_str().unwrap_or_default().to_owned();
        match (
            spec["user"].as_str().unwrap_or_default(),
            attribute("verb").as_str(),
            attribute("path").as_str(),
        ) {
            ("reader" | "writer", "get", path) => path.starts_with("/debug/"),
            ("writer", "put", "/debug/log-level") | ("scraper", "get", "/metrics") => true,
            _ => false,
        }
    };
    let (client, _) = scripted_client_with_body(move |_, uri, body| {
        if uri.contains("subjectaccessreviews") {
            return (201, json!({"status": {"allowed": permitted(&body["spec"])}}));
        }
        let token = body["spec"]["token"].clone();
        (201, json!({"status": {"authenticated": token != "junk", "user": {"username": token}}}))
    });
    guarded(debug_router(answering_core()), Authorizer::new(&Caller::new(client, Duration::from_secs(5))))
}

async fn call(router: &Router, method: Method, path: &str, token: &str, body: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path);
    let request =
        if token.is_empty() { request } else { request.header("authorization", format!("Bearer {token}")) };
    let response = router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn each_verb_and_path_is_authorized() {
    let router = guarded_router();
    let level = "/debug/log-level";
    for (method, path, token, expected) in [
        (Method::GET, "/debug/state", "", 401),
        (Method::GET, "/debug/state", "junk", 401),
        (Method::GET, "/debug/state", "scraper", 403),
        (Method::GET, "/debug/state", "reader", 200),
        (Method::GET, "/debug/history", "", 401),
        (Method::GET, "/debug/history", "scraper", 403),
        (Method::GET, "/debug/history", "reader", 200),
        (Method::PUT, "/debug/history", "writer", 403),
        (Method::GET, level, "reader", 200),
        (Method::PUT, level, "reader", 403),
        (Method::PUT, level, "scraper", 403),
        (Method::PUT, level, "junk", 401),
        (Method::PUT, level, "writer", 200),
        // A decision about one verb or path is not used for another.
        (Method::PUT, level, "reader", 403),
        (Method::PUT, "/debug/state", "writer", 403),
        (Method::POST, level, "writer", 405),
        (Method::GET, "/debug", "", 404),
    ] {
        let (status, body) = call(&router, method.clone(), path, token, "debug").await;
        assert_eq!(status.as_u16(), expected, "{method} {path} with {token:?}: {body}");
        if expected == 403 {
            assert!(body.contains(path), "{body}");
        }
    }
}

#[tokio::test]
async fn bad_levels_change_nothing() {
    let router = debug_router(answering_core());
    let level = "/debug/log-level";
    let long = "x".repeat(5_000);
    for (body, words) in
        [("loud", "\\\"loud\\\""), ("", "is no level"), (long.as_str(), "at most 4096 bytes")]
    {
        let (status, answer) = call(&router, Method::PUT, level, "", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert!(answer.contains(words), "{answer}");
        assert_eq!(call(&router, Method::GET, level, "", "").await.1, "info\n");
    }
    assert_eq!(
        call(&router, Method::PUT, level, "", "debug\n").await,
        (StatusCode::OK, "debug\n".to_owned())
    );
    assert_eq!(call(&router, Method::GET, level, "", "").await.1, "debug\n");
}

#[tokio::test(start_paused = true)]
async fn state_is_answered_while_core_hangs() {
    let hanging: AskCore<Inspection> = Arc::new(|| Box::pin(std::future::pending()));
    let router = debug_router(hanging);
    let start = Instant::now();
    let first = call(&router, Method::GET, "/debug/state", "", "");
    let second = call(&router, Method::GET, "/debug/state", "", "");
    let ((status, body), (other, _)) = tokio::join!(first, second);
    assert_eq!(
        (status, other),
        (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS),
        "one request asks at a time"
    );
    assert!(start.elapsed() < Duration::from_millis(2_100), "{:?}", start.elapsed());
    let state: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(state, json!({"version": "1", "core": {"error": "the core has not answered within 2s"}}));
    let ended = debug_router(Arc::new(|| Box::pin(std::future::ready(None))));
    let (_, body) = call(&ended, Method::GET, "/debug/state", "", "").await;
    assert!(body.contains("the core cannot be asked"), "{body}");
    let (_, body) = call(&debug_router(answering_core()), Method::GET, "/debug/state", "", "").await;
    let state: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(state["core"]["inFlightWrites"], json!({"total": 0, "more": 0, "first": []}), "{state}");
}

//! The authorizer of the metrics endpoint against a scripted API server: junk tokens lock out no valid scraper and cause few
//! reviews.
#![expect(clippy::disallowed_methods, reason = "clients run and wait")]

use crate::fixtures::scripted_client::scripted_client_with_body;
use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use sluice::kube::client::{Caller, Rate};
use sluice::server::authorizer::{Authorizer, guarded};
use sluice::server::metrics::router;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

/// Counts of token reviews, and whether the good token is revoked.
#[derive(Default)]
struct Server {
    good: AtomicU64,
    junk: AtomicU64,
    revoked: AtomicBool,
}

impl Server {
    fn respond(&self, uri: &str, body: &Value) -> (u16, Value) {
        if uri.contains("subjectaccessreviews") {
            return (201, json!({"status": {"allowed": body["spec"]["user"] == "prometheus"}}));
        }
        let good = body["spec"]["token"] == "good";
        let count = if good { &self.good } else { &self.junk };
        count.fetch_add(1, Ordering::Relaxed);
        let authenticated = good && !self.revoked.load(Ordering::Relaxed);
        (201, json!({"status": {"authenticated": authenticated, "user": {"username": "prometheus"}}}))
    }
}

fn authorized_router(server: &Arc<Server>) -> Router {
    let server = Arc::clone(server);
    let (client, _) = scripted_client_with_body(move |_, uri, body| server.respond(uri, body));
    // The rate limit of the scheduler's own calls is exhausted: the authorizer does not depend on it.
    let exhausted = Rate { per_second: 0.0, burst: 1.0 };
    let caller = Caller::new(client, Duration::from_secs(5)).with_rate(Some(exhausted));
    guarded(router(Arc::new(|| "up 1\n".to_owned())), Authorizer::new(&caller))
}

async fn scrape(router: &Router, token: &str) -> StatusCode {
    let request = Request::get("/metrics").header("authorization", format!("Bearer {token}"));
    router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
}

#[tokio::test(start_paused = true)]
async fn junk_tokens_cause_few_reviews_and_no_lockout() {
    let server = Arc::<Server>::default();
    let router = authorized_router(&server);
    let start = Instant::now();
    let junk: Vec<_> = (0..8)
        .map(|client| {
            let router = router.clone();
            tokio::spawn(async move {
                for number in 0_u64.. {
                    let status = scrape(&router, &format!("junk {client} {number}")).await;
                    assert!(matches!(status.as_u16(), 401 | 429), "{status}");
                    sleep(Duration::from_millis(1)).await;
                }
            })
        })
        .collect();
    for _ in 0..40 {
        sleep(Duration::from_secs(15)).await;
        assert_eq!(scrape(&router, "good").await, StatusCode::OK, "after {:?}", start.elapsed());
    }
    let minutes = start.elapsed().as_secs() / 60;
    let (good, junk_reviews) = (server.good.load(Ordering::Relaxed), server.junk.load(Ordering::Relaxed));
    assert!(good <= minutes + 1, "{good} reviews of the good token in {minutes} minutes");
    assert!(junk_reviews <= 20 + 10 * (start.elapsed().as_secs() + 1), "{junk_reviews} in {minutes} minutes");
    assert!(junk_reviews > 1000, "junk tokens were reviewed at all: {junk_reviews}");
    // A revoked token is refused within a minute, under the same load.
    server.revoked.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(61)).await;
    assert_eq!(scrape(&router, "good").await, StatusCode::UNAUTHORIZED);
    assert!(junk.iter().all(|client| !client.is_finished()), "a client with junk tokens has failed");
    junk.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn repeated_junk_token_costs_one_review() {
    let server = Arc::<Server>::default();
    let router = authorized_router(&server);
    for _ in 0..1_000 {
        assert_eq!(scrape(&router, "junk").await, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(scrape(&router, &"x".repeat(100_000)).await, StatusCode::UNAUTHORIZED);
    assert_eq!(server.junk.load(Ordering::Relaxed), 1);
}

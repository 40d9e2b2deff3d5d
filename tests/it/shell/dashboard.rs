//! The dashboard over HTTP against a scripted API server: headers, forms of answers, streams.

use crate::fixtures::dashboard_server::{Fixture, stream};
use axum::body::Body;
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test]
async fn every_answer_has_strict_headers() {
    let fixture = Fixture::new("/a/b");
    let mut seen = BTreeMap::new();
    for (path, token) in [
        ("/a/b", "admin"),
        ("/a/b/", "admin"),
        ("/a/b/pending", "admin"),
        ("/a/b/pending?o=csv", "admin"),
        ("/a/b/pending?limit=x", "admin"),
        ("/a/b/none", "admin"),
        ("/a/b/cohorts/x", "admin"),
        ("/a/b/", ""),
        ("/a/b/login", ""),
        ("/a/b/healthz", ""),
        ("/", "admin"),
        ("/pending", "admin"),
        ("/a/b/events", "admin"),
    ] {
        let cookie = format!("__Secure-sluice={token}");
        let answer = fixture.get(path, "", &[("cookie", &cookie)]).await;
        let header = |name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert!(header("content-security-policy").unwrap().contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(header("x-content-type-options").unwrap(), "nosniff", "{path}");
        assert_eq!(header("cache-control").unwrap(), "no-store", "{path}");
        assert_eq!(header("referrer-policy").unwrap(), "same-origin", "{path}");
        assert_eq!(header("access-control-allow-origin"), None, "{path}");
        seen.insert((path, token), answer.status.as_u16());
    }
    let expected = BTreeMap::from([
        (("/a/b", "admin"), 200),
        (("/a/b/", "admin"), 200),
        (("/a/b/pending", "admin"), 200),
        (("/a/b/pending?o=csv", "admin"), 200),
        (("/a/b/pending?limit=x", "admin"), 400),
        (("/a/b/none", "admin"), 404),
        (("/a/b/cohorts/x", "admin"), 503),
        (("/a/b/", ""), 401),
        (("/a/b/login", ""), 200),
        (("/a/b/healthz", ""), 200),
        (("/", "admin"), 404),
        (("/pending", "admin"), 404),
        (("/a/b/events", "admin"), 400),
    ]);
    assert_eq!(seen, expected);
    let page = fixture.get("/a/b/", "", &[("cookie", "__Secure-sluice=admin")]).await;
    let style = page.body.split('"').find(|text| text.ends_with("sluice.css")).unwrap();
    let style = fixture.get(style, "", &[]).await;
    assert_eq!(style.headers["cache-control"], "public, max-age=31536000, immutable");
    assert_eq!(style.headers["content-type"], "text/css; charset=utf-8");
}

#[tokio::test]
async fn answers_have_the_form_that_was_asked_for() {
    let fixture = Fixture::new("/");
    let plain = fixture.get("/", "admin", &[]).await;
    assert!(!plain.headers.contains_key("content-encoding"));
    let packed = fixture.get("/", "admin", &[("accept-encoding", "br, gzip")]).await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    let length: usize = packed.headers["content-length"].to_str().unwrap().parse().unwrap();
    assert!(length < 64 << 10 && length * 3 < plain.body.len(), "{length} of {}", plain.body.len());
    for headers in [&[("accept", "application/json")][..], &[]] {
        let path = if headers.is_empty() { "/pending?o=json" } else { "/pending" };
        let answer = fixture.get(path, "admin", headers).await;
        assert_eq!(answer.headers["content-type"], "application/json");
        let value: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(value["items"].as_array().unwrap().len(), 12);
    }
    let csv = fixture.get("/pending?o=csv", "admin", &[]).await;
    assert_eq!(
        (csv.headers["content-type"].to_str().unwrap(), csv.body.lines().count()),
        ("text/csv; charset=utf-8", 13)
    );
    let csv = fixture.get("/preemptions?o=csv", "admin", &[]).await;
    assert!(csv.body.starts_with("time,victim_namespace,") && csv.body.lines().count() == 4, "{}", csv.body);
    assert_eq!(fixture.get("/?o=csv", "admin", &[]).await.status, StatusCode::BAD_REQUEST);
    let job = fixture.get("/jobs/nlp-train/job/x", "admin", &[]).await;
    assert_eq!(
        (job.status, job.headers["location"].to_str().unwrap()),
        (StatusCode::SEE_OTHER, "/workloads/nlp-train/x")
    );
    let missing = fixture.get("/clusterqueues/nlpx", "admin", &[]).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    assert!(missing.body.contains("href=\"/clusterqueues/nlp\""));
    assert!(missing.body.contains("There is no ClusterQueue nlpx."), "{}", missing.body);
    let missing = fixture.get("/clusterqueues/nlpx?o=json", "admin", &[]).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    assert!(missing.body.contains("There is no ClusterQueue nlpx. Similar: nlp."), "{}", missing.body);
    let starting = fixture.get("/cohorts/x", "admin", &[]).await;
    assert_eq!(
        (starting.status, &starting.headers["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"5".parse().unwrap())
    );
    let typed = fixture.get("/namespaces?ns=nlp-train", "tenant", &[]).await;
    assert_eq!(typed.headers["location"], "/namespaces/nlp-train");
}

/// Reads events of a stream until one of this name.
async fn next_event(body: &mut Body, name: &str) -> String {
    let reading = async {
        loop {
            let frame = body.frame().await.expect("an event").unwrap();
            let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
            if text.contains(&format!("event: {name}\n")) {
                return text;
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(2), reading).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stream_sends_what_changed_until_the_right_ends() {
    let fixture = Fixture::new("/");
    let (status, mut body) = stream(&fixture, "/events?page=%2F", "admin").await;
    assert_eq!(status, StatusCode::OK);
    let first = next_event(&mut body, "swap").await;
    assert!(
        first.contains("id: recorded:0") && first.contains("\\\"facts\\\"") | first.contains("\"facts\"")
    );
    *fixture.recorded.pending.lock().unwrap() = Some(1_285);
    fixture.recorded.version.fetch_add(1, Ordering::SeqCst);
    let swap = next_event(&mut body, "swap").await;
    assert!(swap.contains("1,285") && swap.contains("\"lede\"") && !swap.contains("\"tree\""), "{swap}");
    next_event(&mut body, "beat").await;
    *fixture.server.revoked.lock().unwrap() = true;
    let begun = tokio::time::Instant::now();
    next_event(&mut body, "reload").await;
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
    assert!(body.frame().await.is_none(), "the stream has ended");
    let (status, _) = stream(&fixture, "/events?page=%2F", "admin").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

/// Each rendering of such a page would cost a simulation.
#[tokio::test]
async fn a_page_without_updates_has_no_stream() {
    let fixture = Fixture::new("/");
    let page = "/events?page=%2Fwhat-if%3Fadd%3D2%26like%3Dh1";
    assert_eq!(stream(&fixture, page, "admin").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(stream(&fixture, page, "tenant").await.0, StatusCode::FORBIDDEN);
    assert!(fixture.recorded.asked.lock().unwrap().is_empty(), "nothing was computed");
    let answer = fixture.get("/what-if?add=2&like=h1&for=1h", "admin", &[]).await;
    assert!(answer.status == StatusCode::OK && !answer.body.contains("data-events"), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_replica_that_retires_says_so() {
    let fixture = Fixture::new("/");
    let (_, mut body) = stream(&fixture, "/events?page=%2Fnamespaces%2Fnlp-train", "tenant").await;
    next_event(&mut body, "swap").await;
    fixture.retire.send_replace(true);
    next_event(&mut body, "bye").await;
    assert!(body.frame().await.is_none());
    for (path, token) in [("/events?page=%2F", "tenant"), ("/events?page=%2F", "")] {
        assert_eq!(stream(&fixture, path, token).await.0, StatusCode::FORBIDDEN);
    }
}

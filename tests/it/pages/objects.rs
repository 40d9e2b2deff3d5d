//! YAML and events of an object on a page of the dashboard: read with the viewer's token by a client that has no credentials, and
//! not read at all where tokens are for the dashboard alone.

use crate::fixtures::scripted_client::scripted_client_with_body;
use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sluice::dashboard::{Freshness, Links, PageQuestion};
use sluice::kube::client::Caller;
use sluice::server::dashboard::models::{Answering, Models, NoValue};
use sluice::server::dashboard::{Settings, router};
use sluice::server::user_authorizer::UserAuthorizer;
use sluice::visibility::access::{Access, TenantDetail};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tower::ServiceExt as _;

/// The page of an object has no model: nothing else is asked for.
struct NoModels;

impl Models for NoModels {
    fn version(&self) -> (String, u64) {
        ("none".to_owned(), 0)
    }

    fn freshness(&self) -> Freshness {
        Freshness::Live
    }

    fn answer(&self, question: PageQuestion, _: Access, _: String) -> Answering<'_> {
        Box::pin(async move { Err(NoValue::Invalid(format!("{question:?} is not for a model"))) })
    }
}

/// Requests for objects: path and query, with the header that identifies the caller.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

/// A client of an API server that has one Workload with an event, and refuses a ClusterQueue.
fn user_client() -> (Caller, Asked) {
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let log = Arc::clone(&log);
        async move {
            let path = request.uri().path_and_query().unwrap().to_string();
            let header = request.headers().get("authorization").map(|value| value.to_str().unwrap());
            log.lock().unwrap().push((path.clone(), header.unwrap_or_default().to_owned()));
            let (code, answer) = if path.contains("/events") {
                let event = json!({"type": "Normal", "reason": "Pending", "message": "m", "count": 3,
                    "lastTimestamp": "2026-11-26T14:00:00Z"});
                (200, json!({"kind": "EventList", "items": [event]}))
            } else if path.contains("/workloads/") {
                (200, json!({"kind": "Workload", "metadata": {"name": "a"}, "spec": {"queueName": "lq"}}))
            } else {
                (
                    403,
                    json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
                    "message": "clusterqueues.kueue.x-k8s.io \"q\" is forbidden"}),
                )
            };
            let body = kube::client::Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(
                Response::builder().status(StatusCode::from_u16(code).unwrap()).body(body).unwrap(),
            )
        }
    });
    (Caller::new(kube::Client::new(service, "default"), Duration::from_secs(5)), asked)
}

/// Routes for an admin of the cluster and a user of the namespace `ns`.
fn routes(objects: Option<Caller>) -> Router {
    let (client, _) = scripted_client_with_body(|_, uri, body| {
        if uri.contains("tokenreviews") {
            let name = body["spec"]["token"].as_str().unwrap_or_default();
            return (
                201,
                json!({"status": {"authenticated": name != "unknown", "user": {"username": name}}}),
            );
        }
        let attributes = &body["spec"]["resourceAttributes"];
        let own = attributes["resource"] == "workloadviews" && attributes["namespace"] == "ns";
        (201, json!({"status": {"allowed": body["spec"]["user"] == "admin" || own}}))
    });
    let caller = Caller::new(client, Duration::from_secs(5));
    let (_, retiring) = watch::channel(false);
    router(Settings {
        links: Links::default(),
        authorizer: UserAuthorizer::new(&caller, ""),
        models: Arc::new(NoModels),
        tenant_detail: TenantDetail::None,
        objects,
        retiring,
    })
}

async fn get(router: &Router, path: &str, token: &str) -> (StatusCode, HeaderMap, String) {
    let request = Request::get(path).header("cookie", format!("__Host-sluice={token}"));
    let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (parts.status, parts.headers, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn an_object_is_read_as_its_viewer() {
    let (caller, asked) = user_client();
    let router = routes(Some(caller));
    let (status, headers, page) = get(&router, "/objects/workloads/ns/a", "tenant").await;
    assert_eq!((status, &headers["cache-control"]), (StatusCode::OK, &"no-store".parse().unwrap()));
    for part in ["queueName: lq", "Pending", "kubectl get workloads.kueue.x-k8s.io a -n ns -o yaml"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let seen: Vec<Value> = asked.lock().unwrap().iter().map(|(path, header)| json!([path, header])).collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().all(|call| call[1] == "Bearer tenant"), "{seen:?}");
    let (status, _, page) = get(&router, "/objects/clusterqueues/q", "admin").await;
    assert!(status == StatusCode::OK && page.contains("The API server refuses the object: "), "{page}");
    // A viewer without the right to the page of an object is not passed on to the API server.
    let calls = asked.lock().unwrap().len();
    for (path, token, expected) in [
        ("/objects/clusterqueues/q", "tenant", StatusCode::FORBIDDEN),
        ("/objects/workloads/other/a", "tenant", StatusCode::FORBIDDEN),
        ("/objects/workloads/ns/a", "unknown", StatusCode::UNAUTHORIZED),
        ("/objects/secrets/ns/a", "admin", StatusCode::NOT_FOUND),
        ("/objects/clusterqueues/..%2F..%2Fsecrets", "admin", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(get(&router, path, token).await.0, expected, "{path} {token}");
    }
    assert_eq!(asked.lock().unwrap().len(), calls);
}

#[tokio::test]
async fn a_token_for_the_dashboard_alone_reads_nothing() {
    let router = routes(None);
    let (status, _, page) = get(&router, "/objects/workloads/ns/a", "tenant").await;
    assert!(status == StatusCode::OK && page.contains("use the commands"), "{page}");
    assert!(page.contains("kubectl get events -n ns "), "{page}");
}

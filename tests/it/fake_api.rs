//! An API server for tests of certificates: Secrets and webhook configurations that can be listed, watched, created, merged and
//! applied, over plain HTTP, with dates of the test's choice.
#![expect(clippy::disallowed_methods, reason = "the server side of the connection runs in a task")]

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::response::Response;
use futures::StreamExt as _;
use futures::stream;
use http::{Method, StatusCode, Uri};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice::kube::client::{Clients, Timeouts};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::broadcast;

/// Objects by their path.
#[derive(Clone)]
pub(crate) struct FakeApi(Arc<FakeApiState>);

struct FakeApiState {
    objects: Mutex<(u64, BTreeMap<String, Value>)>,
    changes: broadcast::Sender<(String, Value)>,
    /// How far the dates of responses are behind this machine's clock.
    clock_behind: SignedDuration,
}

impl FakeApi {
    pub(crate) fn new(behind: SignedDuration) -> Self {
        let changes = broadcast::channel(64).0;
        Self(Arc::new(FakeApiState { objects: Mutex::default(), changes, clock_behind: behind }))
    }

    /// Creates or replaces an object.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let mut objects = self.0.objects.lock().unwrap();
        objects.0 += 1;
        let name = path.rsplit('/').next().unwrap();
        object["metadata"]["name"] = name.into();
        object["metadata"]["resourceVersion"] = objects.0.to_string().into();
        if let Some(fields) = object.as_object_mut()
            && let Some(Value::Object(texts)) = fields.remove("stringData")
        {
            for (key, text) in texts {
                let bytes = k8s_openapi::ByteString(text.as_str().unwrap().as_bytes().to_vec());
                object["data"][&key] = serde_json::to_value(bytes).unwrap();
            }
        }
        let previous = objects.1.insert(path.to_owned(), object.clone());
        let kind = if previous.is_some() { "MODIFIED" } else { "ADDED" };
        let _ = self.0.changes.send((path.to_owned(), json!({"type": kind, "object": object})));
    }

    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.0.objects.lock().unwrap().1.get(path).cloned()
    }

    /// Serves on a free port. Returns clients for it.
    pub(crate) async fn clients(&self) -> Clients {
        sluice::kube::cryptography::install();
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", socket.local_addr().unwrap());
        let router = Router::new().fallback(handle).with_state(self.clone());
        tokio::spawn(async move { axum::serve(socket, router).await });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": server}}],
            "users": [{"name": "fake", "user": {}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        });
        let file = std::env::temp_dir().join(format!("fake-api-{}", server.rsplit(':').next().unwrap()));
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let timeouts = Timeouts { call: Duration::from_secs(20), lease: Duration::from_secs(20) };
        let clients =
            Clients::connect(Some(&file), timeouts, None, &tokio::runtime::Handle::current()).await.unwrap();
        std::fs::remove_file(file).unwrap();
        clients
    }

    fn respond(&self, code: u16, body: Body) -> Response {
        let date = Timestamp::now().saturating_sub(self.0.clock_behind).unwrap();
        let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let builder = Response::builder().status(StatusCode::from_u16(code).unwrap()).header("date", date);
        builder.header("content-type", "application/json").body(body).unwrap()
    }

    fn json(&self, code: u16, value: &Value) -> Response {
        self.respond(code, Body::from(value.to_string()))
    }

    fn failure(&self, code: u16) -> Response {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "X", "code": code});
        self.json(code, &status)
    }

    /// Streams the changes of one object since a revision, until the client disconnects.
    fn watch(&self, path: String, since: u64) -> Response {
        // Under the lock, so that no change is missed between the subscription and the read.
        let objects = self.0.objects.lock().unwrap();
        let changes = self.0.changes.subscribe();
        let version =
            |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
        let missed = objects.1.get(&path).filter(|object| version(object) > since);
        let missed = missed.map(|object| (path.clone(), json!({"type": "MODIFIED", "object": object})));
        drop(objects);
        let changes = stream::unfold(changes, |mut changes| async {
            let change = changes.recv().await.ok()?;
            Some((change, changes))
        });
        let changes = stream::iter(missed).chain(changes);
        let lines = changes.filter_map(move |(changed, event)| {
            let line = (changed == path).then(|| Ok::<_, std::io::Error>(format!("{event}\n")));
            std::future::ready(line)
        });
        self.respond(200, Body::from_stream(lines))
    }

    fn list(&self, path: &str) -> Response {
        let objects = self.0.objects.lock().unwrap();
        let items: Vec<&Value> = objects.1.get(path).into_iter().collect();
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": objects.0.to_string()}, "items": items});
        self.json(200, &list)
    }
}

async fn handle(
    State(api): State<FakeApi>,
    method: Method,
    uri: Uri,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    let (path, query) = (uri.path().to_owned(), query.unwrap_or_default());
    let name = query.split('&').find_map(|part| part.strip_prefix("fieldSelector=metadata.name"));
    let name = name.map(|name| name.trim_start_matches("%3D").trim_start_matches('='));
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match (method.as_str(), name) {
        ("GET", Some(name)) if query.contains("watch=true") => {
            let since = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
            let since = since.and_then(|since| since.parse().ok()).unwrap_or_default();
            api.watch(format!("{path}/{name}"), since)
        }
        ("GET", Some(name)) => api.list(&format!("{path}/{name}")),
        ("GET", None) => api.object(&path).map_or_else(|| api.failure(404), |object| api.json(200, &object)),
        ("POST", _) => {
            let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
            if api.object(&path).is_some() {
                return api.failure(409);
            }
            api.put(&path, body);
            api.json(201, &api.object(&path).unwrap())
        }
        ("PATCH", _) => {
            let Some(mut object) = api.object(&path) else { return api.failure(404) };
            let version = &body["metadata"]["resourceVersion"];
            if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
                return api.failure(409);
            }
            if body["webhooks"].is_array() {
                apply_bundles(&mut object, &body);
            } else {
                merge(&mut object, &body);
            }
            if query.contains("fieldManager") {
                add_field_manager(&mut object);
            }
            api.put(&path, object);
            api.json(200, &api.object(&path).unwrap())
        }
        _ => api.failure(405),
    }
}

/// Merges webhooks by name.
fn apply_bundles(object: &mut Value, body: &Value) {
    for webhook in body["webhooks"].as_array().unwrap() {
        let existing = object["webhooks"].as_array_mut().unwrap().iter_mut();
        let existing = existing.into_iter().find(|existing| existing["name"] == webhook["name"]).unwrap();
        existing["clientConfig"]["caBundle"] = webhook["clientConfig"]["caBundle"].clone();
    }
}

fn add_field_manager(object: &mut Value) {
    let manager = json!({"manager": "sluice-certificates", "operation": "Apply"});
    if let Some(managers) = object["metadata"]["managedFields"].as_array_mut()
        && !managers.contains(&manager)
    {
        managers.push(manager);
    }
}

fn merge(into: &mut Value, from: &Value) {
    let Value::Object(fields) = from else {
        *into = from.clone();
        return;
    };
    for (key, value) in fields {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut into[key], value);
        }
    }
}

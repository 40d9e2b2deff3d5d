//! An API server for tests of the command line: objects by path over plain HTTP, with pages, selectors, merge patches with
//! preconditions, deletions by UID, dry runs, discovery, and a log of what was asked.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::{Method, StatusCode, Uri};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// A change of the server's objects before a write to this path.
type ChangeBefore = fn(&mut ServerState, &str);

/// What the server has and what it was asked.
#[derive(Default)]
pub(crate) struct ServerState {
    pub(crate) objects: BTreeMap<String, Value>,
    version: u64,
    /// Method and path with query of each request.
    pub(crate) requests: Vec<(String, String)>,
    /// Runs once before the next write to this path.
    pub(crate) before_write: Option<(String, ChangeBefore)>,
    /// Every user is unknown to it.
    pub(crate) knows_no_user: bool,
    /// Warnings with every answer.
    pub(crate) warnings: Vec<String>,
    /// Requests below this path are never answered.
    pub(crate) silent: Option<&'static str>,
    /// No user may list this resource.
    pub(crate) forbidden: Option<&'static str>,
}

/// A server that runs as long as the test.
#[derive(Clone)]
pub(crate) struct PeopleServer {
    pub(crate) state: Arc<Mutex<ServerState>>,
    address: String,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl ServerState {
    /// Creates or replaces an object.
    pub(crate) fn put(&mut self, path: &str, mut object: Value) {
        self.version += 1;
        let name = path.rsplit('/').next().unwrap();
        let namespace = path.split("/namespaces/").nth(1).and_then(|rest| rest.split('/').next());
        let metadata = &mut object["metadata"];
        metadata["name"] = name.into();
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("uid-{name}").into();
        }
        metadata["resourceVersion"] = self.version.to_string().into();
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        self.objects.insert(path.to_owned(), object);
    }

    /// Number of requests with a method.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.requests.iter().filter(|(found, _)| found == method).count()
    }
}

impl PeopleServer {
    pub(crate) fn start() -> Self {
        let state = Arc::new(Mutex::new(ServerState::default()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { state, address };
        let shared = Arc::clone(&server.state);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let router = Router::new().fallback(handle).with_state(shared);
                let _ = axum::serve(listener, router).await;
            });
        });
        server
    }

    pub(crate) fn put(&self, path: &str, object: Value) {
        self.state.lock().unwrap().put(path, object);
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.state.lock().unwrap().objects.get(path).cloned()
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Forgets the requests and returns them.
    pub(crate) fn requests(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    /// Runs the program by a name, with `line` as arguments; a word may be in single quotes.
    pub(crate) fn run(&self, name: &str, line: &str) -> Outcome {
        self.run_with(name, line, "", &[])
    }

    /// Like `run`, with standard input and variables of the environment.
    pub(crate) fn run_with(
        &self,
        name: &str,
        line: &str,
        input: &str,
        variables: &[(&str, &str)],
    ) -> Outcome {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        let words = line.split('\'').enumerate().flat_map(|(part, text)| match part % 2 {
            0 => text.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![text.to_owned()],
        });
        command.arg0(name).args(words).args(["--kubeconfig", "/dev/null", "--server", &self.address]);
        command
            .envs(variables.iter().copied())
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A program that asks nothing may have ended already.
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Outcome { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }
}

fn respond(code: u16, body: &Value) -> Response {
    let builder = Response::builder().status(StatusCode::from_u16(code).unwrap());
    builder.header("content-type", "application/json").body(Body::from(body.to_string())).unwrap()
}

fn failure(code: u16, reason: &str, message: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code});
    respond(code, &status)
}

/// Parameters of a query, decoded.
fn parameters(query: Option<&str>) -> BTreeMap<String, String> {
    let decoded = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            if byte == b'%' {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
            } else {
                bytes.push(byte);
            }
        }
        String::from_utf8(bytes).unwrap()
    };
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect()
}

async fn handle(
    State(state): State<Arc<Mutex<ServerState>>>,
    method: Method,
    uri: Uri,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    let is_silent = state.lock().unwrap().silent.is_some_and(|path| uri.path().starts_with(path));
    if is_silent {
        std::future::pending::<()>().await;
    }
    let mut state = state.lock().unwrap();
    state.requests.push((method.to_string(), uri.to_string()));
    if state.knows_no_user {
        return failure(401, "Unauthorized", "Unauthorized");
    }
    let mut response = answer(&mut state, &method, &uri, (query, body));
    for text in &state.warnings {
        response.headers_mut().append("warning", format!("299 - \"{text}\"").parse().unwrap());
    }
    response
}

fn answer(
    state: &mut ServerState,
    method: &Method,
    uri: &Uri,
    (query, body): (Option<String>, Bytes),
) -> Response {
    let path = uri.path().to_owned();
    let parameters = parameters(query.as_deref());
    if *method != Method::GET
        && let Some((_, change)) = state.before_write.take_if(|(target, _)| *target == path)
    {
        change(state, &path);
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let dry_run = parameters.contains_key("dryRun");
    match *method {
        Method::GET => get(state, &path, &parameters),
        Method::POST => create(state, &path, body, dry_run),
        Method::PATCH => patch(state, &path, &body, dry_run),
        Method::DELETE => delete(state, &path, &body, dry_run),
        _ => failure(405, "MethodNotAllowed", "not allowed"),
    }
}

/// Resources by group and version, as discovery names them.
fn discovery(path: &str) -> Option<Value> {
    let resource = |plural: &str, singular: &str, kind: &str| json!({"name": plural, "singularName": singular, "namespaced": true, "kind": kind, "verbs": []});
    Some(match path {
        "/api" => json!({"versions": ["v1"]}),
        "/apis" => json!({"groups": [
            {"preferredVersion": {"groupVersion": "batch/v1"}}, {"preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta2"}}]}),
        "/api/v1" => json!({"resources": [resource("pods", "pod", "Pod")]}),
        "/apis/batch/v1" => {
            json!({"resources": [resource("jobs", "job", "Job"), resource("jobs/status", "", "Job")]})
        }
        "/apis/kueue.x-k8s.io/v1beta2" => {
            json!({"resources": [resource("workloads", "workload", "Workload")]})
        }
        _ => return None,
    })
}

fn matches(object: &Value, parameters: &BTreeMap<String, String>) -> bool {
    let labels = parameters.get("labelSelector").into_iter().flat_map(|selector| selector.split(','));
    let mut pairs = labels.filter_map(|pair| pair.split_once('='));
    let field = parameters.get("fieldSelector").and_then(|selector| selector.strip_prefix("metadata.name="));
    pairs.all(|(name, value)| object["metadata"]["labels"][name] == value)
        && field.is_none_or(|name| object["metadata"]["name"] == name)
}

fn get(state: &ServerState, path: &str, parameters: &BTreeMap<String, String>) -> Response {
    if let Some(resources) = discovery(path) {
        return respond(200, &resources);
    }
    if let Some(token) = parameters.get("continue").filter(|_| state.objects.contains_key(path)) {
        let page = state.objects.get(&format!("{path}?continue={token}"));
        return page.map_or_else(|| failure(400, "BadRequest", "no such page"), |page| respond(200, page));
    }
    if let Some(object) = state.objects.get(path) {
        return respond(200, object);
    }
    if let Some(queue) = path.strip_suffix("/pendingworkloads") {
        let Some(Value::Array(rows)) = state.objects.get(queue).map(|object| object["rows"].clone()) else {
            return failure(404, "NotFound", "no queue");
        };
        let number = |name: &str| parameters.get(name).map_or(0, |text| text.parse::<usize>().unwrap());
        let limit = if number("limit") == 0 { 1_000 } else { number("limit") };
        let rows: Vec<Value> = rows.into_iter().skip(number("offset")).take(limit).collect();
        return respond(200, &json!({"items": rows}));
    }
    let plural = path.rsplit('/').next().unwrap();
    let is_collection = [
        "workloads",
        "localqueues",
        "clusterqueues",
        "resourceflavors",
        "jobs",
        "pods",
        "deployments",
        "namespaces",
        "workloadpriorityclasses",
    ]
    .contains(&plural);
    if !is_collection {
        let name = plural;
        let kind = path.rsplit('/').nth(1).unwrap();
        return failure(404, "NotFound", &format!("{kind}.kueue.x-k8s.io {name:?} not found"));
    }
    if state.forbidden == Some(plural) {
        let message = format!("{plural} is forbidden: User \"u\" cannot list resource \"{plural}\"");
        return failure(403, "Forbidden", &message);
    }
    let in_namespace = path.contains("/namespaces/");
    let prefix = format!("{path}/");
    let is_member = |found: &str| {
        if in_namespace {
            found.starts_with(&prefix) && !found[prefix.len()..].contains('/')
        } else {
            found.rsplit('/').nth(1) == Some(plural)
        }
    };
    let all: Vec<&Value> = state
        .objects
        .iter()
        .filter(|(found, object)| is_member(found) && matches(object, parameters))
        .map(|(_, object)| object)
        .collect();
    let token = parameters.get("continue").filter(|token| !token.is_empty());
    let first = token.map_or(0, |token| token.parse::<usize>().unwrap());
    let limit = parameters.get("limit").map_or(usize::MAX, |text| text.parse().unwrap());
    let items: Vec<&&Value> = all.iter().skip(first).take(limit).collect();
    let next = first.saturating_add(items.len());
    let token = if next < all.len() { next.to_string() } else { String::new() };
    let kind = match plural {
        "workloads" => "WorkloadList",
        "localqueues" => "LocalQueueList",
        "clusterqueues" => "ClusterQueueList",
        _ => "List",
    };
    respond(
        200,
        &json!({"kind": kind, "apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"resourceVersion": "1", "continue": token}, "items": items}),
    )
}

fn create(state: &mut ServerState, path: &str, object: Value, dry_run: bool) -> Response {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let target = format!("{path}/{name}");
    if state.objects.contains_key(&target) {
        return failure(409, "AlreadyExists", &format!("{name:?} already exists"));
    }
    if dry_run {
        return respond(201, &object);
    }
    state.put(&target, object);
    respond(201, &state.objects[&target])
}

fn patch(state: &mut ServerState, path: &str, patch: &Value, dry_run: bool) -> Response {
    let Some(known) = state.objects.get(path) else { return failure(404, "NotFound", "not found") };
    for field in ["resourceVersion", "uid"] {
        let wanted = &patch["metadata"][field];
        if !wanted.is_null() && *wanted != known["metadata"][field] {
            return failure(409, "Conflict", "the object has been modified");
        }
    }
    let mut changed = known.clone();
    json_patch::merge(&mut changed, patch);
    if !dry_run {
        state.put(path, changed.clone());
    }
    respond(200, &changed)
}

fn delete(state: &mut ServerState, path: &str, options: &Value, dry_run: bool) -> Response {
    let Some(known) = state.objects.get(path) else { return failure(404, "NotFound", "not found") };
    let uid = &options["preconditions"]["uid"];
    if !uid.is_null() && *uid != known["metadata"]["uid"] {
        return failure(409, "Conflict", "Precondition failed: UID in precondition");
    }
    // As an API server: options in the body take the place of those in the query.
    let dry_run = if options.is_null() { dry_run } else { options["dryRun"] == json!(["All"]) };
    if !dry_run {
        state.objects.remove(path);
    }
    respond(200, &json!({"kind": "Status", "status": "Success"}))
}

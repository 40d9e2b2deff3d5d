//! A fault-injecting reverse proxy between a manager and the API server. It forwards all calls, watches included, and
//! applies faults to the calls that a test selects. Watch events are faulted by `watch_faults`, initial lists by
//! `stale_lists`.
//!
//! The manager connects by plain HTTP with its own token, which is forwarded; the proxy connects to the server by TLS.
//! Like a network, the proxy delivers a request even if the client has given up since.

use crate::control_plane::ControlPlane;
use crate::kubeconfig;
use crate::objects::text;
use crate::process::free_ports;
use crate::stale_lists::StaleLists;
use crate::wait::eventually;
use crate::watch_faults::{ActiveWatchFault, Chunks, EventFault, WatchFaults, pass_through, with_faults};
use anyhow::{Context as _, Result, anyhow, ensure};
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Headers of one connection, which are not forwarded.
const HOP_BY_HOP: [header::HeaderName; 5] =
    [header::CONNECTION, header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::UPGRADE];

/// What happens to a call that a fault rule selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Delivered only when the fault is released.
    Hold,
    /// Delivered at once; the response is held until the fault is released.
    HoldResponse,
    /// The connection breaks before the request reaches the server.
    DropRequest,
    /// The connection breaks after the server has acted, before the response arrives.
    DropResponse,
    /// Delivered after this delay.
    Delay(Duration),
    /// Delivered twice; the client gets the second response.
    Duplicate,
    /// The response body stops after this many bytes; the rest arrives when the fault is released.
    HoldBodyAfter(usize),
    /// Answered with this error; the request never reaches the server.
    Respond(ErrorResponse),
    /// Neither delivered nor answered; the connection breaks when the fault is released.
    NeverAnswer,
}

/// An error response from the proxy instead of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    /// The HTTP status.
    pub code: StatusCode,
    /// Reason in the Status object.
    pub reason: &'static str,
    /// Seconds in `Retry-After`.
    pub retry_after: Option<u32>,
}

impl ErrorResponse {
    /// 409: the object has changed since it was read.
    pub const CONFLICT: Self = Self::new(StatusCode::CONFLICT, "Conflict");
    /// 403: the user lacks permission.
    pub const FORBIDDEN: Self = Self::new(StatusCode::FORBIDDEN, "Forbidden");
    /// 422: a policy or webhook rejected the object.
    pub const INVALID: Self = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid");
    /// 429 with `Retry-After`: too many requests.
    pub const THROTTLED: Self =
        Self { retry_after: Some(1), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests") };
    /// 500: internal server error.
    pub const BROKEN: Self = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
    /// 503: the server is starting or shutting down.
    pub const UNAVAILABLE: Self = Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");

    const fn new(code: StatusCode, reason: &'static str) -> Self {
        Self { code, reason, retry_after: None }
    }

    fn to_response(self) -> Result<Response<Body>> {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": self.code.as_u16(),
            "reason": self.reason, "message": format!("injected by the proxy: {}", self.reason),
        });
        let mut response =
            Response::builder().status(self.code).header(header::CONTENT_TYPE, "application/json");
        if let Some(seconds) = self.retry_after {
            response = response.header(header::RETRY_AFTER, seconds);
        }
        Ok(response.body(Body::from(status.to_string().into_bytes()))?)
    }
}

/// A request as fault rules see it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The HTTP method.
    pub method: Method,
    /// The path without query.
    pub path: String,
    /// The query string.
    pub query: String,
    /// The body; null if it is not JSON.
    pub body: Value,
}

impl Call {
    fn read(head: &Parts, body: &Bytes) -> Self {
        Self {
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(body).unwrap_or_default(),
        }
    }

    /// Returns whether it has this method and a path that ends with `path_end`.
    pub fn matches(&self, method: &Method, path_end: &str) -> bool {
        self.method == *method && self.path.ends_with(path_end)
    }

    /// Returns the resourceVersion in the body, if there is one.
    pub fn resource_version(&self) -> Option<u64> {
        text(&self.body, "/metadata/resourceVersion").parse().ok()
    }

    /// Returns whether it is a watch.
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|part| part == "watch=true")
    }

    /// Returns whether its body sets a condition of this type to this status.
    pub fn sets_condition(&self, kind: &str, status: &str) -> bool {
        crate::objects::condition(&self.body, kind).status == status
    }
}

type Predicate = Box<dyn Fn(&Call) -> bool + Send + Sync>;

struct FaultRule {
    predicate: Predicate,
    /// Indices, from 0, of the matching calls to which the fault applies.
    range: Range<usize>,
    fault: Fault,
    matched: AtomicUsize,
    completed: AtomicUsize,
    released: watch::Sender<bool>,
}

impl FaultRule {
    async fn wait(&self) {
        // Cannot fail: `self` owns the sender.
        let _ = self.released.subscribe().wait_for(|released| *released).await;
    }
}

#[derive(Default)]
struct FaultRules(Mutex<Vec<Arc<FaultRule>>>);

impl FaultRules {
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<FaultRule>>)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the first rule that matches and whose range includes this call. Every matching rule counts the call.
    fn next_fault(&self, call: &Call) -> Option<Arc<FaultRule>> {
        let rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due: Vec<_> = rules
            .iter()
            .filter(|rule| {
                (rule.predicate)(call) && rule.range.contains(&rule.matched.fetch_add(1, Ordering::AcqRel))
            })
            .collect();
        due.first().map(|rule| Arc::clone(rule))
    }
}

/// A running proxy; closed when dropped.
pub struct Proxy {
    port: u16,
    rules: Arc<FaultRules>,
    watch_faults: Arc<WatchFaults>,
    stale_lists: Arc<StaleListState>,
    task: JoinHandle<()>,
}

/// Settings of stale lists, if active, and the number of lists served stale.
#[derive(Default)]
struct StaleListState {
    lists: Mutex<Option<StaleLists>>,
    served: AtomicUsize,
}

impl Proxy {
    /// Opens a port in front of a control plane's API server.
    pub async fn open(plane: &ControlPlane) -> Result<Self> {
        let port = free_ports(1)?.first().copied().context("no port")?;
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let client = kubeconfig::anonymous(plane.server(), &plane.ca_pem())?;
        let (rules, watch_faults) = (Arc::new(FaultRules::default()), Arc::new(WatchFaults::default()));
        let stale_lists = Arc::new(StaleListState::default());
        let task = tokio::spawn(serve(
            listener,
            client,
            Arc::clone(&rules),
            Arc::clone(&watch_faults),
            Arc::clone(&stale_lists),
        ));
        Ok(Self { port, rules, watch_faults, stale_lists, task })
    }

    /// Returns the server URL for a kubeconfig.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Applies a fault to all calls that match `predicate`, until the returned handle is dropped.
    pub fn inject_all(
        &self,
        fault: Fault,
        predicate: impl Fn(&Call) -> bool + Send + Sync + 'static,
    ) -> ActiveFault {
        self.inject(fault, 0..usize::MAX, predicate)
    }

    /// Applies a fault to the calls that match `predicate` and whose index among the matching ones, from 0, is in
    /// `range`.
    pub fn inject(
        &self,
        fault: Fault,
        range: Range<usize>,
        predicate: impl Fn(&Call) -> bool + Send + Sync + 'static,
    ) -> ActiveFault {
        let rule = Arc::new(FaultRule {
            predicate: Box::new(predicate),
            range,
            fault,
            matched: AtomicUsize::new(0),
            completed: AtomicUsize::new(0),
            released: watch::Sender::new(false),
        });
        self.rules.change(|rules| rules.push(Arc::clone(&rule)));
        ActiveFault { rule, rules: Arc::clone(&self.rules) }
    }

    /// Serves streamed lists as of an earlier revision; `None` serves current lists.
    pub fn serve_stale_lists(&self, stale: Option<StaleLists>) {
        *self.stale_lists.lists.lock().unwrap_or_else(PoisonError::into_inner) = stale;
    }

    /// Returns how many lists were served as of an earlier revision.
    pub fn stale_lists_served(&self) -> usize {
        self.stale_lists.served.load(Ordering::Acquire)
    }

    /// Applies to each watch event (an object with `type` and `object`) the fault that `policy` returns.
    pub fn inject_watch_fault(
        &self,
        policy: impl FnMut(&Call, &Value) -> EventFault + Send + 'static,
    ) -> ActiveWatchFault {
        self.watch_faults.inject(policy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A fault that is active until dropped; dropping releases held calls.
pub struct ActiveFault {
    rule: Arc<FaultRule>,
    rules: Arc<FaultRules>,
}

impl ActiveFault {
    /// Returns how many calls have matched so far, faulted or not.
    pub fn matched(&self) -> usize {
        self.rule.matched.load(Ordering::Acquire)
    }

    /// Waits until the fault has been applied to a call.
    pub async fn wait_until_matched(&self) -> Result<()> {
        eventually("a call matches the fault rule", async || {
            let matched = self.matched();
            ensure!(matched > self.rule.range.start, "{matched} calls matched");
            Ok(())
        })
        .await
    }

    /// Waits until every faulted call was delivered or dropped.
    pub async fn wait_until_completed(&self) -> Result<()> {
        eventually("all faulted calls are completed", async || {
            let completed = self.rule.completed.load(Ordering::Acquire);
            ensure!(completed >= self.rule.range.len(), "{completed} of {}", self.rule.range.len());
            Ok(())
        })
        .await
    }

    /// Releases held calls; no call is held afterwards.
    pub fn release(&self) {
        self.rule.released.send_replace(true);
    }
}

impl Drop for ActiveFault {
    fn drop(&mut self) {
        self.release();
        self.rules.change(|rules| rules.retain(|rule| !Arc::ptr_eq(rule, &self.rule)));
    }
}

async fn serve(
    listener: TcpListener,
    client: Client,
    rules: Arc<FaultRules>,
    watch_faults: Arc<WatchFaults>,
    stale_lists: Arc<StaleListState>,
) {
    // Dropped with this task, which closes the connections.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (client, rules, watch_faults) = (client.clone(), Arc::clone(&rules), Arc::clone(&watch_faults));
        let stale_lists = Arc::clone(&stale_lists);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                handle(
                    request,
                    client.clone(),
                    Arc::clone(&rules),
                    Arc::clone(&watch_faults),
                    Arc::clone(&stale_lists),
                )
            });
            // Broken connections are intended.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// A streamed response.
type ProxiedResponse = StreamBody<BoxStream<'static, Result<Frame<Bytes>>>>;

/// Handles one request. Returning an error breaks the connection.
async fn handle(
    request: Request<Incoming>,
    client: Client,
    rules: Arc<FaultRules>,
    watch_faults: Arc<WatchFaults>,
    stale_lists: Arc<StaleListState>,
) -> Result<Response<ProxiedResponse>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let call = Call::read(&head, &body);
    let stale = stale_lists.lists.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(stale) = stale.filter(|_| StaleLists::applies_to(&call))
        // If the stale list fails, for example for an unknown kind, the request is forwarded instead.
        && let Ok((head, chunks)) = stale.respond(client.clone(), end_to_end_headers(&head.headers), &call).await
    {
        stale_lists.served.fetch_add(1, Ordering::AcqRel);
        return Ok(Response::from_parts(head, StreamBody::new(chunks.map(|c| c.map(Frame::data)).boxed())));
    }
    let rule = rules.next_fault(&call);
    let matched_rule = rule.clone();
    // In its own task, so that the request is delivered even if the client has given up.
    let (head, body) = tokio::spawn(async move {
        let outcome = deliver(&client, &head, &body, rule.as_deref()).await;
        if let Some(rule) = rule {
            rule.completed.fetch_add(1, Ordering::AcqRel);
        }
        outcome
    })
    .await??
    .into_parts();
    let chunks = if call.is_watch() { with_faults(call, watch_faults, body) } else { pass_through(body) };
    let chunks = match matched_rule {
        Some(rule) => match rule.fault {
            Fault::HoldBodyAfter(length) => hold_body_after(chunks, length, rule),
            _ => chunks,
        },
        None => chunks,
    };
    Ok(Response::from_parts(head, StreamBody::new(chunks.map(|chunk| chunk.map(Frame::data)).boxed())))
}

async fn deliver(
    client: &Client,
    head: &Parts,
    body: &Bytes,
    rule: Option<&FaultRule>,
) -> Result<Response<Body>> {
    let send = async || forward(client, head, body).await;
    let Some(rule) = rule else { return send().await };
    match rule.fault {
        Fault::Hold => {
            rule.wait().await;
            send().await
        }
        Fault::HoldResponse => {
            let (head, body) = send().await?.into_parts();
            let bytes = body.collect_bytes().await?;
            rule.wait().await;
            Ok(Response::from_parts(head, Body::from(bytes)))
        }
        Fault::DropRequest => Err(anyhow!("request dropped")),
        Fault::DropResponse => {
            send().await?.into_body().collect_bytes().await?;
            Err(anyhow!("response dropped"))
        }
        Fault::Delay(time) => {
            tokio::time::sleep(time).await;
            send().await
        }
        // The response body is held by `handle`.
        Fault::HoldBodyAfter(_) => send().await,
        Fault::Respond(error) => error.to_response(),
        Fault::NeverAnswer => {
            rule.wait().await;
            Err(anyhow!("request never answered"))
        }
        Fault::Duplicate => {
            send().await?.into_body().collect_bytes().await?;
            send().await
        }
    }
}

/// Holds a response body after `length` bytes until the rule is released.
fn hold_body_after(chunks: Chunks, length: usize, rule: Arc<FaultRule>) -> Chunks {
    let passed_bytes = AtomicUsize::new(0);
    let held = chunks.then(move |chunk| {
        let size = chunk.as_ref().map_or(0, Bytes::len);
        let waits = passed_bytes.fetch_add(size, Ordering::AcqRel) >= length;
        let rule = Arc::clone(&rule);
        async move {
            if waits {
                rule.wait().await;
            }
            chunk
        }
    });
    held.boxed()
}

async fn forward(client: &Client, head: &Parts, body: &Bytes) -> Result<Response<Body>> {
    let mut request = Request::builder().method(head.method.clone()).uri(head.uri.clone());
    if let Some(headers) = request.headers_mut() {
        headers.clone_from(&end_to_end_headers(&head.headers));
    }
    let mut response = client.send(request.body(Body::from(body.clone()))?).await?;
    *response.headers_mut() = end_to_end_headers(response.headers());
    Ok(response)
}

fn end_to_end_headers(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers
}

//! A reverse proxy between a manager and the API server that forwards everything, watches included, and does harm to the
//! calls that a test picks, or answers them in the server's stead.
//!
//! The manager talks plain HTTP to it with a token of its own, which is passed on; the way to the server is TLS. What has
//! been sent into the proxy is delivered even if the client has given up meanwhile, as by a network.

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

/// Headers of one connection, not of the message: each side has its own.
const HOP_BY_HOP: [header::HeaderName; 5] =
    [header::CONNECTION, header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::UPGRADE];

/// What happens to a call that a rule picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It waits until the trap is released, and is delivered then.
    Hold,
    /// It is delivered at once, and its answer waits until the trap is released.
    HoldResponse,
    /// The connection breaks before the server has seen it.
    DropRequest,
    /// The connection breaks after the server has acted and before its answer arrives.
    DropResponse,
    /// It is delivered so much later.
    Delay(Duration),
    /// It is delivered twice; the answer is the second one's.
    Duplicate,
    /// So many bytes of its answer arrive, and the rest when the trap is released.
    HoldBodyAfter(usize),
    /// It is answered so, and the server never sees it.
    Respond(ErrorResponse),
    /// It is neither delivered nor answered; when the trap is released its connection breaks.
    NeverAnswer,
}

/// An answer in the server's stead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    /// The HTTP status.
    pub code: StatusCode,
    /// The reason in the Status object.
    pub reason: &'static str,
    /// Seconds in `Retry-After`.
    pub retry_after: Option<u32>,
}

impl ErrorResponse {
    /// The object has changed since it was read.
    pub const CONFLICT: Self = Self::new(StatusCode::CONFLICT, "Conflict");
    /// The user may not do that.
    pub const FORBIDDEN: Self = Self::new(StatusCode::FORBIDDEN, "Forbidden");
    /// A policy or a webhook does not want it.
    pub const INVALID: Self = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid");
    /// Too much is asked of the server.
    pub const THROTTLED: Self =
        Self { retry_after: Some(1), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests") };
    /// Something went wrong in the server.
    pub const BROKEN: Self = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
    /// The server is about to stop, or not there yet.
    pub const UNAVAILABLE: Self = Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");

    const fn new(code: StatusCode, reason: &'static str) -> Self {
        Self { code, reason, retry_after: None }
    }

    fn to_response(self) -> Result<Response<Body>> {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": self.code.as_u16(),
            "reason": self.reason, "message": format!("refused on the way: {}", self.reason),
        });
        let mut answer =
            Response::builder().status(self.code).header(header::CONTENT_TYPE, "application/json");
        if let Some(seconds) = self.retry_after {
            answer = answer.header(header::RETRY_AFTER, seconds);
        }
        Ok(answer.body(Body::from(status.to_string().into_bytes()))?)
    }
}

/// A call as rules see it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The HTTP method.
    pub method: Method,
    /// The path without the query.
    pub path: String,
    /// The query.
    pub query: String,
    /// The body, null if it is no JSON.
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

    /// Whether it is a write with this method on paths that end so.
    pub fn matches(&self, method: &Method, path_end: &str) -> bool {
        self.method == *method && self.path.ends_with(path_end)
    }

    /// The revision that it was decided on, if it says so.
    pub fn resource_version(&self) -> Option<u64> {
        text(&self.body, "/metadata/resourceVersion").parse().ok()
    }

    /// Whether it is a watch.
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|part| part == "watch=true")
    }

    /// Whether its body sets a condition of this type to this status.
    pub fn sets_condition(&self, kind: &str, status: &str) -> bool {
        crate::objects::condition(&self.body, kind).status == status
    }
}

type Predicate = Box<dyn Fn(&Call) -> bool + Send + Sync>;

struct FaultRule {
    predicate: Predicate,
    /// Which of the calls that it picks are harmed, counted from 0.
    range: Range<usize>,
    fault: Fault,
    matched: AtomicUsize,
    completed: AtomicUsize,
    released: watch::Sender<bool>,
}

impl FaultRule {
    async fn wait(&self) {
        // The sender is ours: it is not gone while this waits.
        let _ = self.released.subscribe().wait_for(|released| *released).await;
    }
}

#[derive(Default)]
struct FaultRules(Mutex<Vec<Arc<FaultRule>>>);

impl FaultRules {
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<FaultRule>>)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The first rule whose turn it is. All rules count the call that they pick.
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

/// The proxy, open until dropped.
pub struct Proxy {
    port: u16,
    rules: Arc<FaultRules>,
    watch_faults: Arc<WatchFaults>,
    stale_lists: Arc<StaleListState>,
    task: JoinHandle<()>,
}

/// How far it is behind, if it is, and how many lists it has told so.
#[derive(Default)]
struct StaleListState {
    lists: Mutex<Option<StaleLists>>,
    served: AtomicUsize,
}

impl Proxy {
    /// Opens a port in front of a plane's API server.
    pub async fn open(plane: &ControlPlane) -> Result<Self> {
        let port = free_ports(1)?.first().copied().context("no port")?;
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let client = kubeconfig::anonymous(plane.server(), &plane.ca_pem())?;
        let (rules, taps) = (Arc::new(FaultRules::default()), Arc::new(WatchFaults::default()));
        let behind = Arc::new(StaleListState::default());
        let task =
            tokio::spawn(serve(listener, client, Arc::clone(&rules), Arc::clone(&taps), Arc::clone(&behind)));
        Ok(Self { port, rules, watch_faults: taps, stale_lists: behind, task })
    }

    /// What a kubeconfig names as its server.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Harms all calls of which `picks` is true, until the trap is dropped.
    pub fn inject_all(
        &self,
        fault: Fault,
        picks: impl Fn(&Call) -> bool + Send + Sync + 'static,
    ) -> ActiveFault {
        self.inject(fault, 0..usize::MAX, picks)
    }

    /// Harms those calls of which `picks` is true and whose number among them, from 0, is in `which`.
    pub fn inject(
        &self,
        fault: Fault,
        which: Range<usize>,
        picks: impl Fn(&Call) -> bool + Send + Sync + 'static,
    ) -> ActiveFault {
        let rule = Arc::new(FaultRule {
            predicate: Box::new(picks),
            range: which,
            fault,
            matched: AtomicUsize::new(0),
            completed: AtomicUsize::new(0),
            released: watch::Sender::new(false),
        });
        self.rules.change(|rules| rules.push(Arc::clone(&rule)));
        ActiveFault { rule, rules: Arc::clone(&self.rules) }
    }

    /// Makes streamed lists tell what was there at an earlier revision, or what is there.
    pub fn serve_stale_lists(&self, lag: Option<StaleLists>) {
        *self.stale_lists.lists.lock().unwrap_or_else(PoisonError::into_inner) = lag;
    }

    /// How many lists were told as of an earlier revision.
    pub fn stale_lists_served(&self) -> usize {
        self.stale_lists.served.load(Ordering::Acquire)
    }

    /// Does to each event of a watch, an object with `type` and `object`, what `judge` says.
    pub fn inject_watch_fault(
        &self,
        judge: impl FnMut(&Call, &Value) -> EventFault + Send + 'static,
    ) -> ActiveWatchFault {
        self.watch_faults.inject(judge)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A rule in force until dropped; what it holds is let go then.
pub struct ActiveFault {
    rule: Arc<FaultRule>,
    rules: Arc<FaultRules>,
}

impl ActiveFault {
    /// How many calls were picked so far, harmed or not.
    pub fn matched(&self) -> usize {
        self.rule.matched.load(Ordering::Acquire)
    }

    /// Waits until a call was picked that is harmed.
    pub async fn wait_until_matched(&self) -> Result<()> {
        eventually("a call is caught", async || {
            let picked = self.matched();
            ensure!(picked > self.rule.range.start, "{picked} were picked");
            Ok(())
        })
        .await
    }

    /// Waits until all harm is done: each call was delivered, or dropped.
    pub async fn wait_until_completed(&self) -> Result<()> {
        eventually("all harm is done", async || {
            let done = self.rule.completed.load(Ordering::Acquire);
            ensure!(done >= self.rule.range.len(), "{done} of {}", self.rule.range.len());
            Ok(())
        })
        .await
    }

    /// Lets go what is held; nothing is held from now on.
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
    taps: Arc<WatchFaults>,
    behind: Arc<StaleListState>,
) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (client, rules, taps) = (client.clone(), Arc::clone(&rules), Arc::clone(&taps));
        let behind = Arc::clone(&behind);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                handle(request, client.clone(), Arc::clone(&rules), Arc::clone(&taps), Arc::clone(&behind))
            });
            // Broken connections are what this is for.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// An answer as it comes.
type ProxiedResponse = StreamBody<BoxStream<'static, Result<Frame<Bytes>>>>;

/// An error breaks the connection.
async fn handle(
    request: Request<Incoming>,
    client: Client,
    rules: Arc<FaultRules>,
    taps: Arc<WatchFaults>,
    behind: Arc<StaleListState>,
) -> Result<Response<ProxiedResponse>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let call = Call::read(&head, &body);
    let lag = behind.lists.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(lag) = lag.filter(|_| StaleLists::applies_to(&call))
        // A kind that is not served, say, is answered as ever.
        && let Ok((head, chunks)) = lag.respond(client.clone(), end_to_end_headers(&head.headers), &call).await
    {
        behind.served.fetch_add(1, Ordering::AcqRel);
        return Ok(Response::from_parts(head, StreamBody::new(chunks.map(|c| c.map(Frame::data)).boxed())));
    }
    let rule = rules.next_fault(&call);
    let stalling = rule.clone();
    // In a task of its own: what is under way arrives even if the client has given up.
    let (head, body) = tokio::spawn(async move {
        let outcome = deliver(&client, &head, &body, rule.as_deref()).await;
        if let Some(rule) = rule {
            rule.completed.fetch_add(1, Ordering::AcqRel);
        }
        outcome
    })
    .await??
    .into_parts();
    let chunks = if call.is_watch() { with_faults(call, taps, body) } else { pass_through(body) };
    let chunks = match stalling {
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
            let whole = body.collect_bytes().await?;
            rule.wait().await;
            Ok(Response::from_parts(head, Body::from(whole)))
        }
        Fault::DropRequest => Err(anyhow!("the request was lost")),
        Fault::DropResponse => {
            send().await?.into_body().collect_bytes().await?;
            Err(anyhow!("the answer was lost"))
        }
        Fault::Delay(time) => {
            tokio::time::sleep(time).await;
            send().await
        }
        // What is held is the stream of its answer.
        Fault::HoldBodyAfter(_) => send().await,
        Fault::Respond(refusal) => refusal.to_response(),
        Fault::NeverAnswer => {
            rule.wait().await;
            Err(anyhow!("the request was never answered"))
        }
        Fault::Duplicate => {
            send().await?.into_body().collect_bytes().await?;
            send().await
        }
    }
}

/// An answer that waits for its rule when so many bytes of it have passed.
fn hold_body_after(chunks: Chunks, length: usize, rule: Arc<FaultRule>) -> Chunks {
    let passed = AtomicUsize::new(0);
    let held = chunks.then(move |chunk| {
        let size = chunk.as_ref().map_or(0, Bytes::len);
        let waits = passed.fetch_add(size, Ordering::AcqRel) >= length;
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
    let mut answer = client.send(request.body(Body::from(body.clone()))?).await?;
    *answer.headers_mut() = end_to_end_headers(answer.headers());
    Ok(answer)
}

fn end_to_end_headers(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers
}

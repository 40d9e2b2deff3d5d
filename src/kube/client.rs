//! Clients of the API server, and one call with a timeout.
//!
//! Three clients: one for watches (the library's retry stays on), one for calls and one for the lease, both without
//! retry, so that a call never outlives its timeout and the caller decides about the next try. Calls keep to a rate;
//! the lease does not wait for it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::kube::client::{ClientBuilder, DynBody};
use ::kube::config::{KubeConfigOptions, Kubeconfig};
use ::kube::{Client, Config};
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::util::MapResponseLayer;

use super::rate_limit::TokenBucket;
use super::server_clock::ServerClock;
use crate::api::ObjectKey;
use crate::state::ApiResourceInfo;

/// Why a client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[from] ::kube::config::KubeconfigError),
    /// No kubeconfig was given and this is not a pod.
    #[error("in-cluster configuration: {0}; give --kubeconfig outside a cluster")]
    InCluster(#[from] ::kube::config::InClusterError),
    /// TLS or address settings cannot be used.
    #[error("client: {0}")]
    Client(#[from] ::kube::Error),
}

/// Why a call gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server answered with an error.
    #[error("{code} {reason}: {message}")]
    Status {
        /// HTTP status.
        code: u16,
        /// Machine-readable reason.
        reason: String,
        /// The server's words.
        message: String,
    },
    /// No answer within the timeout.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The connection failed or the answer cannot be read.
    #[error("{0}")]
    Transport(String),
    /// The request cannot be built.
    #[error("bad request: {0}")]
    Request(String),
}

impl CallError {
    /// The HTTP status, where the server gave one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }
}

impl From<::kube::Error> for CallError {
    fn from(error: ::kube::Error) -> Self {
        match error {
            ::kube::Error::Api(status) => Self::Status {
                code: status.code,
                reason: status.reason.clone(),
                message: status.message.clone(),
            },
            other => Self::Transport(error_chain(&other)),
        }
    }
}

/// An error with all its causes: the outermost message alone rarely says what happened.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = inner.source();
    }
    text
}

/// The clients of this process.
#[derive(Clone)]
pub struct Clients {
    /// For watches.
    pub watch: Client,
    /// For single calls.
    pub call: Caller,
    /// For the lease: a connection of its own, so that a burst of writes does not delay renewals.
    pub lease: Caller,
    /// Estimate of the API server's clock, from the dates of all answers.
    pub clock: Arc<ServerClock>,
}

impl Clients {
    /// Clients from a kubeconfig, or from the pod's service account. What the lease's client does beside its calls
    /// runs on `renewals`.
    pub async fn connect(
        kubeconfig: Option<&Path>,
        timeouts: Timeouts,
        rate: Option<Rate>,
        renewals: &Handle,
    ) -> Result<Self, ClientError> {
        let config = match kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path)?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
            }
            None => Config::incluster()?,
        };
        let mut single = config.clone();
        single.default_retry = false;
        single.connect_timeout = Some(timeouts.call);
        let clock = Arc::new(ServerClock::default());
        // A client starts its tasks where it is made.
        let lease = {
            let _there = renewals.enter();
            client_with_clock(single.clone(), &clock)?
        };
        Ok(Self {
            watch: client_with_clock(config, &clock)?,
            call: Caller::new(client_with_clock(single, &clock)?, timeouts.call).with_rate(rate),
            lease: Caller::new(lease, timeouts.lease),
            clock,
        })
    }
}

/// A client that records the date of each answer in `clock`.
fn client_with_clock(config: Config, clock: &Arc<ServerClock>) -> Result<Client, ClientError> {
    let clock = Arc::clone(clock);
    let recorded = MapResponseLayer::new(move |answer: Response<Box<DynBody>>| {
        clock.record_response(&answer);
        answer
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&recorded).build())
}

/// A client with the user's own kubeconfig: the given file, or those that kubectl reads.
pub async fn caller_from_kubeconfig(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    timeout: Duration,
) -> Result<Caller, ClientError> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = match kubeconfig {
        Some(path) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?,
        None => Config::from_kubeconfig(&options).await?,
    };
    Ok(Caller::new(Client::try_from(config)?, timeout))
}

/// Timeouts of single calls.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Reads and writes.
    pub call: Duration,
    /// Lease renewals.
    pub lease: Duration,
}

/// How many calls are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// In a second.
    pub per_second: f64,
    /// At once after a pause.
    pub burst: f64,
}

/// Makes single calls, each within a timeout. All clones share one rate.
#[derive(Clone)]
pub struct Caller {
    client: Client,
    timeout: Duration,
    limit: Option<Arc<RateLimit>>,
}

/// A rate and the clock that it is measured by.
struct RateLimit {
    origin: Instant,
    budget: Mutex<TokenBucket>,
}

impl RateLimit {
    /// How long to wait before another try; nothing when the call may be made.
    fn delay_before_call(&self) -> Option<Duration> {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        if budget.try_acquire(self.origin.elapsed()) { None } else { Some(budget.time_until_available()) }
    }
}

impl Caller {
    /// A caller on a given client.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout, limit: None }
    }

    /// The same caller, keeping to a rate.
    #[must_use]
    pub fn with_rate(self, rate: Option<Rate>) -> Self {
        let limit = |rate: Rate| {
            let budget = Mutex::new(TokenBucket::new(rate.per_second, rate.burst.max(1.0), Duration::ZERO));
            Arc::new(RateLimit { origin: Instant::now(), budget })
        };
        Self { limit: rate.map(limit), ..self }
    }

    /// One call, when the rate allows it: its timeout begins then. An answer that is no JSON counts as a transport error.
    pub async fn call(
        &self,
        verb: http::Method,
        path: &str,
        kind: Content,
        body: Option<&Value>,
    ) -> Result<Value, CallError> {
        self.call_as(verb, path, kind, body).await
    }

    /// A call whose answer nobody reads.
    pub async fn send_discarding_body(
        &self,
        verb: http::Method,
        path: &str,
        kind: Content,
        body: &Value,
    ) -> Result<(), CallError> {
        self.call_as::<IgnoredAny>(verb, path, kind, Some(body)).await.map(drop)
    }

    /// A call of which as much is read of the answer as `T` takes: an `Object`, or what is left of one that is known.
    pub async fn call_as<T: DeserializeOwned>(
        &self,
        verb: http::Method,
        path: &str,
        kind: Content,
        body: Option<&impl Serialize>,
    ) -> Result<T, CallError> {
        let bytes = match body {
            Some(value) => {
                serde_json::to_vec(value).map_err(|error| CallError::Request(error.to_string()))?
            }
            None => Vec::new(),
        };
        let mut request = Request::builder().method(verb).uri(path);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, kind.media_type());
        }
        let request = request.body(bytes).map_err(|error| CallError::Request(error.to_string()))?;
        while let Some(wait) = self.limit.as_ref().and_then(|limit| limit.delay_before_call()) {
            tokio::time::sleep(wait).await;
        }
        match tokio::time::timeout(self.timeout, self.client.request::<T>(request)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(CallError::Timeout(self.timeout)),
        }
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Result<Value, CallError> {
        self.call(http::Method::GET, path, Content::Json, None).await
    }

    /// POST.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        self.call(http::Method::POST, path, Content::Json, Some(body)).await
    }

    /// PUT.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        self.call(http::Method::PUT, path, Content::Json, Some(body)).await
    }
}

/// What a request's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// An object.
    Json,
    /// A merge patch.
    Merge,
    /// A server-side apply.
    Apply,
}

impl Content {
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Merge => "application/merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

fn group_path(resource: &ApiResourceInfo) -> String {
    if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    }
}

/// URL path of all objects of a kind.
pub fn all_path(resource: &ApiResourceInfo) -> String {
    format!("{}/{}", group_path(resource), resource.plural)
}

/// URL path of a kind's collection in a namespace.
pub fn collection_path(resource: &ApiResourceInfo, namespace: &str) -> String {
    let base = group_path(resource);
    if resource.namespaced {
        format!("{base}/namespaces/{namespace}/{}", resource.plural)
    } else {
        format!("{base}/{}", resource.plural)
    }
}

/// URL path of an object.
pub fn object_path(resource: &ApiResourceInfo, key: &ObjectKey) -> String {
    format!("{}/{}", collection_path(resource, &key.namespace), key.name)
}

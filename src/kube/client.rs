//! Clients of the API server, and single calls with a timeout.
//!
//! There are three clients: one for watches (with the library's retries), one for calls and one for the lease, both without
//! retries, so that a call never outlives its timeout and the caller decides on retries. Calls are rate-limited, except calls
//! for the lease.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::kube::client::{Body, ClientBuilder, DynBody};
use ::kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use ::kube::{Client, Config};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::ser::Formatter;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::util::MapResponseLayer;

use super::private_keys::{self, UnusableKey};
use super::rate_limit::RateLimiter;
use super::server_clock::{ServerClock, date_of};
use crate::api::ObjectKey;
use crate::cache::ApiResourceInfo;

/// Rate of calls with the tokens of users, all together.
const USER_RATE: Rate = Rate { per_second: 20.0, burst: 40.0 };

/// Why a client could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig is invalid.
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[from] ::kube::config::KubeconfigError),
    /// No kubeconfig was given, and the process does not run in a pod.
    #[error("in-cluster configuration: {0}; give --kubeconfig outside a cluster")]
    InCluster(#[from] ::kube::config::InClusterError),
    /// The client key cannot be used.
    #[error("{0}")]
    Key(#[from] UnusableKey),
    /// TLS or address settings are invalid.
    #[error("client: {0}")]
    Client(#[from] ::kube::Error),
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server answered with an error.
    #[error("{code} {reason}: {message}")]
    Status {
        /// HTTP status.
        code: u16,
        /// Machine-readable reason.
        reason: String,
        /// The server's message.
        message: String,
    },
    /// No response within the timeout.
    #[error("no response within {0:?}")]
    Timeout(Duration),
    /// The connection failed, or the response is not readable.
    #[error("{0}")]
    Transport(String),
    /// The request cannot be built.
    #[error("bad request: {0}")]
    Request(String),
}

impl CallError {
    /// Returns the HTTP status, if the server responded.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns whether the API server, its store, or a webhook that it asks did not answer, so that the same call may succeed later.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Status { code, .. } => matches!(code, 429 | 500 | 502..=504),
            Self::Timeout(_) | Self::Transport(_) => true,
            Self::Request(_) => false,
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
            other => Self::Transport(private_keys::explained(error_chain(&other))),
        }
    }
}

/// Formats an error with all its causes, because the outermost message alone is rarely specific.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
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
    /// Without the credentials of this process: each call has the token of a user.
    pub user: Caller,
    /// For the lease: its own connection, so that a burst of writes does not delay renewals.
    pub lease: Caller,
    /// Estimate of the API server's clock from the `Date` headers of all responses.
    pub clock: Arc<ServerClock>,
}

impl Clients {
    /// Creates clients from a kubeconfig or the pod's service account. Background tasks of the lease client run on
    /// `lease_runtime`.
    pub async fn connect(
        kubeconfig: Option<&Path>,
        timeouts: Timeouts,
        rate: Option<Rate>,
        lease_runtime: &Handle,
    ) -> Result<Self, ClientError> {
        let config = match kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path)?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
            }
            None => Config::incluster()?,
        };
        private_keys::check_client_key(&config)?;
        let mut call_config = config.clone();
        call_config.default_retry = false;
        call_config.connect_timeout = Some(timeouts.call);
        let clock = Arc::new(ServerClock::default());
        let mut user_config = call_config.clone();
        user_config.auth_info = AuthInfo::default();
        // A client spawns its tasks on the current runtime.
        let lease = {
            let _guard = lease_runtime.enter();
            client_with_clock(call_config.clone(), &clock)?
        };
        Ok(Self {
            watch: client_with_clock(config, &clock)?,
            call: Caller::new(client_with_clock(call_config, &clock)?, timeouts.call).with_rate(rate),
            user: Caller::new(client_with_clock(user_config, &clock)?, timeouts.call)
                .with_rate(Some(USER_RATE)),
            lease: Caller::new(lease, timeouts.lease),
            clock,
        })
    }
}

/// Creates a client that records the `Date` header of each response in `clock`.
fn client_with_clock(config: Config, clock: &Arc<ServerClock>) -> Result<Client, ClientError> {
    let clock = Arc::clone(clock);
    let recording = MapResponseLayer::new(move |response: Response<Box<DynBody>>| {
        clock.record_response(&response);
        response
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&recording).build())
}

/// Creates a client for the user's own kubeconfig: the given file, or the files that kubectl reads.
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
    private_keys::check_client_key(&config)?;
    let server = server_name(&config.cluster_url.to_string(), context);
    Ok(Caller::new(Client::try_from(config)?, timeout).of_server(&server))
}

/// Returns the name of a server in errors: its address and its context.
pub fn server_name(address: &str, context: Option<&str>) -> String {
    let address = address.trim_end_matches('/');
    context.map_or_else(|| address.to_owned(), |context| format!("{address} (context {context})"))
}

/// Timeouts of single calls.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Reads and writes.
    pub call: Duration,
    /// Lease renewals.
    pub lease: Duration,
}

/// Rate limit of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Calls per second.
    pub per_second: f64,
    /// Calls in a burst.
    pub burst: f64,
}

/// Makes single calls, each within a timeout. All clones share one rate limit.
#[derive(Clone)]
pub struct Caller {
    client: Client,
    timeout: Duration,
    limit: Option<Arc<RateLimit>>,
    /// Name of the server in errors.
    server: Option<Arc<str>>,
}

/// A rate limiter and its time origin.
struct RateLimit {
    origin: Instant,
    budget: Mutex<RateLimiter>,
}

impl RateLimit {
    /// Returns how long to wait before trying again, or `None` if the call may be made now.
    fn delay_before_call(&self) -> Option<Duration> {
        let mut limiter = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        if limiter.try_acquire(self.origin.elapsed()) { None } else { Some(limiter.time_until_available()) }
    }
}

impl Caller {
    /// Returns a caller without rate limit.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout, limit: None, server: None }
    }

    /// Returns the same caller, whose errors of connections name this server.
    #[must_use]
    pub fn of_server(self, name: &str) -> Self {
        Self { server: Some(Arc::from(name)), ..self }
    }

    /// Returns the same caller with a rate limit of its own.
    #[must_use]
    pub fn with_rate(self, rate: Option<Rate>) -> Self {
        let limit = |rate: Rate| {
            let budget = Mutex::new(RateLimiter::new(rate.per_second, rate.burst.max(1.0), Duration::ZERO));
            Arc::new(RateLimit { origin: Instant::now(), budget })
        };
        Self { limit: rate.map(limit), ..self }
    }

    /// Makes one call. The timeout starts once the rate limit allows it. A response that is not JSON is a transport error.
    pub async fn call(
        &self,
        verb: http::Method,
        path: &str,
        kind: Content,
        body: Option<&Value>,
    ) -> Result<Value, CallError> {
        self.call_as(verb, path, kind, body).await
    }

    /// Makes one call and discards the body of the response.
    pub async fn send_discarding_body(
        &self,
        verb: http::Method,
        path: &str,
        kind: Content,
        body: &Value,
    ) -> Result<(), CallError> {
        self.call_as::<IgnoredAny>(verb, path, kind, Some(body)).await.map(drop)
    }

    /// Makes one call and decodes the response as `T`, for example `MetadataOnly` if spec and status are known.
    pub async fn call_as<T: DeserializeOwned>(
        &self,
        verb: http::Method,
        path: &str,
        kind: Content,
        body: Option<&impl Serialize>,
    ) -> Result<T, CallError> {
        let bytes = match body {
            Some(value) => kind.body(value).map_err(|error| CallError::Request(error.to_string()))?,
            None => Vec::new(),
        };
        let mut request = Request::builder().method(verb).uri(path);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, kind.media_type());
        }
        self.send(request.body(bytes)).await
    }

    /// Sends a request when the rate limit allows it, and decodes the response.
    async fn send<T: DeserializeOwned>(
        &self,
        request: Result<Request<Vec<u8>>, http::Error>,
    ) -> Result<T, CallError> {
        let request = request.map_err(|error| CallError::Request(error.to_string()))?;
        while let Some(wait) = self.limit.as_ref().and_then(|limit| limit.delay_before_call()) {
            tokio::time::sleep(wait).await;
        }
        match tokio::time::timeout(self.timeout, self.client.request::<T>(request)).await {
            Ok(response) => response.map_err(|error| match (CallError::from(error), &self.server) {
                (CallError::Transport(cause), Some(server)) => {
                    CallError::Transport(format!("{server}: {cause}"))
                }
                (error, _) => error,
            }),
            Err(_) => Err(CallError::Timeout(self.timeout)),
        }
    }

    /// Makes a GET call that accepts these content types, such as a table.
    pub async fn get_as(&self, path: &str, accept: &str) -> Result<Value, CallError> {
        self.send(Request::get(path).header(ACCEPT, accept).body(Vec::new())).await
    }

    /// Makes a GET call with the bearer token of a user. This caller must have no credentials of its own. No error contains the
    /// token.
    pub async fn get_with_token(&self, path: &str, token: &str) -> Result<Value, CallError> {
        let mut header = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| CallError::Request("the token has characters that no header has".to_owned()))?;
        header.set_sensitive(true);
        self.send(Request::get(path).header(AUTHORIZATION, header).body(Vec::new())).await
    }

    /// Returns the time at the server in whole seconds; `None` without a response that has it. An error of the server has it, too.
    pub async fn server_time(&self) -> Option<Timestamp> {
        let request = Request::get("/version").body(Body::from(Vec::new())).ok()?;
        let response = tokio::time::timeout(self.timeout, self.client.send(request)).await.ok()?;
        date_of(&response.ok()?)
    }

    /// Makes a GET call.
    pub async fn get(&self, path: &str) -> Result<Value, CallError> {
        self.call(http::Method::GET, path, Content::Json, None).await
    }

    /// Makes a POST call.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        self.call(http::Method::POST, path, Content::Json, Some(body)).await
    }

    /// Makes a PUT call.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        self.call(http::Method::PUT, path, Content::Json, Some(body)).await
    }
}

/// Content type of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// An object.
    Json,
    /// A merge patch.
    Merge,
    /// A JSON patch.
    JsonPatch,
    /// A server-side apply.
    Apply,
}

impl Content {
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Merge => "application/merge-patch+json",
            Self::JsonPatch => "application/json-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }

    /// Returns the body of a request.
    fn body(self, value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
        if self != Self::Apply {
            return serde_json::to_vec(value);
        }
        let mut bytes = Vec::new();
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, LineBreaks))?;
        Ok(bytes)
    }
}

/// JSON with a line break after each opening bracket. The API server reads an apply as YAML, where any object may turn out
/// to be a key for as long as its line lasts: without line breaks the parser keeps most of the body as tokens, which takes
/// a tenth of the memory that the server allocates for the whole write.
struct LineBreaks;

impl Formatter for LineBreaks {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"[\n")
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"{\n")
    }
}

fn group_path(resource: &ApiResourceInfo) -> String {
    if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    }
}

/// Returns the URL path of all objects of a kind.
pub fn all_path(resource: &ApiResourceInfo) -> String {
    format!("{}/{}", group_path(resource), resource.plural)
}

/// Returns the URL path of a kind's collection in a namespace.
pub fn collection_path(resource: &ApiResourceInfo, namespace: &str) -> String {
    let base = group_path(resource);
    if resource.namespaced {
        format!("{base}/namespaces/{namespace}/{}", resource.plural)
    } else {
        format!("{base}/{}", resource.plural)
    }
}

/// Returns the URL path of an object.
pub fn object_path(resource: &ApiResourceInfo, key: &ObjectKey) -> String {
    format!("{}/{}", collection_path(resource, &key.namespace), key.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn applied_objects_have_line_breaks_after_opening_brackets() {
        let object = json!({"a": [{"b": "{[\n"}, []], "c": {}});
        let text = |content: Content| String::from_utf8(content.body(&object).unwrap()).unwrap();
        let apply = text(Content::Apply);
        assert_eq!(apply, "{\n\"a\":[\n{\n\"b\":\"{[\\n\"},[\n]],\"c\":{\n}}");
        assert_eq!(serde_json::from_str::<Value>(&apply).unwrap(), object);
        for content in [Content::Json, Content::Merge, Content::JsonPatch] {
            assert_eq!(text(content), object.to_string());
        }
    }
}

//! Aggregated API groups: requests that the API server passes on to this process.
//!
//! A group is a description and a handler (`group`); discovery, OpenAPI, authentication, authorization and errors are the same
//! for all. Invariants: discovery and OpenAPI are constants of the program, answered at once to every client; a resource is
//! answered only to a user that the API server names and permits.

pub mod access;
pub mod capacity;
mod constants;
mod discovery;
pub mod estimates;
pub mod front_proxy;
pub mod group;
mod negotiation;
mod openapi;
pub mod question_rate;
pub mod questions;
mod status;
pub mod views;
pub mod visibility;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use futures::future::BoxFuture;
use http::header::ACCEPT;
use http::request::Parts;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use rustls::pki_types::UnixTime;

use self::access::{AccessError, AccessReviewer};
use self::constants::Constants;
use self::front_proxy::FrontProxy;
use self::group::{ApiGroup, ResourceRequest};
pub use self::negotiation::Format;
use self::questions::PrivatePath;
use crate::server::tls::PeerCertificates;

/// Most bytes of an object that is created.
const MAX_BODY_BYTES: usize = 64 << 10;
/// The verb of requests with a body.
const CREATE: &str = "create";
/// Longest path in bytes.
const MAX_PATH_BYTES: usize = 2 << 10;

/// Counts the requests for resources, by group, resource and HTTP status.
pub type OnRequest = Arc<dyn Fn(&'static str, &'static str, StatusCode) + Send + Sync>;

/// Parts of the server.
#[derive(Clone)]
pub struct ApiServer {
    /// The groups, in order of discovery.
    pub groups: Arc<[Arc<dyn ApiGroup>]>,
    /// Authenticates the users of requests.
    pub front_proxy: Arc<FrontProxy>,
    /// Authorizes users.
    pub access: AccessReviewer,
    /// Called after each request for a resource.
    pub on_request: OnRequest,
    /// Answers other processes of this installation; `None` if this process serves no such path.
    pub private: Option<Arc<PrivatePath>>,
}

/// Returns the routes of the server.
pub fn router(server: ApiServer) -> Router {
    let descriptions: Vec<_> = server.groups.iter().map(|group| group.description()).collect();
    let constants = Arc::new(Constants::new(&descriptions));
    Router::new().fallback(serve).with_state((server, constants))
}

async fn serve(State((server, constants)): State<(ApiServer, Arc<Constants>)>, request: Request) -> Response {
    let path = request.uri().path();
    if path.len() > MAX_PATH_BYTES {
        return status::unknown_path();
    }
    if let Some(private) = server.private.as_ref().filter(|_| path == questions::QUESTIONS_PATH) {
        return private.respond(request).await;
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if let Some(response) = constants.answer(path.trim_matches('/'), request.headers()) {
        return if is_read { response } else { status::method_not_allowed("only GET is supported here") };
    }
    let Some(segments) = segments(path) else { return status::bad_request("the path is not UTF-8") };
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let ["apis", name, ..] = words[..] else { return status::unknown_path() };
    let Some(group) = server.groups.iter().find(|group| group.description().name == name) else {
        return status::unknown_path();
    };
    let rest = segments.get(2..).unwrap_or_default();
    let Some((target, verbs)) = group.description().parse(rest) else { return status::unknown_path() };
    let resource = target.resource;
    let response = server.resource(group.as_ref(), target, verbs, request).await;
    (server.on_request)(group.description().name, resource, response.status());
    response
}

/// Returns the decoded segments of a path, without empty ones at its ends.
fn segments(path: &str) -> Option<Vec<String>> {
    let path = path.trim_matches('/');
    let decode = |segment: &str| -> Option<String> {
        let pair = format!("s={}", segment.replace('+', "%2B").replace('&', "%26"));
        group::first_option(Some(&pair), "s")
    };
    path.split('/').map(decode).collect()
}

impl ApiServer {
    /// Answers a request for a resource.
    async fn resource(
        &self,
        group: &dyn ApiGroup,
        target: group::ResourcePath,
        verbs: &[&str],
        request: Request,
    ) -> Response {
        let peer = request.extensions().get::<PeerCertificates>();
        let user = match self.front_proxy.user(request.headers(), peer, UnixTime::now()) {
            Ok(user) => user,
            Err(reason) => return status::unauthorized(reason),
        };
        let verb = verb_of(&request, &target);
        match self.access.allows(&user, verb, &target).await {
            Ok(true) => {}
            Ok(false) => return status::forbidden(&user.name, verb, &target),
            Err(AccessError::TooManyWaiting) => return status::too_many("too many requests at once"),
            Err(AccessError::Call(error)) => {
                tracing::warn!(%error, "access review of a user of the visibility API failed");
                return status::unavailable("the access review failed");
            }
        }
        let (parts, body) = request.into_parts();
        let body = match body_of(body, verb == CREATE && verbs.contains(&verb)).await {
            Ok(body) => body,
            Err(refusal) => return *refusal,
        };
        let answer = answer_permitted(group, user, (target, verbs, verb), (&parts, body));
        drop(parts);
        answer.await
    }
}

/// Reads the body of a request that is `wanted`; that of another one is dropped.
async fn body_of(body: Body, wanted: bool) -> Result<Bytes, Box<Response>> {
    if !wanted {
        return Ok(Bytes::new());
    }
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(_) => Err(Box::new(status::bad_request("the object is too large or cannot be read"))),
    }
}

/// Answers a request of this process itself, which may see all of the group.
pub async fn answer_as(group: &dyn ApiGroup, user: front_proxy::User, request: Request) -> Response {
    let Some(segments) = segments(request.uri().path()) else {
        return status::bad_request("the path is not UTF-8");
    };
    let rest = segments.get(2..).unwrap_or_default();
    let Some((target, verbs)) = group.description().parse(rest) else { return status::unknown_path() };
    let verb = verb_of(&request, &target);
    let (parts, _) = request.into_parts();
    let answer = answer_permitted(group, user, (target, verbs, verb), (&parts, Bytes::new()));
    drop(parts);
    answer.await
}

/// Returns the verb of a request, as in rules of RBAC.
fn verb_of(request: &Request, target: &group::ResourcePath) -> &'static str {
    let watch = group::first_option(request.uri().query(), "watch");
    // Parsed as API servers do.
    let watches = watch.is_some_and(|value| !value.eq_ignore_ascii_case("false") && value != "0");
    match *request.method() {
        Method::GET | Method::HEAD if watches => "watch",
        Method::GET | Method::HEAD if target.name.is_empty() => "list",
        Method::GET | Method::HEAD => "get",
        Method::POST => CREATE,
        Method::PUT => "update",
        Method::PATCH => "patch",
        _ if target.name.is_empty() => "deletecollection",
        _ => "delete",
    }
}

/// Answers an authorized request. The request is parsed before the answer is awaited.
fn answer_permitted(
    group: &dyn ApiGroup,
    user: front_proxy::User,
    (target, verbs, verb): (group::ResourcePath, &[&str], &str),
    (request, body): (&Parts, Bytes),
) -> BoxFuture<'static, Response> {
    let refused = |response: Response| Box::pin(std::future::ready(response));
    if !verbs.contains(&verb) {
        let message = format!("the verb {verb} is not supported; verbs: {verbs:?}");
        return refused(status::method_not_allowed(&message));
    }
    let accept = request.headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let Some(format) = Format::of(accept) else {
        let types = "application/json, application/json;as=Table;v=v1;g=meta.k8s.io";
        return refused(status::not_acceptable(types));
    };
    let query = request.uri.query().map(str::to_owned);
    group.answer(ResourceRequest { user, target, query, format, body })
}

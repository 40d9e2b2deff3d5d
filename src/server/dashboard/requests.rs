//! Pages, their JSON and CSV, and the files that they load.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, SET_COOKIE};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;

use super::models::{NoValue, Value};
use super::session;
use super::viewer::{Refused, Viewer};
use super::{Dashboard, answer};
use crate::dashboard::question::{BadAddress, Form, parameters};
use crate::dashboard::{self as pages, Asset, Message, MissingRight, PageQuestion, Scope};
use crate::server::user_authorizer::NoReview;

/// Returns path and query below the path prefix.
pub(super) fn address(dashboard: &Dashboard, request: &Request) -> String {
    let path = request.uri().path().strip_prefix(dashboard.links.prefix()).unwrap_or_default();
    let path = if path.is_empty() { "/" } else { path };
    request.uri().query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
}

fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.contains("application/json") && !accepted.contains("text/html")
}

impl Dashboard {
    /// Returns the context in which a page is rendered.
    pub(super) fn page_request(
        &self,
        address: &str,
        viewer: Option<&Viewer>,
        headers: &HeaderMap,
    ) -> pages::Request {
        pages::Request {
            links: self.links.clone(),
            path: address.to_owned(),
            user: viewer.map(|viewer| viewer.user.name.clone()).unwrap_or_default(),
            scope: viewer.map(|viewer| viewer.scope.clone()).unwrap_or_default(),
            freshness: self.models.freshness(),
            now: Timestamp::now(),
            namespaces: self.cookies.visited(headers),
            reads_objects: self.objects.is_some(),
            has_mine: self.models.reads_submitters(),
        }
    }

    /// Returns the way to the page of what the viewer submitted, for a viewer that asks for the start page and may not see the cluster.
    async fn own_start_page(
        &self,
        headers: &HeaderMap,
        (question, form): (&PageQuestion, Form),
        refused: &Refused,
    ) -> Option<Response> {
        let is_forbidden = matches!(refused, Refused::Forbidden { .. });
        if !question.is_start() || !is_forbidden || form != Form::Html || !self.models.reads_submitters() {
            return None;
        }
        let mine = PageQuestion::mine();
        self.viewer(headers, &mine).await.ok()?;
        Some(answer::see_other(&self.links.to(&mine.address())))
    }
}

/// Answers with a page, its JSON or its CSV.
pub(super) async fn page(State(dashboard): State<Arc<Dashboard>>, request: Request) -> Response {
    let (address, headers) = (address(&dashboard, &request), request.headers());
    let (question, form) = match PageQuestion::parse(&address) {
        Ok((question, Form::Html)) if wants_json(headers) => (question, Form::Json),
        Ok(asked) => asked,
        Err(bad) => return unanswered(&dashboard, headers, &address, bad.into()).await,
    };
    let viewer = match dashboard.viewer(headers, &question).await {
        Ok(viewer) => viewer,
        Err(refused) => {
            let elsewhere = dashboard.own_start_page(headers, (&question, form), &refused).await;
            return elsewhere.unwrap_or_else(|| refuse(&dashboard, headers, &address, form, refused));
        }
    };
    let question = question.for_viewer(&viewer.user.name);
    let shown = dashboard.page_request(&question.address(), Some(&viewer), headers);
    if question.page().asks_core() && !dashboard.rate.admits(&viewer.user.name) {
        return without_value(&dashboard, headers, (&shown, form), NoValue::TooMany);
    }
    match dashboard.refused_change(&viewer, &question).await {
        Ok(None) => {}
        Ok(Some(why)) => return without_value(&dashboard, headers, (&shown, form), NoValue::Forbidden(why)),
        Err(error) => return refuse(&dashboard, headers, &address, form, error.into()),
    }
    let value = match dashboard.value(&question, (&viewer.access, viewer.user.name.as_str())).await {
        Ok((_, value)) => value,
        Err(none) => return without_value(&dashboard, headers, (&shown, form), none),
    };
    let page = match &*value {
        Value::Page(page) => page,
        Value::Redirect(other) => return answer::see_other(&dashboard.links.to(&other.address())),
    };
    let mut response = match form {
        Form::Html => answer::page(headers, StatusCode::OK, page.html(&shown)),
        Form::Json => {
            answer::text(headers, StatusCode::OK, "application/json", &page.json().unwrap_or_default())
        }
        Form::Csv => {
            if let Some(text) = page.csv() {
                answer::text(headers, StatusCode::OK, "text/csv; charset=utf-8", &text)
            } else {
                let none = NoValue::Invalid("o: only lists have the form csv".to_owned());
                return without_value(&dashboard, headers, (&shown, Form::Html), none);
            }
        }
    };
    if let Some(namespace) = question.page().namespace()
        && let Some(cookie) = dashboard.cookies.visit(&shown.namespaces, namespace)
    {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

impl From<BadAddress> for NoValue {
    fn from(bad: BadAddress) -> Self {
        match bad {
            BadAddress::NoPage => {
                Self::NotFound { text: "There is no such page.".to_owned(), similar: Vec::new() }
            }
            BadAddress::Parameter(text) => Self::Invalid(text),
        }
    }
}

/// Answers an address that names no page. A client that has not signed in gets the login page, as for every address.
pub(super) async fn unanswered(
    dashboard: &Dashboard,
    headers: &HeaderMap,
    address: &str,
    none: NoValue,
) -> Response {
    let query = address.split_once('?').map_or("", |(_, query)| query);
    let asks_json = query.split('&').any(|pair| pair == "o=json");
    let form = if asks_json || wants_json(headers) { Form::Json } else { Form::Html };
    let token = dashboard.cookies.token(headers).unwrap_or_default();
    let user = match dashboard.authorizer.identify(&token).await {
        Ok(Some(user)) => user,
        Ok(None) => {
            let refused = Refused::Unknown { had_token: !token.is_empty() };
            return refuse(dashboard, headers, address, form, refused);
        }
        Err(error) => return refuse(dashboard, headers, address, form, Refused::NoReview(error)),
    };
    let shown = pages::Request { user: user.name.clone(), ..dashboard.page_request("/", None, headers) };
    without_value(dashboard, headers, (&shown, form), none)
}

/// Answers a page that has no value.
pub(super) fn without_value(
    dashboard: &Dashboard,
    headers: &HeaderMap,
    (shown, form): (&pages::Request, Form),
    none: NoValue,
) -> Response {
    let (code, reason, heading, text, similar, retry) = match none {
        NoValue::NotFound { text, similar } => {
            (StatusCode::NOT_FOUND, "NotFound", "Not found", text, similar, None)
        }
        NoValue::Invalid(text) => {
            (StatusCode::BAD_REQUEST, "BadRequest", "Cannot be read", text, Vec::new(), None)
        }
        NoValue::Forbidden(text) => (StatusCode::FORBIDDEN, "Forbidden", "No answer", text, Vec::new(), None),
        NoValue::NotSynced { progress } => {
            (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "Starting", progress, Vec::new(), Some(5))
        }
        NoValue::TooMany => {
            let text = "Too many questions at once. Try again in a few seconds.".to_owned();
            (
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequests",
                "Too many questions",
                text,
                Vec::new(),
                Some(2),
            )
        }
    };
    let response = if form == Form::Html {
        let similar = similar
            .into_iter()
            .map(|(name, question)| (name, dashboard.links.to(&question.address())))
            .collect();
        let message = Message { heading: heading.to_owned(), text, similar };
        answer::page(headers, code, pages::message(shown, &message))
    } else {
        let names: Vec<&str> = similar.iter().map(|(name, _)| name.as_str()).collect();
        let hint = if names.is_empty() { String::new() } else { format!(" Similar: {}.", names.join(", ")) };
        answer::status(headers, code, reason, &format!("{text}{hint}"))
    };
    match retry {
        Some(seconds) => answer::retry_after(response, seconds),
        None => response,
    }
}

/// Answers a client without a valid token, or without the right to see the page.
pub(super) fn refuse(
    dashboard: &Dashboard,
    headers: &HeaderMap,
    address: &str,
    form: Form,
    refused: Refused,
) -> Response {
    match refused {
        Refused::Unknown { had_token } => {
            let refusal = if had_token { dashboard.refusal() } else { String::new() };
            if form != Form::Html {
                let message = if had_token { refusal } else { "a token is required".to_owned() };
                return answer::status(headers, StatusCode::UNAUTHORIZED, "Unauthorized", &message);
            }
            dashboard.login_page(headers, session::safe_next(address), &refusal)
        }
        Refused::Forbidden { user, missing } => {
            forbidden(dashboard, headers, (address, form), (&user.name, &missing))
        }
        Refused::NoReview(error) => {
            let (code, reason, text, seconds) = match error {
                NoReview::TooMany => {
                    let text = "Too many users sign in at once.";
                    (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", text, 2)
                }
                NoReview::Failed => {
                    let text = "The API server does not answer, so that your rights cannot be reviewed.";
                    (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", text, 5)
                }
            };
            let response = if form == Form::Html {
                let shown = dashboard.page_request(address, None, headers);
                let message =
                    Message { heading: "No answer".to_owned(), text: text.to_owned(), similar: Vec::new() };
                answer::page(headers, code, pages::message(&shown, &message))
            } else {
                answer::status(headers, code, reason, text)
            };
            answer::retry_after(response, seconds)
        }
    }
}

fn forbidden(
    dashboard: &Dashboard,
    headers: &HeaderMap,
    (address, form): (&str, Form),
    (user, missing): (&str, &MissingRight),
) -> Response {
    if form != Form::Html {
        let place = if missing.namespace.is_empty() {
            String::new()
        } else {
            format!(" in namespace {}", missing.namespace)
        };
        let text = format!(
            "user {user:?} has no right to {} in the group visibility.sluice.dev{place}",
            missing.right
        );
        return answer::status(headers, StatusCode::FORBIDDEN, "Forbidden", &text);
    }
    let shown = pages::Request {
        user: user.to_owned(),
        scope: Scope::Nothing,
        ..dashboard.page_request(address, None, headers)
    };
    answer::page(headers, StatusCode::FORBIDDEN, pages::forbidden(&shown, missing))
}

/// Answers with a file that pages load.
pub(super) async fn asset(Path((hash, name)): Path<(String, String)>, request: Request) -> Response {
    let headers = request.headers();
    let Some(asset) = Asset::find(&hash, &name) else {
        return answer::status(headers, StatusCode::NOT_FOUND, "NotFound", "there is no such file");
    };
    let mut response = answer::text(headers, StatusCode::OK, asset.content_type, asset.contents);
    let for_a_year = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(CACHE_CONTROL, for_a_year);
    response
}

/// Redirects to the page of the submitted namespace.
pub(super) async fn choose_namespace(State(dashboard): State<Arc<Dashboard>>, request: Request) -> Response {
    let parameters = parameters(request.uri().query().unwrap_or_default()).unwrap_or_default();
    let name = parameters.iter().find(|(name, _)| name == "ns").map(|(_, value)| value.trim());
    match name.filter(|name| session::is_namespace(name)) {
        Some(name) => answer::see_other(&dashboard.links.namespace(name)),
        None => answer::see_other(&dashboard.links.to("/")),
    }
}

/// Answers addresses outside the path prefix.
pub(super) async fn outside() -> Response {
    (StatusCode::NOT_FOUND, [(CONTENT_TYPE, "text/plain; charset=utf-8")], "not found\n").into_response()
}

//! Signing in with a token, and out.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{HOST, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::session::{is_same_origin, safe_next};
use super::{Dashboard, answer};
use crate::dashboard::{self as pages, question::parameters};
use crate::server::user_authorizer::NoReview;

impl Dashboard {
    /// Returns why a token was refused.
    pub(super) fn refusal(&self) -> String {
        let audience = match self.authorizer.audience() {
            "" => String::new(),
            audience => format!(" for the audience {audience}"),
        };
        format!("The token is not valid{audience}, or it has expired.")
    }

    /// Returns the page for signing in.
    pub(super) fn login_page(&self, headers: &HeaderMap, next: &str, refusal: &str) -> Response {
        let shown = pages::Request {
            freshness: pages::Freshness::Live,
            ..self.page_request("/login", None, headers)
        };
        let rendered = pages::login(&shown, next, refusal, self.authorizer.audience());
        answer::page(headers, StatusCode::UNAUTHORIZED, rendered)
    }
}

/// Returns the host that the client asked for.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> &'a str {
    let of_uri = uri.authority().map(http::uri::Authority::as_str);
    of_uri.or_else(|| headers.get(HOST).and_then(|value| value.to_str().ok())).unwrap_or_default()
}

/// Shows the page for signing in.
pub(super) async fn form(State(dashboard): State<Arc<Dashboard>>, request: Request) -> Response {
    let parameters = parameters(request.uri().query().unwrap_or_default()).unwrap_or_default();
    let next = parameters.iter().find(|(name, _)| name == "next").map_or("/", |(_, value)| value);
    let mut response = dashboard.login_page(request.headers(), safe_next(next), "");
    *response.status_mut() = StatusCode::OK;
    response
}

/// Stores the token of a form in the browser if it is valid.
pub(super) async fn sign_in(
    State(dashboard): State<Arc<Dashboard>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let refuse = |status: StatusCode, next: &str, text: &str| {
        let mut response = dashboard.login_page(&headers, next, text);
        *response.status_mut() = status;
        response
    };
    if !is_same_origin(&headers, host(&uri, &headers)) {
        return refuse(StatusCode::FORBIDDEN, "/", "The form did not come from this page. Try it from here.");
    }
    let form = std::str::from_utf8(&body).ok().and_then(form_fields);
    let Some((token, next)) = form else {
        return refuse(StatusCode::BAD_REQUEST, "/", "The form cannot be read.");
    };
    let next = safe_next(&next);
    let cookies = match dashboard.cookies.keep(token.trim()) {
        Ok(cookies) => cookies,
        Err(text) => return refuse(StatusCode::BAD_REQUEST, next, &text),
    };
    match dashboard.authorizer.identify(token.trim()).await {
        Ok(Some(_)) => with_cookies(answer::see_other(&dashboard.links.to(next)), cookies),
        Ok(None) => refuse(StatusCode::UNAUTHORIZED, next, &dashboard.refusal()),
        Err(NoReview::TooMany) => {
            let response = refuse(StatusCode::TOO_MANY_REQUESTS, next, "Too many users sign in at once.");
            answer::retry_after(response, 2)
        }
        Err(NoReview::Failed) => {
            let text = "The API server does not answer, so that the token cannot be reviewed.";
            answer::retry_after(refuse(StatusCode::SERVICE_UNAVAILABLE, next, text), 5)
        }
    }
}

/// Reads token and next page of a form. A token may be longer than other parameters.
fn form_fields(body: &str) -> Option<(String, String)> {
    let (mut token, mut next) = (None, String::new());
    for pair in body.split('&') {
        let (name, value) = pair.split_once('=')?;
        match name {
            "token" => token = pages::question::decode(value, true),
            "next" => next = pages::question::decode(value, true)?,
            _ => {}
        }
    }
    Some((token?, next))
}

fn with_cookies(mut response: Response, cookies: Vec<HeaderValue>) -> Response {
    for cookie in cookies {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

/// Removes the token from the browser.
pub(super) async fn sign_out(
    State(dashboard): State<Arc<Dashboard>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if !is_same_origin(&headers, host(&uri, &headers)) {
        return answer::status(
            &headers,
            StatusCode::FORBIDDEN,
            "Forbidden",
            "the form came from another place",
        );
    }
    with_cookies(answer::see_other(&dashboard.links.to("/login")), dashboard.cookies.forget())
}

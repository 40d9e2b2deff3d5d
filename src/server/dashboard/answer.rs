//! Answers as HTTP: pages, JSON, CSV and errors, compressed, with headers that permit only what pages need.
//!
//! Invariants: every answer has the strict headers; pages are never cached.

use std::io::Write;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::json;

/// Content security policy: what pages may load, and where forms may be sent.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// Minimum length of a compressed answer, in bytes.
const MIN_COMPRESSED: usize = 1_024;

/// Adds the headers that every answer has.
pub(super) fn with_strict_headers(mut response: Response) -> Response {
    let fixed: [(HeaderName, &str); 5] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Without a referrer browsers would send `Origin: null` with the login form.
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let headers = response.headers_mut();
    for (name, value) in fixed {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Returns whether a client accepts gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|part| {
        let mut words = part.split(';').map(str::trim);
        words.next() == Some("gzip") && !words.any(|word| word == "q=0")
    })
}

/// Returns an answer with a text, compressed if the client accepts gzip.
pub(super) fn text(
    headers: &HeaderMap,
    status: StatusCode,
    content_type: &'static str,
    text: &str,
) -> Response {
    let compressed = (text.len() >= MIN_COMPRESSED && accepts_gzip(headers)).then(|| gzip(text)).flatten();
    let is_compressed = compressed.is_some();
    let bytes = compressed.unwrap_or_else(|| Bytes::copy_from_slice(text.as_bytes()));
    let mut response = (status, Body::from(bytes)).into_response();
    let answered = response.headers_mut();
    answered.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answered.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding, Cookie"));
    if is_compressed {
        answered.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn gzip(text: &str) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).ok()?;
    Some(encoder.finish().ok()?.into())
}

/// Returns a page.
pub(super) fn page(headers: &HeaderMap, status: StatusCode, rendered: askama::Result<String>) -> Response {
    match rendered {
        Ok(html) => text(headers, status, "text/html; charset=utf-8", &html),
        Err(error) => {
            tracing::error!(%error, "a template of the dashboard failed");
            text(
                headers,
                StatusCode::INTERNAL_SERVER_ERROR,
                "text/plain; charset=utf-8",
                "the page cannot be made\n",
            )
        }
    }
}

/// Returns an error in the API server's format.
pub(super) fn status(headers: &HeaderMap, status: StatusCode, reason: &str, message: &str) -> Response {
    let value = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16(),
    });
    text(headers, status, "application/json", &value.to_string())
}

/// Returns a redirection that a browser follows with GET.
pub(super) fn see_other(location: &str) -> Response {
    let location = HeaderValue::from_str(location).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(http::header::LOCATION, location)]).into_response()
}

/// Adds the number of seconds after which a client may ask again.
pub(super) fn retry_after(mut response: Response, seconds: u64) -> Response {
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_to_clients_that_accept_it() {
        let taken = |value: &str| {
            accepts_gzip(&[(ACCEPT_ENCODING, HeaderValue::from_str(value).unwrap())].into_iter().collect())
        };
        assert!(taken("gzip") && taken("br, gzip;q=0.5, *;q=0"));
        assert!(!taken("br") && !taken("gzip;q=0") && !accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn every_answer_is_strict() {
        let plain = with_strict_headers(see_other("/a"));
        assert_eq!(plain.headers()[CACHE_CONTROL], "no-store");
        assert_eq!(plain.headers()[REFERRER_POLICY], "same-origin");
        let policy = plain.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'self'") && !policy.contains("unsafe"));
        let cached = ([(CACHE_CONTROL, "public")], "x").into_response();
        assert_eq!(with_strict_headers(cached).headers()[CACHE_CONTROL], "public");
    }
}

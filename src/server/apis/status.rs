//! Answers that are no objects: `Status` in JSON, as clients of the API expect.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER};
use serde_json::{Value, json};

use super::group::ResourcePath;

/// Returns a failure.
pub(super) fn failure(code: StatusCode, reason: &str, message: &str, details: &Value) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "details": details, "code": code.as_u16(),
    });
    (code, axum::Json(status)).into_response()
}

/// Returns 400: the request is malformed.
pub(super) fn bad_request(message: &str) -> Response {
    failure(StatusCode::BAD_REQUEST, "BadRequest", message, &json!({}))
}

/// Returns 404: there is no such path.
pub(super) fn unknown_path() -> Response {
    let message = "the server could not find the requested resource";
    failure(StatusCode::NOT_FOUND, "NotFound", message, &json!({}))
}

/// Returns 404: there is no such object. `kind` is the noun for it.
pub(super) fn not_found(path: &ResourcePath, kind: &str) -> Response {
    let (group, name) = (path.group, &path.name);
    let details = json!({"name": name, "group": group, "kind": kind});
    failure(StatusCode::NOT_FOUND, "NotFound", &format!("{kind}.{group} {name:?} not found"), &details)
}

/// Returns 503: the client should try again shortly.
pub(super) fn unavailable(message: &str) -> Response {
    let details = json!({"retryAfterSeconds": 1});
    let mut response = failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message, &details);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Returns 429: too many requests wait.
pub(super) fn too_many(message: &str) -> Response {
    let details = json!({"retryAfterSeconds": 1});
    let mut response = failure(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message, &details);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Returns 410: the continue token of a list has expired.
pub(super) fn gone(message: &str) -> Response {
    failure(StatusCode::GONE, "Expired", message, &json!({}))
}

/// Returns 403: the user lacks the permission.
pub(super) fn forbidden(user: &str, verb: &str, path: &ResourcePath) -> Response {
    let ResourcePath { group, resource, subresource, namespace, name, .. } = path;
    let scope = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {namespace:?}")
    };
    let object = if name.is_empty() { String::new() } else { format!(" {name:?}") };
    let part = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    let message = format!(
        "{resource}.{group}{object} is forbidden: User {user:?} cannot {verb} resource \"{resource}{part}\" in API group {group:?} {scope}"
    );
    let details = json!({"name": name, "group": group, "kind": resource});
    failure(StatusCode::FORBIDDEN, "Forbidden", &message, &details)
}

/// Returns 405: the resource does not have the verb.
pub(super) fn method_not_allowed(message: &str) -> Response {
    failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message, &json!({}))
}

/// Returns 406: no accepted media type is served.
pub(super) fn not_acceptable(served: &str) -> Response {
    let message = format!("only these media types are served: {served}");
    failure(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", &message, &json!({}))
}

/// Returns 401: the client is not authenticated.
pub(super) fn unauthorized(message: &str) -> Response {
    failure(StatusCode::UNAUTHORIZED, "Unauthorized", message, &json!({}))
}

/// Returns 403: the client does not belong to this installation.
pub(super) fn not_ours() -> Response {
    let message = "only processes of this installation may ask, with a token of their own for this purpose";
    failure(StatusCode::FORBIDDEN, "Forbidden", message, &json!({}))
}

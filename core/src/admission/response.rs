//! Responses to reviews and their encoding.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value, json};

use crate::api::validation::{FieldError, aggregate};

/// Result of a review.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReviewResponse {
    /// The request is allowed.
    Allowed {
        /// JSON patch operations; empty when the object is unchanged.
        patch: Vec<Value>,
        /// Warnings shown to the user.
        warnings: Vec<String>,
    },
    /// A rule refuses the request.
    Denied(String),
    /// An object on which the answer depends is not known. It may be so new that the watch has not delivered it.
    NotYet(String),
    /// The review itself is malformed.
    Malformed(String),
}

impl ReviewResponse {
    pub(super) fn allowed() -> Self {
        Self::Allowed { patch: Vec::new(), warnings: Vec::new() }
    }

    /// Returns `Allowed` without errors, else `Denied` with all of them.
    pub(super) fn from_errors(errors: &[FieldError]) -> Self {
        if errors.is_empty() { Self::allowed() } else { Self::Denied(aggregate(errors)) }
    }

    /// Returns the `AdmissionReview` to send.
    pub(super) fn render(self, uid: &str) -> Value {
        let mut response = Map::new();
        response.insert("uid".to_owned(), json!(uid));
        match self {
            Self::Allowed { patch, warnings } => {
                response.insert("allowed".to_owned(), json!(true));
                if !patch.is_empty() {
                    response.insert("patchType".to_owned(), json!("JSONPatch"));
                    response.insert(
                        "patch".to_owned(),
                        json!(BASE64_STANDARD.encode(Value::Array(patch).to_string())),
                    );
                }
                if !warnings.is_empty() {
                    response.insert("warnings".to_owned(), json!(warnings));
                }
            }
            Self::Denied(message) => set_failure(&mut response, 403, "Forbidden", &message),
            Self::NotYet(message) => {
                set_failure(&mut response, 403, "Forbidden", &message);
                if let Some(status) = response.get_mut("status") {
                    status["details"] = json!({"retryAfterSeconds": 1});
                }
            }
            Self::Malformed(message) => set_failure(&mut response, 400, "BadRequest", &message),
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }
}

/// Returns whether an answer depends on an object that is not known, so that another one may be given a moment later.
pub fn may_change_soon(review: &Value) -> bool {
    review.pointer("/response/status/details/retryAfterSeconds").is_some()
}

fn set_failure(response: &mut Map<String, Value>, code: u16, reason: &str, message: &str) {
    response.insert("allowed".to_owned(), json!(false));
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": message
    });
    response.insert("status".to_owned(), status);
}

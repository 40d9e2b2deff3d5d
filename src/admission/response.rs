//! The answer to a review, and how it is written.

use serde_json::{Map, Value, json};

use crate::api::validation::{FieldError, aggregate};

/// What a review ends with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// The request may go on.
    Allowed {
        /// Operations on the object; empty when nothing changes.
        patch: Vec<Value>,
        /// Advice shown to the user.
        warnings: Vec<String>,
    },
    /// A rule is against it.
    Denied(String),
    /// The review itself is not one.
    Malformed(String),
}

impl Answer {
    pub(super) fn allowed() -> Self {
        Self::Allowed {
            patch: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Allowed when there is no error, else denied with all of them.
    pub(super) fn judged(errors: &[FieldError]) -> Self {
        if errors.is_empty() {
            Self::allowed()
        } else {
            Self::Denied(aggregate(errors))
        }
    }

    /// The `AdmissionReview` to send.
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
                        json!(base64(Value::Array(patch).to_string().as_bytes())),
                    );
                }
                if !warnings.is_empty() {
                    response.insert("warnings".to_owned(), json!(warnings));
                }
            }
            Self::Denied(message) => refuse(&mut response, 403, "Forbidden", &message),
            Self::Malformed(message) => refuse(&mut response, 400, "BadRequest", &message),
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }
}

fn refuse(response: &mut Map<String, Value>, code: u16, reason: &str, message: &str) {
    response.insert("allowed".to_owned(), json!(false));
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": message
    });
    response.insert("status".to_owned(), status);
}

/// Standard base64 with padding: what JSON has for bytes.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0_u32, |word, i| {
            word << 8 | u32::from(chunk.get(i).copied().unwrap_or(0))
        });
        for i in 0..4_usize {
            let digit = usize::try_from(word >> (18 - 6 * i) & 63)
                .ok()
                .and_then(|d| DIGITS.get(d));
            out.push(if i <= chunk.len() {
                digit.copied().map_or('=', char::from)
            } else {
                '='
            });
        }
    }
    out
}

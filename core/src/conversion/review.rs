//! ConversionReviews of the API server: objects in, the converted ones in the same order out.
//!
//! Each object is converted by itself. One that cannot be converted fails the review, because there is no answer for a part of
//! it; the message names the object and its field.

use super::{Version, convert};
use crate::api::partial::{Projection, ReadError, read_within};
use serde_json::{Value, json};

/// Maximum number of values of a review that is answered at once.
pub const MAX_LIGHT_VALUES: usize = 8 << 10;
/// Maximum number of values of any review: more than a Workload on a hundred thousand nodes has. Decoded they take up to eighty
/// megabytes.
pub const MAX_VALUES: usize = 1 << 20;

static REVIEW: Projection = Projection::Fields(&[("request", REQUEST)]);
const REQUEST: Projection = Projection::Fields(&[
    ("uid", Projection::Scalar),
    ("desiredAPIVersion", Projection::Scalar),
    ("objects", Projection::Whole),
]);

/// Answers a ConversionReview of at most this many values.
///
/// # Errors
/// The body is no JSON, or has too many values.
pub fn answer(body: &[u8], values: usize) -> Result<Value, ReadError> {
    let mut review = read_within(&REVIEW, values, body)?;
    let request = review.get_mut("request").map(Value::take).unwrap_or_default();
    let text = |field: &str| request.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (uid, wanted) = (text("uid"), text("desiredAPIVersion"));
    let response = match convert_all(request, &wanted) {
        Ok(objects) => json!({ "uid": uid, "convertedObjects": objects, "result": { "status": "Success" } }),
        Err(message) => json!({ "uid": uid, "result": { "status": "Failure", "message": message } }),
    };
    Ok(json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response }))
}

fn convert_all(mut request: Value, wanted: &str) -> Result<Vec<Value>, String> {
    let version =
        Version::of(wanted).ok_or_else(|| format!("request.desiredAPIVersion: {wanted:?} is not served"))?;
    let Some(Value::Array(objects)) = request.get_mut("objects").map(Value::take) else {
        return Err("request.objects: missing or not a list".to_owned());
    };
    objects
        .into_iter()
        .map(|object| {
            let name = name_of(&object);
            convert(object, version).map_err(|error| format!("{name}: {error}"))
        })
        .collect()
}

/// Returns kind, namespace and name of an object, for a message.
fn name_of(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, namespace) = (text("/kind"), text("/metadata/namespace"));
    let separator = if namespace.is_empty() { "" } else { "/" };
    format!("{kind} {namespace}{separator}{}", text("/metadata/name"))
}

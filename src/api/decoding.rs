//! Decodes objects of the API server. An error names the field, so that an event about an unreadable object says what to
//! correct.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Decodes an object, or a part of one.
///
/// # Errors
/// If it cannot be decoded: the path of the field within `value`, and what is wrong with it.
pub fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    // The path costs time, so it is only recorded after a failure.
    T::deserialize(value)
        .or_else(|_| serde_path_to_error::deserialize(value).map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::decode;
    use crate::api::v1beta2::ClusterQueue;
    use serde_json::json;

    #[test]
    fn error_names_field_and_value() {
        let object = |spec| json!({"metadata": {"name": "odd"}, "spec": spec});
        assert!(decode::<ClusterQueue>(&object(json!({}))).is_ok());
        let error = decode::<ClusterQueue>(&object(json!({"queueingStrategy": "Sideways"}))).unwrap_err();
        assert!(error.starts_with("spec.queueingStrategy: unknown variant `Sideways`"), "{error}");
    }
}

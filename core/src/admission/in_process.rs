//! Admission without HTTP: returns the object as it would be stored, or why it would be refused.

use super::ReviewContext;
use super::response::ReviewResponse;
use super::review::{evaluate, path_for_kind};
use serde_json::{Map, Value};

/// Admits an object that is created, or that replaces `old`: defaulting, schema validation, then webhook validation, in
/// the order of an API server. Kinds without a rule have only schema validation. Returns the object and the warnings.
pub fn admit_object(
    (group, kind): (&str, &str),
    mut object: Value,
    old: Option<&Value>,
    schema: impl FnOnce(&mut Value) -> Result<(), String>,
    ctx: &ReviewContext<'_>,
) -> Result<(Value, Vec<String>), String> {
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    let mut all_warnings = Vec::new();
    let mut schema = Some(schema);
    for mutating in [true, false] {
        if let Some(check) = schema.take_if(|_| !mutating) {
            check(&mut object)?;
        }
        let Some(path) = path_for_kind(group, kind, mutating) else {
            continue;
        };
        let fields = [
            ("uid", Value::from("direct")),
            ("operation", Value::from(operation)),
            ("object", object),
            ("oldObject", old.cloned().unwrap_or_default()),
        ];
        let named = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
        let mut request = Value::Object(named.collect::<Map<_, _>>());
        let response = evaluate(path, &request, ctx);
        object = request.get_mut("object").map(Value::take).unwrap_or_default();
        match response {
            ReviewResponse::Allowed { patch, warnings } => {
                all_warnings.extend(warnings);
                let operations: json_patch::Patch =
                    serde_json::from_value(Value::Array(patch)).map_err(|error| error.to_string())?;
                json_patch::patch(&mut object, &operations).map_err(|error| error.to_string())?;
            }
            ReviewResponse::Denied(message)
            | ReviewResponse::NotYet(message)
            | ReviewResponse::Malformed(message) => return Err(message),
        }
    }
    Ok((object, all_warnings))
}

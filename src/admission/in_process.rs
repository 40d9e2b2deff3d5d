//! The same answers without the wire: an object as it would be stored, or why it would not be.

use super::ReviewContext;
use super::response::ReviewResponse;
use super::review::{evaluate, path_for_kind};
use serde_json::{Map, Value};

/// What becomes of an object that is created, or that takes the place of `old`: first defaults, then its schema, then
/// judgement, in an API server's order. Kinds that no rule answers for have their schema alone. The second value is advice.
pub fn admit_object(
    (group, kind): (&str, &str),
    mut object: Value,
    old: Option<&Value>,
    schema: impl FnOnce(&mut Value) -> Result<(), String>,
    ctx: &ReviewContext<'_>,
) -> Result<(Value, Vec<String>), String> {
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    let mut advice = Vec::new();
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
        let answer = evaluate(path, &request, ctx);
        object = request.get_mut("object").map(Value::take).unwrap_or_default();
        match answer {
            ReviewResponse::Allowed { patch, warnings } => {
                advice.extend(warnings);
                let operations: json_patch::Patch =
                    serde_json::from_value(Value::Array(patch)).map_err(|error| error.to_string())?;
                json_patch::patch(&mut object, &operations).map_err(|error| error.to_string())?;
            }
            ReviewResponse::Denied(message) | ReviewResponse::Malformed(message) => return Err(message),
        }
    }
    Ok((object, advice))
}

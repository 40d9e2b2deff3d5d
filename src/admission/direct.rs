//! The same answers without the wire: an object as it would be stored, or why it would not be.

use super::Context;
use super::response::Answer;
use super::review::{answer, path_of};
use serde_json::{Value, json};

/// What becomes of an object that is created, or that takes the place of `old`: first defaults, then judgement. Kinds that
/// no rule answers for stay as they are. The second value is advice.
pub fn admitted(
    group: &str,
    kind: &str,
    object: Value,
    old: Option<&Value>,
    ctx: &Context<'_>,
) -> Result<(Value, Vec<String>), String> {
    let mut request = json!({
        "uid": "direct", "operation": if old.is_some() { "UPDATE" } else { "CREATE" }, "object": object,
        "oldObject": old,
    });
    let mut advice = Vec::new();
    for mutating in [true, false] {
        let Some(path) = path_of(group, kind, mutating) else {
            continue;
        };
        match answer(path, &request, ctx) {
            Answer::Allowed { patch, warnings } => {
                advice.extend(warnings);
                let patch: json_patch::Patch =
                    serde_json::from_value(Value::Array(patch)).map_err(|error| error.to_string())?;
                if let Some(object) = request.get_mut("object") {
                    json_patch::patch(object, &patch).map_err(|error| error.to_string())?;
                }
            }
            Answer::Denied(message) | Answer::Malformed(message) => return Err(message),
        }
    }
    Ok((request.get_mut("object").map(Value::take).unwrap_or_default(), advice))
}

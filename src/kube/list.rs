//! All objects of a kind, once, page by page. Reads only.

use serde_json::{Value, json};

use super::client::{CallError, Caller, all_path};
use crate::state::ApiResourceInfo;

/// HTTP status of a list that took too long to be continued.
const GONE: u16 = 410;

/// The objects as the server has them, without managed fields.
pub async fn list(
    caller: &Caller,
    resource: &ApiResourceInfo,
    page_size: u32,
) -> Result<Vec<Value>, CallError> {
    let (mut found, mut token, mut restarted) = (Vec::new(), String::new(), false);
    loop {
        let path = format!("{}?limit={page_size}&continue={token}", all_path(resource));
        let mut page = match caller.get(&path).await {
            Ok(page) => page,
            // Once more from the start; a second time it is an error.
            Err(error) if error.code() == Some(GONE) && !restarted && !token.is_empty() => {
                (found, token, restarted) = (Vec::new(), String::new(), true);
                continue;
            }
            Err(error) => return Err(error),
        };
        let items = page.get_mut("items").map(Value::take).unwrap_or_default();
        if let Value::Array(items) = items {
            found.extend(items.into_iter().map(|item| with_type_meta(item, resource)));
        }
        let next = page.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default();
        if next.is_empty() {
            return Ok(found);
        }
        next.clone_into(&mut token);
    }
}

/// Items of a list do not say what they are.
fn with_type_meta(mut item: Value, resource: &ApiResourceInfo) -> Value {
    if let Some(fields) = item.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!(resource.api_version()));
        fields.insert("kind".to_owned(), json!(resource.kind));
    }
    if let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
    item
}

//! Lists all objects of a kind once, page by page.

use serde_json::{Value, json};

use super::client::{CallError, Caller, all_path};
use crate::cache::ApiResourceInfo;

/// HTTP status if the continue token of a list expired.
const GONE: u16 = 410;

/// Returns all objects of a kind, without managed fields. Starts again once if the continue token expires.
pub async fn list(
    caller: &Caller,
    resource: &ApiResourceInfo,
    page_size: u32,
) -> Result<Vec<Value>, CallError> {
    let (mut objects, mut token, mut restarted) = (Vec::new(), String::new(), false);
    loop {
        let path = format!("{}?limit={page_size}&continue={token}", all_path(resource));
        let mut page = match caller.get(&path).await {
            Ok(page) => page,
            // Start again once; a second expiry is an error.
            Err(error) if error.code() == Some(GONE) && !restarted && !token.is_empty() => {
                (objects, token, restarted) = (Vec::new(), String::new(), true);
                continue;
            }
            Err(error) => return Err(error),
        };
        let items = page.get_mut("items").map(Value::take).unwrap_or_default();
        if let Value::Array(items) = items {
            objects.extend(items.into_iter().map(|item| with_type_meta(item, resource)));
        }
        let next = page.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default();
        if next.is_empty() {
            return Ok(objects);
        }
        next.clone_into(&mut token);
    }
}

/// Returns all objects of a collection by its path, as they are; `query` has further parameters, such as a label selector.
pub async fn list_path(
    caller: &Caller,
    path: &str,
    query: &str,
    page_size: u32,
) -> Result<Vec<Value>, CallError> {
    let (mut objects, mut token) = (Vec::new(), String::new());
    loop {
        let mut page = caller.get(&format!("{path}?limit={page_size}&continue={token}&{query}")).await?;
        if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
            objects.extend(items);
        }
        let next = page.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default();
        if next.is_empty() {
            return Ok(objects);
        }
        next.clone_into(&mut token);
    }
}

/// Adds apiVersion and kind, which items of a list lack, and removes managed fields.
pub fn with_type_meta(mut item: Value, resource: &ApiResourceInfo) -> Value {
    if let Some(fields) = item.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!(resource.api_version()));
        fields.insert("kind".to_owned(), json!(resource.kind));
    }
    if let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
    item
}

//! Jobs that users name as `TYPE[.GROUP]/NAME`.

use anyhow::anyhow;
use serde_json::Value;

use super::discovery::{Discovery, type_and_name};
use super::pages::{ListOptions, Pages, items};
use crate::kube::client::Caller;

/// Object of a `TYPE[.GROUP]/NAME`.
pub(crate) enum ForObject {
    /// The object, with `apiVersion` and `kind`.
    Found(Value),
    /// There is no such object.
    NotFound,
    /// The text is no `TYPE/NAME`.
    NoName,
}

/// Reads the object that `TYPE[.GROUP]/NAME` names; without a namespace, the first of all namespaces.
pub(crate) async fn for_object(
    discovery: &mut Discovery<'_>,
    caller: &Caller,
    namespace: Option<&str>,
    text: &str,
) -> anyhow::Result<ForObject> {
    let Some((kind, name)) = type_and_name(text).map_err(anyhow::Error::msg)? else {
        return Ok(ForObject::NoName);
    };
    let resource = discovery.find(kind).await?;
    let resource = resource.ok_or_else(|| anyhow!("no matches for /, Resource={}", kind.to_lowercase()))?;
    let options = ListOptions { fields: Some(format!("metadata.name={name}")), ..ListOptions::default() };
    let mut pages = Pages::new(caller, &resource.collection(namespace), &options);
    while let Some(mut page) = pages.next().await? {
        if let Some(mut object) = items(&mut page).into_iter().next() {
            if let Some(fields) = object.as_object_mut() {
                fields.insert("apiVersion".to_owned(), resource.api_version().into());
                fields.insert("kind".to_owned(), resource.kind.clone().into());
            }
            return Ok(ForObject::Found(object));
        }
    }
    Ok(ForObject::NotFound)
}

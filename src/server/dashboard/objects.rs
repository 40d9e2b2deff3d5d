//! YAML and events of an object, read with the viewer's own token.
//!
//! Invariants: the API server decides what the viewer may read; without a token for the API server nothing is read; no answer is
//! kept, so that no viewer gets what was read for another; no text contains a token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::Value;

use super::models::NoValue;
use super::requests::{address, refuse, unanswered, without_value};
use super::{Dashboard, answer};
use crate::dashboard::question::{BadAddress, Form};
use crate::dashboard::{ObjectName, ReadObject, object_page};
use crate::kube::client::{CallError, Caller};

/// Answers with the page of an object's YAML and events.
pub(super) async fn object(State(dashboard): State<Arc<Dashboard>>, request: Request) -> Response {
    let (address, headers) = (address(&dashboard, &request), request.headers());
    let Some(name) = ObjectName::parse(&address) else {
        return unanswered(&dashboard, headers, &address, BadAddress::NoPage.into()).await;
    };
    let viewer = match dashboard.viewer(headers, &name.page()).await {
        Ok(viewer) => viewer,
        Err(refused) => return refuse(&dashboard, headers, &address, Form::Html, refused),
    };
    let shown = dashboard.page_request(&address, Some(&viewer), headers);
    if !dashboard.rate.admits(&viewer.user.name) {
        return without_value(&dashboard, headers, (&shown, Form::Html), NoValue::TooMany);
    }
    let read = match &dashboard.objects {
        Some(caller) => read(caller, &viewer.token, &name).await,
        None => ReadObject {
            refusals: vec![
                "Your token is for the dashboard alone, so that the API server does not take it: use the commands."
                    .to_owned(),
            ],
            ..ReadObject::default()
        },
    };
    answer::page(headers, StatusCode::OK, object_page(&shown, &name, &read))
}

/// Reads an object and its events as the viewer.
async fn read(caller: &Caller, token: &str, name: &ObjectName) -> ReadObject {
    let (object_path, events_path) = (name.api_path(), name.events_path());
    let (found, events) =
        tokio::join!(caller.get_with_token(&object_path, token), caller.get_with_token(&events_path, token));
    let mut read = ReadObject::default();
    match found {
        Ok(object) => read.object = Some(object),
        Err(error) => read.refusals.push(refusal("the object", &error)),
    }
    match events {
        Ok(Value::Object(mut list)) => {
            if let Some(Value::Array(items)) = list.remove("items") {
                read.events = items;
            }
        }
        Ok(_) => read.refusals.push("The API server sent no list of events.".to_owned()),
        Err(error) => read.refusals.push(refusal("its events", &error)),
    }
    read
}

/// Returns why a part was not read. The API server's own words are about what the viewer asked for.
fn refusal(part: &str, error: &CallError) -> String {
    match error {
        CallError::Status { message, .. } => format!("The API server refuses {part}: {message}."),
        _ => format!("The API server does not answer about {part}."),
    }
}

//! Simulates a stale API server: the proxy answers streamed lists with the objects of an earlier revision and sends
//! later events only after a delay.

use crate::proxy::Call;
use crate::watch_faults::Chunks;
use anyhow::{Context as _, Result, anyhow, ensure};
use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use http::{HeaderMap, Request, Response, header};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// Revision and delay of a stale API server.
#[derive(Clone, Debug)]
pub struct StaleLists {
    /// The revision that lists show.
    pub revision: String,
    /// How long later events are delayed.
    pub delay: Duration,
    /// Resources whose later events are delayed by half of it only: they overtake the others.
    pub sooner: &'static [&'static str],
}

impl StaleLists {
    /// Returns whether the call is a streamed list. A stale response to it breaks the API's consistency contract on
    /// purpose.
    pub(crate) fn applies_to(call: &Call) -> bool {
        call.is_watch() && call.query.contains("sendInitialEvents=true")
    }

    /// Returns the objects of the earlier revision, the end-of-list bookmark and, after the delay, all later events.
    pub(crate) async fn respond(
        self,
        client: Client,
        headers: HeaderMap,
        call: &Call,
    ) -> Result<(http::response::Parts, Chunks)> {
        let parts = call.query.split('&').filter(|part| !part.is_empty());
        let (selectors, rest): (Vec<&str>, Vec<&str>) =
            parts.filter(|part| !is_position_parameter(part)).partition(|part| part.contains("Selector="));
        let exact_version = format!("resourceVersion={}&resourceVersionMatch=Exact", self.revision);
        let list =
            format!("{}?{}", call.path, [selectors.clone(), vec![exact_version.as_str()]].concat().join("&"));
        let mut json_headers = headers.clone();
        json_headers.insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
        let list = get(&client, &list, &json_headers).await?.into_body().collect_bytes().await?;
        let list: Value = serde_json::from_slice(&list)?;
        let kind = list["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
        let kind = kind
            .with_context(|| format!("{} did not return a list at {exact_version}: {list}", call.path))?
            .to_owned();
        let mut lines = String::new();
        for item in list["items"].as_array().into_iter().flatten() {
            let mut item = item.clone();
            item["kind"] = json!(kind);
            item["apiVersion"] = list["apiVersion"].clone();
            let _ = writeln!(lines, "{}", json!({"type": "ADDED", "object": item}));
        }
        let end = json!({"kind": kind, "apiVersion": list["apiVersion"], "metadata": {
            "resourceVersion": self.revision, "annotations": {"k8s.io/initial-events-end": "true"}}});
        let _ = writeln!(lines, "{}", json!({"type": "BOOKMARK", "object": end}));
        let from = format!("resourceVersion={}", self.revision);
        let watch = format!("{}?{}", call.path, [selectors, rest, vec![from.as_str()]].concat().join("&"));
        let resource = call.path.rsplit('/').next().unwrap_or_default();
        let delay = if self.sooner.contains(&resource) { self.delay / 2 } else { self.delay };
        let later_events = stream::once(async move {
            tokio::time::sleep(delay).await;
            match get(&client, &watch, &headers).await {
                Ok(response) => {
                    response.into_body().into_data_stream().map(|chunk| chunk.map_err(Into::into)).boxed()
                }
                Err(error) => stream::iter([Err(error)]).boxed(),
            }
        });
        let chunks = stream::iter([Ok(Bytes::from(lines))]).chain(later_events.flatten()).boxed();
        let response = Response::builder().header(header::CONTENT_TYPE, "application/json").body(())?;
        Ok((response.into_parts().0, chunks))
    }
}

/// Returns whether a query parameter sets where a watch starts.
fn is_position_parameter(part: &str) -> bool {
    ["sendInitialEvents=", "resourceVersion=", "resourceVersionMatch="]
        .iter()
        .any(|key| part.starts_with(key))
}

async fn get(client: &Client, uri: &str, headers: &HeaderMap) -> Result<Response<Body>> {
    let mut request = Request::get(uri);
    if let Some(request_headers) = request.headers_mut() {
        request_headers.clone_from(headers);
    }
    let response =
        client.send(request.body(Body::empty())?).await.map_err(|error| anyhow!("{uri}: {error}"))?;
    ensure!(response.status().is_success(), "{uri} returned {}", response.status());
    Ok(response)
}

//! An API server that is behind: to whoever asks it for a list as a stream it tells what was there at an earlier revision,
//! and only some time later what has happened since.

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

/// How far it is behind.
#[derive(Clone, Debug)]
pub struct StaleLists {
    /// What it knows of.
    pub revision: String,
    /// How long it takes until it knows of more.
    pub delay: Duration,
}

impl StaleLists {
    /// Whether such a server answers the call itself: the contract of lists would be broken by it, and is.
    pub(crate) fn applies_to(call: &Call) -> bool {
        call.is_watch() && call.query.contains("sendInitialEvents=true")
    }

    /// The answer: objects of the earlier revision, the end of the list, and after a while all that came later.
    pub(crate) async fn respond(
        self,
        client: Client,
        headers: HeaderMap,
        call: &Call,
    ) -> Result<(http::response::Parts, Chunks)> {
        let parts = call.query.split('&').filter(|part| !part.is_empty());
        let (selectors, rest): (Vec<&str>, Vec<&str>) =
            parts.filter(|part| !is_position_parameter(part)).partition(|part| part.contains("Selector="));
        let exactly = format!("resourceVersion={}&resourceVersionMatch=Exact", self.revision);
        let list =
            format!("{}?{}", call.path, [selectors.clone(), vec![exactly.as_str()]].concat().join("&"));
        let mut plain = headers.clone();
        plain.insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
        let list = get(&client, &list, &plain).await?.into_body().collect_bytes().await?;
        let list: Value = serde_json::from_slice(&list)?;
        let kind = list["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
        let kind = kind.with_context(|| format!("{} is no list at {exactly}: {list}", call.path))?.to_owned();
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
        let later = stream::once(async move {
            tokio::time::sleep(self.delay).await;
            match get(&client, &watch, &headers).await {
                Ok(answer) => {
                    answer.into_body().into_data_stream().map(|chunk| chunk.map_err(Into::into)).boxed()
                }
                Err(error) => stream::iter([Err(error)]).boxed(),
            }
        });
        let chunks = stream::iter([Ok(Bytes::from(lines))]).chain(later.flatten()).boxed();
        let answer = Response::builder().header(header::CONTENT_TYPE, "application/json").body(())?;
        Ok((answer.into_parts().0, chunks))
    }
}

/// What a watch says of where it begins.
fn is_position_parameter(part: &str) -> bool {
    ["sendInitialEvents=", "resourceVersion=", "resourceVersionMatch="]
        .iter()
        .any(|key| part.starts_with(key))
}

async fn get(client: &Client, uri: &str, headers: &HeaderMap) -> Result<Response<Body>> {
    let mut request = Request::get(uri);
    if let Some(own) = request.headers_mut() {
        own.clone_from(headers);
    }
    let answer =
        client.send(request.body(Body::empty())?).await.map_err(|error| anyhow!("{uri}: {error}"))?;
    ensure!(answer.status().is_success(), "{uri} was answered with {}", answer.status());
    Ok(answer)
}

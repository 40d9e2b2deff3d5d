//! Writes objects into etcd directly, for clusters that are too large to be created through the API server in time, and
//! for those that keep the UIDs and the states of others. Objects are stored as JSON, which the API server reads like its own encoding.
//!
//! Invariant: each object has a revision of its own, as with the API server. Of objects with one revision, a watch that
//! starts between their events would miss the later ones.

use anyhow::Result;
use k8s_openapi::ByteString;
use kube::{Client, Config};
use serde_json::{Value, json};

/// Writes keys by etcd's JSON gateway.
pub(crate) struct EtcdWriter {
    client: Client,
}

impl EtcdWriter {
    /// Writes to the etcd at this URL.
    pub(crate) fn new(server: &str) -> Result<Self> {
        Ok(Self { client: Client::try_from(Config::new(server.parse()?))? })
    }

    /// Writes an object under a key such as `/registry/jobs/NAMESPACE/NAME`.
    pub(crate) async fn put(&self, key: String, object: String) -> Result<()> {
        let bytes = |text: String| ByteString(text.into_bytes());
        let body = serde_json::to_vec(&json!({"key": bytes(key), "value": bytes(object)}))?;
        self.client.request::<Value>(http::Request::post("/v3/kv/put").body(body)?).await?;
        Ok(())
    }
}

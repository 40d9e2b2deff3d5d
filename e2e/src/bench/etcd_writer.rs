//! Writes objects into etcd directly, for clusters that are too large to be created through the API server in time. Objects
//! are stored as JSON, which the API server reads like its own encoding.
//!
//! Invariant: each object has a revision of its own, as with the API server. Of objects with one revision, a watch that
//! starts between their events would miss the later ones.

use crate::control_plane::ControlPlane;
use anyhow::Result;
use k8s_openapi::ByteString;
use kube::{Client, Config};
use serde_json::{Value, json};

/// Writes keys by etcd's JSON gateway.
pub(super) struct EtcdWriter {
    client: Client,
}

impl EtcdWriter {
    pub(super) fn new(plane: &ControlPlane) -> Result<Self> {
        Ok(Self { client: Client::try_from(Config::new(plane.etcd_server()?.parse()?))? })
    }

    /// Writes an object under a key such as `/registry/jobs/NAMESPACE/NAME`.
    pub(super) async fn put(&self, key: String, object: String) -> Result<()> {
        let bytes = |text: String| ByteString(text.into_bytes());
        let body = serde_json::to_vec(&json!({"key": bytes(key), "value": bytes(object)}))?;
        self.client.request::<Value>(http::Request::post("/v3/kv/put").body(body)?).await?;
        Ok(())
    }
}

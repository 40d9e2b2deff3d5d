//! Writes objects into etcd directly, for clusters that are too large to be created through the API server in time. Objects
//! are stored as JSON, which the API server reads like its own encoding.

use crate::control_plane::ControlPlane;
use anyhow::{Result, ensure};
use k8s_openapi::ByteString;
use kube::{Client, Config};
use serde_json::{Value, json};

/// Objects per transaction; etcd accepts 128 operations and 1.5 MiB.
const TRANSACTION_SIZE: usize = 64;

/// Writes keys by etcd's JSON gateway.
pub(super) struct EtcdWriter {
    client: Client,
    operations: Vec<Value>,
}

impl EtcdWriter {
    pub(super) fn new(plane: &ControlPlane) -> Result<Self> {
        let client = Client::try_from(Config::new(plane.etcd_server()?.parse()?))?;
        Ok(Self { client, operations: Vec::new() })
    }

    /// Adds an object under a key such as `/registry/jobs/NAMESPACE/NAME`. Written at the latest by `flush`.
    pub(super) async fn put(&mut self, key: &str, object: &str) -> Result<()> {
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        self.operations.push(json!({"requestPut": {"key": bytes(key), "value": bytes(object)}}));
        if self.operations.len() == TRANSACTION_SIZE { self.flush().await } else { Ok(()) }
    }

    /// Writes what was added since the last transaction.
    pub(super) async fn flush(&mut self) -> Result<()> {
        if self.operations.is_empty() {
            return Ok(());
        }
        let body = serde_json::to_vec(&json!({"success": std::mem::take(&mut self.operations)}))?;
        let request = http::Request::post("/v3/kv/txn").body(body)?;
        let response: Value = self.client.request(request).await?;
        ensure!(response["succeeded"] == true, "etcd refused a transaction: {response}");
        Ok(())
    }
}

//! Serving certificates from a folder, such as a mounted Secret or the output of another tool.
//!
//! Invariant: each change is sent once, in the form of a Secret, and validated like one. If a certificate is replaced while
//! it is read, its key does not match; the pair is then rejected, and the next poll repairs it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::kube::core::DynamicObject;
use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

/// Time between two polls.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Files of the folder. The last one, the issuer, is optional.
const FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

/// Polls the files of a folder. Sends their contents with `tag` at the start and after each change.
pub(super) async fn watch_files<T: Clone>(
    folder: PathBuf,
    interval: Duration,
    sender: mpsc::Sender<(T, Option<DynamicObject>)>,
    tag: T,
) {
    let mut sent = None;
    loop {
        let files = read(&folder).await;
        if sent.as_ref() != Some(&files) {
            if files.is_empty() {
                tracing::warn!(folder = %folder.display(), "no tls.crt and tls.key to serve");
            }
            let object = serde_json::from_value(
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": files}),
            );
            if sender.send((tag.clone(), object.ok())).await.is_err() {
                return;
            }
            sent = Some(files);
        }
        tokio::time::sleep(interval).await;
    }
}

/// Reads the files as data of a Secret; empty if the certificate or its key is missing.
async fn read(folder: &Path) -> Map<String, Value> {
    let mut data = Map::new();
    for name in FILES {
        if let Ok(bytes) = tokio::fs::read(folder.join(name)).await {
            data.insert(name.to_owned(), json!(ByteString(bytes)));
        }
    }
    if !data.contains_key("tls.crt") || !data.contains_key("tls.key") {
        data.clear();
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Secret;

    /// Nothing is served without a key; each later change of the files is sent.
    #[tokio::test]
    async fn changed_files_are_reloaded() {
        let folder = std::env::temp_dir().join(format!("sluice-certificates-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("tls.crt", "chain");
        let (sender, mut updates) = mpsc::channel(1);
        let task = tokio::spawn(watch_files(folder.clone(), Duration::from_millis(1), sender, ()));
        let mut next = async || {
            let ((), object) = updates.recv().await.unwrap();
            object.unwrap().try_parse::<Secret>().unwrap().data.unwrap_or_default()
        };
        assert!(next().await.is_empty());
        write("tls.key", "key");
        let text = |data: &std::collections::BTreeMap<String, ByteString>, name: &str| {
            String::from_utf8(data[name].0.clone()).unwrap()
        };
        let data = next().await;
        assert_eq!((text(&data, "tls.crt"), text(&data, "tls.key")), ("chain".into(), "key".into()));
        write("ca.crt", "authority");
        assert_eq!(text(&next().await, "ca.crt"), "authority");
        task.abort();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

//! Serving certificates from a folder, as a mounted Secret or another tool keeps them there.
//!
//! Invariant: what is read is passed on once, as the Secret that it would be; whether it can be served is judged where
//! Secrets are. A key that is read while its certificate is replaced does not fit it, is refused there, and the next look
//! repairs that.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::kube::core::DynamicObject;
use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

/// Pause between two looks.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The files; the last one, of those that signed the certificate, may be absent.
const FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

/// Follows the files of a folder: their contents whenever they have changed, under a tag of the caller's.
pub(super) async fn watch_files<T: Clone>(
    folder: PathBuf,
    look: Duration,
    seen: mpsc::Sender<(T, Option<DynamicObject>)>,
    tag: T,
) {
    let mut known = None;
    loop {
        let found = read(&folder).await;
        if known.as_ref() != Some(&found) {
            if found.is_empty() {
                tracing::warn!(folder = %folder.display(), "no tls.crt and tls.key to serve");
            }
            let object = serde_json::from_value(
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": found}),
            );
            if seen.send((tag.clone(), object.ok())).await.is_err() {
                return;
            }
            known = Some(found);
        }
        tokio::time::sleep(look).await;
    }
}

/// The files as data of a Secret; nothing while the certificate or its key is missing.
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

    /// Without a key there is nothing to serve; then what the files say, again whenever they change, and only then.
    #[tokio::test]
    async fn changed_files_are_reloaded() {
        let folder = std::env::temp_dir().join(format!("sluice-certificates-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("tls.crt", "chain");
        let (sender, mut seen) = mpsc::channel(1);
        let task = tokio::spawn(watch_files(folder.clone(), Duration::from_millis(1), sender, ()));
        let mut next = async || {
            let ((), object) = seen.recv().await.unwrap();
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

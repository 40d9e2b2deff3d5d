//! Volumes of a pod, as folders that are mounted into its container.
//!
//! Invariant: a volume or source of a kind that is not handled here is an error, never left out.

use super::container::account;
use crate::container::Mount;
use crate::kubeconfig::decode_base64;
use crate::objects::{Kind, ObjectClient, number, text};
use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

/// The volumes of one pod.
pub(super) struct Volumes<'a> {
    objects: &'a ObjectClient,
    pod: &'a Value,
    folder: &'a Path,
}

impl<'a> Volumes<'a> {
    /// Volumes are kept below `folder`.
    pub(super) const fn new(objects: &'a ObjectClient, pod: &'a Value, folder: &'a Path) -> Self {
        Self { objects, pod, folder }
    }

    /// Writes the content of all volumes of the container and returns its mounts. Called again, tokens are replaced.
    pub(super) async fn write(&self, container: &Value) -> Result<Vec<Mount>> {
        let mut mounts = Vec::new();
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            let name = text(mount, "/name");
            let mut all = self.pod["spec"]["volumes"].as_array().into_iter().flatten();
            let volume = all.find(|volume| volume["name"] == *name);
            let volume = volume.with_context(|| format!("there is no volume {name}"))?;
            let folder = self.folder.join(name);
            fs::create_dir_all(&folder)?;
            self.write_volume(volume, &folder).await.with_context(|| format!("volume {name}"))?;
            let sub_path = text(mount, "/subPath");
            let source = if sub_path.is_empty() { folder } else { folder.join(sub_path) };
            let writable = volume.get("emptyDir").is_some() && mount["readOnly"] != true;
            mounts.push(Mount { source, target: text(mount, "/mountPath").to_owned(), writable });
        }
        Ok(mounts)
    }

    async fn write_volume(&self, volume: &Value, folder: &Path) -> Result<()> {
        if let Some(source) = volume.get("configMap") {
            self.write_object(Kind::CONFIG_MAP, text(source, "/name"), source, folder).await
        } else if let Some(source) = volume.get("secret") {
            self.write_object(Kind::SECRET, text(source, "/secretName"), source, folder).await
        } else if volume.get("emptyDir").is_some() {
            Ok(fs::set_permissions(folder, fs::Permissions::from_mode(0o777))?)
        } else if let Some(sources) = volume.pointer("/projected/sources").and_then(Value::as_array) {
            for source in sources {
                self.write_projection(source, folder).await?;
            }
            Ok(())
        } else {
            bail!("its kind is not handled: {volume}")
        }
    }

    async fn write_projection(&self, source: &Value, folder: &Path) -> Result<()> {
        if let Some(token) = source.get("serviceAccountToken") {
            let content = self.request_token(token).await?;
            self.write_file(&folder.join(text(token, "/path")), content.as_bytes())
        } else if let Some(source) = source.get("configMap") {
            self.write_object(Kind::CONFIG_MAP, text(source, "/name"), source, folder).await
        } else if let Some(source) = source.get("downwardAPI") {
            for item in source["items"].as_array().into_iter().flatten() {
                let field = text(item, "/fieldRef/fieldPath").replace('.', "/");
                let value = self.pod.pointer(&format!("/{field}")).and_then(Value::as_str);
                let value = value.with_context(|| format!("the pod has no {field}"))?;
                self.write_file(&folder.join(text(item, "/path")), value.as_bytes())?;
            }
            Ok(())
        } else {
            bail!("the source is not handled: {source}")
        }
    }

    /// Writes the keys of a ConfigMap or Secret, or only those that the source names.
    async fn write_object(&self, kind: Kind, name: &str, source: &Value, folder: &Path) -> Result<()> {
        let object = self.objects.must_get(kind, text(self.pod, "/metadata/namespace"), name).await?;
        let data = object["data"].as_object().into_iter().flatten();
        let items = source["items"].as_array();
        for (key, value) in data {
            let file = match items {
                None => key.as_str(),
                Some(items) => match items.iter().find(|item| item["key"] == **key) {
                    Some(item) => text(item, "/path"),
                    None => continue,
                },
            };
            let value = value.as_str().unwrap_or_default();
            let content =
                if kind == Kind::SECRET { decode_base64(value)? } else { value.as_bytes().to_vec() };
            self.write_file(&folder.join(file), &content)?;
        }
        Ok(())
    }

    /// Writes a file by renaming it, so that a reader never sees a part of it.
    fn write_file(&self, path: &Path, content: &[u8]) -> Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, content).with_context(|| new.display().to_string())?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o640))?;
        chown(&new, None, Some(account(self.pod, "runAsGroup")?))?;
        Ok(fs::rename(&new, path)?)
    }

    /// Requests the token that a source describes, of the pod's service account and bound to the pod; without an audience, for the API
    /// server.
    async fn request_token(&self, source: &Value) -> Result<String> {
        let audience = Some(text(source, "/audience")).filter(|audience| !audience.is_empty());
        let (namespace, pod) = (text(self.pod, "/metadata/namespace"), text(self.pod, "/metadata/name"));
        let accounts = Api::<ServiceAccount>::namespaced(self.objects.client().clone(), namespace);
        let spec = TokenRequestSpec {
            audiences: audience.map(str::to_owned).into_iter().collect(),
            expiration_seconds: Some(number(source, "/expirationSeconds")),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.to_owned()),
                uid: Some(text(self.pod, "/metadata/uid").to_owned()),
            }),
        };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let account = text(self.pod, "/spec/serviceAccountName");
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
        Ok(answer.status.context("no token in the response")?.token)
    }
}

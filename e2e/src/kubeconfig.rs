//! Kubeconfigs of users and service accounts.

use crate::certs::{PemPair, write_private};
use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use std::path::Path;

/// Somebody's way to one API server.
pub struct Credentials {
    document: Value,
}

impl Credentials {
    /// By a client certificate.
    pub fn certificate(server: &str, ca: &str, name: &str, pair: &PemPair) -> Self {
        let user = json!({
            "client-certificate-data": base64(pair.certificate.as_bytes()),
            "client-key-data": base64(pair.key.as_bytes()),
        });
        Self::new(server, ca, name, &user)
    }

    /// By a bearer token.
    pub fn token(server: &str, ca: &str, name: &str, token: &str) -> Self {
        Self::new(server, ca, name, &json!({ "token": token }))
    }

    fn new(server: &str, ca: &str, name: &str, user: &Value) -> Self {
        Self {
            document: json!({
                "apiVersion": "v1", "kind": "Config", "current-context": name,
                "clusters": [{"name": "sluice", "cluster": {
                    "server": server, "certificate-authority-data": base64(ca.as_bytes()),
                }}],
                "users": [{"name": name, "user": user}],
                "contexts": [{"name": name, "context": {"cluster": "sluice", "user": name}}],
            }),
        }
    }

    /// Writes the kubeconfig (JSON is YAML), readable by its owner alone.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_private(path, &serde_json::to_string_pretty(&self.document)?).map(drop)
    }

    /// A client with these credentials.
    pub async fn client(&self) -> Result<Client> {
        let config: Kubeconfig = serde_json::from_value(self.document.clone())?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }
}

/// A client by a kubeconfig file.
pub async fn client(path: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// A client without credentials of its own, which neither retries nor gives up: each request carries what it needs.
pub fn anonymous(server: &str, ca: &str) -> Result<Client> {
    let mut config = Config::new(server.parse()?);
    config.root_cert = Some(vec![pem::parse(ca)?.into_contents()]);
    config.default_retry = false;
    (config.read_timeout, config.write_timeout) = (None, None);
    Ok(Client::try_from(config)?)
}

/// A service account's token, good for ten days.
pub async fn token(admin: &Client, namespace: &str, name: &str) -> Result<String> {
    let accounts = Api::<ServiceAccount>::namespaced(admin.clone(), namespace);
    let spec = TokenRequestSpec { expiration_seconds: Some(864_000), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    Ok(answer.status.context("no token in the answer")?.token)
}

/// Standard base64.
pub fn base64(bytes: &[u8]) -> String {
    serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec()))
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

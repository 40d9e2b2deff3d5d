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

/// Credentials of one user for one API server, as a kubeconfig document.
pub struct Credentials {
    document: Value,
}

impl Credentials {
    /// Authenticates with a client certificate.
    pub fn certificate(server: &str, ca: &str, name: &str, pair: &PemPair) -> Self {
        let user = json!({
            "client-certificate-data": base64(pair.certificate.as_bytes()),
            "client-key-data": base64(pair.key.as_bytes()),
        });
        Self::new(server, ca, name, &user)
    }

    /// Authenticates with a bearer token.
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

    /// Writes the kubeconfig (JSON is YAML) with mode 0600.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_private(path, &serde_json::to_string_pretty(&self.document)?).map(drop)
    }

    /// Returns a client with these credentials.
    pub async fn client(&self) -> Result<Client> {
        let config: Kubeconfig = serde_json::from_value(self.document.clone())?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }
}

/// Returns a client for a kubeconfig file.
pub async fn client(path: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Like `client`, without repeating requests that the server asks to repeat.
pub async fn client_without_retries(path: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(path)?;
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Returns a client without credentials, retries or timeouts; each request carries its own Authorization header. `ca` may
/// contain several authorities, as after a rotation.
pub fn anonymous(server: &str, ca: &str) -> Result<Client> {
    let mut config = Config::new(server.parse()?);
    config.root_cert = Some(pem::parse_many(ca)?.into_iter().map(pem::Pem::into_contents).collect());
    config.default_retry = false;
    (config.read_timeout, config.write_timeout) = (None, None);
    Ok(Client::try_from(config)?)
}

/// Requests a service account token that is valid for ten days.
pub async fn token(admin: &Client, namespace: &str, name: &str) -> Result<String> {
    let accounts = Api::<ServiceAccount>::namespaced(admin.clone(), namespace);
    let spec = TokenRequestSpec { expiration_seconds: Some(864_000), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let response = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    Ok(response.status.context("no token in the response")?.token)
}

/// Encodes bytes as standard base64.
pub fn base64(bytes: &[u8]) -> String {
    serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec()))
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// Decodes standard base64.
pub fn decode_base64(text: &str) -> Result<Vec<u8>> {
    let bytes: k8s_openapi::ByteString = serde_json::from_value(text.into()).context("not base64")?;
    Ok(bytes.0)
}

/// Returns the id (`jti`) of a service account token, by which the audit log names it.
pub fn token_id(token: &str) -> Result<String> {
    let claims = token.split('.').nth(1).context("the token has no claims")?;
    // Tokens use the URL alphabet without padding.
    let mut claims = claims.replace('-', "+").replace('_', "/");
    claims.extend(std::iter::repeat_n('=', claims.len().wrapping_neg() % 4));
    let claims: Value = serde_json::from_slice(&decode_base64(&claims)?)?;
    Ok(claims["jti"].as_str().context("the token has no id")?.to_owned())
}

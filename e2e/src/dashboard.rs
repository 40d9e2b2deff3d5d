//! The dashboard as a process of its own, and users who look at it.

use crate::cluster::Cluster;
use crate::install::{NAMESPACE, apply, copy_serving_certificate};
use crate::manager::get;
use crate::paths;
use crate::process::{Process, free_ports, tail};
use crate::wait::eventually;
use anyhow::{Context as _, Result, bail, ensure};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::Config;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

/// Account of the dashboard.
pub const ACCOUNT: &str = "kueue-dashboard";
/// Flags with which the manager answers the dashboard when it leads.
pub const MANAGER_FLAGS: [&str; 2] = ["--leader-caller=kueue-dashboard", "--pod-ip=127.0.0.1"];

/// A running dashboard.
pub struct Dashboard {
    process: Process,
    /// `https://127.0.0.1:PORT` with the path prefix.
    pub address: String,
}

impl Dashboard {
    /// Starts a dashboard beside the manager of a cluster, with the shipped account, roles and nothing more.
    pub async fn start(cluster: &Cluster, prefix: &str) -> Result<Self> {
        for file in ["role.yaml", "lease_role.yaml"] {
            let text = std::fs::read_to_string(paths::root().join("config/dashboard").join(file))?;
            let roles: Vec<Value> = serde_saphyr::from_multiple(&text)?;
            apply(&cluster.kubectl, &roles)?;
        }
        let manager = cluster.manager()?.settings();
        let [health, metrics, port] = free_ports(3)?[..] else { bail!("expected three ports") };
        let folder = cluster.plane.folder();
        let file = |kind: &str| folder.join(format!("dashboard-{port}.{kind}"));
        let (kubeconfig, token) = (file("kubeconfig"), file("token"));
        let account = cluster.plane.service_account(cluster.plane.server(), NAMESPACE, ACCOUNT).await?;
        account.write(&kubeconfig)?;
        let audience = "--audience=leader.visibility.sluice.dev";
        std::fs::write(
            &token,
            cluster.kubectl.run(&["-n", NAMESPACE, "create", "token", ACCOUNT, audience])?,
        )?;
        copy_serving_certificate(&cluster.objects, &cluster.kubectl, "kueue-dashboard-server-cert").await?;
        let mut command = Command::new(&manager.program);
        command
            .args(["manager", "--component=dashboard", "--dashboard-service=kueue-dashboard"])
            .arg("--serving-secret=kueue-dashboard-server-cert")
            .arg(format!("--dashboard-bind-address=127.0.0.1:{port}"))
            .arg(format!("--dashboard-path-prefix={prefix}"))
            .arg(format!("--health-bind-address=127.0.0.1:{health}"))
            .arg(format!("--metrics-bind-address=127.0.0.1:{metrics}"))
            .arg(format!("--leader-token={}", token.display()))
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .arg("--config")
            .arg(folder.join(format!("{}.yaml", manager.name)))
            .current_dir(folder)
            .env("HOSTNAME", "dashboard");
        let process = Process::start("dashboard", &mut command, &file("log"), &cluster.plane.guard)?;
        let ready = eventually("the dashboard is ready", async || {
            process.check()?;
            let (code, body) = get(health, "/readyz").await?;
            ensure!(code == 200, "/readyz returned {code}: {body}");
            Ok(())
        })
        .await;
        ready.with_context(|| format!("its log ends:\n{}", tail(process.log(), 20)))?;
        Ok(Self { process, address: format!("https://127.0.0.1:{port}{}", prefix.trim_end_matches('/')) })
    }

    /// Its process.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Stops it.
    pub fn stop(&self) {
        self.process.terminate(Duration::from_secs(10));
    }
}

/// What a user gets.
#[derive(Clone, Debug)]
pub struct Page {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub text: String,
}

impl Page {
    /// Reads the body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.text).with_context(|| format!("{}: {}", self.status, self.text))
    }

    /// Returns a header.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A user with a token.
#[derive(Clone)]
pub struct Viewer {
    client: kube::Client,
    prefix: String,
    /// The token.
    pub token: String,
}

impl Viewer {
    /// Returns a user of the dashboard at this address.
    pub fn new(address: &str, token: &str) -> Result<Self> {
        let url: http::Uri = address.parse()?;
        let prefix = url.path().trim_end_matches('/').to_owned();
        let root = format!("https://{}", url.authority().context("no host")?);
        let mut config = Config::new(root.parse()?);
        config.accept_invalid_certs = true;
        config.default_retry = false;
        let client = kube::Client::try_from(config)?;
        Ok(Self { client, prefix, token: token.to_owned() })
    }

    /// Returns the same browser with another token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// Makes an account and returns it as a user; `role` is bound in `namespace`, or in the cluster if that is empty.
    pub fn account(
        cluster: &Cluster,
        address: &str,
        (name, role, namespace): (&str, &str, &str),
    ) -> Result<Self> {
        let home = if namespace.is_empty() { "default" } else { namespace };
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": home}});
        let (kind, binding) = if namespace.is_empty() {
            ("ClusterRoleBinding", json!({"name": name}))
        } else {
            ("RoleBinding", json!({"name": name, "namespace": namespace}))
        };
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": binding,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": home}],
        });
        apply(&cluster.kubectl, &[account, binding])?;
        let audience = "--audience=sluice-dashboard";
        let token = cluster.kubectl.run(&["-n", home, "create", "token", name, audience])?;
        Self::new(address, token.trim())
    }

    /// Sends a request and returns the answer as it comes.
    pub async fn send(&self, path: &str, headers: &[(&str, &str)]) -> Result<http::Response<Body>> {
        let mut request = http::Request::get(format!("{}{path}", self.prefix))
            .header("cookie", format!("{}sluice={}", self.cookie_prefix(), self.token));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Ok(self.client.send(request.body(Body::empty())?).await?)
    }

    const fn cookie_prefix(&self) -> &'static str {
        if self.prefix.is_empty() { "__Host-" } else { "__Secure-" }
    }

    /// Gets a page.
    pub async fn get(&self, path: &str) -> Result<Page> {
        self.get_with(path, &[]).await
    }

    /// Gets a page with these headers.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Result<Page> {
        let (parts, body) = self.send(path, headers).await?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Page { status: parts.status.as_u16(), headers: parts.headers, text })
    }

    /// Returns the number of bytes of an answer, as they are sent.
    pub async fn bytes(&self, path: &str, headers: &[(&str, &str)]) -> Result<usize> {
        let (_, body) = self.send(path, headers).await?.into_parts();
        Ok(body.collect().await?.to_bytes().len())
    }

    /// Opens a stream of updates.
    pub async fn stream(&self, page: &str) -> Result<Updates> {
        let encoded = page.bytes().fold(String::new(), |mut text, byte| {
            // Writing to a text cannot fail.
            let _ = write!(text, "%{byte:02X}");
            text
        });
        let response = self.send(&format!("/events?page={encoded}"), &[]).await?;
        ensure!(response.status() == 200, "the stream of {page} was refused: {}", response.status());
        Ok(Updates { body: response.into_body(), text: String::new() })
    }
}

/// A stream of updates.
pub struct Updates {
    body: Body,
    text: String,
}

impl Updates {
    /// Returns the next event: its name and data.
    pub async fn next(&mut self, timeout: Duration) -> Result<(String, String)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let lines = event.lines().filter_map(|line| line.strip_prefix(name));
                    lines.map(str::trim_start).collect::<Vec<_>>().join("\n")
                };
                let found = (field("event:"), field("data:"));
                let rest = rest.to_owned();
                self.text = rest;
                return Ok(found);
            }
            let frame = tokio::time::timeout(timeout, self.body.frame()).await.context("no event")?;
            let frame = frame.context("the stream has ended")??;
            if let Some(bytes) = frame.data_ref() {
                self.text.push_str(&String::from_utf8_lossy(bytes));
            }
        }
    }
}

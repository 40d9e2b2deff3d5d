//! Runs `sluice manager` as a child process. It uses its own service account with the shipped roles, never
//! administrator rights.

use crate::control_plane::ControlPlane;
use crate::install::ACCOUNT;
use crate::process::{Process, free_ports, tail};
use crate::wait::{eventually, within};
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Name of the leader's Lease; the same as Kueue's, so that Kueue and Sluice never act at once.
pub const LEASE_NAME: &str = "c1f6bfd2.kueue.x-k8s.io";

/// Address of the visibility API.
pub(crate) const VISIBILITY_FLAG: &str = "--visibility-bind-address";

/// Returns the folder where a build with failpoints reads the active ones.
pub fn failpoints_folder(plane: &ControlPlane) -> PathBuf {
    plane.folder().join("failpoints")
}

/// Settings of one replica.
#[derive(Clone, Debug)]
pub struct ManagerSettings {
    /// Name of the replica, its log and its configuration file.
    pub name: String,
    /// Path of the binary.
    pub program: PathBuf,
    /// Webhook port; 0 selects a free port.
    pub webhook_port: u16,
    /// Merged over its Configuration.
    pub configuration: Value,
    /// Additional flags.
    pub flags: Vec<String>,
    /// URL of a proxy to the API server; `None` connects directly.
    pub api_server_url: Option<String>,
    /// Its namespace.
    pub namespace: String,
}

/// A running replica.
pub struct Manager {
    process: Process,
    settings: ManagerSettings,
    health: u16,
    metrics: u16,
    dashboard: u16,
}

impl Manager {
    /// Starts a replica; does not wait until it is ready.
    pub async fn start(plane: &ControlPlane, settings: &ManagerSettings) -> Result<Self> {
        let ports = free_ports(5)?;
        let [health, metrics, webhook, visibility, dashboard] = ports[..] else {
            bail!("expected five ports")
        };
        let mut settings = settings.clone();
        if settings.webhook_port == 0 {
            settings.webhook_port = webhook;
        }
        let file = |kind: &str| plane.folder().join(format!("{}.{kind}", settings.name));
        let kubeconfig = file("kubeconfig");
        let server = settings.api_server_url.as_deref().unwrap_or(plane.server());
        plane.service_account(server, &settings.namespace, ACCOUNT).await?.write(&kubeconfig)?;
        let mut configuration = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
            "namespace": settings.namespace,
            "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
            "metrics": {"bindAddress": format!("127.0.0.1:{metrics}")},
            "webhook": {"host": "127.0.0.1", "port": settings.webhook_port},
            "leaderElection": {"leaderElect": true, "resourceName": LEASE_NAME},
            "integrations": {"frameworks": ["batch/job"]},
        });
        merge(&mut configuration, &settings.configuration);
        std::fs::write(file("yaml"), serde_json::to_string_pretty(&configuration)?)?;
        let mut command = Command::new(&settings.program);
        // Only sluice has the subcommand and these flags; other controllers do not.
        if settings.program.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"sluice")) {
            // The API server calls the webhooks at this address.
            command.arg("manager").arg("--webhook-san=127.0.0.1");
            if !settings.flags.iter().any(|flag| flag.starts_with(VISIBILITY_FLAG)) {
                command.arg(format!("{VISIBILITY_FLAG}=127.0.0.1:{visibility}"));
            }
            command.arg(format!("--dashboard-bind-address=127.0.0.1:{dashboard}"));
        }
        command
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .arg("--config")
            .arg(file("yaml"))
            .args(&settings.flags)
            // Read only by a build with failpoints.
            .env("SLUICE_FAILPOINTS", failpoints_folder(plane))
            .current_dir(plane.folder());
        let process = Process::start("sluice", &mut command, &file("log"), &plane.guard)?;
        Ok(Self { process, settings, health, metrics, dashboard })
    }

    /// Its process.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Lets the process outlive this program.
    pub const fn detach(&mut self) {
        self.process.detach();
    }

    /// Returns its settings with the actual webhook port, so that a restart uses the same port.
    pub const fn settings(&self) -> &ManagerSettings {
        &self.settings
    }

    /// Waits until `/readyz` returns 200.
    pub async fn wait_until_ready(&self) -> Result<()> {
        let outcome = eventually("the manager is ready", async || self.is_ready().await).await;
        outcome.with_context(|| format!("its log {} ends:\n{}", self.log().display(), tail(self.log(), 20)))
    }

    /// Like `wait_until_ready`, polling every 5 ms; for measurements.
    pub async fn wait_until_ready_precisely(&self) -> Result<()> {
        let deadline = std::time::Instant::now() + Duration::from_mins(1);
        while let Err(error) = self.is_ready().await {
            if std::time::Instant::now() > deadline {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Checks `/readyz` once. An error contains the reasons.
    pub async fn is_ready(&self) -> Result<()> {
        self.process.check()?;
        let (code, body) = get(self.health, "/readyz").await?;
        if code == 200 { Ok(()) } else { bail!("/readyz returned {code}: {body}") }
    }

    /// Returns the port of the health probes.
    pub const fn health_port(&self) -> u16 {
        self.health
    }

    /// Returns the port of the metrics.
    pub const fn metrics_port(&self) -> u16 {
        self.metrics
    }

    /// Returns the port of the dashboard.
    pub const fn dashboard_port(&self) -> u16 {
        self.dashboard
    }

    /// Returns the text of `/metrics`, if served without authentication.
    pub async fn metrics(&self) -> Result<String> {
        let (code, body) = get(self.metrics, "/metrics").await?;
        if code == 200 { Ok(body) } else { bail!("/metrics returned {code}: {body}") }
    }

    /// Returns the ports of health probes and metrics.
    pub const fn ports(&self) -> (u16, u16) {
        (self.health, self.metrics)
    }

    /// Its log.
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// Sends SIGKILL: no graceful shutdown.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Sends SIGSTOP: the process stops until `resume`.
    pub fn pause(&self) {
        self.process.identity().signal("STOP");
    }

    /// Sends SIGCONT.
    pub fn resume(&self) {
        self.process.identity().signal("CONT");
    }

    /// Sends SIGTERM, and SIGKILL after 30 s; returns the exit code, `None` if killed.
    pub fn terminate(&self) -> Option<i32> {
        self.process.terminate(Duration::from_secs(30))
    }
}

/// Merges objects field by field; null leaves a field as it is, anything else replaces it.
pub(crate) fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (into, from) => *into = from.clone(),
    }
}

/// Sends a GET over plain HTTP to 127.0.0.1; returns status code and body.
pub async fn get(port: u16, path: &str) -> Result<(u16, String)> {
    within(Duration::ZERO, format!("127.0.0.1:{port}{path} answers"), async || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut response)).await??;
        let response = String::from_utf8_lossy(&response).into_owned();
        let (head, body) = response.split_once("\r\n\r\n").context("no HTTP response")?;
        let code =
            head.split_whitespace().nth(1).and_then(|code| code.parse().ok()).context("no status code")?;
        Ok((code, body.to_owned()))
    })
    .await
}

//! `sluice manager` as a process: under its own service account with the shipped roles, never as an administrator.

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

/// The Lease that the leader holds: Kueue's own, so that the two never act at once.
pub const LEASE_NAME: &str = "c1f6bfd2.kueue.x-k8s.io";

/// Where a test build looks for what a test says.
pub fn failpoints_folder(plane: &ControlPlane) -> PathBuf {
    plane.folder().join("moments")
}

/// How one replica is started.
#[derive(Clone, Debug)]
pub struct ManagerSettings {
    /// Its name: that of its log and configuration file.
    pub name: String,
    /// The binary.
    pub program: PathBuf,
    /// Where it serves webhooks; any free port if 0.
    pub webhook_port: u16,
    /// Merged over its Configuration.
    pub configuration: Value,
    /// Further flags.
    pub flags: Vec<String>,
    /// Another way to the API server than the direct one.
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
}

impl Manager {
    /// Starts a replica; it may not be ready yet.
    pub async fn start(plane: &ControlPlane, settings: &ManagerSettings) -> Result<Self> {
        let ports = free_ports(3)?;
        let [health, metrics, webhook] = ports[..] else { bail!("three ports wanted") };
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
        // Another controller than ours has neither a subcommand nor our flags.
        if settings.program.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"sluice")) {
            // The webhooks are dialled by address.
            command.arg("manager").arg("--webhook-san=127.0.0.1");
        }
        command
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .arg("--config")
            .arg(file("yaml"))
            .args(&settings.flags)
            // Heard by a test build alone.
            .env("SLUICE_MOMENTS", failpoints_folder(plane))
            .current_dir(plane.folder());
        let process = Process::start("sluice", &mut command, &file("log"), &plane.guard)?;
        Ok(Self { process, settings, health, metrics })
    }

    /// Its process.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Lets it outlive this program.
    pub const fn detach(&mut self) {
        self.process.detach();
    }

    /// How it was started, its webhook port filled in: starting it again takes the same one.
    pub const fn settings(&self) -> &ManagerSettings {
        &self.settings
    }

    /// Waits until it says that it is ready.
    pub async fn wait_until_ready(&self) -> Result<()> {
        let outcome = eventually("the manager is ready", async || self.is_ready().await).await;
        outcome.with_context(|| format!("its log {} ends:\n{}", self.log().display(), tail(self.log(), 20)))
    }

    /// The same, looked at every few milliseconds: for measuring.
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

    /// An error with the reason unless it is ready.
    pub async fn is_ready(&self) -> Result<()> {
        self.process.check()?;
        let (code, body) = get(self.health, "/readyz").await?;
        if code == 200 { Ok(()) } else { bail!("/readyz answers {code}: {body}") }
    }

    /// Where it serves probes.
    pub const fn health_port(&self) -> u16 {
        self.health
    }

    /// Where it serves metrics.
    pub const fn metrics_port(&self) -> u16 {
        self.metrics
    }

    /// What `/metrics` shows, if it is served without authentication.
    pub async fn metrics(&self) -> Result<String> {
        let (code, body) = get(self.metrics, "/metrics").await?;
        if code == 200 { Ok(body) } else { bail!("/metrics answers {code}: {body}") }
    }

    /// Where it answers probes and shows metrics.
    pub const fn ports(&self) -> (u16, u16) {
        (self.health, self.metrics)
    }

    /// Its log.
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// SIGKILL: it has no chance to clean up.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// SIGSTOP: it neither acts nor sees time pass.
    pub fn pause(&self) {
        self.process.identity().signal("STOP");
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.identity().signal("CONT");
    }

    /// SIGTERM; its exit code.
    pub fn terminate(&self) -> Option<i32> {
        self.process.terminate(Duration::from_secs(30))
    }
}

fn merge(into: &mut Value, from: &Value) {
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

/// GET over plain HTTP on 127.0.0.1: the code and the body.
pub async fn get(port: u16, path: &str) -> Result<(u16, String)> {
    within(Duration::ZERO, format!("127.0.0.1:{port}{path} answers"), async || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await??;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        let code =
            head.split_whitespace().nth(1).and_then(|code| code.parse().ok()).context("no status code")?;
        Ok((code, body.to_owned()))
    })
    .await
}

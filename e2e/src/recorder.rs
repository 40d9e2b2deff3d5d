//! What records history, as a process of its own, and questions on the private path of the processes of an installation.

use crate::cluster::Cluster;
use crate::install::{ACCOUNT as MANAGER, NAMESPACE, apply, copy_serving_certificate};
use crate::manager::get;
use crate::paths;
use crate::process::{Process, free_ports, tail};
use crate::wait::eventually;
use anyhow::{Context as _, Result, bail, ensure};
use kube::config::Config;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Account of the recorder.
const ACCOUNT: &str = "kueue-history";

/// A recorder beside the manager of a cluster.
pub struct Recorder {
    process: Process,
    ports: Ports,
    file: PathBuf,
}

/// Where a recorder listens.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    health: u16,
    metrics: u16,
    private: u16,
    /// Port of the manager that the recorder asks for what it missed.
    manager: Option<u16>,
}

impl Ports {
    /// Chooses free ports.
    pub fn choose() -> Result<Self> {
        let [health, metrics, private] = free_ports(3)?[..] else { bail!("expected three ports") };
        Ok(Self { health, metrics, private, manager: None })
    }

    /// Returns the same ports, of a recorder that asks a manager for what it missed.
    #[must_use]
    pub const fn asking(self, manager: u16) -> Self {
        Self { manager: Some(manager), ..self }
    }

    /// Returns the flag with which a manager asks the recorder there.
    pub fn flag(&self) -> String {
        format!("--history-address=127.0.0.1:{}", self.private)
    }
}

impl Recorder {
    /// Starts a recorder with the shipped account and roles, and nothing more.
    pub async fn start(cluster: &Cluster, ports: Ports, file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(paths::root().join("config/history/role.yaml"))?;
        let roles: Vec<Value> = serde_saphyr::from_multiple(&text)?;
        apply(&cluster.kubectl, &roles)?;
        let manager = cluster.manager()?.settings();
        let folder = cluster.plane.folder();
        let kubeconfig = folder.join("recorder.kubeconfig");
        let account = cluster.plane.service_account(cluster.plane.server(), NAMESPACE, ACCOUNT).await?;
        account.write(&kubeconfig)?;
        copy_serving_certificate(&cluster.objects, &cluster.kubectl, "kueue-history-server-cert").await?;
        let mut command = Command::new(&manager.program);
        command
            .args(["manager", "--component=history", "--metrics-insecure", "--history-service=kueue-history"])
            .arg("--serving-secret=kueue-history-server-cert")
            .arg(format!("--history-record={}", file.display()))
            .arg(format!("--leader-caller={MANAGER}"))
            .arg(format!("--visibility-bind-address=127.0.0.1:{}", ports.private))
            .arg(format!("--health-bind-address=127.0.0.1:{}", ports.health))
            .arg(format!("--metrics-bind-address=127.0.0.1:{}", ports.metrics))
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .arg("--config")
            .arg(folder.join(format!("{}.yaml", manager.name)))
            .current_dir(folder)
            .env("HOSTNAME", "recorder");
        if let Some(manager) = ports.manager {
            let token = folder.join("recorder.token");
            let audience = "--audience=leader.visibility.sluice.dev";
            let text = cluster.kubectl.run(&["-n", NAMESPACE, "create", "token", ACCOUNT, audience])?;
            std::fs::write(&token, text)?;
            command
                .arg(format!("--history-source=127.0.0.1:{manager}"))
                .arg(format!("--leader-token={}", token.display()));
        }
        let log = folder.join(format!("recorder-{}.log", ports.private));
        let process = Process::start("recorder", &mut command, &log, &cluster.plane.guard)?;
        Ok(Self { process, ports, file: file.to_owned() })
    }

    /// Waits until it is ready: the first lists are in the file.
    pub async fn wait_until_ready(&self) -> Result<()> {
        let ready = eventually("the recorder is ready", async || {
            self.process.check()?;
            let (code, body) = get(self.ports.health, "/readyz").await?;
            ensure!(code == 200, "/readyz returned {code}: {body}");
            Ok(())
        })
        .await;
        ready.with_context(|| format!("its log ends:\n{}", tail(self.process.log(), 20)))
    }

    /// Returns why it is not ready.
    pub async fn readiness(&self) -> Result<(u16, String)> {
        get(self.ports.health, "/readyz").await
    }

    /// Returns the value of a metric without labels.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let (_, text) = get(self.ports.metrics, "/metrics").await?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("no metric {name}"))?.parse()?)
    }

    /// Its process.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// The file of the record.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The port at which managers ask it.
    pub const fn port(&self) -> u16 {
        self.ports.private
    }
}

/// A process of the installation that asks others.
pub struct Asker(String);

impl Asker {
    /// Returns one with the account of the manager, and the file with its token for such questions.
    pub fn new(cluster: &Cluster) -> Result<(Self, PathBuf)> {
        let audience = "--audience=leader.visibility.sluice.dev";
        let token = cluster.kubectl.run(&["-n", NAMESPACE, "create", "token", MANAGER, audience])?;
        let file = cluster.plane.folder().join("private.token");
        std::fs::write(&file, &token)?;
        Ok((Self(token.trim().to_owned()), file))
    }

    /// Asks a process for what its history, or the record, has of a topic, as a user who may see all. `own`: no other process is to be
    /// asked.
    pub async fn history(&self, port: u16, topic: &Value, own: bool) -> Result<Value> {
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse()?);
        config.accept_invalid_certs = true;
        config.default_retry = false;
        let access =
            json!({"cluster": true, "allNamespaces": true, "namespaces": [], "tenantDetail": "sums"});
        let question = json!({"history": {"access": access, "topic": topic, "own": own}});
        let request = http::Request::post("/private/questions")
            .header("authorization", format!("Bearer {}", self.0))
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&question)?)?;
        let client = kube::Client::try_from(config)?;
        let answer =
            tokio::time::timeout(Duration::from_secs(10), client.request::<Value>(request)).await??;
        Ok(answer)
    }
}

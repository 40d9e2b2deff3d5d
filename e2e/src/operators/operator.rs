//! One operator that runs: its process, kubeconfig, certificate and webhooks.

use super::settings::{Operator, Place};
use crate::binaries::Binaries;
use crate::certs::{CertificateAuthority, write_private};
use crate::cluster::Cluster;
use crate::definitions;
use crate::install::{apply, dial_locally};
use crate::kubeconfig::base64;
use crate::manager;
use crate::objects::text;
use crate::process::{Process, free_ports, tail};
use crate::wait::eventually;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use tokio::net::TcpStream;

/// An operator that runs until it is dropped.
pub(super) struct RunningOperator {
    name: &'static str,
    process: Process,
}

impl RunningOperator {
    /// Starts an operator with administrator rights and its webhooks; returns when it is ready.
    pub(super) async fn start(
        operator: &Operator,
        binaries: &Binaries,
        cluster: &Cluster,
        ray_dashboards: u16,
    ) -> Result<Self> {
        let plane = &cluster.plane;
        let folder = plane.folder().join(operator.name);
        let ports = free_ports(2)?;
        let [health, webhooks] = ports[..] else { bail!("expected two ports") };
        let webhooks = operator.fixed_webhook_port.unwrap_or(webhooks);
        let place = Place { folder: &folder, health, webhooks, ray_dashboards };
        let certificates = place.certificates();
        fs::create_dir_all(&certificates)?;
        let authority = CertificateAuthority::new(operator.name)?;
        let pair = authority.server(operator.name, &["127.0.0.1"])?;
        write_private(&certificates.join("tls.crt"), &pair.certificate)?;
        write_private(&certificates.join("tls.key"), &pair.key)?;
        let kubeconfig = folder.join("kubeconfig");
        plane.credentials(operator.name, Some("system:masters"))?.write(&kubeconfig)?;
        let prepared = (operator.prepared)(&place);
        if !prepared.is_empty() {
            apply(&cluster.kubectl, &prepared)?;
        }
        let mut command = Command::new(binaries.path(operator.name));
        command
            .args((operator.arguments)(&place)?)
            .current_dir(&folder)
            .env("KUBECONFIG", &kubeconfig)
            .env("HOME", &folder)
            .env("TMPDIR", &folder)
            .envs((operator.environment)(&place));
        let _awaited = operator.awaited_file.map(AwaitedFile::ensure).transpose()?;
        let log = plane.folder().join(format!("{}.log", operator.name));
        let process = Process::start(operator.name, &mut command, &log, &plane.guard)?;
        let running = Self { name: operator.name, process };
        let (port, path) = operator.fixed_probe.unwrap_or((health, "/readyz"));
        let webhook_port = operator.webhooks.map(|_| webhooks);
        let ready = running.wait_until_ready(port, path, webhook_port).await;
        ready.with_context(|| format!("its log {} ends:\n{}", log.display(), tail(&log, 20)))?;
        if let Some(folder) = operator.webhooks {
            running.install_webhooks(cluster, folder, &authority.pem(), webhooks)?;
        }
        Ok(running)
    }

    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn log(&self) -> &Path {
        self.process.log()
    }

    /// Returns an error if it has exited.
    pub(super) fn check(&self) -> Result<()> {
        self.process.check()
    }

    async fn wait_until_ready(&self, port: u16, path: &str, webhooks: Option<u16>) -> Result<()> {
        eventually(format!("{} is ready", self.name), async || {
            self.check()?;
            let (code, body) = manager::get(port, path).await?;
            ensure!(code == 200, "{path} returned {code}: {body}");
            // Some say that they are ready before they listen.
            if let Some(port) = webhooks {
                TcpStream::connect(("127.0.0.1", port)).await?;
            }
            Ok(())
        })
        .await
    }

    /// Applies the webhook configurations of a kustomization of the project; they are called at a port of 127.0.0.1.
    fn install_webhooks(&self, cluster: &Cluster, folder: &str, authority: &str, port: u16) -> Result<()> {
        let path = definitions::project_files(self.name)?.join(folder);
        let rendered = cluster.kubectl.run(&["kustomize", &path.display().to_string()])?;
        let all: Vec<Value> = serde_saphyr::from_multiple(&rendered)?;
        let is_configuration = |object: &Value| text(object, "/kind").ends_with("WebhookConfiguration");
        let mut configurations: Vec<Value> =
            all.into_iter().filter(is_configuration).map(|object| dial_locally(object, port)).collect();
        ensure!(!configurations.is_empty(), "{folder} of {} has no webhooks", self.name);
        for webhook in configurations.iter_mut().filter_map(|o| o["webhooks"].as_array_mut()).flatten() {
            webhook["clientConfig"]["caBundle"] = json!(base64(authority.as_bytes()));
        }
        apply(&cluster.kubectl, &configurations)
    }
}

/// An empty file outside of the operator's folder, removed when it is no longer needed; one that existed is left alone.
struct AwaitedFile {
    created: Option<&'static Path>,
}

impl AwaitedFile {
    fn ensure(path: &'static str) -> Result<Self> {
        let path = Path::new(path);
        if path.exists() {
            return Ok(Self { created: None });
        }
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(path, "").with_context(|| path.display().to_string())?;
        Ok(Self { created: Some(path) })
    }
}

impl Drop for AwaitedFile {
    fn drop(&mut self) {
        if let Some(path) = self.created {
            let _ = fs::remove_file(path);
        }
    }
}

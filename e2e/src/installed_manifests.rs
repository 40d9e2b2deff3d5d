//! The processes of rendered manifests, on a control plane where one set of manifests replaces the other: each Deployment's process
//! runs here with the arguments, the account and the rights of the manifests. No kubelet and no image is needed.
//!
//! Services are not installed: the API server calls webhooks at a port of 127.0.0.1.

use crate::binaries::{self, Build};
use crate::control_plane::{ControlPlane, Extent};
use crate::definitions;
use crate::install::{self, NAMESPACE};
use crate::kubectl::Kubectl;
use crate::manager::get;
use crate::objects::{ObjectClient, text};
use crate::process::{Process, free_ports, output_with_input, tail};
use crate::wait::eventually;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Groups whose definitions the control plane does not have.
const OTHER_OPERATORS: [&str; 2] = ["monitoring.coreos.com/", "cert-manager.io/"];
/// The size of a claim cannot be replaced, and no process here mounts one.
const CLAIM: &str = "PersistentVolumeClaim";
/// Flags of a Deployment that name files of its pod, or hold up its end; `process` sets what replaces them.
const FLAGS_OF_PODS: [&str; 3] = ["--config=", "--config-dir=", "--shutdown-delay="];
const END: Duration = Duration::from_secs(20);

/// A control plane with the definitions of all kinds of jobs, and what of one set of manifests it was given.
pub struct InstalledManifests {
    plane: ControlPlane,
    kubectl: Kubectl,
    program: PathBuf,
    /// Port at which the API server calls webhooks.
    webhook_port: u16,
    /// What is installed, by kind, namespace and name.
    installed: BTreeMap<String, Value>,
    /// What the processes read that were started last.
    last: Value,
}

impl InstalledManifests {
    /// Starts the control plane in this folder; nothing is installed yet.
    pub async fn start(folder: &Path) -> Result<Self> {
        let plane = ControlPlane::start(Extent::Owners, folder).await?;
        let objects = ObjectClient::new(plane.admin().await?);
        let kubectl = Kubectl::new(&plane.binaries.path("kubectl"), &plane.admin_kubeconfig());
        definitions::job_kinds(&kubectl, &objects).await?;
        let webhook_port = free_ports(1)?.first().copied().context("no port")?;
        let manifests = install::manifests(&kubectl)?;
        install::install_all(&kubectl, &objects, webhook_port, manifests.clone()).await?;
        let mut site = Self {
            plane,
            kubectl,
            program: binaries::sluice(Build::Dev)?,
            webhook_port,
            installed: BTreeMap::new(),
            last: Value::Null,
        };
        site.installed = site.applied(&manifests);
        Ok(site)
    }

    /// The kubectl of the control plane's administrator.
    pub const fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Keeps logs and data, for a check that failed.
    pub fn keep_folder(&mut self) {
        self.plane.keep_folder();
    }

    /// Installs these manifests in place of the last ones. The configuration of their ConfigMap with `change` passes `config check`,
    /// and the process of each Deployment becomes ready. Returns false, and starts nothing, where all that they read is what
    /// the last ones read.
    pub async fn check(&mut self, manifests: &[Value], change: impl FnOnce(&mut Value)) -> Result<bool> {
        let wanted = self.applied(manifests);
        let mut configuration = configuration(manifests)?;
        change(&mut configuration);
        let deployments: Vec<&Value> =
            manifests.iter().filter(|object| text(object, "/kind") == "Deployment").collect();
        let started: Vec<&Value> =
            deployments.iter().map(|object| &object["spec"]["template"]["spec"]).collect();
        let read = json!([wanted, configuration, started]);
        if self.last == read {
            return Ok(false);
        }
        self.replace(wanted)?;
        let mut command = Command::new(&self.program);
        command.args(["config", "check", "-"]);
        output_with_input(&mut command, "config check", &configuration.to_string())?;
        let mut processes = Vec::new();
        for deployment in deployments {
            processes.push(self.process(deployment, &configuration).await?);
        }
        for (process, health) in &processes {
            wait_until_ready(process, *health).await?;
        }
        for (process, _) in &processes {
            process.identity().signal("TERM");
        }
        for (process, _) in &processes {
            process.terminate(END);
        }
        self.last = read;
        Ok(true)
    }

    /// Returns what the API server is given of these manifests, by kind, namespace and name.
    fn applied(&self, manifests: &[Value]) -> BTreeMap<String, Value> {
        let kept = install::without_workloads(manifests.to_vec()).into_iter().filter(|object| {
            text(object, "/kind") != CLAIM
                && !OTHER_OPERATORS.iter().any(|group| text(object, "/apiVersion").starts_with(group))
        });
        let key = |object: &Value| {
            let part = |pointer| text(object, pointer);
            format!("{} {}/{}", part("/kind"), part("/metadata/namespace"), part("/metadata/name"))
        };
        kept.map(|object| (key(&object), install::dial_locally(object, self.webhook_port))).collect()
    }

    fn replace(&mut self, wanted: BTreeMap<String, Value>) -> Result<()> {
        let gone: Vec<&Value> = self
            .installed
            .iter()
            .filter(|(key, _)| !wanted.contains_key(*key) && !outlives_manifests(key))
            .map(|(_, object)| object)
            .collect();
        let changed: Vec<Value> = wanted
            .iter()
            .filter(|(key, object)| self.installed.get(*key) != Some(object))
            .map(|(_, object)| object.clone())
            .collect();
        if !gone.is_empty() {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": gone}).to_string();
            self.kubectl.run_with(&["delete", "--ignore-not-found", "--wait=false", "-f", "-"], &list)?;
        }
        if !changed.is_empty() {
            install::apply(&self.kubectl, &changed)?;
        }
        self.installed = wanted;
        Ok(())
    }

    /// Starts the process of a Deployment with its own account; returns it with the port of its probes.
    async fn process(&self, deployment: &Value, configuration: &Value) -> Result<(Process, u16)> {
        let name = text(deployment, "/metadata/name");
        let [health, metrics, visibility, dashboard] = free_ports(4)?[..] else {
            bail!("expected four ports")
        };
        let file = |kind: &str| self.plane.folder().join(format!("{name}-{health}.{kind}"));
        let pod = &deployment["spec"]["template"]["spec"];
        let account = text(pod, "/serviceAccountName");
        let credentials = self.plane.service_account(self.plane.server(), NAMESPACE, account).await?;
        credentials.write(&file("kubeconfig"))?;
        let audience = "--audience=leader.visibility.sluice.dev";
        let token = self.kubectl.run(&["-n", NAMESPACE, "create", "token", account, audience])?;
        fs::write(file("token"), token)?;
        fs::write(file("ca.crt"), self.plane.webhook_client_ca())?;
        let mut configuration = configuration.clone();
        configuration["webhook"] = json!({"host": "127.0.0.1", "port": self.webhook_port});
        fs::write(file("yaml"), configuration.to_string())?;
        let arguments =
            pod.pointer("/containers/0/args").and_then(Value::as_array).context("no arguments")?;
        // A listener that the pod turns off stays off; the others get free ports.
        let is_on =
            |flag: &&str| !arguments.iter().any(|argument| argument.as_str() == Some(&format!("{flag}0")));
        let addresses: Vec<(&str, u16)> = [
            ("--health-bind-address=", health),
            ("--metrics-bind-address=", metrics),
            ("--visibility-bind-address=", visibility),
            ("--dashboard-bind-address=", dashboard),
        ]
        .into_iter()
        .filter(|(flag, _)| is_on(flag))
        .collect();
        let replaced = || addresses.iter().map(|(flag, _)| *flag).chain(FLAGS_OF_PODS);
        let mut command = Command::new(&self.program);
        command.arg("manager");
        for argument in arguments.iter().filter_map(Value::as_str) {
            match argument.split_once("=/") {
                _ if replaced().any(|flag| argument.starts_with(flag)) => {}
                // A file that the pod mounts.
                Some((flag, path)) => {
                    let kind = Path::new(path).file_name().context("no file")?.to_string_lossy().into_owned();
                    command.arg(format!("{flag}={}", file(&kind).display()));
                }
                None => _ = command.arg(argument),
            }
        }
        command
            .args([
                "--webhook-san=127.0.0.1",
                "--metrics-insecure",
                "--pod-ip=127.0.0.1",
                "--shutdown-delay=0s",
            ])
            .args(addresses.iter().map(|(flag, port)| format!("{flag}127.0.0.1:{port}")))
            .arg(format!("--leader-token={}", file("token").display()))
            .arg(format!("--kubeconfig={}", file("kubeconfig").display()))
            .arg(format!("--config={}", file("yaml").display()))
            .env("HOSTNAME", format!("{name}-{health}"))
            .current_dir(self.plane.folder());
        Ok((Process::start(name, &mut command, &file("log"), &self.plane.guard)?, health))
    }
}

/// Returns true for what manifests without it expect to find: `helm --create-namespace` makes the namespace, and a chart without
/// definitions uses the existing ones. While they are being deleted, the next manifests would be refused.
fn outlives_manifests(key: &str) -> bool {
    key.starts_with("Namespace ") || key.starts_with("CustomResourceDefinition ")
}

/// Returns the file of the manager's ConfigMap.
pub(crate) fn configuration(manifests: &[Value]) -> Result<Value> {
    let files = manifests.iter().filter(|object| text(object, "/kind") == "ConfigMap");
    let mut found = files.filter_map(|object| object["data"]["controller_manager_config.yaml"].as_str());
    Ok(serde_saphyr::from_str(found.next().context("no configuration")?)?)
}

async fn wait_until_ready(process: &Process, health: u16) -> Result<()> {
    let ready = eventually("the process is ready", async || {
        process.check()?;
        let (code, body) = get(health, "/readyz").await?;
        ensure!(code == 200, "/readyz returned {code}: {body}");
        Ok(())
    });
    ready
        .await
        .with_context(|| format!("{}: its log ends:\n{}", process.identity().name, tail(process.log(), 20)))
}

//! One control plane: etcd, kube-apiserver and, depending on `Extent`, kube-controller-manager, kube-scheduler and
//! KWOK. Each uses free ports of 127.0.0.1 and its own folder, so several can run concurrently. Dropping one stops its
//! processes.

mod seed;

use crate::binaries::Binaries;
use crate::certs::{CertificateAuthority, write_private};
use crate::kubeconfig::{self, Credentials};
use crate::paths;
use crate::process::{Process, ProcessGuard, ProcessIdentity, free_ports};
use crate::rights;
use anyhow::{Context as _, Result, bail, ensure};
use kube::Client;
use seed::Seed;
use serde_json::json;
use sluice_controlplane::CONTROL_PLANE;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Which components of a control plane run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// etcd and kube-apiserver: objects are validated and stored, no controller acts on them.
    Api,
    /// Adds garbage collection, namespace deletion and the controllers of Deployments and StatefulSets. There is no Job
    /// controller, and no pod is scheduled or runs.
    Owners,
    /// All controllers and the scheduler; KWOK simulates nodes and pods as pod annotations say.
    Full,
}

/// Controllers of `Extent::Owners`.
const OWNER_CONTROLLERS: [&str; 6] = [
    "clusterrole-aggregation-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
];

/// A running control plane.
pub struct ControlPlane {
    // Newest first, so that clients of the API server stop before it, etcd after it, and the guard (next field) last.
    processes: Vec<Process>,
    /// Kills the remaining processes if this program is killed.
    pub guard: ProcessGuard,
    /// The binaries in use.
    pub binaries: Binaries,
    seed: Seed,
    /// Signs the client certificate that the API server presents to webhooks.
    webhook_client_ca: Box<CertificateAuthority>,
    folder: PathBuf,
    server: String,
    /// Kept for `restart_apiserver`.
    apiserver_arguments: Vec<String>,
    keep_files: bool,
}

impl ControlPlane {
    /// Starts a control plane in `folder`, which is deleted first.
    pub async fn start(extent: Extent, folder: &Path) -> Result<Self> {
        Self::start_with(Vec::new(), extent, folder).await
    }

    /// Starts a control plane in `folder`, which is deleted first, that begins with these objects: each its key in etcd and its JSON.
    pub async fn start_with(objects: Vec<(String, String)>, extent: Extent, folder: &Path) -> Result<Self> {
        Self::start_from(Seed::of_objects(objects)?, extent, folder).await
    }

    /// Starts a whole control plane in `folder`, which is deleted first, on a copy of the recorded store in `store`: `etcd` is its data,
    /// `pki` has the authority, the keys of service accounts and the life of pods that go with it.
    pub async fn start_on(store: &Path, folder: &Path) -> Result<Self> {
        Self::start_from(Seed::recorded(store)?, Extent::Full, folder).await
    }

    async fn start_from(seed: Seed, extent: Extent, folder: &Path) -> Result<Self> {
        let wanted: &[&str] = match extent {
            Extent::Api => &["etcd", "kube-apiserver", "kubectl"],
            Extent::Owners => &["etcd", "kube-apiserver", "kubectl", "kube-controller-manager"],
            Extent::Full => &CONTROL_PLANE,
        };
        let binaries = Binaries::ensure(wanted)?;
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
        seed.copy_data(folder)?;
        let ports = free_ports(3)?;
        let [etcd, peer, api] = ports[..] else { bail!("expected three ports") };
        let mut plane = Self {
            processes: Vec::new(),
            guard: ProcessGuard::start()?,
            binaries,
            seed,
            webhook_client_ca: Box::new(CertificateAuthority::new("sluice-e2e-webhook-callers")?),
            folder: folder.to_owned(),
            server: format!("https://127.0.0.1:{api}"),
            apiserver_arguments: Vec::new(),
            keep_files: false,
        };
        plane.start_etcd(etcd, peer)?;
        Box::pin(plane.seed.write_objects(&format!("http://127.0.0.1:{etcd}"))).await?;
        plane.start_apiserver(extent, etcd, api)?;
        plane.credentials("admin", Some("system:masters"))?.write(&plane.admin_kubeconfig())?;
        plane.wait_for_api().await?;
        plane.check_version().await?;
        if extent != Extent::Api {
            plane.start_controller_manager(extent)?;
        }
        if extent == Extent::Full {
            plane.start_scheduler_and_kwok()?;
            plane.wait_for_controllers().await?;
        }
        Ok(plane)
    }

    /// Returns the folder of a control plane that does not outlive this program.
    pub fn temporary_folder() -> PathBuf {
        paths::controlplane().join(format!("run-{}", std::process::id()))
    }

    /// Returns the folder of its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the API server's URL.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns etcd's URL.
    pub fn etcd_server(&self) -> Result<&str> {
        let mut arguments = self.apiserver_arguments.iter();
        arguments.find_map(|argument| argument.strip_prefix("--etcd-servers=")).context("no etcd")
    }

    /// Returns the path of the kubeconfig of a user in `system:masters`.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.join("admin.kubeconfig")
    }

    /// Returns the path of the audit log, which has one JSON document per line.
    pub fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    /// Issues a client certificate for a user.
    pub fn credentials(&self, user: &str, group: Option<&str>) -> Result<Credentials> {
        let pair = self.seed.ca.client(user, group)?;
        Ok(Credentials::certificate(&self.server, &self.seed.ca.pem(), user, &pair))
    }

    /// Returns the CA of the client certificate that the API server presents to webhooks, in PEM.
    pub fn webhook_client_ca(&self) -> String {
        self.webhook_client_ca.pem()
    }

    /// Issues a client certificate for the webhook server at this URL, whose certificate is signed by `ca`. If
    /// `authentic`, the client CA is the one of the API server's webhook client certificate, otherwise another one.
    pub fn webhook_client_credentials(&self, server: &str, ca: &str, authentic: bool) -> Result<Credentials> {
        let authority = if authentic { &*self.webhook_client_ca } else { &self.seed.ca };
        Ok(Credentials::certificate(server, ca, "caller", &authority.client("caller", None)?))
    }

    /// Returns the CA of the API server's serving certificate, in PEM.
    pub fn ca_pem(&self) -> String {
        self.seed.ca.pem()
    }

    /// Requests a token for a service account; returns credentials for the server at this URL.
    pub async fn service_account(&self, server: &str, namespace: &str, name: &str) -> Result<Credentials> {
        let token = kubeconfig::token(&self.admin().await?, namespace, name).await?;
        Ok(Credentials::token(server, &self.seed.ca.pem(), name, &token))
    }

    /// Returns a client with administrator rights.
    pub async fn admin(&self) -> Result<Client> {
        kubeconfig::client(&self.admin_kubeconfig()).await
    }

    /// Returns the identities of all processes, in start order.
    pub fn identities(&self) -> Vec<ProcessIdentity> {
        self.processes.iter().rev().map(|process| process.identity().clone()).collect()
    }

    /// Returns the pid of a process by its name.
    pub fn pid(&self, name: &str) -> Option<u32> {
        self.processes
            .iter()
            .map(Process::identity)
            .find(|identity| identity.name == name)
            .map(|identity| identity.pid)
    }

    fn process(&self, name: &str) -> Result<&Process> {
        let process = self.processes.iter().find(|process| process.identity().name == name);
        process.with_context(|| format!("{name} is not running"))
    }

    /// Sends SIGSTOP: requests to this process stay unanswered.
    pub fn pause(&self, name: &str) -> Result<()> {
        self.process(name)?.identity().signal("STOP");
        Ok(())
    }

    /// Sends SIGCONT.
    pub fn resume(&self, name: &str) -> Result<()> {
        self.process(name)?.identity().signal("CONT");
        Ok(())
    }

    /// Kills the API server and restarts it with the same arguments; returns when it is ready.
    pub async fn restart_apiserver(&mut self) -> Result<()> {
        let name = "kube-apiserver";
        let index = self.processes.iter().position(|process| process.identity().name == name);
        let old = self.processes.remove(index.context("kube-apiserver is not running")?);
        old.kill();
        let arguments = self.apiserver_arguments.clone();
        self.start_process(name, &arguments)?;
        self.wait_for_api().await
    }

    /// Lets all processes and the folder outlive this program.
    pub fn detach(&mut self) -> Result<()> {
        self.keep_files = true;
        self.processes.iter_mut().for_each(Process::detach);
        self.guard.release()
    }

    /// Keeps the folder with logs and audit log when the control plane is dropped.
    pub const fn keep_folder(&mut self) {
        self.keep_files = true;
    }

    fn start_process(&mut self, name: &str, arguments: &[String]) -> Result<()> {
        let log = self.folder.join(format!("{name}.log"));
        let mut command = Command::new(self.binaries.path(name));
        command.current_dir(&self.folder).args(arguments).env("HOME", &self.folder);
        let process = Process::start(name, &mut command, &log, &self.guard)?;
        self.processes.insert(0, process);
        Ok(())
    }

    fn write_file(&self, name: &str, text: &str) -> Result<String> {
        Ok(write_private(&self.folder.join(name), text)?.display().to_string())
    }

    fn start_etcd(&mut self, client: u16, peer: u16) -> Result<()> {
        let data = self.folder.join("etcd").display().to_string();
        self.start_process(
            "etcd",
            &[
                "--name=sluice".into(),
                format!("--data-dir={data}"),
                // The data is temporary; fsync would only cost time.
                "--unsafe-no-fsync".into(),
                format!("--listen-client-urls=http://127.0.0.1:{client}"),
                format!("--advertise-client-urls=http://127.0.0.1:{client}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-cluster=sluice=http://127.0.0.1:{peer}"),
                "--log-level=warn".into(),
            ],
        )
    }

    fn start_apiserver(&mut self, extent: Extent, etcd: u16, port: u16) -> Result<()> {
        let serving = self.seed.ca.server(
            "kube-apiserver",
            &[
                "127.0.0.1",
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "10.96.0.1",
            ],
        )?;
        let front = CertificateAuthority::new("sluice-e2e-front-proxy")?;
        let proxy = front.client("front-proxy", None)?;
        let ca = self.write_file("ca.crt", &self.seed.ca.pem())?;
        let certificate = self.write_file("apiserver.crt", &serving.certificate)?;
        let key = self.write_file("apiserver.key", &serving.key)?;
        let front_ca = self.write_file("front-proxy-ca.crt", &front.pem())?;
        let proxy_certificate = self.write_file("front-proxy.crt", &proxy.certificate)?;
        let proxy_key = self.write_file("front-proxy.key", &proxy.key)?;
        let tokens = self.write_file("service-account.pub", &self.seed.tokens_public)?;
        let signer = self.write_file("service-account.key", &self.seed.tokens_private)?;
        let policy = paths::root().join("e2e/controlplane/audit-policy.yaml").display().to_string();
        let audit = self.audit_log().display().to_string();
        let mut arguments: Vec<String> = vec![
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            // A loopback address is not a valid endpoint, so none is published.
            "--endpoint-reconciler-type=none".into(),
            format!("--service-cluster-ip-range={}", self.seed.service_addresses),
            "--authorization-mode=RBAC".into(),
            format!("--client-ca-file={ca}"),
            format!("--tls-cert-file={certificate}"),
            format!("--tls-private-key-file={key}"),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={tokens}"),
            format!("--service-account-signing-key-file={signer}"),
            format!("--requestheader-client-ca-file={front_ca}"),
            "--requestheader-allowed-names=front-proxy".into(),
            "--requestheader-username-headers=X-Remote-User".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
            format!("--proxy-client-cert-file={proxy_certificate}"),
            format!("--proxy-client-key-file={proxy_key}"),
            // Cluster IPs are not routed here: connect to endpoints directly.
            "--enable-aggregator-routing=true".into(),
            format!("--admission-control-config-file={}", self.webhook_credentials()?),
            format!("--audit-policy-file={policy}"),
            format!("--audit-log-path={audit}"),
            // In MB. Cursors read the log as one file, so it must not be rotated.
            "--audit-log-maxsize=8192".into(),
            "--profiling=false".into(),
        ];
        if extent != Extent::Full {
            // No controller creates default service accounts.
            arguments.push("--disable-admission-plugins=ServiceAccount".into());
        }
        self.start_process("kube-apiserver", &arguments)?;
        self.apiserver_arguments = arguments;
        Ok(())
    }

    /// Writes the configuration that makes the API server present a client certificate to every webhook; returns its
    /// path.
    fn webhook_credentials(&self) -> Result<String> {
        let pair = self.webhook_client_ca.client("kube-apiserver-webhooks", None)?;
        let certificate = self.write_file("webhook-caller.crt", &pair.certificate)?;
        let key = self.write_file("webhook-caller.key", &pair.key)?;
        let user = json!({"client-certificate": certificate, "client-key": key});
        let kubeconfig =
            json!({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]});
        let kubeconfig = self.write_file("webhook-caller.kubeconfig", &kubeconfig.to_string())?;
        let plugin = |name: &str| {
            json!({"name": name, "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": kubeconfig,
            }})
        };
        let admission = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
            "plugins": [plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")],
        });
        self.write_file("admission.yaml", &admission.to_string())
    }

    /// Writes the kubeconfig of a component; returns its path.
    fn component_kubeconfig(&self, user: &str, group: Option<&str>) -> Result<String> {
        let path = self.folder.join(format!("{}.kubeconfig", user.trim_start_matches("system:")));
        self.credentials(user, group)?.write(&path)?;
        Ok(path.display().to_string())
    }

    fn start_controller_manager(&mut self, extent: Extent) -> Result<()> {
        let ports = free_ports(1)?;
        let [port] = ports[..] else { bail!("expected one port") };
        let config = self.component_kubeconfig("system:kube-controller-manager", None)?;
        let mut arguments = vec![
            format!("--kubeconfig={config}"),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            "--leader-elect=false".into(),
            "--use-service-account-credentials=true".into(),
            format!(
                "--service-account-private-key-file={}",
                self.folder.join("service-account.key").display()
            ),
            format!("--root-ca-file={}", self.folder.join("ca.crt").display()),
            "--kube-api-qps=300".into(),
            "--kube-api-burst=600".into(),
            "--concurrent-job-syncs=10".into(),
            // Node leases are not renewed: readiness comes from the node status alone.
            "--node-monitor-grace-period=24h".into(),
        ];
        if extent == Extent::Owners {
            arguments.push(format!("--controllers={}", OWNER_CONTROLLERS.join(",")));
        }
        self.start_process("kube-controller-manager", &arguments)
    }

    fn start_scheduler_and_kwok(&mut self) -> Result<()> {
        let ports = free_ports(2)?;
        let [scheduler, kwok] = ports[..] else { bail!("expected two ports") };
        let config = self.component_kubeconfig("system:kube-scheduler", None)?;
        let settings = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": config, "qps": 300, "burst": 600},
            "leaderElection": {"leaderElect": false},
        });
        let settings = self.write_file("scheduler.yaml", &settings.to_string())?;
        self.start_process(
            "kube-scheduler",
            &[
                format!("--config={settings}"),
                "--bind-address=127.0.0.1".into(),
                format!("--secure-port={scheduler}"),
            ],
        )?;
        let config = self.component_kubeconfig("kwok", Some("system:masters"))?;
        let mut arguments = vec![
            format!("--kubeconfig={config}"),
            // The others have a kubelet (see `kubelet`).
            format!("--manage-nodes-with-label-selector=!{}", crate::kubelet::NODE_LABEL),
            // No node leases: the lease of a deleted node is garbage collected even if a new node has its name, and
            // KWOK does not run pods on that node until the lease is recreated.
            "--node-lease-duration-seconds=0".into(),
            format!("--server-address=127.0.0.1:{kwok}"),
        ];
        arguments.extend(self.seed.stages.iter().map(|file| format!("--config={}", file.display())));
        self.start_process("kwok", &arguments)
    }

    /// Returns the version that the API server reports.
    pub async fn kubernetes_version(&self) -> Result<String> {
        Ok(self.admin().await?.apiserver_version().await?.git_version)
    }

    /// Returns an error if the API server has another version than the one that was selected: cases would pass on the
    /// wrong one.
    async fn check_version(&self) -> Result<()> {
        let (found, expected) = (self.kubernetes_version().await?, self.binaries.kubernetes_version()?);
        ensure!(found == expected, "the API server is {found}, not {expected}");
        Ok(())
    }

    async fn wait_for_api(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            self.check()?;
            let last = match self.admin().await {
                Ok(client) => match client.request_text(http_get("/readyz")?).await {
                    Ok(_) => return Ok(()),
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if Instant::now() > deadline {
                bail!(
                    "kube-apiserver is not ready after 60 s ({last}); its log is in {}",
                    self.folder.display()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the controller-manager has created the service account of the default namespace.
    async fn wait_for_controllers(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_mins(1);
        let client = self.admin().await?;
        let accounts = kube::Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(client, "default");
        while accounts.get_opt("default").await?.is_none() {
            self.check()?;
            if Instant::now() > deadline {
                bail!(
                    "kube-controller-manager created no service account within 60 s; its log is in {}",
                    self.folder.display()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Returns an error if a process has exited.
    pub fn check(&self) -> Result<()> {
        self.processes.iter().try_for_each(Process::check)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        rights::observe(&self.audit_log());
        if !self.keep_files {
            self.processes.clear();
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Builds a GET request without a body.
pub fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).context("invalid path")
}

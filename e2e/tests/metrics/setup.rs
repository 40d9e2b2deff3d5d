//! A control plane with two replicas behind a fault-injecting proxy, and a Prometheus that scrapes both by TLS with the token
//! of its own account, as the shipped ServiceMonitor and bindings say.

use crate::page::Page;
use crate::prometheus::{Prometheus, ScrapeTargets};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::bench::webhooks::ca_bundle;
use sluice_e2e::cluster::{Cluster, ClusterOptions};
use sluice_e2e::control_plane::ControlPlane;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::kubeconfig;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::Kind;
use sluice_e2e::paths;
use sluice_e2e::process::free_ports;
use sluice_e2e::proxy::Proxy;
use sluice_e2e::wait::eventually;
use std::fs;
use std::path::PathBuf;

/// Namespace and account of Prometheus in config/prometheus/kube-prometheus/role.yaml.
const PROMETHEUS: (&str, &str) = ("monitoring", "prometheus-k8s");
/// Account whose token the ServiceMonitor names.
/// The ServiceAccount that reads metrics.
pub(crate) const SCRAPER: &str = "kueue-metrics-scraper";
/// Version of the operator whose definitions validate the manifests.
const OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator@v0.85.0";

/// Everything that runs.
pub(crate) struct Setup {
    // Dropped in this order: Prometheus and the replicas before the control plane.
    pub(crate) prometheus: Prometheus,
    pub(crate) standby: Option<Manager>,
    pub(crate) cluster: Cluster,
    pub(crate) proxy: Proxy,
    /// Token of Prometheus' account.
    pub(crate) token: String,
    /// CA of the serving certificate.
    pub(crate) ca: String,
    /// Metrics ports of leader and standby.
    pub(crate) ports: [u16; 2],
}

impl Setup {
    /// Starts everything; returns when one replica leads and both are scraped.
    pub(crate) async fn start() -> Result<Self> {
        let options = ClusterOptions { load_balanced: true, ..ClusterOptions::default() };
        let mut cluster = Cluster::start(&options, &ControlPlane::temporary_folder()).await?;
        apply_manifests(&cluster).await?;
        let proxy = Proxy::open(&cluster.plane).await?;
        let ports = free_ports(2)?;
        let [first, second] = ports[..] else { anyhow::bail!("expected two ports") };
        let mut settings = cluster.manager()?.settings().clone();
        settings.api_server_url = Some(proxy.url());
        // Watches end within a second of the accelerated alert's limit, as by default within a minute of five.
        settings.flags = vec!["--watch-timeout=5s".to_owned()];
        configure(&mut settings, first);
        cluster.replace_manager(&settings).await?;
        let standby = start_standby(&cluster, &settings, second).await?;
        let token = kubeconfig::token(cluster.objects.client(), NAMESPACE, SCRAPER).await?;
        let ca = ca_bundle(&cluster).await?;
        check_scrape_authority(&cluster, &ca).await?;
        let folder = cluster.plane.folder().join("prometheus");
        let targets = ScrapeTargets { ports: &[first, second], token: &token, ca: &ca };
        let prometheus = Prometheus::start(&folder, &targets).await?;
        let setup =
            Self { prometheus, standby: Some(standby), cluster, proxy, token, ca, ports: [first, second] };
        setup.wait_until_scraped().await?;
        Ok(setup)
    }

    /// Stops both replicas; returns the settings of the first.
    pub(crate) fn stop_replicas(&mut self) -> Result<ManagerSettings> {
        let standby = self.standby.take().context("no standby")?;
        standby.terminate();
        let leader = self.cluster.take_manager().context("no manager")?;
        leader.terminate();
        Ok(leader.settings().clone())
    }

    /// Starts both replicas; returns when both are scraped.
    pub(crate) async fn start_replicas(&mut self, settings: &ManagerSettings) -> Result<()> {
        self.cluster.start_manager(settings).await?;
        self.standby = Some(start_standby(&self.cluster, settings, self.ports[1]).await?);
        self.wait_until_scraped().await
    }

    async fn wait_until_scraped(&self) -> Result<()> {
        eventually("the first replica leads and both are scraped", async || {
            let found = self.prometheus.query("sluice_leader", crate::prometheus::now()).await?;
            let [leader, standby] =
                self.instances().map(|instance| found.get(&format!("instance={instance}")).copied());
            ensure!(leader == Some(1.0) && standby == Some(0.0), "{found:?}");
            Ok(())
        })
        .await
    }

    /// Names of the targets: leader, standby.
    pub(crate) fn instances(&self) -> [String; 2] {
        self.ports.map(|port| format!("127.0.0.1:{port}"))
    }

    /// Reads the metrics of leader and standby.
    pub(crate) async fn pages(&self) -> Result<[Page; 2]> {
        let [leader, standby] = self.ports;
        Ok([
            Page::read(leader, &self.ca, &self.token).await?,
            Page::read(standby, &self.ca, &self.token).await?,
        ])
    }

    /// Process ids of leader and standby.
    pub(crate) fn pids(&self) -> Result<[u32; 2]> {
        let standby = self.standby.as_ref().context("no standby")?;
        Ok([self.cluster.manager()?.process().identity().pid, standby.process().identity().pid])
    }

    /// The working folder of Prometheus.
    pub(crate) fn prometheus_folder(&self) -> PathBuf {
        self.cluster.plane.folder().join("prometheus")
    }
}

fn configure(settings: &mut ManagerSettings, metrics_port: u16) {
    settings.configuration["metrics"] =
        json!({"bindAddress": format!("127.0.0.1:{metrics_port}"), "enableClusterQueueResources": true});
}

async fn start_standby(cluster: &Cluster, leader: &ManagerSettings, metrics_port: u16) -> Result<Manager> {
    let mut settings = ManagerSettings { name: "standby".to_owned(), webhook_port: 0, ..leader.clone() };
    configure(&mut settings, metrics_port);
    let standby = Manager::start(&cluster.plane, &settings).await?;
    standby.wait_until_ready().await?;
    Ok(standby)
}

/// Applies config/prometheus to an API server with the operator's definitions, which validate every field.
async fn apply_manifests(cluster: &Cluster) -> Result<()> {
    let (namespace, account) = PROMETHEUS;
    cluster.objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": namespace}})).await?;
    let body = json!({"metadata": {"name": account, "namespace": namespace}});
    cluster.objects.create(Kind::SERVICE_ACCOUNT, &body).await?;
    let definitions = operator_definitions()?;
    for (file, plural) in [("prometheusrules", "prometheusrules"), ("servicemonitors", "servicemonitors")] {
        let path = definitions.join(format!("monitoring.coreos.com_{file}.yaml"));
        cluster.kubectl.run(&["create", "-f", &path.display().to_string()])?;
        let name = format!("{plural}.monitoring.coreos.com");
        sluice_e2e::install::established(&cluster.objects, &name).await?;
    }
    for file in ["role.yaml", "kube-prometheus/role.yaml", "rules.yaml", "service_monitor.yaml"] {
        let path = paths::root().join("config/prometheus").join(file);
        eventually(format!("{file} is accepted"), async || {
            cluster.kubectl.run(&["apply", "--validate=strict", "-f", &path.display().to_string()]).map(drop)
        })
        .await?;
    }
    println!("  the API server accepts config/prometheus by the definitions of {OPERATOR}");
    Ok(())
}

/// Returns the folder of the operator's definitions in the cache of Go modules.
fn operator_definitions() -> Result<PathBuf> {
    let output = std::process::Command::new("go").args(["mod", "download", "-json", OPERATOR]).output();
    let output = output.context("fetching the definitions of the Prometheus operator requires Go")?;
    let module: Value = serde_json::from_slice(&output.stdout)?;
    let folder = module["Dir"].as_str().with_context(|| module.to_string())?;
    Ok(PathBuf::from(folder).join("example/prometheus-operator-crd"))
}

/// The ConfigMap that the ServiceMonitor names contains the CA that the webhooks trust.
async fn check_scrape_authority(cluster: &Cluster, ca: &str) -> Result<()> {
    let monitor = crate::prometheus::manifest("service_monitor.yaml")?;
    let selector = &monitor["spec"]["endpoints"][0]["tlsConfig"]["ca"]["configMap"];
    let (name, key) =
        (selector["name"].as_str().context("no name")?, selector["key"].as_str().context("no key")?);
    let authority = cluster.objects.must_get(Kind::CONFIG_MAP, NAMESPACE, name).await?;
    ensure!(authority["data"][key] == json!(ca), "{key} differs from the CA bundle");
    Ok(())
}

/// Copies what helps to find the cause of a failure.
pub(crate) fn keep_logs(setup: &mut Setup) {
    setup.cluster.plane.keep_folder();
    println!("logs are in {}", setup.cluster.plane.folder().display());
    if let Ok(text) = fs::read_to_string(setup.prometheus_folder().join("prometheus.log")) {
        println!("{text}");
    }
}

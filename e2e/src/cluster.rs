//! A control plane with Sluice installed and one manager running; used by demo, benchmarks, conformance run and tests.

use crate::audit::AuditCursor;
use crate::balancer::Balancer;
use crate::binaries::{self, Build};
use crate::control_plane::{ControlPlane, Extent};
use crate::definitions;
use crate::install::{ALL_KINDS, NAMESPACE, V1BETA1, install_all, manifests_with};
use crate::kubectl::Kubectl;
use crate::manager::{LEASE_NAME, Manager, ManagerSettings};
use crate::objects::{Kind, ObjectClient, text};
use crate::process::free_ports;
use crate::visibility_endpoint::VisibilityEndpoint;
use crate::wait::eventually;
use anyhow::{Context as _, Result};
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Options for starting a cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Which components run.
    pub extent: Extent,
    /// The build of sluice.
    pub build: Build,
    /// Another program than that build.
    pub program: Option<PathBuf>,
    /// Put a balancer in front of the managers, so that several replicas can serve webhooks.
    pub load_balanced: bool,
    /// Another identity holds the lease: the manager serves webhooks and reconciles nothing.
    pub standby: bool,
    /// Merged over the manager's Configuration.
    pub configuration: Value,
    /// Install the definitions of all job kinds and of ProvisioningRequest before the manager starts, and the components of those that are not shipped.
    pub job_kinds: bool,
    /// Serve v1beta1 as well.
    pub v1beta1: bool,
    /// Serve the visibility API through the API server, if this machine has an address that is not a loopback one.
    pub visibility: bool,
    /// Number of nodes to create, each with 1000 CPU and 4 Ti of memory.
    pub nodes: usize,
}

impl ClusterOptions {
    /// The cluster that `demo` and `up` start, with pod groups beside Jobs.
    pub fn shown() -> Self {
        let configuration = json!({"integrations": {"frameworks": ["batch/job", "pod"]}});
        Self { configuration, visibility: true, ..Self::default() }
    }
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            extent: Extent::Full,
            build: Build::Dev,
            program: None,
            load_balanced: false,
            standby: false,
            configuration: Value::Null,
            job_kinds: false,
            v1beta1: false,
            visibility: false,
            nodes: 3,
        }
    }
}

/// What a control plane begins with.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Objects by their keys in etcd, as JSON.
    pub objects: Vec<(String, String)>,
    /// Definitions in place of those of this version; none replaces none.
    pub definitions: Vec<Value>,
}

impl Stored {
    fn replace_definitions(&self, mut manifests: Vec<Value>) -> Vec<Value> {
        if !self.definitions.is_empty() {
            manifests.retain(|object| text(object, "/kind") != "CustomResourceDefinition");
            manifests.extend(self.definitions.iter().cloned());
        }
        manifests
    }
}

/// A control plane with the manifests and one manager.
pub struct Cluster {
    // Dropped first: the manager must stop before the control plane.
    manager: Option<Manager>,
    /// Balancer in front of the managers, if `load_balanced`.
    pub balancer: Option<Balancer>,
    /// Client with administrator rights.
    pub objects: ObjectClient,
    /// kubectl with administrator rights.
    pub kubectl: Kubectl,
    /// The control plane.
    pub plane: ControlPlane,
}

impl Cluster {
    /// Builds missing binaries, starts control plane and manager, and returns when webhooks answer.
    pub async fn start(options: &ClusterOptions, folder: &Path) -> Result<Self> {
        Self::start_with(&Stored::default(), options, folder).await
    }

    /// Like `start`, on a control plane that begins with what another build has stored.
    pub async fn start_with(stored: &Stored, options: &ClusterOptions, folder: &Path) -> Result<Self> {
        let program = options.program.clone().map_or_else(|| binaries::sluice(options.build), Ok)?;
        let starting = ControlPlane::start_with(stored.objects.clone(), options.extent, folder);
        let plane = Box::pin(starting).await?;
        let objects = ObjectClient::new(plane.admin().await?);
        let kubectl = Kubectl::new(&plane.binaries.path("kubectl"), &plane.admin_kubeconfig());
        let port = free_ports(1)?.first().copied().context("no port")?;
        let (mut components, mut flags) = (Vec::new(), Vec::new());
        if options.job_kinds {
            definitions::job_kinds(&kubectl, &objects).await?;
            definitions::provisioning_requests(&kubectl, &objects).await?;
            components.extend(ALL_KINDS);
        }
        if options.v1beta1 {
            components.push(V1BETA1.0);
            flags.push(V1BETA1.1.to_owned());
        }
        let manifests = stored.replace_definitions(manifests_with(&kubectl, &components)?);
        install_all(&kubectl, &objects, port, manifests.clone()).await?;
        let visibility = if options.visibility { VisibilityEndpoint::choose()? } else { None };
        flags.extend(visibility.iter().map(VisibilityEndpoint::flag));
        if options.standby {
            hold_lease(&objects).await?;
        }
        for number in 1..=options.nodes {
            // As a kubelet does.
            let labels = json!({"kubernetes.io/os": "linux"});
            let node = json!({"metadata": {"name": format!("node-{number}"), "labels": labels}});
            objects.create(Kind::NODE, &node).await?;
        }
        let balancer = if options.load_balanced { Some(Balancer::open(port).await?) } else { None };
        let settings = ManagerSettings {
            name: "manager".to_owned(),
            program,
            webhook_port: if options.load_balanced { 0 } else { port },
            configuration: options.configuration.clone(),
            flags,
            api_server_url: None,
            namespace: NAMESPACE.to_owned(),
        };
        let manager = Manager::start(&plane, &settings).await?;
        if let Some(balancer) = &balancer {
            balancer.set_backends(vec![manager.settings().webhook_port]);
        }
        manager.wait_until_ready().await?;
        if let Some(endpoint) = visibility {
            endpoint.install(&kubectl, &objects, &manifests).await?;
        }
        let cluster = Self { manager: Some(manager), balancer, objects, kubectl, plane };
        cluster.wait_for_webhooks().await?;
        Ok(cluster)
    }

    /// Returns the running manager; an error if it was taken out.
    pub fn manager(&self) -> Result<&Manager> {
        self.manager.as_ref().context("no manager is running")
    }

    /// Returns the port at which the API server calls webhooks: that of the balancer, or else of the manager.
    pub fn webhook_port(&self) -> Result<u16> {
        let manager = || Ok(self.manager()?.settings().webhook_port);
        self.balancer.as_ref().map_or_else(manager, |balancer| Ok(balancer.port()))
    }

    /// Removes and returns the manager.
    pub const fn take_manager(&mut self) -> Option<Manager> {
        self.manager.take()
    }

    /// Sets the running manager.
    pub fn put_manager(&mut self, manager: Manager) {
        self.manager = Some(manager);
    }

    /// Terminates the manager and starts one with these settings; returns the previous settings.
    pub async fn replace_manager(&mut self, settings: &ManagerSettings) -> Result<ManagerSettings> {
        let old = self.manager.take().context("no manager")?;
        old.terminate();
        self.start_manager(settings).await?;
        Ok(old.settings().clone())
    }

    /// Replaces the manager by one with these settings that also serves the visibility API through the API server; returns the settings
    /// before, and whether this machine has an address for it.
    pub async fn replace_manager_with_views(
        &mut self,
        mut settings: ManagerSettings,
    ) -> Result<(ManagerSettings, bool)> {
        let endpoint = VisibilityEndpoint::choose()?;
        settings.flags.extend(endpoint.iter().map(VisibilityEndpoint::flag_on_all));
        let before = self.replace_manager(&settings).await?;
        if let Some(endpoint) = &endpoint {
            endpoint.install(&self.kubectl, &self.objects, &manifests_with(&self.kubectl, &[])?).await?;
        }
        Ok((before, endpoint.is_some()))
    }

    /// Replaces a manager that serves the visibility API by one with these settings that does not.
    pub async fn start_manager_without_views(&mut self, settings: &ManagerSettings) -> Result<()> {
        VisibilityEndpoint::remove(&self.kubectl, &manifests_with(&self.kubectl, &[])?)?;
        self.start_manager(settings).await
    }

    /// Starts a manager and waits until it is ready and its webhooks answer.
    pub async fn start_manager(&mut self, settings: &ManagerSettings) -> Result<()> {
        let manager = Manager::start(&self.plane, settings).await?;
        manager.wait_until_ready().await?;
        self.manager = Some(manager);
        self.wait_for_webhooks().await
    }

    /// Restarts the manager with these fields merged over its Configuration; returns their previous values.
    pub async fn reconfigure(&mut self, fields: &Value) -> Result<Value> {
        let old = self.manager.take().context("no manager")?;
        old.terminate();
        let mut settings = old.settings().clone();
        let before = settings.configuration.clone();
        for (field, value) in fields.as_object().into_iter().flatten() {
            settings.configuration[field] = value.clone();
        }
        let manager = Manager::start(&self.plane, &settings).await?;
        manager.wait_until_ready().await?;
        self.manager = Some(manager);
        self.wait_for_webhooks().await?;
        let previous = |field: &String| (field.clone(), before[field].clone());
        Ok(fields.as_object().into_iter().flatten().map(|(field, _)| previous(field)).collect())
    }

    /// Waits until a dry-run create of a ResourceFlavor passes the webhooks.
    pub async fn wait_for_webhooks(&self) -> Result<()> {
        wait_for_webhooks(&self.objects).await
    }

    /// Returns a cursor at the current end of the audit log.
    pub fn audit(&self) -> Result<AuditCursor> {
        AuditCursor::from_end(&self.plane.audit_log())
    }

    /// Lets manager and control plane outlive this program.
    pub fn detach(&mut self) -> Result<()> {
        if let Some(manager) = &mut self.manager {
            manager.detach();
        }
        self.plane.detach()
    }
}

/// Waits until a dry-run create of a ResourceFlavor passes the webhooks.
pub async fn wait_for_webhooks(objects: &ObjectClient) -> Result<()> {
    let body = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "dry-run"}});
    let flavor: DynamicObject = serde_json::from_value(body)?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    eventually("webhooks answer", async || {
        objects.api(Kind::FLAVOR, "").create(&dry_run, &flavor).await.map(drop).map_err(Into::into)
    })
    .await
}

/// Creates a Lease that another identity holds for a day.
async fn hold_lease(objects: &ObjectClient) -> Result<()> {
    let now = jiff::Timestamp::now();
    let lease = json!({
        "metadata": {"namespace": NAMESPACE, "name": LEASE_NAME},
        "spec": {
            "holderIdentity": "another-holder", "leaseDurationSeconds": 86_400, "leaseTransitions": 0,
            "acquireTime": format!("{now:.6}"), "renewTime": format!("{now:.6}"),
        },
    });
    objects.create(Kind::LEASE, &lease).await.context("cannot create the lease")?;
    Ok(())
}

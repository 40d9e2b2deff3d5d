//! etcd and kube-apiserver with the manifests, without a manager, so that objects can be created before one starts.

use crate::binaries::{self, Build};
use crate::control_plane::{ControlPlane, Extent};
use crate::install::{NAMESPACE, install, remove_webhooks};
use crate::kubectl::Kubectl;
use crate::manager::ManagerSettings;
use crate::objects::{Kind, ObjectClient};
use crate::process::free_ports;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A control plane, and settings for a manager on it.
pub(super) struct ApiServerOnly {
    pub(super) plane: ControlPlane,
    pub(super) objects: ObjectClient,
    pub(super) settings: ManagerSettings,
}

impl ApiServerOnly {
    /// Starts a control plane in `folder`. `controller` is the binary to measure; `None` builds a release sluice.
    pub(super) async fn start(
        controller: Option<PathBuf>,
        folder: &Path,
        configuration: Value,
    ) -> Result<Self> {
        let program = match controller {
            Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
            None => binaries::sluice(Build::Release)?,
        };
        let plane = ControlPlane::start(Extent::Api, folder).await?;
        let objects = ObjectClient::new(plane.admin().await?);
        let kubectl = Kubectl::new(&plane.binaries.path("kubectl"), &plane.admin_kubeconfig());
        let port = free_ports(1)?.first().copied().context("no port")?;
        install(&kubectl, &objects, port).await?;
        let settings = ManagerSettings {
            name: "controller".to_owned(),
            program,
            webhook_port: port,
            configuration,
            flags: Vec::new(),
            api_server_url: None,
            namespace: NAMESPACE.to_owned(),
        };
        Ok(Self { plane, objects, settings })
    }

    /// Deletes the webhook configurations: without a manager, calls to the webhooks fail.
    pub(super) async fn remove_webhooks(&self) -> Result<Vec<(Kind, Value)>> {
        remove_webhooks(&self.objects).await
    }

    /// Creates the webhook configurations again.
    pub(super) async fn restore_webhooks(&self, webhooks: Vec<(Kind, Value)>) -> Result<()> {
        for (kind, object) in webhooks {
            self.objects.create(kind, &object).await?;
        }
        Ok(())
    }
}

//! A control plane of its own with a manager: for cases that change or remove definitions, which all others need.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_e2e::cluster::{Cluster, wait_for_webhooks};
use sluice_e2e::control_plane::{ControlPlane, Extent};
use sluice_e2e::install;
use sluice_e2e::kubectl::Kubectl;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, ObjectClient, text};
use sluice_e2e::process::{free_ports, tail};
use sluice_e2e::wait::eventually;
use std::fs;

/// A control plane with a manager of its own, for a case that changes or removes what is installed.
pub(crate) struct Installation {
    // Dropped first: the manager is a client of the control plane.
    pub(crate) manager: Manager,
    pub(crate) fixture: Fixture,
    /// The definitions of this version.
    definitions: Vec<Value>,
    pub(crate) plane: ControlPlane,
}

impl Installation {
    /// Installs the manifests with changed definitions, and starts the manager. `change` gets the plural and a definition,
    /// and returns whether it is installed.
    pub(crate) async fn start(
        cluster: &Cluster,
        fixture: &Fixture,
        change: impl Fn(&str, &mut Value) -> Result<bool>,
    ) -> Result<Self> {
        let folder = ControlPlane::temporary_folder().with_extension(&fixture.name);
        let plane = ControlPlane::start(Extent::Full, &folder).await?;
        let objects = ObjectClient::new(plane.admin().await?);
        let kubectl = Kubectl::new(&plane.binaries.path("kubectl"), &plane.admin_kubeconfig());
        let (definitions, mut manifests): (Vec<Value>, Vec<Value>) = install::manifests(&kubectl)?
            .into_iter()
            .partition(|object| text(object, "/kind") == "CustomResourceDefinition");
        for mut definition in definitions.iter().cloned() {
            let plural = text(&definition, "/spec/names/plural").to_owned();
            if change(&plural, &mut definition)? {
                manifests.push(definition);
            }
        }
        let port = free_ports(1)?.first().copied().context("no port")?;
        install::install_all(&kubectl, &objects, port, manifests).await?;
        objects.create(Kind::NODE, &json!({"metadata": {"name": "node"}})).await?;
        let settings = ManagerSettings {
            webhook_port: port,
            flags: vec!["--metrics-insecure".to_owned()],
            ..cluster.manager()?.settings().clone()
        };
        let manager = Manager::start(&plane, &settings).await?;
        let fixture = Fixture::on(&objects, &kubectl, &fixture.name);
        Ok(Self { manager, fixture, definitions, plane })
    }

    /// Ends a case: after a failure, its logs are kept.
    pub(crate) fn finish(mut self, outcome: Result<()>) -> Result<()> {
        if outcome.is_err() {
            println!("last log lines of its manager:\n{}", tail(self.manager.log(), 30));
            self.plane.keep_folder();
        }
        outcome
    }

    pub(crate) async fn wait_until_ready(&self) -> Result<()> {
        self.manager.wait_until_ready().await?;
        wait_for_webhooks(&self.fixture.objects).await
    }

    /// Applies the definitions of this version.
    pub(crate) fn upgrade(&self) -> Result<()> {
        install::apply(&self.fixture.kubectl, &self.definitions)
    }

    /// Waits until one line of the log has all these words.
    pub(crate) async fn wait_for_log(&self, words: &[&str]) -> Result<()> {
        eventually(format!("the log has {words:?}"), async || {
            let log = fs::read_to_string(self.manager.log())?;
            let found = log.lines().any(|line| words.iter().all(|word| line.contains(word)));
            ensure!(found, "not logged yet");
            Ok(())
        })
        .await
    }

    pub(crate) async fn wait_for_metric(&self, line: &str) -> Result<()> {
        eventually(format!("the metrics have {line}"), async || {
            let page = self.manager.metrics().await?;
            ensure!(page.lines().any(|shown| shown == line), "not shown");
            Ok(())
        })
        .await
    }

    /// Waits for a warning event on an object whose note has all these words.
    pub(crate) async fn wait_for_event(&self, object: &str, reason: &str, words: &[&str]) -> Result<()> {
        eventually(format!("an event {reason} on {object} has {words:?}"), async || {
            let events = self.fixture.objects.list(Kind::EVENT, "", "").await?;
            let of_object = events.iter().filter(|e| text(e, "/regarding/name").starts_with(object));
            let notes: Vec<_> = of_object.map(|e| (text(e, "/reason"), text(e, "/note"))).collect();
            let found = notes.iter().any(|(r, note)| *r == reason && words.iter().all(|w| note.contains(w)));
            ensure!(found, "its events are {notes:?}");
            Ok(())
        })
        .await
    }

    /// Merges fields into an object's status, as another controller does.
    pub(crate) async fn merge_status(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        status: Value,
    ) -> Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.fixture.objects.api(kind, namespace).patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

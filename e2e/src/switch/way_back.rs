//! The way back: Kueue's own manager takes over what Sluice's left.

use super::judge::{Cluster, Judgement};
use super::revisions::Revisions;
use super::store::Store;
use super::takeover::{Takeover, WORK, on_host};
use crate::binaries::Binaries;
use crate::certs::{CertificateAuthority, write_private};
use crate::definitions;
use crate::install::{NAMESPACE, dial_locally};
use crate::kubeconfig::base64;
use crate::manager::{LEASE_NAME, Manager, ManagerSettings, merge};
use crate::objects::{Kind, ObjectClient, text};
use crate::process::free_ports;
use crate::upgrades;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

/// Folder of Kueue's module below `e2e/controlplane`, and name of its program.
const KUEUE: &str = "kueue";
const MODULE: &str = "sigs.k8s.io/kueue";
/// A manager that waits for a lease of 15 s, and then works.
const START: Duration = Duration::from_secs(20);

impl Takeover<'_> {
    /// Lets Sluice's manager work and then Kueue's; returns what either did that it must not do.
    pub(super) async fn and_back(&mut self) -> Result<Vec<String>> {
        let mut deviations = self.work_with_sluice().await?;
        let before = Cluster::read(&self.objects).await?;
        // Running jobs end while nothing looks, too.
        let manager = self.manager.take().context("no manager")?;
        manager.terminate();
        let (port, authority) =
            (free_ports(1)?.first().copied().context("no port")?, CertificateAuthority::new("kueue")?);
        self.delete_deployment().await?;
        self.migrate_until_replaced("to-kueue").await?;
        self.install_kueue(port, &authority).await.context("install Kueue")?;
        self.manager = Some(self.start_kueue(port, &authority).await.context("start Kueue")?);
        self.migrate_to_the_end("to-kueue").await?;
        // What Sluice stored fits Kueue's definitions, and has no field that those lack.
        let unfit = upgrades::unfit_objects(&self.objects, |kind| before.of_kind(kind.singular())).await?;
        deviations.extend(unfit.iter().map(|object| format!("fits Kueue's definition, , {object}")));
        let revisions = Revisions::start(&self.objects).await?;
        println!("{}: Kueue's manager is ready", self.store.name);
        tokio::time::sleep(START + WORK).await;
        let after = Cluster::read(&self.objects).await?;
        let mut judgement = Judgement::of_handover(self.store, before, &after);
        judgement.workloads();
        judgement.pods();
        judgement.others();
        judgement.lease(&self.objects).await?;
        revisions.judge(&mut judgement)?;
        deviations.extend(judgement.into_deviations());
        deviations.extend(self.end_jobs(&after).await?);
        Ok(deviations)
    }

    /// Applies Kueue's manifests over Sluice's, as a user does. Kueue's APIServices ask for no verification, which is refused where
    /// Sluice's have an authority: those are deleted first, by the command that the migration prints.
    async fn install_kueue(&self, port: u16, authority: &CertificateAuthority) -> Result<()> {
        let api_services =
            ["v1beta1", "v1beta2"].map(|version| format!("{version}.visibility.kueue.x-k8s.io"));
        let [first, second] = &api_services;
        self.kubectl.run(&["delete", "apiservice", "--ignore-not-found", first, second])?;
        let folder = definitions::module(KUEUE, MODULE)?.join("config/default");
        let text_of_all = self.kubectl.run(&["kustomize", &folder.display().to_string()])?;
        let all: Vec<Value> = serde_saphyr::from_multiple(&text_of_all).context("Kueue's manifests")?;
        // The configuration is the user's.
        let kept = all.into_iter().filter(|object| text(object, "/kind") != "ConfigMap");
        let ca = base64(authority.pem().as_bytes());
        let trusted = kept.map(|object| on_host(trust(dial_locally(object, port), &ca))).collect();
        self.apply_all(trusted).await
    }

    async fn start_kueue(&self, port: u16, authority: &CertificateAuthority) -> Result<Manager> {
        let binaries = Binaries::ensure(&[KUEUE])?;
        let certificates = self.plane.folder().join("kueue-certificates");
        std::fs::create_dir_all(&certificates)?;
        let pair = authority.server(KUEUE, &["127.0.0.1"])?;
        write_private(&certificates.join("tls.crt"), &pair.certificate)?;
        write_private(&certificates.join("tls.key"), &pair.key)?;
        let mut configuration = self.store.configuration()?;
        let own = json!({
            "internalCertManagement": {"enable": false},
            "webhook": {"certDir": certificates},
            "metrics": {"bindAddress": "0"},
            "leaderElection": {"resourceNamespace": NAMESPACE},
        });
        merge(&mut configuration, &own);
        let program = self.plane.folder().join("start-kueue");
        write_private(&program, &start_script(&binaries.path(KUEUE), &certificates, &self.shadow().await?))?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700))?;
        let settings = ManagerSettings {
            name: KUEUE.to_owned(),
            program,
            webhook_port: port,
            configuration,
            flags: vec!["--feature-gates=VisibilityOnDemand=false".to_owned()],
            api_server_url: None,
            namespace: NAMESPACE.to_owned(),
        };
        let manager = Manager::start(&self.plane, &settings).await?;
        manager.wait_until_ready().await?;
        Ok(manager)
    }
}

/// Starts Kueue where it finds its certificates: with certificates that it does not make itself it reads those of its metrics at a fixed
/// path, which exists in a mount namespace of its own. Its identity begins with its host name, that of its pod.
fn start_script(kueue: &Path, certificates: &Path, pod: &str) -> String {
    let inside = format!(
        "hostname {pod} && mount -t tmpfs none /etc && mkdir -p /etc/kueue/metrics && ln -s {} /etc/kueue/metrics/certs && exec {} \"$@\"",
        certificates.display(),
        kueue.display()
    );
    format!("#!/bin/sh\nexec unshare --map-root-user --uts --mount sh -c '{inside}' kueue \"$@\"\n")
}

/// Adds an authority to whatever calls webhooks by URL.
fn trust(mut object: Value, ca: &str) -> Value {
    let mut webhooks: Vec<&mut Value> = match text(&object, "/kind") {
        "CustomResourceDefinition" => object.pointer_mut("/spec/conversion/webhook").into_iter().collect(),
        _ => object.pointer_mut("/webhooks").and_then(Value::as_array_mut).into_iter().flatten().collect(),
    };
    for webhook in &mut webhooks {
        if webhook["clientConfig"]["url"].is_string() {
            webhook["clientConfig"]["caBundle"] = ca.into();
        }
    }
    object
}

impl Judgement<'_> {
    /// Kueue's manager holds the Lease that Sluice's released.
    async fn lease(&mut self, objects: &ObjectClient) -> Result<()> {
        let lease = objects.must_get(Kind::LEASE, NAMESPACE, LEASE_NAME).await?;
        let holder = text(&lease, "/spec/holderIdentity");
        if holder.is_empty() || holder.contains("sluice") {
            self.add("lease", &lease, "held by Kueue", ("", holder));
        }
        Ok(())
    }
}

/// Returns the recorded store as the only one that Kueue's module takes back.
pub(super) fn is_supported(store: &Store) -> Result<bool> {
    let folder = definitions::module(KUEUE, MODULE)?;
    Ok(folder.display().to_string().ends_with(&store.name))
}

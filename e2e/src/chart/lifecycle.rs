//! The life of a release on a real control plane: installed, upgraded, rolled back, uninstalled, installed again in another
//! namespace, and uninstalled with everything. KWOK runs the pods, so no manager answers webhooks.

use super::comparison::CHECKSUM;
use super::helm::{Helm, RELEASE, chart};
use super::kustomization::copy_folder;
use crate::audit::AuditCursor;
use crate::control_plane::ControlPlane;
use crate::documented::commands;
use crate::kubectl::Kubectl;
use crate::objects::{Kind, ObjectClient, text};
use crate::paths;
use crate::wait::eventually;
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NAMESPACE: &str = "kueue-system";
const OTHER_NAMESPACE: &str = "batch-queues";
const TOPOLOGY: &str = "survives";
const DEFINITION: &str = "topologies.kueue.x-k8s.io";
const MANAGER: &str = "deployment/kueue-controller-manager";
const WEBHOOKS: &str = "deployment/kueue-webhooks";
const SERVING_SECRET: &str = "kueue-webhook-server-cert";
const CA_SECRET: &str = "kueue-webhook-server-cert-ca";
const MUTATING: &str = "kueue-mutating-webhook-configuration";
/// Time in which a controller of Kubernetes would make an aggregating role again.
const SETTLED: Duration = Duration::from_secs(3);
/// "CA" in base64.
const CA_BUNDLE: &str = "Q0E=";

/// A control plane and the clients of its administrator.
pub(super) struct ChartCluster<'a> {
    pub(super) helm: Helm,
    pub(super) kubectl: &'a Kubectl,
    pub(super) objects: &'a ObjectClient,
    pub(super) plane: &'a ControlPlane,
}

/// Checks the whole life; leaves nothing behind.
pub(super) async fn check(cluster: &ChartCluster<'_>, program: &str) -> Result<()> {
    let version = cluster.helm.run(&["version", "--short"], &Value::Null)?;
    let version = version.trim();
    install(cluster).await.context("install")?;
    println!("{version}: installed, all replicas are available");
    let newer = newer_chart(&cluster.plane.folder().join(format!("newer-chart-{program}")))?;
    upgrade(cluster, &newer).await.context("upgrade")?;
    println!("{version}: upgraded; a new configuration replaces the pods, what the manager wrote stays");
    roll_back(cluster).await.context("rollback")?;
    println!("{version}: rolled back");
    let installed = cluster.released()?;
    uninstall(cluster, &installed).await.context("uninstall")?;
    println!("{version}: uninstalled, webhook configurations first; definitions and queues stay");
    install_again(cluster).await.context("installed again")?;
    println!("{version}: no role is left, and the release can be installed again");
    install_elsewhere(cluster).await.context("another namespace")?;
    println!("{version}: installed in another namespace, uninstalled with its definitions");
    adopt(cluster, program).await.context("adoption")?;
    println!("{version}: adopted what kubectl applied");
    remove_namespaces(cluster).await?;
    if program == "helm" {
        as_printed(cluster)?;
        println!("{version}: the commands of docs/helm.md run as printed");
    }
    Ok(())
}

/// Runs the commands at the top of docs/helm.md: installs, upgrades, rolls back and uninstalls.
fn as_printed(cluster: &ChartCluster<'_>) -> Result<()> {
    let values = cluster.plane.folder().join("my-values.yaml");
    fs::write(&values, "controllerManager: {replicas: 1}\n")?;
    let printed = commands("helm.md", None)?;
    ensure!(printed.len() == 4, "{printed:?}");
    for command in printed {
        let command = command.replace("my-values.yaml", &values.display().to_string());
        cluster.helm.run_as_printed(&command)?;
    }
    let left = cluster.field(MANAGER, ".metadata.name");
    ensure!(left.is_err(), "the Deployment is left");
    Ok(())
}

impl ChartCluster<'_> {
    /// Runs helm with values.
    fn helm(&self, command: &str, chart: &Path, more: &[&str], values: &Value) -> Result<String> {
        let chart = chart.display().to_string();
        let arguments = [&[command, RELEASE, &chart, "--values=-"], more].concat();
        self.helm.run(&arguments, values)
    }

    /// Returns the objects of the current revision.
    fn released(&self) -> Result<Vec<Value>> {
        let text = self.helm.run(&["get", "manifest", RELEASE, "--namespace", NAMESPACE], &Value::Null)?;
        Ok(serde_saphyr::from_multiple(&text)?)
    }

    /// Returns a field of an object in the manager's namespace, as kubectl prints it.
    fn field(&self, object: &str, path: &str) -> Result<String> {
        self.kubectl.run(&[
            "get",
            "--namespace",
            NAMESPACE,
            object,
            "--output",
            &format!("jsonpath={{{path}}}"),
        ])
    }

    fn checksum(&self) -> Result<String> {
        self.field(MANAGER, &format!(".spec.template.metadata.annotations.{}", CHECKSUM.replace('.', "\\.")))
    }

    fn image(&self) -> Result<String> {
        self.field(MANAGER, ".spec.template.spec.containers[0].image")
    }

    /// Returns whether an object exists.
    fn exists(&self, object: &Value) -> Result<bool> {
        let text = self
            .kubectl
            .run_with(&["get", "--ignore-not-found", "--output=name", "-f", "-"], &object.to_string())?;
        Ok(!text.trim().is_empty())
    }

    /// Returns the namespace that a webhook calls.
    async fn webhook_namespace(&self) -> Result<String> {
        let object = self.objects.must_get(Kind::MUTATING_WEBHOOKS, "", MUTATING).await?;
        Ok(text(&object, "/webhooks/0/clientConfig/service/namespace").to_owned())
    }
}

async fn install(cluster: &ChartCluster<'_>) -> Result<()> {
    let namespace = ["--namespace", NAMESPACE, "--create-namespace"];
    // Waits until all replicas are available, so pods with these settings are accepted and scheduled.
    let wait = ["--wait", "--timeout=2m"];
    cluster.helm("install", &chart(), &[namespace.as_slice(), &wait].concat(), &json!({}))?;
    let available = cluster.field(MANAGER, ".status.availableReplicas")?;
    ensure!(available == "2", "{available:?} replicas are available");
    for object in cluster.released()? {
        ensure!(cluster.exists(&object)?, "{} does not exist", object["metadata"]["name"]);
    }
    // A Topology has no webhook, so it can be created without a manager.
    let topology = json!({"metadata": {"name": TOPOLOGY}, "spec": {"levels": [{"nodeLabel": "rack"}]}});
    cluster.objects.create(Kind::TOPOLOGY, &topology).await?;
    // What the manager would write.
    let secret = json!({"stringData": {"tls.crt": "certificate"}});
    for name in [SERVING_SECRET, CA_SECRET] {
        cluster.objects.merge(Kind::SECRET, NAMESPACE, name, &secret).await?;
    }
    let patch = json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": CA_BUNDLE}]);
    cluster
        .kubectl
        .run(&["patch", "mutatingwebhookconfiguration", MUTATING, "--type=json", "-p", &patch.to_string()])
        .map(drop)
}

/// Copies the chart and adds a column to a CustomResourceDefinition, as a newer version would.
fn newer_chart(folder: &Path) -> Result<PathBuf> {
    copy_folder(&chart(), folder)?;
    let file = folder.join("files/crds/kueue.x-k8s.io_topologies.yaml");
    let mut definition: Value = serde_saphyr::from_str(&fs::read_to_string(&file)?)?;
    let column = json!({"name": "Levels", "type": "string", "jsonPath": ".spec.levels[*].nodeLabel"});
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!([column]);
    fs::write(file, definition.to_string())?;
    Ok(folder.to_owned())
}

fn columns(definition: &Value) -> String {
    definition["spec"]["versions"][0]["additionalPrinterColumns"].to_string()
}

async fn upgrade(cluster: &ChartCluster<'_>, newer: &Path) -> Result<()> {
    let checksum = cluster.checksum()?;
    let configuration =
        cluster.field("configmap/kueue-manager-config", ".data.controller_manager_config\\.yaml")?;
    let values = json!({
        "controllerManager": {"replicas": 3, "manager": {"image": {"tag": "newer"}}},
        "webhooks": {"separate": true},
        "dashboards": {"enabled": true},
        "managerConfig": {"controllerManagerConfigYaml": format!("{configuration}\nmanageJobsWithoutQueueName: true\n")},
    });
    cluster.helm("upgrade", newer, &["--namespace", NAMESPACE, "--wait", "--timeout=2m"], &values)?;
    ensure!(cluster.checksum()? != checksum, "the pods keep their configuration");
    ensure!(cluster.image()? == "sluice:newer", "the image is {}", cluster.image()?);
    let available = cluster.field(MANAGER, ".status.availableReplicas")?;
    ensure!(available == "3", "{available:?} replicas are available");
    let available = cluster.field(WEBHOOKS, ".status.availableReplicas")?;
    ensure!(available == "2", "{available:?} replicas of the webhooks are available");
    let labelled = cluster.objects.list(Kind::CONFIG_MAP, NAMESPACE, "grafana_dashboard=1").await?;
    ensure!(labelled.len() == 2, "{} dashboards", labelled.len());
    let webhooks = cluster.objects.must_get(Kind::MUTATING_WEBHOOKS, "", MUTATING).await?;
    let names = webhooks["webhooks"].to_string();
    let managed = names.contains("mjob-managed.kb.io") && !names.contains("mjob-default-queue.kb.io");
    ensure!(managed, "webhooks of jobs without a queue do not fail closed: {names}");
    let bundle = text(&webhooks, "/webhooks/0/clientConfig/caBundle");
    ensure!(bundle == CA_BUNDLE, "the CA of the webhooks is {bundle:?}");
    for name in [SERVING_SECRET, CA_SECRET] {
        let secret = cluster.objects.must_get(Kind::SECRET, NAMESPACE, name).await?;
        ensure!(!text(&secret["data"], "/tls.crt").is_empty(), "the data of {name} are lost");
    }
    let definition = cluster.objects.must_get(Kind::CRD, "", DEFINITION).await?;
    ensure!(columns(&definition).contains("Levels"), "the definition is not upgraded");
    Ok(())
}

async fn roll_back(cluster: &ChartCluster<'_>) -> Result<()> {
    cluster
        .helm
        .run(&["rollback", RELEASE, "1", "--namespace", NAMESPACE, "--wait", "--timeout=2m"], &Value::Null)?;
    ensure!(cluster.image()? == "sluice:latest", "the image is {}", cluster.image()?);
    let replicas = cluster.field(MANAGER, ".spec.replicas")?;
    ensure!(replicas == "2", "{replicas} replicas");
    let separate = cluster.kubectl.run(&["get", "--namespace", NAMESPACE, "--ignore-not-found", WEBHOOKS])?;
    ensure!(separate.is_empty(), "the Deployment of the webhooks is left: {separate}");
    let definition = cluster.objects.must_get(Kind::CRD, "", DEFINITION).await?;
    ensure!(!columns(&definition).contains("Levels"), "the definition is not rolled back");
    for name in [SERVING_SECRET, CA_SECRET] {
        let secret = cluster.objects.must_get(Kind::SECRET, NAMESPACE, name).await?;
        ensure!(!text(&secret["data"], "/tls.crt").is_empty(), "the data of {name} are lost");
    }
    Ok(())
}

async fn uninstall(cluster: &ChartCluster<'_>, installed: &[Value]) -> Result<()> {
    let mut audit = AuditCursor::from_end(&cluster.plane.audit_log())?;
    cluster.helm.run(&["uninstall", RELEASE, "--namespace", NAMESPACE], &Value::Null)?;
    let requests = audit.read_new()?;
    let deletions = requests.iter().filter(|request| request.verb == "delete" && request.user == "admin");
    // No request waits for a role. The aggregating ones go before the roles that they aggregate.
    let deleted =
        deletions.map(|request| request.resource.as_str()).filter(|resource| *resource != "clusterroles");
    let first: Vec<&str> = deleted.take(2).collect();
    let expected = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];
    ensure!(first == expected, "the first deletions are of {first:?}");
    for object in installed {
        let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
        let stays = kind == "CustomResourceDefinition";
        eventually(format!("{kind} {name} {}", if stays { "stays" } else { "is gone" }), async || {
            ensure!(cluster.exists(object)? == stays, "it {}", if stays { "is gone" } else { "exists" });
            Ok(())
        })
        .await?;
    }
    cluster.objects.must_get(Kind::TOPOLOGY, "", TOPOLOGY).await?;
    // No webhook is left that would refuse it.
    let flavor = json!({"metadata": {"name": "after"}});
    cluster.objects.create(Kind::FLAVOR, &flavor).await.context("a webhook is left")?;
    Ok(())
}

/// A role that a controller of Kubernetes makes again belongs to no release: it would grant what it did, and refuse the next one.
async fn install_again(cluster: &ChartCluster<'_>) -> Result<()> {
    tokio::time::sleep(SETTLED).await;
    let roles = cluster.kubectl.run(&["get", "clusterroles", "--output=name"])?;
    let left: Vec<&str> = roles.lines().filter(|name| name.contains("kueue")).collect();
    ensure!(left.is_empty(), "{left:?} are left");
    cluster.helm("install", &chart(), &["--namespace", NAMESPACE, "--wait", "--timeout=2m"], &json!({}))?;
    cluster.helm.run(&["uninstall", RELEASE, "--namespace", NAMESPACE], &Value::Null).map(drop)
}

/// The definitions belong to the release in the first namespace: without taking them over, the installation fails.
async fn install_elsewhere(cluster: &ChartCluster<'_>) -> Result<()> {
    let namespace = ["--namespace", OTHER_NAMESPACE, "--create-namespace"];
    let values = json!({"crds": {"keep": false}});
    let refused = cluster
        .helm("install", &chart(), &namespace, &values)
        .err()
        .context("definitions are taken over unasked")?;
    ensure!(format!("{refused:#}").contains(NAMESPACE), "{refused:#}");
    cluster.helm("install", &chart(), &[namespace.as_slice(), &["--take-ownership"]].concat(), &values)?;
    cluster.objects.must_get(Kind::TOPOLOGY, "", TOPOLOGY).await.context("the Topology is gone")?;
    let called = cluster.webhook_namespace().await?;
    ensure!(called == OTHER_NAMESPACE, "webhooks call {called}");
    cluster.helm.run(&["uninstall", RELEASE, "--namespace", OTHER_NAMESPACE], &Value::Null)?;
    definitions_are_gone(cluster).await
}

/// Objects that kubectl applied become those of a release.
async fn adopt(cluster: &ChartCluster<'_>, program: &str) -> Result<()> {
    let config = paths::root().join("config/default").display().to_string();
    cluster.kubectl.run(&["apply", "--server-side", "-k", &config])?;
    let mut options = vec!["--namespace", NAMESPACE, "--take-ownership"];
    if program == "helm" {
        // Helm 3 does not apply on the server's side, so it has no conflicts.
        options.push("--force-conflicts");
    }
    cluster.helm("install", &chart(), &options, &json!({"crds": {"keep": false}}))?;
    let release = cluster.field(MANAGER, ".metadata.annotations.meta\\.helm\\.sh/release-name")?;
    ensure!(release == RELEASE, "the Deployment belongs to {release:?}");
    cluster.helm.run(&["uninstall", RELEASE, "--namespace", NAMESPACE], &Value::Null)?;
    definitions_are_gone(cluster).await
}

async fn definitions_are_gone(cluster: &ChartCluster<'_>) -> Result<()> {
    eventually("the definitions are gone", async || {
        let left = cluster.objects.list(Kind::CRD, "", "").await?;
        ensure!(left.is_empty(), "{} are left", left.len());
        Ok(())
    })
    .await
}

async fn remove_namespaces(cluster: &ChartCluster<'_>) -> Result<()> {
    for namespace in [NAMESPACE, OTHER_NAMESPACE] {
        cluster.objects.delete(Kind::NAMESPACE, "", namespace, PropagationPolicy::Background).await?;
        eventually(format!("namespace {namespace} is gone"), async || {
            let left = cluster.objects.get(Kind::NAMESPACE, "", namespace).await?;
            ensure!(left.is_none(), "it exists");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

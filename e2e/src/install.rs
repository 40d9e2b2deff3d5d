//! Installs Sluice's manifests (`config/default`) in a control plane, except for kinds that need a real cluster.
//! Webhooks are called at a port of 127.0.0.1 instead of a Service.

use crate::kubectl::Kubectl;
use crate::objects::{Kind, ObjectClient, condition_is_true, text};
use crate::paths;
use crate::wait::eventually;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The namespace of the manager.
pub const NAMESPACE: &str = "kueue-system";
/// The manager's service account.
pub const ACCOUNT: &str = "kueue-controller-manager";
/// Kinds that are not installed: they need kubelets, images or cluster networking. An APIService without a Service would keep
/// every namespace from being deleted.
const SKIPPED: [&str; 5] = ["APIService", "Deployment", "PodDisruptionBudget", "NetworkPolicy", "Service"];

/// Writes the certificate of the webhooks to a Secret of another process, for which the manager of a test issues none.
pub async fn copy_serving_certificate(objects: &ObjectClient, kubectl: &Kubectl, secret: &str) -> Result<()> {
    let serving = objects.must_get(Kind::SECRET, NAMESPACE, "kueue-webhook-server-cert").await?;
    let copy = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": NAMESPACE, "name": secret},
        "type": serving["type"], "data": serving["data"],
    });
    apply(kubectl, &[copy])
}

/// Returns the objects of `config/default`.
pub fn manifests(kubectl: &Kubectl) -> Result<Vec<Value>> {
    build(kubectl, &paths::root().join("config/default"))
}

/// Returns the objects of `config/default` with these components of `config`.
pub fn manifests_with(kubectl: &Kubectl, components: &[&str]) -> Result<Vec<Value>> {
    /// Cases run side by side, and each removes its folder.
    static OVERLAYS: AtomicU32 = AtomicU32::new(0);
    let number = OVERLAYS.fetch_add(1, Ordering::Relaxed);
    // Below the repository, because kustomize accepts only relative paths.
    let folder = paths::root().join("target").join(format!("overlay-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let components: Vec<String> =
        components.iter().map(|component| format!("../../config/{component}")).collect();
    let overlay = json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": ["../../config/default"], "components": components});
    std::fs::write(folder.join("kustomization.yaml"), overlay.to_string())?;
    let objects = build(kubectl, &folder);
    std::fs::remove_dir_all(&folder)?;
    objects
}

/// Components of all job kinds that are not shipped. With Kueue, pods without a queue name get the default queue.
pub const ALL_KINDS: [&str; 2] = ["frameworks/all", "webhooks/default-queue"];

/// How long the API server waits for a review, three times what is shipped: the program is not optimized here, and several control
/// planes share two cores.
const REVIEW_SECONDS: u32 = 9;

/// Component that serves v1beta1, and the manager's flag with it.
pub const V1BETA1: (&str, &str) = ("v1beta1", "--conversion-service=kueue-conversion-service");

fn build(kubectl: &Kubectl, folder: &Path) -> Result<Vec<Value>> {
    let text = kubectl.run(&["kustomize", &folder.display().to_string()])?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("{} is not valid YAML", folder.display()))
}

/// Applies the objects of `config/default`; webhooks are called at `webhook_port`.
pub async fn install(kubectl: &Kubectl, objects: &ObjectClient, webhook_port: u16) -> Result<()> {
    install_all(kubectl, objects, webhook_port, manifests(kubectl)?).await
}

/// Like `install`, with these manifests.
pub async fn install_all(
    kubectl: &Kubectl,
    objects: &ObjectClient,
    webhook_port: u16,
    all: Vec<Value>,
) -> Result<()> {
    let kept = without_workloads(all).into_iter();
    let all = kept.map(|object| dial_locally(object, webhook_port)).collect();
    install_unchanged(kubectl, objects, all).await
}

/// Leaves out what needs kubelets, images or cluster networking.
pub fn without_workloads(mut all: Vec<Value>) -> Vec<Value> {
    all.retain(|object| !SKIPPED.contains(&text(object, "/kind")));
    all
}

/// Applies these manifests as they are: definitions first.
pub async fn install_unchanged(kubectl: &Kubectl, objects: &ObjectClient, all: Vec<Value>) -> Result<()> {
    let early_kinds = ["Namespace", "CustomResourceDefinition"];
    let (early, late): (Vec<Value>, Vec<Value>) =
        all.into_iter().partition(|object| early_kinds.contains(&text(object, "/kind")));
    apply(kubectl, &early)?;
    let names: Vec<&str> = early
        .iter()
        .filter(|o| text(o, "/kind") == "CustomResourceDefinition")
        .map(|o| text(o, "/metadata/name"))
        .collect();
    if names.is_empty() {
        bail!("config/default contains no CustomResourceDefinition");
    }
    for name in names {
        established(objects, name).await?;
    }
    apply(kubectl, &late)
}

/// Waits until a CustomResourceDefinition is established.
pub async fn established(objects: &ObjectClient, name: &str) -> Result<()> {
    eventually(format!("{name} is established"), async || {
        let crd = objects.must_get(Kind::CRD, "", name).await?;
        if condition_is_true(&crd, "Established") {
            Ok(())
        } else {
            bail!("its conditions are {}", crd["status"]["conditions"])
        }
    })
    .await
}

/// Applies objects as an administrator, with field manager "install".
pub fn apply(kubectl: &Kubectl, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    kubectl
        .run_with(&["apply", "--server-side", "--field-manager=install", "-f", "-"], &list.to_string())
        .map(drop)
}

/// Deletes the webhook configurations; returns them in a form that can be created again.
pub async fn remove_webhooks(objects: &ObjectClient) -> Result<Vec<(Kind, Value)>> {
    let mut removed = Vec::new();
    for kind in [Kind::MUTATING_WEBHOOKS, Kind::VALIDATING_WEBHOOKS] {
        for mut object in objects.list(kind, "", "").await? {
            let name = text(&object, "/metadata/name").to_owned();
            let labels = object["metadata"]["labels"].clone();
            object["metadata"] = json!({"name": name, "labels": labels});
            objects.delete(kind, "", &name, kube::api::PropagationPolicy::Background).await?;
            removed.push((kind, object));
        }
    }
    Ok(removed)
}

/// Returns a webhook configuration, or a definition whose objects are converted, whose webhooks are called at a port of 127.0.0.1
/// instead of a Service, and may take longer.
pub fn dial_locally(mut object: Value, port: u16) -> Value {
    let mut webhooks: Vec<&mut Value> = match text(&object, "/kind") {
        "CustomResourceDefinition" => object.pointer_mut("/spec/conversion/webhook").into_iter().collect(),
        _ => object.pointer_mut("/webhooks").and_then(Value::as_array_mut).into_iter().flatten().collect(),
    };
    for webhook in &mut webhooks {
        if let Some(timeout) = webhook.get_mut("timeoutSeconds") {
            *timeout = json!(REVIEW_SECONDS);
        }
        let Some(config) = webhook.get_mut("clientConfig") else { continue };
        let path = text(config, "/service/path").to_owned();
        if let Some(config) = config.as_object_mut()
            && config.remove("service").is_some()
        {
            config.insert("url".into(), format!("https://127.0.0.1:{port}{path}").into());
        }
    }
    object
}

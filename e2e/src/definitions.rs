//! CustomResourceDefinitions of other projects, read from their Go modules. Versions and checksums are pinned, as for
//! the control plane's binaries; no definition is copied into this repository.

use crate::install::{apply, established};
use crate::kubectl::Kubectl;
use crate::objects::{Kind, ObjectClient, text};
use crate::paths;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

/// Returns the folder of a module that `e2e/controlplane/<name>` requires; downloads it if necessary.
fn module(name: &str, path: &str) -> Result<PathBuf> {
    let folder = paths::root().join("e2e/controlplane").join(name);
    let output = Command::new("go")
        .current_dir(&folder)
        .env("GOFLAGS", "-mod=mod")
        .args(["mod", "download", "-json", path])
        .output()
        .context("cannot run go")?;
    let download: Value = serde_json::from_slice(&output.stdout).context("go mod download")?;
    ensure!(output.status.success(), "{path}: {}", text(&download, "/Error"));
    Ok(PathBuf::from(text(&download, "/Dir")))
}

/// Installs the definition of `ProvisioningRequest` and waits until it is established.
pub async fn provisioning_requests(kubectl: &Kubectl, objects: &ObjectClient) -> Result<()> {
    let folder = module("autoscaler", "k8s.io/autoscaler/cluster-autoscaler/apis")?;
    let file = folder.join("config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml");
    let yaml = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    apply(kubectl, &serde_saphyr::from_multiple(&yaml)?)?;
    established(objects, "provisioningrequests.autoscaling.x-k8s.io").await
}

/// Installs a definition with these names and version that accepts any object, and waits until it is established.
pub async fn permissive(kubectl: &Kubectl, objects: &ObjectClient, kind: Kind) -> Result<()> {
    let name = kind.resource();
    let version = json!({"name": kind.version, "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let names = json!({"kind": kind.singular, "plural": kind.plural, "singular": kind.singular.to_lowercase(),
        "listKind": format!("{}List", kind.singular)});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": kind.group, "names": names, "scope": "Namespaced", "versions": [version]}});
    apply(kubectl, &[definition])?;
    established(objects, &name).await
}

//! Definitions of other projects' kinds, read from their Go modules: pinned and checked like the control plane's, and
//! never copied into this tree.

use crate::install::{apply, established};
use crate::kubectl::Kubectl;
use crate::objects::{ObjectClient, text};
use crate::paths;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// The folder of the module that `e2e/controlplane/<name>` requires, fetched if need be.
fn module(name: &str, path: &str) -> Result<PathBuf> {
    let folder = paths::root().join("e2e/controlplane").join(name);
    let output = Command::new("go")
        .current_dir(&folder)
        .env("GOFLAGS", "-mod=mod")
        .args(["mod", "download", "-json", path])
        .output()
        .context("cannot run go")?;
    let answer: Value = serde_json::from_slice(&output.stdout).context("go mod download")?;
    ensure!(output.status.success(), "{path}: {}", text(&answer, "/Error"));
    Ok(PathBuf::from(text(&answer, "/Dir")))
}

/// Installs the definition of `ProvisioningRequest` and waits until it is served.
pub async fn provisioning_requests(kubectl: &Kubectl, objects: &ObjectClient) -> Result<()> {
    let folder = module("autoscaler", "k8s.io/autoscaler/cluster-autoscaler/apis")?;
    let file = folder.join("config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml");
    let read = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    apply(kubectl, &serde_saphyr::from_multiple(&read)?)?;
    established(objects, "provisioningrequests.autoscaling.x-k8s.io").await
}

//! Builds kustomizations on top of `config/default`, for comparison with the chart.

use crate::paths;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Namespace of `config/default`.
pub(super) const DEFAULT_NAMESPACE: &str = "kueue-system";

/// What differs from `config/default`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overlay {
    /// Namespace.
    pub(super) namespace: &'static str,
    /// Whether `config/default` lists the component that splits webhooks and controller, which must come first.
    pub(super) split: bool,
    /// Components below `config`.
    pub(super) components: &'static [&'static str],
    /// Component below `webhook-certs`.
    pub(super) certificates: &'static str,
    /// Lines added to the manager's configuration.
    pub(super) configuration: &'static str,
}

/// A folder that is removed on drop.
struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Builds an overlay in a copy of the manifests, because `config/default` itself selects the certificate component.
pub(super) fn build(kubectl: &Path, overlay: &Overlay) -> Result<Vec<Value>> {
    let folder = TemporaryFolder(paths::target().join(format!("chart-overlay-{}", std::process::id())));
    for tree in ["config", "crds", "webhook-certs"] {
        copy_folder(&paths::root().join(tree), &folder.0.join(tree))?;
    }
    let component = format!("../../webhook-certs/{}", overlay.certificates);
    replace(
        &folder.0.join("config/default/kustomization.yaml"),
        "../../webhook-certs/self-managed",
        &component,
    )?;
    if overlay.split {
        split(&folder.0.join("config"))?;
    }
    let file = folder.0.join("config/manager/controller_manager_config.yaml");
    let text = fs::read_to_string(&file)?;
    fs::write(&file, text + overlay.configuration)?;
    let mut text = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: {}\nresources:\n- ../config/default\ntransformers:\n- ../config/namespace\n",
        overlay.namespace
    );
    if !overlay.components.is_empty() {
        let lines: Vec<String> =
            overlay.components.iter().map(|name| format!("- ../config/{name}\n")).collect();
        text = format!("{text}components:\n{}", lines.concat());
    }
    let top = folder.0.join("overlay");
    fs::create_dir_all(&top)?;
    fs::write(top.join("kustomization.yaml"), text)?;
    let output = Command::new(kubectl).arg("kustomize").arg(&top).output()?;
    if !output.status.success() {
        bail!("kubectl kustomize: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout)?).context("kustomize returns no YAML")
}

/// Lists the component of the split, and makes the change that it asks for in another component.
fn split(config: &Path) -> Result<()> {
    replace(&config.join("default/kustomization.yaml"), "# - ../split\n", "- ../split\n")?;
    let addresses = config.join("network-policy/api-server-addresses/kustomization.yaml");
    let named = |policy| format!("# With ../../split: kueue-webhooks.\n    name: {policy}\n");
    replace(&addresses, &named("kueue-controller-manager"), &named("kueue-webhooks"))?;
    replace(&addresses, "/spec/ingress/2/", "/spec/ingress/1/")
}

fn replace(file: &Path, from: &str, to: &str) -> Result<()> {
    let text = fs::read_to_string(file)?;
    ensure!(text.contains(from), "{} does not contain {from}", file.display());
    Ok(fs::write(file, text.replace(from, to))?)
}

/// Copies a folder with all folders in it.
pub(super) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

//! One manifest with everything that is installed, and with the image by digest.

use crate::command;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the image in config/default.
const IMAGE: &str = "sluice";

/// Returns the output of kustomize for config/default with the image `name@digest`.
pub fn install(root: &Path, name: &str, digest: &str) -> Result<String> {
    let folder = OverlayFolder::create(root)?;
    // kustomize accepts only relative paths.
    let overlay = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- ../../config/default\nimages:\n- name: {IMAGE}\n  newName: {name}\n  digest: {digest}\n"
    );
    fs::write(folder.0.join("kustomization.yaml"), overlay)?;
    let text = command::output(Command::new(kubectl(root)).arg("kustomize").arg(&folder.0))
        .context("the manifests need kubectl; KUBECTL names one")?;
    let images: Vec<&str> =
        text.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix("image: ")).collect();
    ensure!(images == [format!("{name}@{digest}")], "the manifests name the images {images:?}");
    Ok(text)
}

/// The kubectl that `KUBECTL` names, that of the end-to-end tests, or the machine's.
fn kubectl(root: &Path) -> PathBuf {
    let built = root.join("target/controlplane/bin/kubectl");
    let named = std::env::var_os("KUBECTL").map(PathBuf::from);
    named.or_else(|| built.is_file().then_some(built)).unwrap_or_else(|| PathBuf::from("kubectl"))
}

/// A folder below target that is removed on drop.
struct OverlayFolder(PathBuf);

impl OverlayFolder {
    fn create(root: &Path) -> Result<Self> {
        let path = root.join("target").join(format!("install-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for OverlayFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_is_named_by_digest() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let found = Command::new(kubectl(root)).args(["version", "--client"]).output();
        if !found.is_ok_and(|output| output.status.success()) {
            println!("skipped: no kubectl; the end-to-end tests build one");
            return;
        }
        let digest = crate::digest::oci(b"image");
        let text = install(root, "registry.example/sluice", &digest).unwrap();
        assert!(text.contains(&format!("image: registry.example/sluice@{digest}\n")), "{text}");
        for kind in ["Deployment", "CustomResourceDefinition", "ValidatingWebhookConfiguration", "Namespace"]
        {
            assert!(text.contains(&format!("kind: {kind}\n")), "no {kind}");
        }
    }
}

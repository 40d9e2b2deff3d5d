//! One manifest with everything that is installed, and the Helm chart; both with the image by digest.

use crate::contents::Entry;
use crate::{command, layer};
use anyhow::{Context as _, Result, ensure};
use sluice_controlplane::Binaries;
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
    let text = command::output(Command::new(kubectl()?).arg("kustomize").arg(&folder.0))
        .context("the manifests need kubectl; KUBECTL names one")?;
    let images: Vec<&str> =
        text.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix("image: ")).collect();
    ensure!(images == [format!("{name}@{digest}")], "the manifests name the images {images:?}");
    Ok(text)
}

/// Returns the archive of the chart whose default values name the image `name@digest`. `time` is the modification time of its
/// files, in seconds since 1970.
pub fn chart(root: &Path, name: &str, digest: &str, time: u64) -> Result<Vec<u8>> {
    let mut entries = Vec::new();
    let mut open = vec![PathBuf::from("sluice")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(root.join("charts").join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push(path);
                continue;
            }
            let mut bytes = fs::read(entry.path())?;
            let path = path.to_str().context("a path that is not UTF-8")?;
            if path == "sluice/values.yaml" {
                bytes = pinned(&String::from_utf8(bytes)?, name, digest)?.into_bytes();
            }
            entries.push(Entry::file(path, 0o644, bytes));
        }
    }
    Ok(layer::pack(&entries, time)?.bytes)
}

/// Returns the values of the chart with the image by digest.
fn pinned(values: &str, name: &str, digest: &str) -> Result<String> {
    let mut text = values.to_owned();
    for (from, to) in [
        (format!("      repository: {IMAGE}\n"), format!("      repository: {name}\n")),
        ("      digest: \"\"\n".to_owned(), format!("      digest: {digest}\n")),
    ] {
        ensure!(text.matches(&from).count() == 1, "values.yaml does not contain {from:?} once");
        text = text.replace(&from, &to);
    }
    Ok(text)
}

/// The kubectl that `KUBECTL` names, that of the end-to-end tests, or the machine's.
fn kubectl() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("KUBECTL") {
        return Ok(named.into());
    }
    Ok(Binaries::find("kubectl")?.unwrap_or_else(|| PathBuf::from("kubectl")))
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
    fn chart_names_image_by_digest_and_is_reproducible() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let digest = crate::digest::oci(b"image");
        let archive = || chart(root, "registry.example/sluice", &digest, 7).unwrap();
        assert_eq!(archive(), archive());
        let bytes = archive();
        let mut files = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let mut texts = std::collections::BTreeMap::new();
        for file in files.entries().unwrap() {
            let mut file = file.unwrap();
            let path = file.path().unwrap().to_str().unwrap().to_owned();
            let mut text = String::new();
            std::io::Read::read_to_string(&mut file, &mut text).unwrap();
            texts.insert(path, text);
        }
        assert!(texts.contains_key("sluice/Chart.yaml") && texts.contains_key("sluice/templates/crds.yaml"));
        let values = &texts["sluice/values.yaml"];
        assert!(values.contains("repository: registry.example/sluice\n"), "{values}");
        assert!(values.contains(&format!("digest: {digest}\n")), "{values}");
    }

    #[test]
    fn every_image_is_named_by_digest() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let found = Command::new(kubectl().unwrap()).args(["version", "--client"]).output();
        if !found.is_ok_and(|output| output.status.success()) {
            assert!(std::env::var_os("CI").is_none(), "no kubectl where CI is set: `make tests` builds it");
            println!("skipped: no kubectl; `make tests` builds it");
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

//! Unpacks an OCI archive into a folder, as a container runtime does, and checks every digest on the way.

use crate::digest;
use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use tar::Archive;

/// An OCI archive in memory.
#[derive(Debug)]
pub struct ImageArchive {
    files: BTreeMap<String, Vec<u8>>,
    /// Digest of the manifest.
    pub digest: String,
    /// The manifest.
    pub manifest: Value,
    /// The configuration.
    pub config: Value,
}

impl ImageArchive {
    /// Reads an archive with one image.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let mut files = BTreeMap::new();
        for entry in Archive::new(bytes).entries()? {
            let mut entry = entry?;
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            files.insert(entry.path()?.display().to_string(), content);
        }
        let index: Value = serde_json::from_slice(files.get("index.json").context("no index.json")?)?;
        let digest = text(&index, "/manifests/0/digest")?.to_owned();
        let manifest: Value = serde_json::from_slice(blob(&files, &digest)?)?;
        let config = serde_json::from_slice(blob(&files, text(&manifest, "/config/digest")?)?)?;
        Ok(Self { files, digest, manifest, config })
    }

    /// Unpacks the layers into a folder, in their order.
    pub fn unpack(&self, folder: &Path) -> Result<()> {
        let (layers, diff_ids) = (list(&self.manifest, "/layers")?, list(&self.config, "/rootfs/diff_ids")?);
        ensure!(layers.len() == diff_ids.len(), "{} layers, {} diff_ids", layers.len(), diff_ids.len());
        for (layer, diff_id) in layers.iter().zip(diff_ids) {
            let compressed = blob(&self.files, text(layer, "/digest")?)?;
            let mut plain = Vec::new();
            GzDecoder::new(compressed).read_to_end(&mut plain)?;
            ensure!(digest::oci(&plain) == *diff_id, "a layer differs from its diff_id {diff_id}");
            let mut archive = Archive::new(plain.as_slice());
            archive.set_preserve_permissions(true);
            archive.unpack(folder).with_context(|| folder.display().to_string())?;
        }
        Ok(())
    }
}

fn text<'a>(document: &'a Value, pointer: &str) -> Result<&'a str> {
    let value = document.pointer(pointer).and_then(Value::as_str);
    value.with_context(|| format!("the document has no {pointer}"))
}

fn list<'a>(document: &'a Value, pointer: &str) -> Result<&'a Vec<Value>> {
    let value = document.pointer(pointer).and_then(Value::as_array);
    value.with_context(|| format!("the document has no {pointer}"))
}

fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, digest: &str) -> Result<&'a [u8]> {
    let path = format!("blobs/{}", digest.replace(':', "/"));
    let bytes = files.get(&path).with_context(|| format!("no {path} in the archive"))?;
    ensure!(digest::oci(bytes) == digest, "{path} has the digest {}", digest::oci(bytes));
    Ok(bytes)
}

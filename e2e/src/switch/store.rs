//! A recorded store: a cluster as a version of Kueue left it, all its objects, and what a takeover must preserve.

use crate::objects::text;
use crate::paths;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One recorded store, unpacked; removed when dropped.
pub(super) struct Store {
    /// Kueue's version.
    pub(super) name: String,
    /// Where it is unpacked.
    pub(super) folder: PathBuf,
    /// What a takeover must preserve.
    pub(super) expected: Value,
    /// All objects, as the server held them.
    pub(super) objects: Vec<Value>,
}

/// Returns the folder of all stores, if it exists.
pub(super) fn recordings() -> Option<PathBuf> {
    sluice_recorded::find("switch")
}

/// Returns the names of all stores in a folder.
pub(super) fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().join("expect.json").is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

impl Store {
    /// Unpacks a store.
    pub(super) fn unpack(recordings: &Path, name: &str) -> Result<Self> {
        let source = recordings.join(name);
        ensure!(
            source.is_dir(),
            "no store {name:?}; there are {}",
            names(recordings).unwrap_or_default().join(", ")
        );
        let folder = paths::controlplane().join(format!("store-{}-{name}", std::process::id()));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let mut tar = Command::new("tar");
        let unpacked = tar.arg("xzf").arg(source.join("etcd.tar.gz")).arg("-C").arg(&folder).status()?;
        ensure!(unpacked.success(), "cannot unpack {}", source.display());
        let expected = fs::read_to_string(source.join("expect.json"))?;
        let objects = sluice_recorded::documents(&source.join("objects.jsonl.gz"))?;
        Ok(Self { name: name.to_owned(), folder, expected: serde_json::from_str(&expected)?, objects })
    }

    /// Returns the configuration of Kueue's manager, without the addresses that it listens on.
    pub(super) fn configuration(&self) -> Result<Value> {
        let text = fs::read_to_string(self.folder.join("manager.yaml"))?;
        let mut configuration: Value = serde_saphyr::from_str(&text).context("manager.yaml")?;
        for field in ["apiVersion", "kind", "health", "metrics", "webhook"] {
            configuration.as_object_mut().map(|fields| fields.remove(field));
        }
        Ok(configuration)
    }

    /// Returns the components of `config` for the job kinds that Kueue's manager was configured for and the shipped configuration does
    /// not enable.
    pub(super) fn components(&self) -> Result<Vec<String>> {
        let configuration = self.configuration()?;
        let names = configuration["integrations"]["frameworks"].as_array().cloned().unwrap_or_default();
        let folders = names
            .iter()
            .filter_map(|name| Some(format!("frameworks/{}", name.as_str()?.rsplit('/').next()?)));
        Ok(folders.filter(|folder| paths::root().join("config").join(folder).is_dir()).collect())
    }

    /// Returns the recorded objects of a kind.
    pub(super) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| text(object, "/kind") == kind)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

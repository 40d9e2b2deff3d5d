//! What a control plane begins with: nothing, objects, or a recorded store with the keys that go with it.

use crate::certs::{CertificateAuthority, signing_key};
use crate::etcd_writer::EtcdWriter;
use crate::paths;
use crate::wait::eventually;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Authority, keys and data of a control plane.
pub(super) struct Seed {
    /// Signs the certificates of the API server and of its clients.
    pub(super) ca: CertificateAuthority,
    /// Signs service account tokens, in PEM.
    pub(super) tokens_private: String,
    /// Verifies them, in PEM.
    pub(super) tokens_public: String,
    /// Of Services, as CIDR.
    pub(super) service_addresses: &'static str,
    /// Files that tell KWOK how nodes and pods live.
    pub(super) stages: Vec<PathBuf>,
    /// Objects by their keys in etcd, as JSON; controllers find them all in their first lists.
    pub(super) objects: Vec<(String, String)>,
    /// Data of etcd.
    data: Option<PathBuf>,
}

impl Seed {
    /// A control plane with these objects and new keys.
    pub(super) fn of_objects(objects: Vec<(String, String)>) -> Result<Self> {
        let (tokens_private, tokens_public) = signing_key()?;
        let stages = paths::root().join("e2e/controlplane/stages");
        Ok(Self {
            ca: CertificateAuthority::new("sluice-e2e")?,
            tokens_private,
            tokens_public,
            service_addresses: "10.96.0.0/16",
            stages: vec![stages.join("node.yaml"), stages.join("pods.yaml")],
            objects,
            data: None,
        })
    }

    /// A control plane on the store in this folder.
    pub(super) fn recorded(store: &Path) -> Result<Self> {
        let keys = store.join("pki");
        let read = |file: &str| {
            let path = keys.join(file);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        Ok(Self {
            ca: CertificateAuthority::existing(&read("ca.crt")?, &read("ca.key")?)?,
            tokens_private: read("sa.key")?,
            tokens_public: read("sa.pub")?,
            service_addresses: "10.0.0.0/24",
            stages: vec![keys.join("stages.yaml")],
            objects: Vec::new(),
            data: Some(store.join("etcd")),
        })
    }

    /// Writes the objects to the etcd at this URL, once it answers.
    pub(super) async fn write_objects(&self, server: &str) -> Result<()> {
        let etcd = EtcdWriter::new(server)?;
        for (key, object) in &self.objects {
            eventually("etcd answers", async || etcd.put(key.clone(), object.clone()).await).await?;
        }
        Ok(())
    }

    /// Copies the data to where etcd of a control plane in `folder` has it.
    pub(super) fn copy_data(&self, folder: &Path) -> Result<()> {
        let Some(data) = &self.data else { return Ok(()) };
        let copied = Command::new("cp").arg("-r").arg(data).arg(folder.join("etcd")).status()?;
        ensure!(copied.success(), "cannot copy {}", data.display());
        Ok(())
    }
}

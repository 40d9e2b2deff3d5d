//! What a control plane begins with: nothing, or a recorded store with the keys that go with it.

use crate::certs::{CertificateAuthority, signing_key};
use crate::paths;
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
    /// Data of etcd.
    data: Option<PathBuf>,
}

impl Seed {
    /// A control plane without objects.
    pub(super) fn empty() -> Result<Self> {
        let (tokens_private, tokens_public) = signing_key()?;
        let stages = paths::root().join("e2e/controlplane/stages");
        Ok(Self {
            ca: CertificateAuthority::new("sluice-e2e")?,
            tokens_private,
            tokens_public,
            service_addresses: "10.96.0.0/16",
            stages: vec![stages.join("node.yaml"), stages.join("pods.yaml")],
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
            data: Some(store.join("etcd")),
        })
    }

    /// Copies the data to where etcd of a control plane in `folder` has it.
    pub(super) fn copy_data(&self, folder: &Path) -> Result<()> {
        let Some(data) = &self.data else { return Ok(()) };
        let copied = Command::new("cp").arg("-r").arg(data).arg(folder.join("etcd")).status()?;
        ensure!(copied.success(), "cannot copy {}", data.display());
        Ok(())
    }
}

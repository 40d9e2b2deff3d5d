//! What each operator is started with: no election of a leader, no certificates of its own making, every port chosen by us.

use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;

/// An operator.
pub(super) struct Operator {
    /// Name of its program and of its project's folder in `e2e/controlplane/frameworks`.
    pub(super) name: &'static str,
    /// Returns its arguments; may write files into its folder.
    pub(super) arguments: fn(&Place<'_>) -> Result<Vec<String>>,
    /// Folder of its project whose kustomization has its webhooks; `None` if its objects need none: webhooks that only validate are
    /// left out where the operator cannot serve them with a certificate for 127.0.0.1.
    pub(super) webhooks: Option<&'static str>,
    /// Objects that must exist before it starts.
    pub(super) prepared: fn() -> Vec<Value>,
    /// Port and path of its probe, if it chooses the port itself.
    pub(super) fixed_probe: Option<(u16, &'static str)>,
}

/// Where an operator runs.
pub(super) struct Place<'a> {
    /// Its files.
    pub(super) folder: &'a Path,
    /// Port of its probes.
    pub(super) health: u16,
    /// Port of its webhooks.
    pub(super) webhooks: u16,
}

/// All operators, each before those that need it.
pub(super) const OPERATORS: [Operator; 1] = [Operator {
    name: "jobset",
    arguments: |place| configured(place, "config.jobset.x-k8s.io/v1alpha1", "internalCertManagement"),
    webhooks: Some("config/default"),
    prepared: Vec::new,
    fixed_probe: None,
}];

/// Writes the configuration that operators made with kubebuilder read; returns the argument that names it.
fn configured(place: &Place<'_>, api_version: &str, certificates: &str) -> Result<Vec<String>> {
    let configuration = json!({
        "apiVersion": api_version, "kind": "Configuration",
        "leaderElection": {"leaderElect": false},
        certificates: {"enable": false},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": format!("127.0.0.1:{}", place.health)},
        "webhook": {"host": "127.0.0.1", "port": place.webhooks},
    });
    let path = place.folder.join("configuration.yaml");
    std::fs::write(&path, configuration.to_string())?;
    Ok(vec![format!("--config={}", path.display())])
}

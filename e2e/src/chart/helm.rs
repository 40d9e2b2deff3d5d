//! Runs helm on the chart, with a home folder of its own, which is removed on drop.

use crate::documented;
use crate::paths;
use crate::process::output_with_input;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the release in all renderings and installations.
pub(super) const RELEASE: &str = "sluice";

/// Returns the folder of the chart.
pub(super) fn chart() -> PathBuf {
    paths::root().join("charts/sluice")
}

/// A helm binary, and a cluster if it has one.
pub(super) struct Helm {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: Option<PathBuf>,
}

impl Helm {
    /// Uses this binary and home folder.
    pub(super) fn new(program: &Path, home: &Path) -> Result<Self> {
        fs::create_dir_all(home)?;
        Ok(Self { program: program.to_owned(), home: home.to_owned(), kubeconfig: None })
    }

    /// Uses this cluster.
    pub(super) fn for_cluster(mut self, kubeconfig: &Path) -> Self {
        self.kubeconfig = Some(kubeconfig.to_owned());
        self
    }

    /// Runs helm and returns its standard output. Fails with its standard error if it exits with an error. `values` are
    /// given on standard input, for the argument `--values=-`.
    pub(super) fn run(&self, arguments: &[&str], values: &Value) -> Result<String> {
        let mut command = Command::new(&self.program);
        for (variable, folder) in
            [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
        {
            command.env(variable, self.home.join(folder));
        }
        // Without a kubeconfig of its own, helm would read the developer's.
        let kubeconfig = self.kubeconfig.clone().unwrap_or_else(|| self.home.join("no-cluster"));
        command.env("KUBECONFIG", kubeconfig).args(arguments);
        // Only a command that reads values gets any.
        let input = if values.is_null() { String::new() } else { values.to_string() };
        output_with_input(&mut command, &format!("helm {}", arguments.join(" ")), &input)
    }

    /// Runs a command of the documentation, which calls helm by that name.
    pub(super) fn run_as_printed(&self, command: &str) -> Result<String> {
        let (folder, home) = (self.program.parent().context("no folder")?, self.home.display());
        let kubeconfig = self.kubeconfig.as_deref().context("no cluster")?;
        let homes = ["CACHE", "CONFIG", "DATA"].map(|kind| format!("export HELM_{kind}_HOME={home}/{kind}"));
        documented::run(&format!("{}\n{command}", homes.join("\n")), &[folder], kubeconfig)
    }

    /// Runs `helm lint` with the default values.
    pub(super) fn lint(&self) -> Result<()> {
        let chart = chart().display().to_string();
        self.run(&["lint", "--strict", &chart], &Value::Null).map(drop)
    }

    /// Renders the chart with these values.
    pub(super) fn render(&self, namespace: &str, values: &Value) -> Result<Vec<Value>> {
        let chart = chart().display().to_string();
        let arguments = ["template", RELEASE, &chart, "--namespace", namespace, "--values=-"];
        let text = self.run(&arguments, values)?;
        let all: Vec<Value> = serde_saphyr::from_multiple(&text).context("helm template returns no YAML")?;
        Ok(all.into_iter().filter(|object| !object.is_null()).collect())
    }
}

impl Drop for Helm {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

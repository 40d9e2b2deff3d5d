//! Recorded answers of an API server with Kueue's webhooks, replayed on a plane with ours by the shared checker.

use crate::binaries::search_path;
use crate::cluster::{Cluster, Options};
use crate::paths;
use crate::plane::{Extent, Plane};
use anyhow::{Context as _, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// The suites of the kinds that exist so far.
pub const SUITES: [&str; 12] = [
    "clusterqueue",
    "cohort",
    "resourceflavor",
    "localqueue",
    "topology",
    "admissioncheck",
    "workloadpriorityclass",
    "provisioningrequestconfig",
    "multikueue",
    "multikueuecluster",
    "workload",
    "job",
];

/// What is replayed.
#[derive(Clone, Debug)]
pub struct Request {
    /// One suite; all of `SUITES` otherwise.
    pub suite: Option<String>,
    /// Another folder of cases.
    pub cases: Option<PathBuf>,
    /// How many differences are shown per suite.
    pub show: u32,
}

/// Runs the checker; an error unless every answer is as recorded or listed as a deviation.
pub async fn run(request: &Request) -> Result<()> {
    let Some(checker) =
        paths::shared().map(|shared| shared.join("conformance/check-api")).filter(|path| path.is_file())
    else {
        println!(
            "conformance: skipped, ../shared/conformance is not here (SLUICE_SHARED names another folder)"
        );
        return Ok(());
    };
    let options = Options { extent: Extent::Api, standby: true, nodes: 0, ..Options::default() };
    let mut cluster = Cluster::start(&options, &Plane::own_folder()).await?;
    let tools = cluster.plane.binaries.path("kubectl");
    let mut command = Command::new("python3");
    command
        .arg(checker)
        .arg("--kubeconfig")
        .arg(cluster.plane.admin_kubeconfig())
        .args(["--show", &request.show.to_string()])
        .env("PATH", search_path(tools.parent().context("kubectl has no folder")?));
    if let Some(cases) = &request.cases {
        command.arg("--cases").arg(cases);
    }
    let deviations = paths::root().join("tests/api-deviations.tsv");
    if deviations.is_file() {
        command.arg("--deviations").arg(deviations);
    }
    match &request.suite {
        Some(suite) => {
            command.args(["--suite", suite]);
        }
        None => {
            command.args(SUITES.iter().flat_map(|suite| ["--suite", suite]));
        }
    }
    let mut checker =
        tokio::process::Command::from(command).kill_on_drop(true).spawn().context("cannot run python3")?;
    if !checker.wait().await?.success() {
        cluster.plane.keep_folder();
        bail!("not every answer is as recorded; logs are in {}", cluster.plane.folder().display());
    }
    Ok(())
}

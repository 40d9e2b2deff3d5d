//! Conformance run: the shared checkers replay recordings of Kueue. Scheduling decisions run without a cluster
//! (`decisions`); API responses and job lifecycles run on a control plane with Sluice's manager.

use crate::binaries::search_path;
use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::{ControlPlane, Extent};
use crate::{decisions, paths};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kinds of recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Recording {
    /// Scheduling decisions.
    Decisions,
    /// API server responses.
    Api,
    /// Job lifecycles.
    Jobs,
}

/// Supported job kinds with recorded lifecycles.
pub const JOB_SUITES: [&str; 1] = ["job"];

/// Removed from the recorded manager's configuration, because it needs a feature gate.
const GATED_FRAMEWORK: &str = "sparkoperator.k8s.io/sparkapplication";

/// Suites of API responses, for the supported kinds.
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

/// Selects what is replayed.
#[derive(Clone, Debug)]
pub struct ConformanceRequest {
    /// Only this recording; all if `None`.
    pub only: Option<Recording>,
    /// Only this suite, which also selects the recording; all if `None`.
    pub suite: Option<String>,
    /// Folder of cases, instead of the shared one.
    pub cases: Option<PathBuf>,
    /// Number of differences to show per suite.
    pub show: u32,
}

impl ConformanceRequest {
    /// Returns whether a recording is selected: by name, by the suite, or by the files in the folder of cases. If an
    /// API suite and a lifecycle suite have the same name, both are selected.
    fn includes(&self, recording: Recording, suites: &[&str]) -> bool {
        let has_suite =
            |cases: &PathBuf| suites.iter().any(|s| cases.join(format!("{s}.jsonl.gz")).is_file());
        self.only.is_none_or(|only| only == recording)
            && self.suite.as_ref().is_none_or(|suite| suites.contains(&suite.as_str()))
            && self.cases.as_ref().is_none_or(has_suite)
    }

    /// Returns the command-line options for a checker; `flag` is its option that names a suite.
    pub fn options(&self, flag: &str, suites: &[&str], deviations: &str) -> Vec<OsString> {
        let mut options: Vec<OsString> = vec!["--show".into(), self.show.to_string().into()];
        if let Some(cases) = &self.cases {
            options.extend(["--cases".into(), cases.into()]);
        }
        let deviations = paths::root().join("tests").join(deviations);
        if deviations.is_file() {
            options.extend(["--deviations".into(), deviations.into()]);
        }
        let own = self.suite.as_deref();
        let chosen = suites.iter().copied().filter(|suite| own.is_none_or(|own| own == *suite));
        options.extend(chosen.flat_map(|suite| [flag.into(), suite.into()]));
        options
    }
}

/// Runs the checkers. An error if a result differs from the recording and is not listed as a deviation.
pub async fn run(request: &ConformanceRequest) -> Result<()> {
    let Some(folder) = paths::shared().map(|shared| shared.join("conformance")).filter(|path| path.is_dir())
    else {
        println!(
            "conformance: skipped, ../shared/conformance not found (set SLUICE_SHARED to use another folder)"
        );
        return Ok(());
    };
    let with_decisions = request.includes(Recording::Decisions, &decisions::SUITES);
    let with_api = request.includes(Recording::Api, &SUITES);
    let with_jobs = request.includes(Recording::Jobs, &JOB_SUITES);
    if !with_decisions && !with_api && !with_jobs {
        bail!(
            "no such suite; available: {}, {}, and job lifecycles of {}",
            decisions::SUITES.join(", "),
            SUITES.join(", "),
            JOB_SUITES.join(", ")
        );
    }
    if with_decisions {
        decisions::run(request, &folder.join("check")).await?;
    }
    if with_api {
        check_api_answers(request, &folder.join("check-api")).await?;
    }
    if with_jobs {
        check_job_lifecycles(request, &folder).await?;
    }
    Ok(())
}

/// Runs the checker of API responses.
async fn check_api_answers(request: &ConformanceRequest, checker: &Path) -> Result<()> {
    let options =
        ClusterOptions { extent: Extent::Api, standby: true, nodes: 0, ..ClusterOptions::default() };
    let arguments = request.options("--suite", &SUITES, "api-deviations.tsv");
    run_checker(&options, checker, &arguments, "API responses differ from the recording").await
}

/// Runs the checker of job lifecycles with the configuration of the recorded manager.
async fn check_job_lifecycles(request: &ConformanceRequest, folder: &Path) -> Result<()> {
    let file = folder.join("jobs/manager.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut configuration: Value =
        serde_saphyr::from_str(&text).with_context(|| file.display().to_string())?;
    let frameworks = configuration.pointer_mut("/integrations/frameworks").and_then(Value::as_array_mut);
    let frameworks = frameworks.with_context(|| format!("{} has no frameworks", file.display()))?;
    frameworks.retain(|name| name != GATED_FRAMEWORK);
    ensure!(!frameworks.is_empty(), "{} has no frameworks", file.display());
    let options =
        ClusterOptions { extent: Extent::Owners, nodes: 0, configuration, ..ClusterOptions::default() };
    let mut arguments = request.options("--kind", &JOB_SUITES, "jobs-deviations.tsv");
    // A state that is reached late counts as reached: speed depends on the machine.
    arguments.extend(["--timeout".into(), "60".into()]);
    run_checker(&options, &folder.join("check-jobs"), &arguments, "job lifecycles differ from the recording")
        .await
}

/// Runs a checker on its own control plane; keeps the plane's folder if it fails.
async fn run_checker(
    options: &ClusterOptions,
    checker: &Path,
    arguments: &[OsString],
    failure: &str,
) -> Result<()> {
    let mut cluster = Cluster::start(options, &ControlPlane::temporary_folder()).await?;
    let tools = cluster.plane.binaries.path("kubectl");
    let mut command = Command::new("python3");
    command
        .arg(checker)
        .arg("--kubeconfig")
        .arg(cluster.plane.admin_kubeconfig())
        .args(arguments)
        .env("PATH", search_path(tools.parent().context("kubectl has no folder")?));
    let mut checker =
        tokio::process::Command::from(command).kill_on_drop(true).spawn().context("cannot run python3")?;
    if !checker.wait().await?.success() {
        cluster.plane.keep_folder();
        bail!("{failure}; logs are in {}", cluster.plane.folder().display());
    }
    Ok(())
}

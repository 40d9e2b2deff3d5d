//! Conformance run: the shared checkers replay recordings of Kueue. Scheduling decisions run without a cluster
//! (`decisions`); API responses and job lifecycles run on a control plane with Sluice's manager.

use crate::binaries::search_path;
use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::{ControlPlane, Extent};
use crate::part::Part;
use crate::{decisions, paths};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use sluice::frameworks::frameworks;
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

/// Suites of API responses that belong to no kind of job.
const QUEUE_SUITES: [&str; 13] = [
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
    // Stored objects read in the other version, both ways.
    "conversion",
    "conversion-back",
];

/// Suite of lifecycles with a topology. It has most kinds.
const TOPOLOGY_SUITE: &str = "topology";

/// Returns the suite of each kind: the kind in lower case.
fn kind_suites() -> Vec<String> {
    frameworks().map(|row| row.gvk.kind.to_lowercase()).collect()
}

/// Returns the suites of API responses.
fn api_suites() -> Vec<String> {
    QUEUE_SUITES.iter().map(ToString::to_string).chain(kind_suites()).collect()
}

/// Returns the suites of job lifecycles.
fn job_suites() -> Vec<String> {
    let mut suites = kind_suites();
    if suites.iter().any(|suite| suite == "pod") {
        suites.push("pod-group".to_owned());
    }
    suites.push(TOPOLOGY_SUITE.to_owned());
    suites
}

/// Selects what is replayed.
#[derive(Clone, Debug)]
pub struct ConformanceRequest {
    /// Only this recording; all if `None`.
    pub only: Option<Recording>,
    /// Only this suite, which also selects the recording; all if `None`.
    pub suite: Option<String>,
    /// Folder of cases, instead of the shared one.
    pub cases: Option<PathBuf>,
    /// Only one part of the suites of job lifecycles; all if `None`.
    pub part: Option<Part>,
    /// Number of differences to show per suite.
    pub show: u32,
}

impl ConformanceRequest {
    /// Returns whether a recording is selected: by name, by the suite, or by the files in the folder of cases. If an
    /// API suite and a lifecycle suite have the same name, both are selected.
    fn includes<S: AsRef<str>>(&self, recording: Recording, suites: &[S]) -> bool {
        let has_suite =
            |cases: &PathBuf| suites.iter().any(|s| cases.join(format!("{}.jsonl.gz", s.as_ref())).is_file());
        self.only.is_none_or(|only| only == recording)
            && self.suite.as_ref().is_none_or(|suite| suites.iter().any(|known| known.as_ref() == suite))
            && self.cases.as_ref().is_none_or(has_suite)
    }

    /// Returns the command-line options for a checker; `flag` is its option that names a suite.
    pub fn options<S: AsRef<str>>(&self, flag: &str, suites: &[S], deviations: &str) -> Vec<OsString> {
        let mut options: Vec<OsString> = vec!["--show".into(), self.show.to_string().into()];
        if let Some(cases) = &self.cases {
            options.extend(["--cases".into(), cases.into()]);
        }
        let deviations = paths::root().join("tests").join(deviations);
        if deviations.is_file() {
            options.extend(["--deviations".into(), deviations.into()]);
        }
        let own = self.suite.as_deref();
        let chosen = suites.iter().map(AsRef::as_ref).filter(|suite| own.is_none_or(|own| own == *suite));
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
    let with_api = request.includes(Recording::Api, &api_suites());
    let with_jobs = request.includes(Recording::Jobs, &job_suites());
    if !with_decisions && !with_api && !with_jobs {
        bail!(
            "no such suite; available: {}, {}, and job lifecycles of {}",
            decisions::SUITES.join(", "),
            api_suites().join(", "),
            job_suites().join(", ")
        );
    }
    if with_decisions {
        decisions::run(request, &folder.join("check")).await?;
    }
    if with_api {
        check_api_answers(request, &folder).await?;
    }
    if with_jobs {
        check_job_lifecycles(request, &folder).await?;
    }
    Ok(())
}

/// Runs the checker of API responses.
async fn check_api_answers(request: &ConformanceRequest, folder: &Path) -> Result<()> {
    let options = ClusterOptions { standby: true, v1beta1: true, ..recorded_cluster(folder, Extent::Api)? };
    let arguments = request.options("--suite", &api_suites(), "api-deviations.tsv");
    let checker = folder.join("check-api");
    run_checker(&options, &checker, &arguments, "API responses differ from the recording").await
}

/// Runs the checker of job lifecycles.
async fn check_job_lifecycles(request: &ConformanceRequest, folder: &Path) -> Result<()> {
    let options = recorded_cluster(folder, Extent::Owners)?;
    let part = request.part.filter(|_| request.suite.is_none());
    let suites = part.map_or_else(job_suites, |part| part.of(job_suites()));
    let mut arguments = request.options("--kind", &suites, "jobs-deviations.tsv");
    // A state that is reached late counts as reached: speed depends on the machine.
    arguments.extend(["--timeout".into(), "60".into()]);
    // Lives mostly wait.
    arguments.extend(["--jobs".into(), "12".into()]);
    let checker = folder.join("check-jobs");
    run_checker(&options, &checker, &arguments, "job lifecycles differ from the recording").await
}

/// Returns options for a cluster with the job kinds and the configuration of the recorded manager.
fn recorded_cluster(folder: &Path, extent: Extent) -> Result<ClusterOptions> {
    let file = folder.join("jobs/manager.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut configuration: Value =
        serde_saphyr::from_str(&text).with_context(|| file.display().to_string())?;
    let listed = configuration.pointer("/integrations/frameworks").and_then(Value::as_array);
    ensure!(listed.is_some_and(|names| !names.is_empty()), "{} has no frameworks", file.display());
    // The gates that they need were on.
    let gates: Vec<&str> = frameworks().filter_map(|row| row.flags.gate).collect();
    for gate in gates {
        configuration["featureGates"][gate] = true.into();
    }
    Ok(ClusterOptions { extent, nodes: 0, job_kinds: true, configuration, ..ClusterOptions::default() })
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

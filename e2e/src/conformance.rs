//! What was recorded of Kueue, replayed by the shared checkers: decisions of its scheduler, answers of an API server with
//! its webhooks, and lives of jobs under its manager, the last two on a plane with ours.

use crate::binaries::search_path;
use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::{ControlPlane, Extent};
use crate::{decisions, paths};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What can be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Recording {
    /// Decisions of the scheduler.
    Decisions,
    /// Answers of the API server.
    Api,
    /// Lives of jobs.
    Jobs,
}

/// The kinds of jobs whose lives are judged: those that exist so far.
pub const JOB_SUITES: [&str; 1] = ["job"];

/// A framework of the recorded manager that needs a feature gate.
const GATED_FRAMEWORK: &str = "sparkoperator.k8s.io/sparkapplication";

/// The suites of API answers for the kinds that exist so far.
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
pub struct ConformanceRequest {
    /// One of the recordings; all otherwise.
    pub only: Option<Recording>,
    /// One suite, which tells the recording; all otherwise.
    pub suite: Option<String>,
    /// Another folder of cases.
    pub cases: Option<PathBuf>,
    /// How many differences are shown per suite.
    pub show: u32,
}

impl ConformanceRequest {
    /// Whether a recording is asked for: by name, by the suite, or by what the folder of cases holds. Suites of the API and
    /// of lives may have one name: then both are.
    fn includes(&self, recording: Recording, suites: &[&str]) -> bool {
        let held = |cases: &PathBuf| suites.iter().any(|s| cases.join(format!("{s}.jsonl.gz")).is_file());
        self.only.is_none_or(|only| only == recording)
            && self.suite.as_ref().is_none_or(|suite| suites.contains(&suite.as_str()))
            && self.cases.as_ref().is_none_or(held)
    }

    /// Options that the checkers take; `flag` names a suite.
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

/// Runs the checkers; an error unless all is as recorded or listed as a deviation.
pub async fn run(request: &ConformanceRequest) -> Result<()> {
    let Some(folder) = paths::shared().map(|shared| shared.join("conformance")).filter(|path| path.is_dir())
    else {
        println!(
            "conformance: skipped, ../shared/conformance is not here (SLUICE_SHARED names another folder)"
        );
        return Ok(());
    };
    let judged = request.includes(Recording::Decisions, &decisions::SUITES);
    let answered = request.includes(Recording::Api, &SUITES);
    let lived = request.includes(Recording::Jobs, &JOB_SUITES);
    if !judged && !answered && !lived {
        bail!(
            "no such suite; there are {} and {}, and lives of {}",
            decisions::SUITES.join(", "),
            SUITES.join(", "),
            JOB_SUITES.join(", ")
        );
    }
    if judged {
        decisions::run(request, &folder.join("check")).await?;
    }
    if answered {
        check_api_answers(request, &folder.join("check-api")).await?;
    }
    if lived {
        check_job_lifecycles(request, &folder).await?;
    }
    Ok(())
}

/// Runs the checker of the API's answers.
async fn check_api_answers(request: &ConformanceRequest, checker: &Path) -> Result<()> {
    let options =
        ClusterOptions { extent: Extent::Api, standby: true, nodes: 0, ..ClusterOptions::default() };
    let arguments = request.options("--suite", &SUITES, "api-deviations.tsv");
    run_checker(&options, checker, &arguments, "not every answer is as recorded").await
}

/// Runs the checker of lives of jobs, with the settings of the recorded manager.
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
    // A state that is reached late is reached: how fast it is depends on the machine.
    arguments.extend(["--timeout".into(), "60".into()]);
    run_checker(&options, &folder.join("check-jobs"), &arguments, "not every life is as recorded").await
}

/// Runs a checker on a plane of its own.
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

//! What was recorded of Kueue, replayed by the shared checkers: decisions of its scheduler, and answers of an API server
//! with its webhooks on a plane with ours.

use crate::binaries::search_path;
use crate::cluster::{Cluster, Options};
use crate::plane::{Extent, Plane};
use crate::{decisions, paths};
use anyhow::{Context as _, Result, bail};
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
}

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
pub struct Request {
    /// One of the recordings; both otherwise.
    pub only: Option<Recording>,
    /// One suite, which tells the recording; all otherwise.
    pub suite: Option<String>,
    /// Another folder of cases.
    pub cases: Option<PathBuf>,
    /// How many differences are shown per suite.
    pub show: u32,
}

impl Request {
    /// Whether a recording is asked for: by name, by the suite, or by what the folder of cases holds.
    fn wants(&self, recording: Recording, suites: &[&str]) -> bool {
        let held = |cases: &PathBuf| suites.iter().any(|s| cases.join(format!("{s}.jsonl.gz")).is_file());
        self.only.is_none_or(|only| only == recording)
            && self.suite.as_ref().is_none_or(|suite| suites.contains(&suite.as_str()))
            && self.cases.as_ref().is_none_or(held)
    }

    /// Options that both checkers take.
    pub fn options(&self, suites: &[&str], deviations: &str) -> Vec<OsString> {
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
        options.extend(chosen.flat_map(|suite| ["--suite".into(), suite.into()]));
        options
    }
}

/// Runs the checkers; an error unless all is as recorded or listed as a deviation.
pub async fn run(request: &Request) -> Result<()> {
    let Some(folder) = paths::shared().map(|shared| shared.join("conformance")).filter(|path| path.is_dir())
    else {
        println!(
            "conformance: skipped, ../shared/conformance is not here (SLUICE_SHARED names another folder)"
        );
        return Ok(());
    };
    let judged = request.wants(Recording::Decisions, &decisions::SUITES);
    let answered = request.wants(Recording::Api, &SUITES);
    if !judged && !answered {
        bail!("no such suite; there are {} and {}", decisions::SUITES.join(", "), SUITES.join(", "));
    }
    if judged {
        decisions::run(request, &folder.join("check")).await?;
    }
    if answered {
        answers(request, &folder.join("check-api")).await?;
    }
    Ok(())
}

/// Runs the checker of the API's answers.
async fn answers(request: &Request, checker: &Path) -> Result<()> {
    let options = Options { extent: Extent::Api, standby: true, nodes: 0, ..Options::default() };
    let mut cluster = Cluster::start(&options, &Plane::own_folder()).await?;
    let tools = cluster.plane.binaries.path("kubectl");
    let mut command = Command::new("python3");
    command
        .arg(checker)
        .arg("--kubeconfig")
        .arg(cluster.plane.admin_kubeconfig())
        .args(request.options(&SUITES, "api-deviations.tsv"))
        .env("PATH", search_path(tools.parent().context("kubectl has no folder")?));
    let mut checker =
        tokio::process::Command::from(command).kill_on_drop(true).spawn().context("cannot run python3")?;
    if !checker.wait().await?.success() {
        cluster.plane.keep_folder();
        bail!("not every answer is as recorded; logs are in {}", cluster.plane.folder().display());
    }
    Ok(())
}

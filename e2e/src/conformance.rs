//! Conformance run: the checkers of `tests/recorded` replay recordings of Kueue. Scheduling decisions run without a cluster
//! (`decisions`); API responses and job lifecycles run on a control plane with Sluice's manager.
//!
//! Invariants: a suite is replayed from one place; suites that this machine does not have are named at the end; a deviation whose case
//! is unknown, or as recorded, fails the run.

use crate::binaries::search_path;
use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::{ControlPlane, Extent};
use crate::lives::Lives;
use crate::part::Part;
use crate::process::outcome_and_output;
use crate::{decisions, paths};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use sluice::frameworks::frameworks;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

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

impl Recording {
    const ALL: [Self; 3] = [Self::Decisions, Self::Api, Self::Jobs];

    /// Returns the names of all suites.
    fn suites(self) -> Vec<String> {
        match self {
            Self::Decisions => decisions::SUITES.iter().map(ToString::to_string).collect(),
            Self::Api => api_suites(),
            Self::Jobs => job_suites(),
        }
    }

    /// Returns the folder of the suites in `tests/recorded`.
    fn folder(self) -> &'static str {
        match self {
            Self::Decisions => "cases",
            Self::Api => "api",
            Self::Jobs => "jobs",
        }
    }
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
    /// Folder of cases, instead of the recorded ones.
    pub cases: Option<PathBuf>,
    /// Only one part of the suites of job lifecycles; all if `None`.
    pub part: Option<Part>,
    /// Number of differences to show per suite.
    pub show: u32,
}

/// Suites of a recording that are replayed.
#[derive(Debug, Default)]
struct Suites {
    /// By the folder that has them.
    by_folder: BTreeMap<PathBuf, Vec<String>>,
    /// Those that this machine does not have.
    missing: Vec<String>,
}

impl ConformanceRequest {
    /// Returns the suites of a recording that are selected: by name, by the recording, or by the files in the folder of cases. If an
    /// API suite and a lifecycle suite have the same name, both are selected.
    fn select(&self, recording: Recording) -> Vec<String> {
        if self.only.is_some_and(|only| only != recording) {
            return Vec::new();
        }
        let mut suites = recording.suites();
        if let Some(part) = self.part.filter(|_| recording == Recording::Jobs && self.suite.is_none()) {
            suites = part.of(suites);
        }
        let in_cases = |suite: &str| {
            self.cases.as_ref().is_none_or(|cases| cases.join(format!("{suite}.jsonl.gz")).is_file())
        };
        suites.retain(|suite| self.suite.as_ref().is_none_or(|own| own == suite) && in_cases(suite));
        suites
    }

    /// Returns where the selected suites of a recording are.
    fn locate(&self, recording: Recording) -> Suites {
        let mut located = Suites::default();
        for suite in self.select(recording) {
            let file = format!("{}/{suite}.jsonl.gz", recording.folder());
            let folder =
                self.cases.clone().or_else(|| Some(sluice_recorded::find(&file)?.parent()?.to_owned()));
            match folder {
                Some(folder) => located.by_folder.entry(folder).or_default().push(suite),
                None => located.missing.push(suite),
            }
        }
        located
    }

    /// Returns the command-line options for a checker of decisions or of answers, for suites in a folder, but for their names.
    fn options(&self, recording: Recording, folder: &Path, suites: &[String]) -> Result<Vec<OsString>> {
        let show = self.show.to_string();
        let mut options: Vec<OsString> = vec!["--show".into(), show.into(), "--cases".into(), folder.into()];
        if let Some(deviations) = self.deviations(recording, folder, suites)? {
            options.extend(["--deviations".into(), deviations.into()]);
        }
        Ok(options)
    }

    /// Returns the lines of a suite's deviations, "" if it has none.
    fn deviations_of(&self, recording: Recording, folder: &Path, suite: &str) -> Result<String> {
        let path = sluice_recorded::deviations(recording.folder(), suite);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
            text => text.with_context(|| path.display().to_string())?,
        };
        // A folder of chosen cases need not have them all.
        if self.cases.is_none() {
            let recorded = recorded(folder, suite)?;
            check_deviations(suite, &text, &recorded).with_context(|| path.display().to_string())?;
        }
        Ok(text)
    }

    /// Returns the lives of suites in a folder.
    fn lives(&self, folder: &Path, suites: &[String]) -> Result<Lives> {
        let mut lives = Lives::new(folder.to_owned());
        for suite in suites {
            let recorded = recorded(folder, suite)?;
            let names = recorded.iter().filter_map(|case| case["name"].as_str()).map(str::to_owned);
            lives.add(suite, names.collect(), &self.deviations_of(Recording::Jobs, folder, suite)?);
        }
        Ok(lives)
    }

    /// Writes the deviations of suites to one file, which is how checkers read them. Returns `None` if there are none.
    fn deviations(&self, recording: Recording, folder: &Path, suites: &[String]) -> Result<Option<PathBuf>> {
        let mut all = String::new();
        for suite in suites {
            all.push_str(&self.deviations_of(recording, folder, suite)?);
        }
        if all.is_empty() {
            return Ok(None);
        }
        let folder = paths::target().join("conformance");
        fs::create_dir_all(&folder)?;
        let file = folder.join(format!("{}-deviations.tsv", recording.folder()));
        fs::write(&file, all)?;
        Ok(Some(file))
    }
}

/// Returns the cases of a suite in a folder.
fn recorded(folder: &Path, suite: &str) -> Result<Vec<Value>> {
    let path = folder.join(format!("{suite}.jsonl.gz"));
    sluice_recorded::documents(&path).with_context(|| path.display().to_string())
}

/// An error if a line of a suite's deviations is not about a case of the suite, or has no reason.
fn check_deviations(suite: &str, listed: &str, recorded: &[Value]) -> Result<()> {
    let known: BTreeSet<&str> = recorded.iter().filter_map(|case| case["name"].as_str()).collect();
    for line in listed.lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        let [of, case, reason] = parts[..] else { bail!("suite, case and reason expected: {line}") };
        ensure!(of == suite, "a line of another suite: {line}");
        ensure!(known.contains(case), "no such case is recorded: {line}");
        ensure!(!reason.trim().is_empty(), "no reason: {line}");
    }
    Ok(())
}

/// Runs the checkers. An error if a result differs from the recording and is not listed as a deviation.
pub async fn run(request: &ConformanceRequest) -> Result<()> {
    let (mut replayed, mut missing) = (false, Vec::new());
    for recording in Recording::ALL {
        let located = request.locate(recording);
        missing.extend(located.missing);
        for (folder, suites) in located.by_folder {
            replayed = true;
            let options = || request.options(recording, &folder, &suites);
            match recording {
                Recording::Decisions => {
                    let options = [options()?, names(&suites)].concat();
                    decisions::run(&checker("check")?, &options).await?;
                }
                Recording::Api => check_api_answers(&options()?, &suites).await?,
                Recording::Jobs => {
                    check_job_lifecycles(&request.lives(&folder, &suites)?, request.show).await?;
                }
            }
        }
    }
    if !missing.is_empty() {
        println!("{} of Kueue's recordings not compared: {}", missing.len(), missing.join(", "));
    }
    if !replayed && missing.is_empty() {
        let [decisions, api, jobs] = Recording::ALL.map(|recording| recording.suites().join(", "));
        bail!("no such suite; available: {decisions}, {api}, and job lifecycles of {jobs}");
    }
    ensure!(replayed, "this machine does not have the recording");
    Ok(())
}

/// Returns the path of a checker.
fn checker(name: &str) -> Result<PathBuf> {
    sluice_recorded::find(name).with_context(|| format!("tests/recorded has no {name}"))
}

/// Returns the options of a checker that name suites.
fn names<'a>(suites: impl IntoIterator<Item = &'a String>) -> Vec<OsString> {
    suites.into_iter().flat_map(|suite| [OsString::from("--suite"), suite.into()]).collect()
}

/// Runs the checker of API responses: twice at the same time, since each run waits for one answer after the other.
async fn check_api_answers(options: &[OsString], suites: &[String]) -> Result<()> {
    let cluster_options = ClusterOptions { standby: true, v1beta1: true, ..recorded_cluster(Extent::Api)? };
    let mut cluster = Cluster::start(&cluster_options, &ControlPlane::temporary_folder()).await?;
    let half = |first: usize| names(suites.iter().skip(first).step_by(2));
    let (first, second) =
        tokio::join!(check_suites(&cluster, options, half(0)), check_suites(&cluster, options, half(1)));
    keep_failed(&mut cluster, first.and(second), "API responses differ from the recording")
}

async fn check_suites(cluster: &Cluster, options: &[OsString], names: Vec<OsString>) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let mut command = checker_on(cluster, "check-api")?;
    let (succeeded, printed) = outcome_and_output(command.args(options).args(names)).await?;
    print!("{printed}");
    ensure!(succeeded, "an answer is not as recorded");
    Ok(())
}

/// Runs the checker of job lifecycles.
async fn check_job_lifecycles(lives: &Lives, show: u32) -> Result<()> {
    let options = recorded_cluster(Extent::Owners)?;
    let mut cluster = Cluster::start(&options, &ControlPlane::temporary_folder()).await?;
    let outcome = lives.play(|| checker_on(&cluster, "check-jobs"), show).await;
    keep_failed(&mut cluster, outcome, "job lifecycles differ from the recording")
}

/// Returns options for a cluster with the job kinds and the configuration of the recorded manager.
fn recorded_cluster(extent: Extent) -> Result<ClusterOptions> {
    let file = sluice_recorded::find("jobs/manager.yaml").context("no configuration is recorded")?;
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
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

/// Returns the command that runs a checker on a cluster.
fn checker_on(cluster: &Cluster, name: &str) -> Result<tokio::process::Command> {
    let tools = cluster.plane.binaries.path("kubectl");
    let mut command = tokio::process::Command::new("python3");
    command
        .arg(checker(name)?)
        .arg("--kubeconfig")
        .arg(cluster.plane.admin_kubeconfig())
        .env("PATH", search_path(tools.parent().context("kubectl has no folder")?))
        .kill_on_drop(true);
    Ok(command)
}

/// Returns how a run of checkers ended; after a failure, the folder of the control plane is kept.
fn keep_failed(cluster: &mut Cluster, outcome: Result<()>, failure: &str) -> Result<()> {
    if outcome.is_err() {
        cluster.plane.keep_folder();
    }
    outcome.with_context(|| format!("{failure}; logs are in {}", cluster.plane.folder().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> ConformanceRequest {
        ConformanceRequest { only: None, suite: None, cases: None, part: None, show: 0 }
    }

    #[test]
    fn repository_has_answers_lives_and_generated_decisions() {
        for recording in Recording::ALL {
            let located = all().locate(recording);
            let own = sluice_recorded::committed(recording.folder());
            let mut suites = recording.suites();
            suites.retain(|suite| recording != Recording::Decisions || suite.starts_with("generated-"));
            assert_eq!(located.by_folder[&own], suites, "{recording:?}");
        }
    }

    #[test]
    fn one_suite_is_selected_in_each_recording_that_has_it() {
        let request = ConformanceRequest { suite: Some("job".to_owned()), ..all() };
        assert_eq!(Recording::ALL.map(|recording| request.select(recording).len()), [0, 1, 1]);
        let request = ConformanceRequest { only: Some(Recording::Jobs), ..request };
        assert_eq!(Recording::ALL.map(|recording| request.select(recording).len()), [0, 0, 1]);
    }

    #[test]
    fn deviations_are_recorded_cases() {
        for recording in Recording::ALL {
            let folder = sluice_recorded::committed("deviations").join(recording.folder());
            for entry in folder.read_dir().into_iter().flatten() {
                let path = entry.unwrap().path();
                let suite = path.file_stem().unwrap().to_str().unwrap();
                assert!(recording.suites().iter().any(|known| known == suite), "{}", path.display());
                let file = format!("{}/{suite}.jsonl.gz", recording.folder());
                let Some(file) = sluice_recorded::find(&file) else { continue };
                let recorded = sluice_recorded::documents(&file).unwrap();
                check_deviations(suite, &fs::read_to_string(&path).unwrap(), &recorded).unwrap();
            }
        }
        let recorded = [serde_json::json!({"name": "a"})];
        assert!(check_deviations("job", "job\ta\twhy", &recorded).is_ok());
        for wrong in ["job\tb\twhy", "pod\ta\twhy", "job", "job\ta\t ", "job\ta\twhy\twhy"] {
            assert!(check_deviations("job", wrong, &recorded).is_err(), "{wrong}");
        }
    }
}

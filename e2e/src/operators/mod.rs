//! The real operators of job kinds beside Sluice, on one control plane with simulated pods: `make e2e-operators`.
//!
//! For each kind, a job runs, is preempted by another one of the kind, runs again and ends, while its operator does what it does in
//! a cluster. Afterwards every revision of Workloads and pods is checked.
//!
//! Invariants: operators are built from the modules whose definitions are installed; each listens on ports and reads certificates
//! of its own; an operator that is started runs until the end, beside those of later stories.

mod operator;
mod ray_dashboards;
mod revisions;
mod settings;
mod story;

use crate::binaries::Binaries;
use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::ControlPlane;
use crate::process;
use anyhow::{Context as _, Result, ensure};
use operator::RunningOperator;
use ray_dashboards::RayDashboards;
use serde_json::{Map, Value, json};
use settings::{OPERATORS, Operator};
use sluice::frameworks::frameworks;
use std::time::Instant;
use story::{STORIES, Story};

/// Runs the stories of the kinds whose names contain `word`. A story that fails does not stop the others; logs are kept then.
pub async fn run(word: &str) -> Result<()> {
    let begun = Instant::now();
    let stories: Vec<&Story> =
        STORIES.iter().filter(|story| story.sample.contains(&*word.to_lowercase())).collect();
    ensure!(!stories.is_empty(), "no kind is named like {word:?}");
    let wanted: Vec<&Operator> = OPERATORS
        .iter()
        .filter(|operator| stories.iter().any(|story| story.operators.contains(&operator.name)))
        .collect();
    let programs: Vec<&str> = wanted.iter().map(|operator| operator.name).collect();
    let binaries = Binaries::ensure(&programs)?;
    let mut bench = Bench {
        running: Vec::new(),
        binaries,
        ray_dashboards: RayDashboards::open().await?,
        cluster: Cluster::start(&options(), &ControlPlane::temporary_folder()).await?,
    };
    println!(
        "{:6.1} s  operators are built, control plane and manager are ready",
        begun.elapsed().as_secs_f64()
    );
    let failed = bench.run_all(&stories, &wanted).await;
    println!("\n{} stories, {} failed, {:.1} s", stories.len(), failed.len(), begun.elapsed().as_secs_f64());
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// All kinds, as `make e2e` has them for its cases with all kinds.
fn options() -> ClusterOptions {
    let names: Vec<&str> = frameworks().map(|row| row.name).collect();
    let gates: Map<String, Value> =
        frameworks().filter_map(|row| row.flags.gate).map(|gate| (gate.to_owned(), json!(true))).collect();
    let configuration = json!({"integrations": {"frameworks": names}, "featureGates": gates});
    ClusterOptions { configuration, job_kinds: true, ..ClusterOptions::default() }
}

/// The control plane with the operators that run on it.
struct Bench {
    // Dropped first: operators stop before the control plane.
    running: Vec<RunningOperator>,
    binaries: Binaries,
    ray_dashboards: RayDashboards,
    cluster: Cluster,
}

impl Bench {
    /// Returns the names of the stories that failed.
    async fn run_all(&mut self, stories: &[&Story], operators: &[&Operator]) -> Vec<String> {
        let mut failed = Vec::new();
        for story in stories {
            let begun = Instant::now();
            let outcome = self.run_story(story, operators).await;
            let (seconds, name) = (begun.elapsed().as_secs_f64(), story.name());
            match outcome {
                Ok(seen) => println!("ok    {seconds:6.1} s  {name}: {seen}"),
                Err(error) => {
                    println!("FAIL  {seconds:6.1} s  {name}: {error:#}");
                    self.keep_logs(story);
                    failed.push(name);
                }
            }
        }
        failed
    }

    async fn run_story(&mut self, story: &Story, operators: &[&Operator]) -> Result<String> {
        for operator in operators.iter().filter(|operator| story.operators.contains(&operator.name)) {
            if !self.running.iter().any(|running| running.name() == operator.name) {
                let port = self.ray_dashboards.port();
                let started = RunningOperator::start(operator, &self.binaries, &self.cluster, port).await;
                self.running.push(started.with_context(|| format!("cannot start {}", operator.name))?);
            }
        }
        let outcome = story.run(&self.cluster, &self.ray_dashboards).await;
        self.running.iter().try_for_each(RunningOperator::check)?;
        outcome
    }

    fn keep_logs(&mut self, story: &Story) {
        self.cluster.plane.keep_folder();
        for running in self.running.iter().filter(|running| story.operators.contains(&running.name())) {
            println!("last log lines of {}:\n{}", running.name(), process::tail(running.log(), 5));
        }
        if let Ok(manager) = self.cluster.manager() {
            println!("last log lines of the manager:\n{}", process::tail(manager.log(), 15));
        }
        println!("logs are in {}", self.cluster.plane.folder().display());
    }
}

//! Runs cases on one control plane. After a failed case, the plane's logs are kept and the next case gets a new plane.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, anyhow};
use futures::future::{FutureExt as _, LocalBoxFuture};
use futures::stream::{self, StreamExt as _};
use serde_json::json;
use sluice_e2e::cluster::{Cluster, ClusterOptions};
use sluice_e2e::control_plane::ControlPlane;
use sluice_e2e::process;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

/// Concurrent cases: enough to hide waiting, few enough for two cores.
const PARALLEL_CASES: usize = 4;

/// A case that may run concurrently with others.
pub(crate) type ParallelCase = for<'a> fn(&'a Cluster, &'a Fixture) -> LocalBoxFuture<'a, Result<()>>;
/// A case that runs alone on the control plane.
pub(crate) type SerialCase = for<'a> fn(&'a mut Cluster, &'a Fixture) -> LocalBoxFuture<'a, Result<()>>;
/// Name and function of a case.
pub(crate) type Case<T> = (&'static str, T);

/// The control plane that cases run on.
#[derive(Default)]
pub(crate) struct CaseRunner {
    cluster: Option<Cluster>,
    /// Number of planes started so far.
    started_planes: usize,
}

impl CaseRunner {
    /// Returns the control plane; starts a new one for the first case and after a failure.
    pub(crate) async fn cluster(&mut self) -> Result<&mut Cluster> {
        if self.cluster.is_none() {
            let begun = Instant::now();
            self.started_planes += 1;
            let folder = ControlPlane::temporary_folder().with_extension(self.started_planes.to_string());
            let cluster = Cluster::start(&options(), &folder).await?;
            let (version, seconds) =
                (cluster.plane.kubernetes_version().await?, begun.elapsed().as_secs_f64());
            println!("Kubernetes {version}, control plane and manager ready after {seconds:.1} s\n");
            self.cluster = Some(cluster);
        }
        self.cluster.as_mut().context("no control plane")
    }

    /// Runs cases concurrently; returns the names of the failed ones.
    pub(crate) async fn run_parallel(&mut self, cases: &[Case<ParallelCase>]) -> Result<Vec<&'static str>> {
        let cluster: &Cluster = self.cluster().await?;
        let outcomes = stream::iter(cases).map(async |(name, case)| {
            let fixture = Fixture::new(cluster, name);
            print_outcome(name, run_case(&fixture, case(cluster, &fixture))).await
        });
        let failed: Vec<_> =
            outcomes.buffer_unordered(PARALLEL_CASES).filter_map(async |failed| failed).collect().await;
        if !failed.is_empty() {
            self.abandon_cluster();
        }
        Ok(failed)
    }

    /// Runs a case; returns its name if it failed.
    pub(crate) async fn run_serial(
        &mut self,
        (name, case): Case<SerialCase>,
    ) -> Result<Option<&'static str>> {
        let cluster = self.cluster().await?;
        let fixture = Fixture::new(cluster, name);
        let failed = print_outcome(name, run_case(&fixture, case(cluster, &fixture))).await;
        if failed.is_some() {
            self.abandon_cluster();
        }
        Ok(failed)
    }

    /// Stops the plane and keeps its logs, so that objects left by the failed case cannot affect later cases.
    fn abandon_cluster(&mut self) {
        let Some(mut failed_cluster) = self.cluster.take() else { return };
        if let Ok(manager) = failed_cluster.manager() {
            println!("last log lines of the manager:\n{}", process::tail(manager.log(), 30));
        }
        println!("logs are in {}", failed_cluster.plane.folder().display());
        failed_cluster.plane.keep_folder();
    }
}

fn options() -> ClusterOptions {
    ClusterOptions {
        load_balanced: true,
        // Short lease, so that a killed leader is replaced within seconds.
        configuration: json!({
            "leaderElection": {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"},
        }),
        nodes: 4,
        ..ClusterOptions::default()
    }
}

/// Prepares the fixture, runs the case and, if it succeeded, deletes what it created.
async fn run_case(fixture: &Fixture, case: LocalBoxFuture<'_, Result<()>>) -> Result<()> {
    fixture.prepare().await?;
    case.await?;
    fixture.clean_up().await
}

/// Runs a case and prints its result; returns its name if it failed.
async fn print_outcome(name: &'static str, case: impl Future<Output = Result<()>>) -> Option<&'static str> {
    let begun = Instant::now();
    let outcome = AssertUnwindSafe(case).catch_unwind().await.unwrap_or_else(|_| Err(anyhow!("it panicked")));
    let seconds = begun.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => {
            println!("ok    {seconds:6.1} s  {name}");
            None
        }
        Err(error) => {
            println!("FAIL  {seconds:6.1} s  {name}: {error:#}");
            Some(name)
        }
    }
}

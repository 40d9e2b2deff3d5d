//! Runs cases: on one control plane while all goes well. A case that fails leaves its plane and the plane's logs behind, and
//! the next one gets a fresh plane.

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

/// Cases at once: enough to hide waiting, few enough for two cores.
const PARALLEL_CASES: usize = 4;

/// A case that others may run beside.
pub(crate) type ParallelCase = for<'a> fn(&'a Cluster, &'a Fixture) -> LocalBoxFuture<'a, Result<()>>;
/// A case that has the control plane for itself.
pub(crate) type SerialCase = for<'a> fn(&'a mut Cluster, &'a Fixture) -> LocalBoxFuture<'a, Result<()>>;
/// A case and its name.
pub(crate) type Case<T> = (&'static str, T);

/// The control plane that cases run on.
#[derive(Default)]
pub(crate) struct CaseRunner {
    cluster: Option<Cluster>,
    /// Planes that were started.
    started_planes: usize,
}

impl CaseRunner {
    /// The plane; a fresh one at first, and after a failure.
    pub(crate) async fn cluster(&mut self) -> Result<&mut Cluster> {
        if self.cluster.is_none() {
            let begun = Instant::now();
            self.started_planes += 1;
            let folder = ControlPlane::temporary_folder().with_extension(self.started_planes.to_string());
            self.cluster = Some(Cluster::start(&options(), &folder).await?);
            println!("control plane and manager ready after {:.1} s\n", begun.elapsed().as_secs_f64());
        }
        self.cluster.as_mut().context("no control plane")
    }

    /// Runs cases beside each other; gives those that failed.
    pub(crate) async fn run_parallel(&mut self, cases: &[Case<ParallelCase>]) -> Result<Vec<&'static str>> {
        let cluster: &Cluster = self.cluster().await?;
        let outcomes = stream::iter(cases).map(async |(name, case)| {
            let ground = Fixture::new(cluster, name);
            print_outcome(name, run_case(&ground, case(cluster, &ground))).await
        });
        let failed: Vec<_> =
            outcomes.buffer_unordered(PARALLEL_CASES).filter_map(async |failed| failed).collect().await;
        if !failed.is_empty() {
            self.abandon_cluster();
        }
        Ok(failed)
    }

    /// Runs a case; gives its name if it failed.
    pub(crate) async fn run_serial(
        &mut self,
        (name, case): Case<SerialCase>,
    ) -> Result<Option<&'static str>> {
        let cluster = self.cluster().await?;
        let ground = Fixture::new(cluster, name);
        let failed = print_outcome(name, run_case(&ground, case(cluster, &ground))).await;
        if failed.is_some() {
            self.abandon_cluster();
        }
        Ok(failed)
    }

    /// Ends the plane and keeps its logs: what a case that failed left there is nobody else's.
    fn abandon_cluster(&mut self) {
        let Some(mut spoilt) = self.cluster.take() else { return };
        if let Ok(manager) = spoilt.manager() {
            println!("the manager logged last:\n{}", process::tail(manager.log(), 30));
        }
        println!("logs are in {}", spoilt.plane.folder().display());
        spoilt.plane.keep_folder();
    }
}

fn options() -> ClusterOptions {
    ClusterOptions {
        load_balanced: true,
        // A leader that is killed is replaced within seconds; no case waits for pods to become ready.
        configuration: json!({
            "leaderElection": {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"},
        }),
        nodes: 4,
        ..ClusterOptions::default()
    }
}

/// A case on its ground: what a successful one made is taken away again.
async fn run_case(ground: &Fixture, case: LocalBoxFuture<'_, Result<()>>) -> Result<()> {
    ground.prepare().await?;
    case.await?;
    ground.clean_up().await
}

/// Prints how a case ends; gives its name if it fails.
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

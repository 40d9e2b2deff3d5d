//! A small run of the load generator of `make bench-cluster` must complete.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use sluice_e2e::bench::{run, scenario::Scenario};
use sluice_e2e::cluster::Cluster;
use std::time::Duration;

/// On its own control plane, all workloads are admitted and finish, in no less time than the quota requires.
pub(crate) async fn small_baseline_load_completes(cluster: &mut Cluster, _: &Fixture) -> Result<()> {
    let scenario = Scenario::by_name("baseline")?.scaled_down(50);
    let folder = cluster.plane.folder().join("load");
    let program = cluster.manager()?.settings().program.clone();
    let outcome = run::run(&scenario, Some(program), &folder).await?;
    let admitted: usize = outcome.waits.iter().map(Vec::len).sum();
    ensure!(
        admitted == scenario.total_workloads(),
        "{admitted} of {} were admitted",
        scenario.total_workloads()
    );
    let minimum = Duration::from_secs_f64(scenario.total_cpu_seconds() / scenario.total_quota());
    ensure!(
        outcome.wall >= minimum,
        "finished after {:?}, but the quota requires at least {minimum:?}",
        outcome.wall
    );
    Ok(())
}

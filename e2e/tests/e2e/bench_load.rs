//! The load generator of `make bench-cluster`, on a small scale: it must run to its end.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use sluice_e2e::bench::{run, scenario::Scenario};
use sluice_e2e::cluster::Cluster;
use std::time::Duration;

/// On a plane of its own; every workload is admitted and finishes, and no more is reserved than there is.
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
    let least = Duration::from_secs_f64(scenario.total_cpu_seconds() / scenario.total_quota());
    ensure!(outcome.wall >= least, "ended after {:?}, where the quota takes {least:?}", outcome.wall);
    Ok(())
}

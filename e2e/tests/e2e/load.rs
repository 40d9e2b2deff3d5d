//! The load generator of `make bench-cluster`, on a small scale: it must run to its end.

use crate::ground::Ground;
use anyhow::{Result, ensure};
use sluice_e2e::bench::{run, scenario::Scenario};
use sluice_e2e::cluster::Cluster;
use std::time::Duration;

/// On a plane of its own; every workload is admitted and finishes, and no more is reserved than there is.
pub(crate) async fn a_fiftieth_of_the_baseline(cluster: &mut Cluster, _: &Ground) -> Result<()> {
    let scenario = Scenario::named("baseline")?.divided(50);
    let folder = cluster.plane.folder().join("load");
    let program = cluster.manager()?.settings().program.clone();
    let outcome = run::run(&scenario, Some(program), &folder).await?;
    let admitted: usize = outcome.waits.iter().map(Vec::len).sum();
    ensure!(admitted == scenario.total(), "{admitted} of {} were admitted", scenario.total());
    let least = Duration::from_secs_f64(scenario.work() / scenario.quota());
    ensure!(outcome.wall >= least, "ended after {:?}, where the quota takes {least:?}", outcome.wall);
    Ok(())
}

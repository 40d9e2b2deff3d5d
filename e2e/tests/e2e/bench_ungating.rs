//! A small run of `make bench-ungating` must complete.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use sluice_e2e::bench::ungating::{Amounts, run};
use sluice_e2e::cluster::Cluster;

/// On its own control plane, all pods of two groups and of a JobSet of two Jobs lose their gates.
pub(crate) async fn small_run_completes(cluster: &mut Cluster, _: &Fixture) -> Result<()> {
    let amounts = Amounts { groups: 2, size: 3, jobs: 2, job_size: 4, qps: None };
    let folder = cluster.plane.folder().join("ungating");
    let program = cluster.manager()?.settings().program.clone();
    let (groups, job_set) = run(&amounts, Some(program), &folder).await?;
    ensure!((groups.units.len(), groups.pods.len()) == (2, 6), "{groups:?}");
    ensure!((job_set.units.len(), job_set.pods.len()) == (1, 8), "{job_set:?}");
    for measured in [groups, job_set] {
        ensure!(measured.ratio() > 0.0 && measured.pods.last() == measured.units.last(), "{measured:?}");
    }
    Ok(())
}

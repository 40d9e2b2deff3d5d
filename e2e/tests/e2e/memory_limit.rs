//! A manager that takes more memory than it may.

use crate::background_jobs::BackgroundJobs;
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::limit::MemoryLimit;
use sluice_e2e::objects::Kind;
use sluice_e2e::process::ProcessUsage;
use sluice_e2e::wait::{eventually, is_soak_run};

/// What it may take beyond what it takes when it has work.
const MARGIN: u64 = 4 << 20;
/// Jobs that run meanwhile, for each time.
const JOBS: usize = 8;
/// Bytes of the notes that make each Workload large, and how many of them come at most.
const ANNOTATION_BYTES: usize = 100_000;
const MAX_LARGE_WORKLOADS: usize = 600;

/// The kernel kills it in the middle of work, and again; started with the memory that it needs, it goes on from the objects
/// alone: all Jobs run once, and nobody's quota is lost or kept.
pub(crate) async fn killed_by_memory_limit(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let work = BackgroundJobs::start(fixture, "main").await?;
    fixture.create_queue("large", "", &[("cpu", "1", None)], json!({})).await?;
    let times = if is_soak_run() { 10 } else { 2 };
    for time in 0..times {
        work.submit(time * JOBS..time * JOBS + JOBS / 2).await?;
        let pid = cluster.manager()?.process().identity().pid;
        let limit = MemoryLimit::set(pid, (ProcessUsage::of_process(pid)?.resident_mib << 20) + MARGIN)?;
        let large = async {
            let made = stream::iter(0..MAX_LARGE_WORKLOADS)
                .map(async |number| create_large_job(fixture, time * MAX_LARGE_WORKLOADS + number).await);
            // Once the manager has gone, nobody reviews what is created.
            made.buffer_unordered(4).take_while(|made| std::future::ready(made.is_ok())).count().await
        };
        let coming = work.submit(time * JOBS + JOBS / 2..(time + 1) * JOBS);
        let died = async {
            eventually("it is killed", async || {
                ensure!(
                    cluster.manager()?.process().check().is_err(),
                    "it lives with {:?}",
                    ProcessUsage::of_process(pid)?
                );
                Ok(())
            })
            .await?;
            limit.check_oom_killed()?;
            drop(limit);
            let old = cluster.take_manager().context("no manager")?;
            cluster.start_manager(old.settings()).await
        };
        let (_, coming, died) = futures::join!(large, coming, died);
        died?;
        coming?;
    }
    work.wait_and_check(cluster, times * JOBS).await
}

/// A Job that waits for ever, with as much in its pods' annotations as a Job may have.
async fn create_large_job(fixture: &Fixture, number: usize) -> Result<()> {
    let note = format!("{number}").repeat(ANNOTATION_BYTES / number.to_string().len());
    let job = fixture.job(&format!("large-{number}"), "large", "2").pod_annotation("e2e.example/note", &note);
    fixture.objects.create(Kind::JOB, job.body()).await?;
    Ok(())
}

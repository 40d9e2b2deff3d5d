//! A manager that exceeds its memory limit.

use crate::background_jobs::BackgroundJobs;
use crate::cases::note;
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::limit::MemoryLimit;
use sluice_e2e::manager::Manager;
use sluice_e2e::objects::Kind;
use sluice_e2e::process::ProcessUsage;
use sluice_e2e::wait::{eventually, is_soak_run};

/// Bytes that the manager may use beyond its resident memory under load.
const MARGIN: u64 = 4 << 20;
/// Jobs per round.
const JOBS: usize = 8;
/// Size of the annotation that makes each Workload large.
const ANNOTATION_BYTES: usize = 100_000;
/// Maximum number of large Workloads per round.
const MAX_LARGE_WORKLOADS: usize = 600;

/// The limit of config/manager/deployment.yaml.
const SHIPPED_LIMIT: u64 = 1 << 30;

/// The manager is killed repeatedly by a tight memory limit while it works. Restarted with the limit of the shipped manifests, it
/// lists the same objects, is not killed again, and continues from the API objects alone: each Job runs once, and no quota is lost
/// or stays reserved.
pub(crate) async fn killed_by_memory_limit(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let work = BackgroundJobs::start(fixture, "main").await?;
    fixture.create_queue("large", "", &[("cpu", "1", None)], json!({})).await?;
    let times = if is_soak_run() { 10 } else { 2 };
    let mut limits = Vec::new();
    for time in 0..times {
        work.submit(time * JOBS..time * JOBS + JOBS / 2).await?;
        let pid = cluster.manager()?.process().identity().pid;
        let limit = MemoryLimit::set(pid, (ProcessUsage::of_process(pid)?.resident_mib << 20) + MARGIN)?;
        let large = async {
            let made = stream::iter(0..MAX_LARGE_WORKLOADS)
                .map(async |number| create_large_job(fixture, time * MAX_LARGE_WORKLOADS + number).await);
            // Once the manager is killed, creates fail because no webhook answers.
            made.buffer_unordered(4).take_while(|made| std::future::ready(made.is_ok())).count().await
        };
        let submission = work.submit(time * JOBS + JOBS / 2..(time + 1) * JOBS);
        let died = async {
            eventually("the manager is killed", async || {
                ensure!(
                    cluster.manager()?.process().check().is_err(),
                    "it is still running with {:?}",
                    ProcessUsage::of_process(pid)?
                );
                Ok(())
            })
            .await?;
            limit.check_oom_killed()?;
            drop(limit);
            let old = cluster.take_manager().context("no manager")?;
            let manager = Manager::start(&cluster.plane, old.settings()).await?;
            let limit = MemoryLimit::set(manager.process().identity().pid, SHIPPED_LIMIT)?;
            manager.wait_until_ready().await.context("restarted with the shipped limit")?;
            cluster.put_manager(manager);
            cluster.wait_for_webhooks().await?;
            Ok::<_, anyhow::Error>(limit)
        };
        let (_, submission, died) = futures::join!(large, submission, died);
        limits.push(died?);
        submission?;
    }
    work.wait_and_check(cluster, times * JOBS).await?;
    // A process that its limit kills would have been missed here, also if a new one had been ready for a moment.
    let manager = cluster.manager()?;
    manager.process().check().context("killed again: a crash loop")?;
    let pid = manager.process().identity().pid;
    note(format_args!("{:?} within the shipped limit", ProcessUsage::of_process(pid)?));
    drop(limits);
    let settings = manager.settings().clone();
    cluster.replace_manager(&settings).await.map(drop)
}

/// Creates a Job that exceeds its queue's quota, so that it stays pending, with a large annotation on its pods.
async fn create_large_job(fixture: &Fixture, number: usize) -> Result<()> {
    let note = format!("{number}").repeat(ANNOTATION_BYTES / number.to_string().len());
    let job = fixture.job(&format!("large-{number}"), "large", "2").pod_annotation("e2e.example/note", &note);
    fixture.objects.create(Kind::JOB, job.body()).await?;
    Ok(())
}

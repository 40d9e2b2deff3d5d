//! A manager that takes more memory than it may.

use crate::ground::Ground;
use crate::work::Work;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::limit::Limit;
use sluice_e2e::objects::Kind;
use sluice_e2e::process::Usage;
use sluice_e2e::wait::{eventually, soaks};

/// What it may take beyond what it takes when it has work.
const MARGIN: u64 = 4 << 20;
/// Jobs that run meanwhile, for each time.
const JOBS: usize = 8;
/// Bytes of the notes that make each Workload large, and how many of them come at most.
const NOTE: usize = 100_000;
const LARGE: usize = 600;

/// The kernel kills it in the middle of work, and again; started with the memory that it needs, it goes on from the objects
/// alone: all Jobs run once, and nobody's quota is lost or kept.
pub(crate) async fn killed_by_its_limit(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let work = Work::open(ground, "main").await?;
    ground.queue("large", "", &[("cpu", "1", None)], json!({})).await?;
    let times = if soaks() { 10 } else { 2 };
    for time in 0..times {
        work.submit(time * JOBS..time * JOBS + JOBS / 2).await?;
        let pid = cluster.manager()?.process().identity().pid;
        let limit = Limit::set(pid, (Usage::of(pid)?.resident << 20) + MARGIN)?;
        let large = async {
            let made = stream::iter(0..LARGE).map(async |number| large(ground, time * LARGE + number).await);
            // Once the manager has gone, nobody reviews what is created.
            made.buffer_unordered(4).take_while(|made| std::future::ready(made.is_ok())).count().await
        };
        let coming = work.submit(time * JOBS + JOBS / 2..(time + 1) * JOBS);
        let died = async {
            eventually("it is killed", async || {
                ensure!(cluster.manager()?.process().check().is_err(), "it lives with {:?}", Usage::of(pid)?);
                Ok(())
            })
            .await?;
            limit.is_the_cause()?;
            drop(limit);
            let old = cluster.take_manager().context("no manager")?;
            cluster.start_manager(old.settings()).await
        };
        let (_, coming, died) = futures::join!(large, coming, died);
        died?;
        coming?;
    }
    work.ends(cluster, times * JOBS).await
}

/// A Job that waits for ever, with as much in its pods' annotations as a Job may have.
async fn large(ground: &Ground, number: usize) -> Result<()> {
    let note = format!("{number}").repeat(NOTE / number.to_string().len());
    let job = ground.job(&format!("large-{number}"), "large", "2").pod_annotation("e2e.example/note", &note);
    ground.objects.create(Kind::JOB, job.body()).await?;
    Ok(())
}

//! Memory and startup time of the manager with many pending Workloads.

use super::scenario::Scenario;
use crate::binaries::Build;
use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::{ControlPlane, Extent};
use crate::manager::Manager;
use crate::objects::{Kind, number};
use crate::process::ProcessUsage;
use crate::wait::within;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Starts per measurement.
const STARTS: usize = 3;

/// Runs the benchmark and prints the results. Uses the Workloads of the scenario "baseline", without a job side that
/// finishes them.
pub async fn run(divided: usize) -> Result<()> {
    let scenario = Scenario::by_name("baseline")?.scaled_down(divided);
    let options =
        ClusterOptions { extent: Extent::Api, build: Build::Release, nodes: 0, ..ClusterOptions::default() };
    let mut cluster = Cluster::start(&options, &ControlPlane::temporary_folder()).await?;
    scenario.make_queues(&cluster.objects).await?;
    measure_starts(&mut cluster, "start to ready, 30 queues and no Workload").await?;
    let begun = Instant::now();
    create_workloads(&cluster, &scenario).await?;
    println!("{} Workloads created in {:.1} s", scenario.total_workloads(), begun.elapsed().as_secs_f64());
    let pending = wait_until_counted(&cluster, &scenario).await?;
    print_memory(&cluster, &format!("with {pending} pending, right after their creation"))?;
    tokio::time::sleep(Duration::from_mins(1)).await;
    print_memory(&cluster, "a minute later")?;
    measure_starts(&mut cluster, &format!("start to ready with {pending} pending")).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    print_memory(&cluster, "20 s after the last start")
}

async fn measure_starts(cluster: &mut Cluster, what: &str) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let old = cluster.take_manager().context("no manager")?;
        old.terminate();
        // Writing the kubeconfig, before the process starts, is not measured.
        let manager = Manager::start(&cluster.plane, old.settings()).await?;
        let begun = Instant::now();
        manager.wait_until_ready_precisely().await?;
        times.push(format!("{:.2}", begun.elapsed().as_secs_f64()));
        cluster.put_manager(manager);
    }
    println!("{what}: {} s", times.join(", "));
    Ok(())
}

async fn create_workloads(cluster: &Cluster, scenario: &Scenario) -> Result<()> {
    let all = scenario.queue_names().into_iter().flat_map(|queue| {
        scenario.classes.iter().flat_map(move |class| {
            let queue = queue.clone();
            (0..class.count)
                .map(move |n| scenario.workload(&format!("{queue}-{}-{n}", class.name), &queue, class, n))
        })
    });
    let objects = &cluster.objects;
    stream::iter(all)
        .map(async |body| objects.create(Kind::WORKLOAD, &body).await.map(drop))
        .buffer_unordered(16)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// Waits until the queues count every Workload; returns the number of pending ones.
async fn wait_until_counted(cluster: &Cluster, scenario: &Scenario) -> Result<i64> {
    within(Duration::from_mins(3), "the queues count every Workload", async || {
        let queues: Vec<Value> = cluster.objects.list(Kind::CLUSTER_QUEUE, "", "").await?;
        let sum = |field: &str| queues.iter().map(|queue| number(queue, field)).sum::<i64>();
        let (pending, reserving) = (sum("/status/pendingWorkloads"), sum("/status/reservingWorkloads"));
        let total = i64::try_from(scenario.total_workloads())?;
        ensure!(pending + reserving == total, "{pending} pending and {reserving} reserving of {total}");
        Ok(pending)
    })
    .await
}

fn print_memory(cluster: &Cluster, when: &str) -> Result<()> {
    let usage = ProcessUsage::of_process(cluster.manager()?.process().identity().pid)?;
    println!(
        "resident memory {when}: {} MiB (at most {}), CPU so far {:.1} s",
        usage.resident_mib,
        usage.peak_mib,
        usage.cpu.as_secs_f64()
    );
    Ok(())
}

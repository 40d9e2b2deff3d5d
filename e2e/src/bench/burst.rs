//! A burst of Jobs: the time and CPU until all are admitted, compared with the API server alone for the same writes.

use crate::audit::count_by_verb_and_resource;
use crate::binaries::Build;
use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::ControlPlane;
use crate::install::remove_webhooks;
use crate::manager::Manager;
use crate::objects::{Job, Kind, cluster_queue, cohort, condition_is_true, local_queue};
use crate::process::ProcessUsage;
use crate::wait::{eventually, within};
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const NAMESPACE: &str = "burst";
const QUEUES: usize = 10;
/// Concurrent requests.
const CLIENTS: usize = 16;

/// Runs the benchmark and prints the results.
pub async fn run(jobs: usize) -> Result<()> {
    let options = ClusterOptions { build: Build::Release, nodes: 4, ..ClusterOptions::default() };
    let cluster = Cluster::start(&options, &ControlPlane::temporary_folder()).await?;
    create_queues(&cluster).await?;
    let account = format!("system:serviceaccount:{}:{}", crate::install::NAMESPACE, crate::install::ACCOUNT);
    let mut audit = cluster.audit()?;
    let server = cluster.plane.pid("kube-apiserver").context("no API server")?;
    let manager = cluster.manager()?.process().identity().pid;
    let before = (ProcessUsage::of_process(manager)?, ProcessUsage::of_process(server)?);
    let start = Instant::now();
    stream::iter(0..jobs)
        .map(|number| {
            let job = Job::new(
                NAMESPACE,
                &format!("job-{number}"),
                &format!("lq-{}", number % QUEUES),
                &[("cpu", "1")],
            );
            let objects = cluster.objects.clone();
            async move { objects.create(Kind::JOB, job.body()).await }
        })
        .buffer_unordered(CLIENTS)
        .try_collect::<Vec<_>>()
        .await?;
    let created = start.elapsed();
    within(Duration::from_mins(10), format!("all {jobs} workloads are admitted"), async || {
        let admitted = cluster
            .objects
            .list(Kind::WORKLOAD, NAMESPACE, "")
            .await?
            .iter()
            .filter(|w| condition_is_true(w, "Admitted"))
            .count();
        ensure!(admitted == jobs, "{admitted} are admitted");
        Ok(())
    })
    .await?;
    let elapsed = start.elapsed();
    let after = (ProcessUsage::of_process(manager)?, ProcessUsage::of_process(server)?);
    let writes = audit.new_writes_by(&account)?;
    println!("{jobs} Jobs at once over {QUEUES} queues in one cohort");
    println!("  all created after        {:7.2} s", created.as_secs_f64());
    println!("  all admitted after       {:7.2} s", elapsed.as_secs_f64());
    println!("  sluice: CPU              {:7.2} s", after.0.cpu.saturating_sub(before.0.cpu).as_secs_f64());
    println!("  sluice: resident         {:7} MiB", after.0.resident_mib);
    println!("  kube-apiserver: CPU      {:7.2} s", after.1.cpu.saturating_sub(before.1.cpu).as_secs_f64());
    println!("  writes of sluice         {:7}", writes.len());
    println!("  writes per second        {:7}", per_second(writes.len(), elapsed));
    for (what, times) in count_by_verb_and_resource(&writes) {
        println!("    {what:36} {times}");
    }
    measure_api_server(&cluster, jobs).await
}

fn per_second(count: usize, time: Duration) -> u128 {
    let count = u128::try_from(count).unwrap_or_default();
    count * 1000 / time.as_millis().max(1)
}

async fn create_queues(cluster: &Cluster) -> Result<()> {
    let objects = &cluster.objects;
    objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": NAMESPACE}})).await?;
    objects.create(Kind::FLAVOR, &json!({"metadata": {"name": "default"}, "spec": {}})).await?;
    objects.create(Kind::COHORT, &cohort("burst", "", "default", &[])).await?;
    for number in 0..QUEUES {
        let queue = cluster_queue(&format!("cq-{number}"), "burst", "default", &[("cpu", "1k", None)]);
        objects.create(Kind::CLUSTER_QUEUE, &queue).await?;
        objects
            .create(
                Kind::LOCAL_QUEUE,
                &local_queue(NAMESPACE, &format!("lq-{number}"), &format!("cq-{number}")),
            )
            .await?;
    }
    Ok(())
}

/// Measures the same writes by a plain client, without a manager: one create and two status patches of a Workload, and
/// one patch of a Job.
async fn measure_api_server(cluster: &Cluster, jobs: usize) -> Result<()> {
    let server = cluster.plane.pid("kube-apiserver").context("no API server")?;
    let workloads = cluster.objects.list(Kind::WORKLOAD, NAMESPACE, "").await?;
    let template = workloads.first().context("no workload")?.clone();
    cluster.manager().map(Manager::kill)?;
    // No manager answers webhooks now, and their cost belongs to Sluice, not to the server.
    remove_webhooks(&cluster.objects).await?;
    eventually("the server stops calling the webhooks", async || {
        let name = format!("probe-{}", jiff::Timestamp::now().as_millisecond());
        let body = json!({"metadata": {"namespace": NAMESPACE, "name": name}, "spec": template["spec"]});
        Ok(cluster.objects.create(Kind::WORKLOAD, &body).await.map(drop)?)
    })
    .await?;
    let before = ProcessUsage::of_process(server)?;
    let start = Instant::now();
    stream::iter(0..jobs)
        .map(|number| replay_writes(cluster, &template, number))
        .buffer_unordered(CLIENTS)
        .try_collect::<Vec<_>>()
        .await?;
    let elapsed = start.elapsed();
    let after = ProcessUsage::of_process(server)?;
    println!("the API server alone, for the same writes by {CLIENTS} clients");
    println!("  done after               {:7.2} s", elapsed.as_secs_f64());
    println!("  writes per second        {:7}", per_second(4 * jobs, elapsed));
    println!("  kube-apiserver: CPU      {:7.2} s", after.cpu.saturating_sub(before.cpu).as_secs_f64());
    Ok(())
}

async fn replay_writes(cluster: &Cluster, template: &Value, number: usize) -> Result<()> {
    let name = format!("alone-{number}");
    let body = json!({"metadata": {"namespace": NAMESPACE, "name": name}, "spec": template["spec"]});
    cluster.objects.create(Kind::WORKLOAD, &body).await?;
    let status = json!({"status": {"admission": template["status"]["admission"], "conditions": template["status"]["conditions"]}});
    cluster.objects.merge_status(Kind::WORKLOAD, NAMESPACE, &name, &status).await?;
    let spec = json!({"metadata": {"annotations": {"bench": name}}});
    cluster.objects.merge(Kind::JOB, NAMESPACE, &format!("job-{number}"), &spec).await?;
    let finished = json!({"status": {"conditions": [{
        "type": "Finished", "status": "True", "reason": "Succeeded", "message": "done",
        "lastTransitionTime": template["metadata"]["creationTimestamp"],
    }]}});
    cluster.objects.merge_status(Kind::WORKLOAD, NAMESPACE, &name, &finished).await?;
    Ok(())
}

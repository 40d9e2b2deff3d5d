//! What a replica needs by the number of pending Jobs and of queues: start, memory, CPU when idle, and CPU for Jobs that come,
//! run and finish beside the pending ones.
//!
//! Each ClusterQueue is full of one running Job, and the pending Jobs wait for it. The manager makes the first Job's
//! Workload; the objects of the pending Jobs after it are copies, written into etcd.

use super::api_server_only::ApiServerOnly;
use super::scenario::NAMESPACE;
use crate::control_plane::ControlPlane;
use crate::etcd_writer::EtcdWriter;
use crate::manager::Manager;
use crate::objects::{Job, Kind, ObjectClient, cluster_queue, condition_is_true, local_queue, number, text};
use crate::process::ProcessUsage;
use crate::wait::{eventually, within};
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Namespace of the Jobs that come, run and finish.
const BUSY_NAMESPACE: &str = "busy";
/// Jobs per second that come, run and finish.
pub(super) const BUSY_RATE: u32 = 10;
pub(super) const BUSY_TIME: Duration = Duration::from_secs(30);
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Concurrent writes of objects.
const CLIENTS: usize = 16;
/// ClusterQueues of one cohort.
const COHORT_SIZE: usize = 10;
/// Name of the pending Job that is copied.
const ORIGINAL: &str = "pending-original";

/// Prints one line for each number of queues and of pending Jobs.
pub async fn run(jobs: &[usize], queues: &[usize]) -> Result<()> {
    println!("m: thousandths of a core; MiB: resident memory");
    println!("queues  pending  ready s  CPU s  MiB after start  peak  idle m  m at {BUSY_RATE} Jobs/s  peak");
    for &queues in queues {
        let bare = ApiServerOnly::start(None, &ControlPlane::temporary_folder(), Value::Null).await?;
        let originals = prepare(&bare, queues, None).await?;
        let mut filled = 1;
        for (round, &wanted) in jobs.iter().enumerate() {
            originals.copy(&bare.plane, filled..wanted, queues).await?;
            filled = filled.max(wanted);
            println!("{queues:>6}  {filled:>7}  {}", measure(&bare, filled, queues, round).await?);
        }
    }
    Ok(())
}

/// Creates the queues, a Job that fills each of them, and the pending Job that is copied, with a manager that runs until
/// all have their status. All Jobs say how long they are expected to run, if that is given.
pub(super) async fn prepare(
    bare: &ApiServerOnly,
    queues: usize,
    expected: Option<&str>,
) -> Result<Originals> {
    let objects = &bare.objects;
    let timed = |job: Job| match expected {
        Some(time) => job.annotation("sluice.dev/expected-run-time", time),
        None => job,
    };
    let webhooks = bare.remove_webhooks().await?;
    for name in [NAMESPACE, BUSY_NAMESPACE] {
        objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": name}})).await?;
    }
    objects.create(Kind::FLAVOR, &json!({"metadata": {"name": "any"}, "spec": {}})).await?;
    stream::iter(0..queues)
        .map(|index| make_queue(objects, index))
        .buffer_unordered(CLIENTS)
        .try_collect::<()>()
        .await?;
    bare.restore_webhooks(webhooks).await?;
    let manager = Manager::start(&bare.plane, &bare.settings).await?;
    manager.wait_until_ready().await?;
    crate::cluster::wait_for_webhooks(objects).await?;
    stream::iter(0..queues)
        .map(async |index| {
            let job = Job::new(NAMESPACE, &format!("running-{index}"), &queue_name(index), &[("cpu", "10")]);
            objects.create(Kind::JOB, timed(job).body()).await.map(drop)
        })
        .buffer_unordered(CLIENTS)
        .try_collect::<()>()
        .await?;
    within(Duration::from_mins(3), "each queue has a running Job", async || {
        let queues: Vec<Value> = objects.list(Kind::CLUSTER_QUEUE, "", "").await?;
        ensure!(
            queues.iter().all(|queue| number(queue, "/status/admittedWorkloads") == 1),
            "a queue has none"
        );
        Ok(())
    })
    .await?;
    let job = timed(Job::new(NAMESPACE, ORIGINAL, &queue_name(0), &[("cpu", "5")]).pods(2));
    objects.create(Kind::JOB, job.body()).await?;
    let originals = eventually("the pending Job has a Workload with status", async || {
        let job = objects.must_get(Kind::JOB, NAMESPACE, ORIGINAL).await?;
        let workloads = objects.list(Kind::WORKLOAD, NAMESPACE, "").await?;
        let owned =
            |workload: &&Value| workload["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"];
        let workload = workloads.iter().find(owned).context("no Workload")?.clone();
        ensure!(text(&workload, "/status/conditions/0/type") == "QuotaReserved", "{}", workload["status"]);
        Ok(Originals { job, workload })
    })
    .await?;
    manager.terminate();
    Ok(originals)
}

pub(super) fn queue_name(index: usize) -> String {
    format!("queue-{index:04}")
}

/// Creates a ClusterQueue with CPU for one running Job and memory for those that come and go, and its two LocalQueues.
async fn make_queue(objects: &ObjectClient, index: usize) -> Result<()> {
    let name = queue_name(index);
    let cohort = format!("cohort-{}", index / COHORT_SIZE);
    let quota = [("cpu", "10", Some("0")), ("memory", "100Gi", Some("0"))];
    objects.create(Kind::CLUSTER_QUEUE, &cluster_queue(&name, &cohort, "any", &quota)).await?;
    for namespace in [NAMESPACE, BUSY_NAMESPACE] {
        objects.create(Kind::LOCAL_QUEUE, &local_queue(namespace, &name, &name)).await?;
    }
    Ok(())
}

/// The pending Job and its Workload, of which the pending Jobs after it are copies.
pub(super) struct Originals {
    job: Value,
    workload: Value,
}

impl Originals {
    /// Writes copies with these numbers, evenly over the queues.
    pub(super) async fn copy(
        &self,
        plane: &ControlPlane,
        numbers: std::ops::Range<usize>,
        queues: usize,
    ) -> Result<()> {
        let etcd = EtcdWriter::new(plane.etcd_server()?)?;
        let stored = |object: &Value| {
            let mut object = object.clone();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            object.to_string()
        };
        let (job, workload) = (stored(&self.job), stored(&self.workload));
        let (job_uid, workload_uid) =
            (text(&self.job, "/metadata/uid"), text(&self.workload, "/metadata/uid"));
        let write = async |number: usize| {
            let copy = format!("pending-{number:08}");
            let copied = |object: &str| {
                object
                    .replace(ORIGINAL, &copy)
                    .replace(&queue_name(0), &queue_name(number % queues))
                    .replace(job_uid, &format!("00000000-0000-4000-8000-{number:012x}"))
                    .replace(workload_uid, &format!("00000000-0000-4000-9000-{number:012x}"))
            };
            let name = text(&self.workload, "/metadata/name").replace(ORIGINAL, &copy);
            etcd.put(format!("/registry/jobs/{NAMESPACE}/{copy}"), copied(&job)).await?;
            let key = format!("/registry/kueue.x-k8s.io/workloads/{NAMESPACE}/{name}");
            etcd.put(key, copied(&workload)).await
        };
        stream::iter(numbers).map(write).buffer_unordered(CLIENTS).try_collect().await
    }
}

/// Starts a manager and returns its figures as a line.
async fn measure(bare: &ApiServerOnly, pending: usize, queues: usize, round: usize) -> Result<String> {
    let manager = Manager::start(&bare.plane, &bare.settings).await?;
    let pid = manager.process().identity().pid;
    let begun = Instant::now();
    manager.wait_until_ready_precisely().await?;
    let (ready, at_start) = (begun.elapsed(), ProcessUsage::of_process(pid)?);
    wait_until_counted(&bare.objects, pending).await?;
    // Statuses of queues are written after the start.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = ProcessUsage::of_process(pid)?;
    tokio::time::sleep(IDLE_TIME).await;
    let idle = ProcessUsage::of_process(pid)?;
    run_jobs(&bare.objects, queues, round).await?;
    let busy = ProcessUsage::of_process(pid)?;
    manager.terminate();
    let millicores = |from: ProcessUsage, to: ProcessUsage, time: Duration| {
        to.cpu.saturating_sub(from.cpu).as_secs_f64() / time.as_secs_f64() * 1000.0
    };
    Ok(format!(
        "{:>7.2}  {:>5.2}  {:>15}  {:>4}  {:>6.0}  {:>14.0}  {:>4}",
        ready.as_secs_f64(),
        at_start.cpu.as_secs_f64(),
        before.resident_mib,
        before.peak_mib,
        millicores(before, idle, IDLE_TIME),
        millicores(idle, busy, BUSY_TIME),
        busy.peak_mib,
    ))
}

pub(super) async fn wait_until_counted(objects: &ObjectClient, pending: usize) -> Result<()> {
    within(Duration::from_mins(5), "the queues count every pending Workload", async || {
        let queues: Vec<Value> = objects.list(Kind::CLUSTER_QUEUE, "", "").await?;
        let counted: i64 = queues.iter().map(|queue| number(queue, "/status/pendingWorkloads")).sum();
        ensure!(counted == i64::try_from(pending)?, "{counted} of {pending}");
        Ok(())
    })
    .await
}

/// Creates Jobs at `BUSY_RATE` for `BUSY_TIME`, ends each soon after its start, and waits until all have finished.
pub(super) async fn run_jobs(objects: &ObjectClient, queues: usize, round: usize) -> Result<()> {
    let total = BUSY_RATE * u32::try_from(BUSY_TIME.as_secs())?;
    let begun = Instant::now();
    let creates = async {
        for number in 0..total {
            tokio::time::sleep_until((begun + Duration::from_secs(1) / BUSY_RATE * number).into()).await;
            let queue = queue_name(usize::try_from(number)? % queues);
            let name = format!("busy-{round}-{number}");
            let job = Job::new(BUSY_NAMESPACE, &name, &queue, &[("memory", "1Gi")]);
            objects.create(Kind::JOB, job.body()).await?;
        }
        anyhow::Ok(())
    };
    let finishes = within(BUSY_TIME * 4, "all Jobs have finished", async || {
        let jobs = objects.list(Kind::JOB, BUSY_NAMESPACE, "").await?;
        let (finished, unfinished): (Vec<_>, Vec<_>) =
            jobs.iter().partition(|job| condition_is_true(job, "Complete"));
        for job in unfinished.into_iter().filter(|job| job["spec"]["suspend"] == false) {
            objects
                .merge_status(Kind::JOB, BUSY_NAMESPACE, text(job, "/metadata/name"), &completed())
                .await?;
        }
        let expected = usize::try_from(total)? * (round + 1);
        ensure!(finished.len() == expected, "{} of {expected}", finished.len());
        Ok(())
    });
    tokio::try_join!(creates, finishes)?;
    within(Duration::from_mins(1), "all Workloads have finished", async || {
        let workloads = objects.list(Kind::WORKLOAD, BUSY_NAMESPACE, "").await?;
        ensure!(workloads.iter().all(|workload| condition_is_true(workload, "Finished")), "some have not");
        Ok(())
    })
    .await
}

/// The status of a Job that has completed, as its controller writes it.
fn completed() -> Value {
    let now = jiff::Timestamp::now().to_string();
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "CompletionsReached", "message": "done",
        "lastTransitionTime": now, "lastProbeTime": now})
    };
    json!({"status": {"startTime": now, "completionTime": now, "succeeded": 1, "ready": 0, "active": 0,
        "uncountedTerminatedPods": {}, "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}})
}

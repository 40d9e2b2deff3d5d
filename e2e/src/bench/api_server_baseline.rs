//! What the API server takes for the writes that no controller can avoid: create, the status apply that admits, the one
//! that finishes; without controller and webhooks, with the generator's watch on.

use super::load::{WorkloadWatch, apply_status, finish};
use super::scenario::{NAMESPACE, Scenario, condition, to_f64};
use crate::control_plane::ControlPlane;
use crate::objects::{Kind, ObjectClient};
use crate::process::ProcessUsage;
use crate::wait::eventually;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use std::thread::available_parallelism;

/// Workloads that are measured, after as many to warm up: enough for the server to collect its garbage several times.
const SAMPLE_SIZE: usize = 1500;
/// Requests at once.
const CLIENTS: usize = 16;

/// CPU milliseconds of kube-apiserver and etcd per write.
#[derive(Clone, Copy, Debug)]
pub struct ApiServerBaseline {
    /// Create.
    pub create_ms: f64,
    /// The status apply that admits.
    pub admit_ms: f64,
    /// The status apply that finishes.
    pub finish_ms: f64,
    /// Cores that they share.
    pub cores: usize,
}

impl ApiServerBaseline {
    /// Seconds for so many workloads when nothing else runs.
    pub fn seconds(&self, workloads: usize) -> f64 {
        (self.create_ms + self.admit_ms + self.finish_ms) / 1000.0 * to_f64(workloads) / to_f64(self.cores)
    }

    /// Measures it. The queues are there; what it makes is gone at the end.
    pub async fn measure(plane: &ControlPlane, objects: &ObjectClient, scenario: &Scenario) -> Result<Self> {
        let mut watch = WorkloadWatch::start(objects).await?;
        let seen = tokio::spawn(async move { while watch.next().await.is_ok() {} });
        let queue = scenario.queue_names().into_iter().next().context("no queue")?;
        let class = &scenario.classes[0];
        let mut spent = [0.0; 3];
        for round in ["warm", "floor"] {
            let names = |n: usize| format!("{round}-{n}");
            spent[0] = cpu_ms_per_write(plane, async |n| {
                objects
                    .create(Kind::WORKLOAD, &scenario.workload(&names(n), &queue, class, n))
                    .await
                    .map(drop)?;
                Ok(())
            })
            .await?;
            spent[1] = cpu_ms_per_write(plane, async |n| {
                let status = json!({"admission": scenario.admission(&queue, class), "conditions": [
                    condition("QuotaReserved", "QuotaReserved", "Quota reserved in ClusterQueue"),
                    condition("Admitted", "Admitted", "The workload is admitted"),
                ]});
                apply_status(objects, &names(n), "kueue-admission", &status).await
            })
            .await?;
            spent[2] = cpu_ms_per_write(plane, async |n| finish(objects, &names(n)).await).await?;
        }
        seen.abort();
        let all = objects.api(Kind::WORKLOAD, NAMESPACE);
        all.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        eventually("the workloads of the floor are gone", async || {
            let left = objects.list(Kind::WORKLOAD, NAMESPACE, "").await?.len();
            ensure!(left == 0, "{left} are left");
            Ok(())
        })
        .await?;
        let cores = available_parallelism()?.get();
        Ok(Self { create_ms: spent[0], admit_ms: spent[1], finish_ms: spent[2], cores })
    }
}

/// CPU milliseconds of the server and its store for one of `SAMPLE` writes.
async fn cpu_ms_per_write(plane: &ControlPlane, write: impl AsyncFn(usize) -> Result<()>) -> Result<f64> {
    let before = control_plane_cpu_seconds(plane)?;
    stream::iter(0..SAMPLE_SIZE).map(|n| write(n)).buffer_unordered(CLIENTS).try_collect::<Vec<()>>().await?;
    // What they still do for these writes, as watches and garbage, counts.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    Ok((control_plane_cpu_seconds(plane)? - before) * 1000.0 / to_f64(SAMPLE_SIZE))
}

/// CPU seconds of kube-apiserver and etcd so far.
pub fn control_plane_cpu_seconds(plane: &ControlPlane) -> Result<f64> {
    let mut sum = 0.0;
    for name in ["kube-apiserver", "etcd"] {
        sum += ProcessUsage::of_process(plane.pid(name).with_context(|| format!("no {name}"))?)?
            .cpu
            .as_secs_f64();
    }
    Ok(sum)
}

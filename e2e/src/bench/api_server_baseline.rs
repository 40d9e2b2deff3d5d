//! CPU cost of the writes that no controller can avoid: create, the status apply that admits, the status apply that
//! finishes. Measured without controller and webhooks, with the load generator's watch open.

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

/// Measured Workloads, after the same number for warm-up: enough for several garbage collections in the server.
const SAMPLE_SIZE: usize = 1500;
/// Concurrent requests.
const CLIENTS: usize = 16;

/// CPU milliseconds of kube-apiserver and etcd per write.
#[derive(Clone, Copy, Debug)]
pub struct ApiServerBaseline {
    /// Create.
    pub create_ms: f64,
    /// Status apply that admits.
    pub admit_ms: f64,
    /// Status apply that finishes.
    pub finish_ms: f64,
    /// Cores of this machine.
    pub cores: usize,
}

impl ApiServerBaseline {
    /// Returns the seconds that these writes take for so many workloads if nothing else runs.
    pub fn seconds(&self, workloads: usize) -> f64 {
        (self.create_ms + self.admit_ms + self.finish_ms) / 1000.0 * to_f64(workloads) / to_f64(self.cores)
    }

    /// Measures the baseline. Queues must exist; the Workloads it creates are deleted at the end.
    pub async fn measure(plane: &ControlPlane, objects: &ObjectClient, scenario: &Scenario) -> Result<Self> {
        let mut watch = WorkloadWatch::start(objects).await?;
        let watcher = tokio::spawn(async move { while watch.next().await.is_ok() {} });
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
        watcher.abort();
        let all = objects.api(Kind::WORKLOAD, NAMESPACE);
        all.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        eventually("the baseline workloads are deleted", async || {
            let left = objects.list(Kind::WORKLOAD, NAMESPACE, "").await?.len();
            ensure!(left == 0, "{left} still exist");
            Ok(())
        })
        .await?;
        let cores = available_parallelism()?.get();
        Ok(Self { create_ms: spent[0], admit_ms: spent[1], finish_ms: spent[2], cores })
    }
}

/// Runs `SAMPLE_SIZE` writes; returns the CPU milliseconds of kube-apiserver and etcd per write.
async fn cpu_ms_per_write(plane: &ControlPlane, write: impl AsyncFn(usize) -> Result<()>) -> Result<f64> {
    let before = control_plane_cpu_seconds(plane)?;
    stream::iter(0..SAMPLE_SIZE).map(|n| write(n)).buffer_unordered(CLIENTS).try_collect::<Vec<()>>().await?;
    // Includes work that follows the writes, such as watch events and garbage collection.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    Ok((control_plane_cpu_seconds(plane)? - before) * 1000.0 / to_f64(SAMPLE_SIZE))
}

/// Returns the CPU seconds that kube-apiserver and etcd have used so far.
pub fn control_plane_cpu_seconds(plane: &ControlPlane) -> Result<f64> {
    let mut sum = 0.0;
    for name in ["kube-apiserver", "etcd"] {
        sum += ProcessUsage::of_process(plane.pid(name).with_context(|| format!("no {name}"))?)?
            .cpu
            .as_secs_f64();
    }
    Ok(sum)
}

//! The webhook configurations are deleted while the manager runs: the reconciler alone keeps Jobs from running without quota.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install;
use sluice_e2e::objects::{Kind, text};
use sluice_e2e::wait::eventually;

/// A Job that starts by itself in a full queue is suspended and its pods end; one that fits runs on quota, and the first one after it.
pub(crate) async fn jobs_wait_without_webhooks(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.wait_until_queue_active("main").await?;
    let removed = install::remove_webhooks(&fixture.objects).await?;
    ensure!(!removed.is_empty(), "there are no webhook configurations");
    let outcome = without(fixture).await;
    for (kind, body) in removed {
        fixture.objects.create(kind, &body).await?;
    }
    outcome?;
    cluster.manager()?.wait_until_ready().await?;
    cluster.wait_for_webhooks().await
}

async fn without(fixture: &Fixture) -> Result<()> {
    fixture.objects.create(Kind::JOB, fixture.job("fits", "main", "1").body()).await?;
    fixture.wait_until_running("fits").await?;
    let created = fixture.objects.create(Kind::JOB, fixture.job("waits", "main", "1").body()).await?;
    ensure!(created["spec"]["suspend"] != json!(true), "a webhook suspended the Job: {}", created["spec"]);
    fixture.wait_for_condition("waits", "QuotaReserved", "False", "").await?;
    eventually("the Job is suspended and has no pods", async || {
        let job = fixture.objects.must_get(Kind::JOB, &fixture.name, "waits").await?;
        ensure!(job["spec"]["suspend"] == json!(true), "{} is not suspended", text(&job, "/metadata/name"));
        let pods: Vec<Value> = fixture.pods("waits").await?;
        ensure!(pods.is_empty(), "{} pods run without quota", pods.len());
        Ok(())
    })
    .await?;
    fixture.wait_for_cpu_usage("main", "1").await?;
    fixture.finish_job("fits").await?;
    fixture.wait_until_running("waits").await?;
    fixture.finish_job("waits").await
}

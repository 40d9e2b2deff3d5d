//! Who comes first.

use crate::fixture::Fixture;
use crate::history::History;
use anyhow::{Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, text};
use sluice_e2e::wait::eventually;

/// A queue that a Job has filled, and three classes, the lowest first.
async fn full_queue(ground: &Fixture) -> Result<[String; 3]> {
    ground.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let classes = [
        ground.create_priority_class("low", 1).await?,
        ground.create_priority_class("mid", 10).await?,
        ground.create_priority_class("high", 100).await?,
    ];
    ground.submit(ground.job("holder", "main", "1")).await?;
    ground.wait_until_running("holder").await?;
    Ok(classes)
}

pub(crate) async fn higher_priority_first(_: &Cluster, ground: &Fixture) -> Result<()> {
    let [low, mid, high] = full_queue(ground).await?;
    for (name, class) in [("low", low), ("high", high), ("mid", mid)] {
        ground.submit(ground.job(name, "main", "1").priority(&class)).await?;
        ground.wait_until_pending(name, "WaitingForQuota").await?;
    }
    ground.finish_job("holder").await?;
    ground.wait_until_running("high").await?;
    ground.check_pending("mid").await?;
    ground.check_pending("low").await?;
    ground.finish_job("high").await?;
    ground.wait_until_running("mid").await?;
    ground.check_pending("low").await?;
    ground.finish_job("mid").await?;
    ground.wait_until_running("low").await
}

/// A Job's priority class may change while it waits: it moves forward in the line.
pub(crate) async fn priority_raised_while_pending(_: &Cluster, ground: &Fixture) -> Result<()> {
    let [low, mid, high] = full_queue(ground).await?;
    ground.submit(ground.job("front", "main", "1").priority(&mid)).await?;
    ground.wait_until_pending("front", "WaitingForQuota").await?;
    ground.submit(ground.job("raised", "main", "1").priority(&low)).await?;
    ground.wait_until_pending("raised", "WaitingForQuota").await?;
    let label = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": high}}});
    ground.objects.merge(Kind::JOB, &ground.name, "raised", &label).await?;
    eventually("its Workload has the new priority", async || {
        let workload = ground.workload("raised").await?;
        ensure!(workload["spec"]["priority"] == json!(100), "it has {}", workload["spec"]["priority"]);
        Ok(())
    })
    .await?;
    ground.check_pending("raised").await?;
    ground.finish_job("holder").await?;
    ground.wait_until_running("raised").await?;
    ground.check_pending("front").await?;
    ground.finish_job("raised").await?;
    ground.wait_until_running("front").await
}

pub(crate) async fn strict_fifo_keeps_order(_: &Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", "3", None)], json!({"queueingStrategy": "StrictFIFO"})).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    ground.submit(ground.job("holder", "main", "2")).await?;
    ground.wait_until_running("holder").await?;
    ground.submit(ground.job("big", "main", "2")).await?;
    ground.wait_until_pending("big", "WaitingForQuota").await?;
    // It would fit, but stands behind: creation times have whole seconds, so it must be of a later one.
    let born = text(&ground.workload("big").await?, "/metadata/creationTimestamp").parse::<Timestamp>()?;
    eventually("another second", async || {
        ensure!(Timestamp::now().as_second() > born.as_second(), "it is the same");
        Ok(())
    })
    .await?;
    ground.submit(ground.job("small", "main", "1")).await?;
    ground.finish_job("holder").await?;
    ground.wait_until_running("big").await?;
    ground.wait_until_running("small").await?;
    // Both fit once the holder has ended; until then the one behind had no chance.
    let (ended, small) = (
        history.first_index("job-holder-", "Finished")?,
        history.first_index("job-small-", "QuotaReserved")?,
    );
    ensure!(
        ended.is_some() && ended < small,
        "small got quota at revision {small:?}, the holder ended at {ended:?}"
    );
    Ok(())
}

pub(crate) async fn best_effort_lets_smaller_pass(_: &Cluster, ground: &Fixture) -> Result<()> {
    ground
        .create_queue("main", "", &[("cpu", "3", None)], json!({"queueingStrategy": "BestEffortFIFO"}))
        .await?;
    ground.submit(ground.job("holder", "main", "2")).await?;
    ground.wait_until_running("holder").await?;
    ground.submit(ground.job("big", "main", "2")).await?;
    ground.wait_until_pending("big", "WaitingForQuota").await?;
    ground.submit(ground.job("small", "main", "1")).await?;
    ground.wait_until_running("small").await?;
    ground.check_pending("big").await?;
    ground.finish_job("holder").await?;
    ground.wait_until_running("big").await
}

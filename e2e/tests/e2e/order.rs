//! Who comes first.

use crate::ground::Ground;
use crate::history::History;
use anyhow::{Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, text};
use sluice_e2e::wait::eventually;

/// A queue that a Job has filled, and three classes, the lowest first.
async fn full_queue(ground: &Ground) -> Result<[String; 3]> {
    ground.queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let classes = [
        ground.priority("low", 1).await?,
        ground.priority("mid", 10).await?,
        ground.priority("high", 100).await?,
    ];
    ground.submit(ground.job("holder", "main", "1")).await?;
    ground.runs("holder").await?;
    Ok(classes)
}

pub(crate) async fn higher_priority_first(_: &Cluster, ground: &Ground) -> Result<()> {
    let [low, mid, high] = full_queue(ground).await?;
    for (name, class) in [("low", low), ("high", high), ("mid", mid)] {
        ground.submit(ground.job(name, "main", "1").priority(&class)).await?;
        ground.waits(name, "WaitingForQuota").await?;
    }
    ground.finish("holder").await?;
    ground.runs("high").await?;
    ground.still_waits("mid").await?;
    ground.still_waits("low").await?;
    ground.finish("high").await?;
    ground.runs("mid").await?;
    ground.still_waits("low").await?;
    ground.finish("mid").await?;
    ground.runs("low").await
}

/// A Job's priority class may change while it waits: it moves forward in the line.
pub(crate) async fn priority_raised_while_pending(_: &Cluster, ground: &Ground) -> Result<()> {
    let [low, mid, high] = full_queue(ground).await?;
    ground.submit(ground.job("front", "main", "1").priority(&mid)).await?;
    ground.waits("front", "WaitingForQuota").await?;
    ground.submit(ground.job("raised", "main", "1").priority(&low)).await?;
    ground.waits("raised", "WaitingForQuota").await?;
    let label = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": high}}});
    ground.objects.merge(Kind::JOB, &ground.name, "raised", &label).await?;
    eventually("its Workload has the new priority", async || {
        let workload = ground.workload("raised").await?;
        ensure!(workload["spec"]["priority"] == json!(100), "it has {}", workload["spec"]["priority"]);
        Ok(())
    })
    .await?;
    ground.still_waits("raised").await?;
    ground.finish("holder").await?;
    ground.runs("raised").await?;
    ground.still_waits("front").await?;
    ground.finish("raised").await?;
    ground.runs("front").await
}

pub(crate) async fn strict_fifo_keeps_the_line(_: &Cluster, ground: &Ground) -> Result<()> {
    ground.queue("main", "", &[("cpu", "3", None)], json!({"queueingStrategy": "StrictFIFO"})).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    ground.submit(ground.job("holder", "main", "2")).await?;
    ground.runs("holder").await?;
    ground.submit(ground.job("big", "main", "2")).await?;
    ground.waits("big", "WaitingForQuota").await?;
    // It would fit, but stands behind: creation times have whole seconds, so it must be of a later one.
    let born = text(&ground.workload("big").await?, "/metadata/creationTimestamp").parse::<Timestamp>()?;
    eventually("another second", async || {
        ensure!(Timestamp::now().as_second() > born.as_second(), "it is the same");
        Ok(())
    })
    .await?;
    ground.submit(ground.job("small", "main", "1")).await?;
    ground.finish("holder").await?;
    ground.runs("big").await?;
    ground.runs("small").await?;
    // Both fit once the holder has ended; until then the one behind had no chance.
    let (ended, small) =
        (history.first("job-holder-", "Finished")?, history.first("job-small-", "QuotaReserved")?);
    ensure!(
        ended.is_some() && ended < small,
        "small got quota at revision {small:?}, the holder ended at {ended:?}"
    );
    Ok(())
}

pub(crate) async fn best_effort_fifo_lets_smaller_ones_pass(_: &Cluster, ground: &Ground) -> Result<()> {
    ground.queue("main", "", &[("cpu", "3", None)], json!({"queueingStrategy": "BestEffortFIFO"})).await?;
    ground.submit(ground.job("holder", "main", "2")).await?;
    ground.runs("holder").await?;
    ground.submit(ground.job("big", "main", "2")).await?;
    ground.waits("big", "WaitingForQuota").await?;
    ground.submit(ground.job("small", "main", "1")).await?;
    ground.runs("small").await?;
    ground.still_waits("big").await?;
    ground.finish("holder").await?;
    ground.runs("big").await
}

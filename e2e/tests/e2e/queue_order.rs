//! Queue order: priority, creation time, StrictFIFO and BestEffortFIFO.

use crate::fixture::Fixture;
use crate::history::History;
use anyhow::{Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, text};
use sluice_e2e::wait::eventually;

/// Creates a queue that a running Job fills; returns three priority classes, lowest first.
async fn full_queue(fixture: &Fixture) -> Result<[String; 3]> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let classes = [
        fixture.create_priority_class("low", 1).await?,
        fixture.create_priority_class("mid", 10).await?,
        fixture.create_priority_class("high", 100).await?,
    ];
    fixture.submit(fixture.job("running", "main", "1")).await?;
    fixture.wait_until_running("running").await?;
    Ok(classes)
}

pub(crate) async fn higher_priority_first(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let [low, mid, high] = full_queue(fixture).await?;
    for (name, class) in [("low", low), ("high", high), ("mid", mid)] {
        fixture.submit(fixture.job(name, "main", "1").priority(&class)).await?;
        fixture.wait_until_pending(name, "WaitingForQuota").await?;
    }
    fixture.finish_job("running").await?;
    fixture.wait_until_running("high").await?;
    fixture.check_pending("mid").await?;
    fixture.check_pending("low").await?;
    fixture.finish_job("high").await?;
    fixture.wait_until_running("mid").await?;
    fixture.check_pending("low").await?;
    fixture.finish_job("mid").await?;
    fixture.wait_until_running("low").await
}

/// Raising a pending Job's priority class moves it ahead in the queue.
pub(crate) async fn priority_raised_while_pending(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let [low, mid, high] = full_queue(fixture).await?;
    fixture.submit(fixture.job("front", "main", "1").priority(&mid)).await?;
    fixture.wait_until_pending("front", "WaitingForQuota").await?;
    fixture.submit(fixture.job("raised", "main", "1").priority(&low)).await?;
    fixture.wait_until_pending("raised", "WaitingForQuota").await?;
    let label = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": high}}});
    fixture.objects.merge(Kind::JOB, &fixture.name, "raised", &label).await?;
    eventually("the Workload has the new priority", async || {
        let workload = fixture.workload("raised").await?;
        ensure!(
            workload["spec"]["priority"] == json!(100),
            "its priority is {}",
            workload["spec"]["priority"]
        );
        Ok(())
    })
    .await?;
    fixture.check_pending("raised").await?;
    fixture.finish_job("running").await?;
    fixture.wait_until_running("raised").await?;
    fixture.check_pending("front").await?;
    fixture.finish_job("raised").await?;
    fixture.wait_until_running("front").await
}

pub(crate) async fn strict_fifo_keeps_order(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture
        .create_queue("main", "", &[("cpu", "3", None)], json!({"queueingStrategy": "StrictFIFO"}))
        .await?;
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    fixture.submit(fixture.job("running", "main", "2")).await?;
    fixture.wait_until_running("running").await?;
    fixture.submit(fixture.job("big", "main", "2")).await?;
    fixture.wait_until_pending("big", "WaitingForQuota").await?;
    // "small" would fit but must stay behind "big". Creation times have whole seconds, so create it in a later second.
    let created_at =
        text(&fixture.workload("big").await?, "/metadata/creationTimestamp").parse::<Timestamp>()?;
    eventually("the next second has begun", async || {
        ensure!(Timestamp::now().as_second() > created_at.as_second(), "still the same second");
        Ok(())
    })
    .await?;
    fixture.submit(fixture.job("small", "main", "1")).await?;
    fixture.finish_job("running").await?;
    fixture.wait_until_running("big").await?;
    fixture.wait_until_running("small").await?;
    // Both fit when the holder has finished; "small" must not get quota before that.
    let (ended, small) = (
        history.first_index("job-running-", "Finished")?,
        history.first_index("job-small-", "QuotaReserved")?,
    );
    ensure!(
        ended.is_some() && ended < small,
        "small got quota at revision {small:?}, the holder finished at {ended:?}"
    );
    Ok(())
}

pub(crate) async fn best_effort_lets_smaller_pass(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture
        .create_queue("main", "", &[("cpu", "3", None)], json!({"queueingStrategy": "BestEffortFIFO"}))
        .await?;
    fixture.submit(fixture.job("running", "main", "2")).await?;
    fixture.wait_until_running("running").await?;
    fixture.submit(fixture.job("big", "main", "2")).await?;
    fixture.wait_until_pending("big", "WaitingForQuota").await?;
    fixture.submit(fixture.job("small", "main", "1")).await?;
    fixture.wait_until_running("small").await?;
    fixture.check_pending("big").await?;
    fixture.finish_job("running").await?;
    fixture.wait_until_running("big").await
}

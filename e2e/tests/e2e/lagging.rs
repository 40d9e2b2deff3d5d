//! A manager that starts at an API server which is behind: it decides on what was, and must not harm what is.

use crate::ground::Ground;
use crate::history::History;
use crate::watches::most_held;
use anyhow::{Result, ensure};
use kube::api::{ListParams, PropagationPolicy};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::lag::Lag;
use sluice_e2e::manager::Settings;
use sluice_e2e::objects::{Kind, holds, text};
use sluice_e2e::proxy::Proxy;
use sluice_e2e::wait::{eventually, scaled};
use std::time::Duration;

/// How far the server is behind.
const BEHIND: Duration = Duration::from_secs(30);

/// Its first lists show a Job that has gone since, one pending that runs by now, and one not at all that waits: what it
/// writes of them does not land, nothing comes back from the dead, no queue holds more than its quota, and when the server
/// has caught up everything goes on.
pub(crate) async fn a_server_that_is_behind(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let proxy = Proxy::open(&cluster.plane).await?;
    ground.queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    ground.submit(ground.job("gone", "main", "1")).await?;
    ground.runs("gone").await?;
    ground.submit(ground.job("next", "main", "1")).await?;
    ground.waits("next", "WaitingForQuota").await?;
    let list = ground.objects.api(Kind::WORKLOAD, "").list(&ListParams::default()).await?;
    let revision = list.metadata.resource_version.unwrap_or_default();
    ground.objects.delete(Kind::JOB, &ground.name, "gone", PropagationPolicy::Background).await?;
    ground.runs("next").await?;
    ground.submit(ground.job("third", "main", "1")).await?;
    ground.waits("third", "WaitingForQuota").await?;
    no_trace_of(ground, "gone").await?;

    let time = scaled(BEHIND);
    proxy.fall_behind(Some(Lag { revision, time }));
    let settings = Settings { server: Some(proxy.url()), ..cluster.manager()?.settings().clone() };
    let before = cluster.replace_manager(&settings).await?;
    ensure!(proxy.told_late() > 10, "{} lists were told late", proxy.told_late());
    proxy.fall_behind(None);
    // It goes on to act on what it sees for as long as it sees no more.
    tokio::time::sleep(time / 2).await;
    ensure!(holds(&ground.workload("next").await?, "Admitted"), "the one that runs was stopped");
    ground.still_waits("third").await?;
    no_trace_of(ground, "gone").await?;
    tokio::time::sleep(time / 2).await;
    ground.counts("main", (1, 1, 1), &[("cpu", "1")]).await?;
    ground.finish("next").await?;
    ground.runs("third").await?;
    ground.finish("third").await?;
    ground.counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    no_trace_of(ground, "gone").await?;
    ensure!(most_held(&history.revisions()?, 1)? == 1, "nobody held anything");
    let evicted = history.first("", "Evicted")?;
    ensure!(evicted.is_none(), "somebody was evicted");
    cluster.replace_manager(&before).await.map(drop)
}

async fn no_trace_of(ground: &Ground, job: &str) -> Result<()> {
    eventually(format!("nothing is left of {job}"), async || {
        let all = ground.objects.list(Kind::WORKLOAD, &ground.name, "").await?;
        let left = all.iter().find(|w| text(w, "/metadata/name").starts_with(&format!("job-{job}-")));
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
    .await
}

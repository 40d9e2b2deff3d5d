//! A manager that starts against a stale API server: it decides on an earlier state and must not damage the current
//! one.

use crate::fixture::Fixture;
use crate::history::History;
use crate::watch_faults::max_reserved;
use anyhow::{Result, ensure};
use kube::api::{ListParams, PropagationPolicy};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::ManagerSettings;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::proxy::Proxy;
use sluice_e2e::stale_lists::StaleLists;
use sluice_e2e::wait::{eventually, scaled_duration};
use std::time::Duration;

/// How far the API server lags; a tenth of it outside soak runs.
const LAG: Duration = Duration::from_secs(30);

/// The initial lists contain a Job that has been deleted, show a running Job as pending, and lack a third, pending Job.
/// Writes based on them do not land, no deleted object is recreated, no queue exceeds its quota, and when the server
/// has caught up all Jobs continue.
pub(crate) async fn manager_starts_on_stale_lists(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let proxy = Proxy::open(&cluster.plane).await?;
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    fixture.submit(fixture.job("deleted", "main", "1")).await?;
    fixture.wait_until_running("deleted").await?;
    fixture.submit(fixture.job("next", "main", "1")).await?;
    fixture.wait_until_pending("next", "WaitingForQuota").await?;
    let list = fixture.objects.api(Kind::WORKLOAD, "").list(&ListParams::default()).await?;
    let revision = list.metadata.resource_version.unwrap_or_default();
    fixture.objects.delete(Kind::JOB, &fixture.name, "deleted", PropagationPolicy::Background).await?;
    fixture.wait_until_running("next").await?;
    fixture.submit(fixture.job("third", "main", "1")).await?;
    fixture.wait_until_pending("third", "WaitingForQuota").await?;
    wait_until_deleted(fixture, "deleted").await?;

    let time = scaled_duration(LAG);
    // The event that the Job runs arrives before the event that its Workload was admitted.
    proxy.serve_stale_lists(Some(StaleLists { revision, delay: time, sooner: &["jobs"] }));
    let settings =
        ManagerSettings { api_server_url: Some(proxy.url()), ..cluster.manager()?.settings().clone() };
    let before = cluster.replace_manager(&settings).await?;
    ensure!(proxy.stale_lists_served() > 10, "{} lists were served stale", proxy.stale_lists_served());
    proxy.serve_stale_lists(None);
    // The manager acts on the stale state until the delayed events arrive.
    tokio::time::sleep(time / 2).await;
    ensure!(condition_is_true(&fixture.workload("next").await?, "Admitted"), "the running Job was stopped");
    fixture.check_pending("third").await?;
    wait_until_deleted(fixture, "deleted").await?;
    tokio::time::sleep(time / 2).await;
    fixture.wait_for_queue_counts("main", (1, 1, 1), &[("cpu", "1")]).await?;
    fixture.finish_job("next").await?;
    fixture.wait_until_running("third").await?;
    fixture.finish_job("third").await?;
    fixture.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    wait_until_deleted(fixture, "deleted").await?;
    ensure!(max_reserved(&history.revisions()?, 1)? == 1, "no workload reserved quota");
    let evicted = history.first_index("", "Evicted")?;
    ensure!(evicted.is_none(), "a workload was evicted");
    cluster.replace_manager(&before).await.map(drop)
}

async fn wait_until_deleted(fixture: &Fixture, job: &str) -> Result<()> {
    eventually(format!("the Workload of {job} is deleted"), async || {
        let all = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
        let left = all.iter().find(|w| text(w, "/metadata/name").starts_with(&format!("job-{job}-")));
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
    .await
}

//! Quota of cohort trees.

use crate::fixture::Fixture;
use crate::history::History;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, condition_is_true, text};
use std::collections::BTreeMap;

/// Scenario of volcano#4118: the parent has 2 CPU and 4 Gi, its children have no quota of their own. The second Job
/// starts when the first has finished, not before.
pub(crate) async fn siblings_share_full_parent(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let parent = fixture.create_cohort("parent", "", &[("cpu", "2", None), ("memory", "4Gi", None)]).await?;
    for child in ["left", "right"] {
        fixture.create_queue(child, &parent, &[("cpu", "0", None), ("memory", "0", None)], json!({})).await?;
    }
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let requests = [("cpu", "2"), ("memory", "4Gi")];
    fixture.submit(Job::new(&fixture.name, "job-1", "left", &requests)).await?;
    fixture.wait_until_running("job-1").await?;
    fixture.submit(Job::new(&fixture.name, "job-2", "right", &requests)).await?;
    fixture.wait_until_pending("job-2", "WaitingForQuota").await?;
    fixture.finish_job("job-1").await?;
    fixture.wait_until_running("job-2").await?;

    // At no revision do both have quota, and no pod of job-2 was created before the end of job-1.
    let mut reserving = BTreeMap::new();
    for object in history.revisions()? {
        let name = text(&object, "/metadata/name").to_owned();
        reserving.insert(
            name,
            condition_is_true(&object, "QuotaReserved") && !condition_is_true(&object, "Finished"),
        );
        ensure!(
            reserving.values().filter(|reserves| **reserves).count() <= 1,
            "both have quota: {reserving:?}"
        );
    }
    let ended = fixture.objects.must_get(Kind::JOB, &fixture.name, "job-1").await?;
    for pod in fixture.pods("job-2").await? {
        let (created, ended) =
            (text(&pod, "/metadata/creationTimestamp"), text(&ended, "/status/completionTime"));
        ensure!(created >= ended, "a pod of job-2 was created at {created}, job-1 ended at {ended}");
    }
    Ok(())
}

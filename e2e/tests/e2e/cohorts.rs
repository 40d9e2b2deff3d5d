//! Quota of whole trees.

use crate::fixture::Fixture;
use crate::history::History;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, condition_is_true, text};
use std::collections::BTreeMap;

/// The shape of volcano#4118: the parent has 2 CPU and 4 Gi, its children have nothing of their own.
pub(crate) async fn siblings_share_full_parent(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let parent = fixture.create_cohort("parent", "", &[("cpu", "2", None), ("memory", "4Gi", None)]).await?;
    for child in ["left", "right"] {
        fixture.create_queue(child, &parent, &[("cpu", "0", None), ("memory", "0", None)], json!({})).await?;
    }
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let asks = [("cpu", "2"), ("memory", "4Gi")];
    fixture.submit(Job::new(&fixture.name, "job-1", "left", &asks)).await?;
    fixture.wait_until_running("job-1").await?;
    fixture.submit(Job::new(&fixture.name, "job-2", "right", &asks)).await?;
    fixture.wait_until_pending("job-2", "WaitingForQuota").await?;
    fixture.finish_job("job-1").await?;
    fixture.wait_until_running("job-2").await?;

    // At no revision did both hold quota, and no pod of job-2 is older than the end of job-1.
    let mut holders = BTreeMap::new();
    for object in history.revisions()? {
        let name = text(&object, "/metadata/name").to_owned();
        holders.insert(
            name,
            condition_is_true(&object, "QuotaReserved") && !condition_is_true(&object, "Finished"),
        );
        ensure!(holders.values().filter(|holds| **holds).count() <= 1, "both hold quota: {holders:?}");
    }
    let ended = fixture.objects.must_get(Kind::JOB, &fixture.name, "job-1").await?;
    for pod in fixture.pods("job-2").await? {
        let (born, ended) =
            (text(&pod, "/metadata/creationTimestamp"), text(&ended, "/status/completionTime"));
        ensure!(born >= ended, "a pod of job-2 was born at {born}, job-1 ended at {ended}");
    }
    Ok(())
}

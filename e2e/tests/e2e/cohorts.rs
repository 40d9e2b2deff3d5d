//! Quota of whole trees.

use crate::ground::Ground;
use crate::history::History;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, holds, text};
use std::collections::BTreeMap;

/// The shape of volcano#4118: the parent has 2 CPU and 4 Gi, its children have nothing of their own.
pub(crate) async fn two_children_of_a_full_parent(_: &Cluster, ground: &Ground) -> Result<()> {
    let parent = ground.cohort("parent", "", &[("cpu", "2", None), ("memory", "4Gi", None)]).await?;
    for child in ["left", "right"] {
        ground.queue(child, &parent, &[("cpu", "0", None), ("memory", "0", None)], json!({})).await?;
    }
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let asks = [("cpu", "2"), ("memory", "4Gi")];
    ground.submit(Job::new(&ground.name, "job-1", "left", &asks)).await?;
    ground.runs("job-1").await?;
    ground.submit(Job::new(&ground.name, "job-2", "right", &asks)).await?;
    ground.waits("job-2", "WaitingForQuota").await?;
    ground.finish("job-1").await?;
    ground.runs("job-2").await?;

    // At no revision did both hold quota, and no pod of job-2 is older than the end of job-1.
    let mut holders = BTreeMap::new();
    for object in history.revisions()? {
        let name = text(&object, "/metadata/name").to_owned();
        holders.insert(name, holds(&object, "QuotaReserved") && !holds(&object, "Finished"));
        ensure!(holders.values().filter(|holds| **holds).count() <= 1, "both hold quota: {holders:?}");
    }
    let ended = ground.objects.need(Kind::JOB, &ground.name, "job-1").await?;
    for pod in ground.pods("job-2").await? {
        let (born, ended) =
            (text(&pod, "/metadata/creationTimestamp"), text(&ended, "/status/completionTime"));
        ensure!(born >= ended, "a pod of job-2 was born at {born}, job-1 ended at {ended}");
    }
    Ok(())
}

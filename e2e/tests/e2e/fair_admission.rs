//! Admission fair sharing: of two LocalQueues of a ClusterQueue, the one that has used less goes first, whatever was created first.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{self, Kind};
use sluice_e2e::wait::eventually;

pub(crate) async fn less_used_queue_goes_first(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let sharing =
        json!({"admissionFairSharing": {"usageHalfLifeTime": "10m", "usageSamplingInterval": "1s"}});
    let before = cluster.reconfigure(&sharing).await?;
    let scope = json!({"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}});
    let queue = fixture.create_queue("used", "", &[("cpu", "1", None)], scope).await?;
    let unused = objects::local_queue(&fixture.name, "unused", &queue);
    fixture.objects.create(Kind::LOCAL_QUEUE, &unused).await?;
    fixture.submit(fixture.job("runs", "used", "1")).await?;
    fixture.wait_until_running("runs").await?;
    eventually("the past usage of its queue is published", async || {
        let queue = fixture.objects.must_get(Kind::LOCAL_QUEUE, &fixture.name, "used").await?;
        let status = &queue["status"]["fairSharing"]["admissionFairSharingStatus"];
        ensure!(status["consumedResources"]["cpu"].is_string(), "{}", queue["status"]);
        Ok(())
    })
    .await?;
    for (name, queue) in [("older", "used"), ("newer", "unused")] {
        fixture.submit(fixture.job(name, queue, "1")).await?;
        fixture.wait_until_pending(name, "WaitingForQuota").await?;
    }
    fixture.finish_job("runs").await?;
    fixture.wait_until_running("newer").await?;
    fixture.check_pending("older").await?;
    fixture.finish_job("newer").await?;
    fixture.wait_until_running("older").await?;
    fixture.finish_job("older").await?;
    cluster.reconfigure(&before).await.map(drop)
}

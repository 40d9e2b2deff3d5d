//! The end of what a dump holds: jobs that run end, and what waits is admitted and ends too.

use crate::fixture::Fixture;
use crate::job_kinds::PlayedKind;
use crate::provisioning;
use crate::upgrade_scene::{NAME, NARROW, group_member, set_check};
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice::frameworks::{PlayedState, Role, frameworks};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::upgrades::Records;
use sluice_e2e::wait::within;
use std::time::Duration;

/// Time for some eighty jobs to end one after the other.
const TIMEOUT: Duration = Duration::from_mins(3);
/// Pause between two rounds over all objects of all kinds.
const PAUSE: Duration = Duration::from_secs(1);
/// Workloads that never end, by the beginnings of their names: deactivated, stopped, in back-off, too large, without a node, a queue or
/// a job.
const REMAIN: [&str; 14] = [
    "job-off-",
    "job-stuck-",
    "job-rejected-",
    "job-late-",
    "job-unready-",
    "job-again-",
    "job-impossible-",
    "job-queueless-",
    "job-held-waiting-",
    "job-drained-",
    "bare",
    "old",
    "group-lacks",
    "prebuilt",
];

/// Begins the end: some jobs end, a check gets ready, quota is raised, pods that hold quota go.
pub(crate) async fn begin(cluster: &Cluster) -> Result<()> {
    let fixture = Fixture::new(cluster, NAME);
    for job in ["running", "limited", "urgent", "borrower"] {
        fixture.finish_job(job).await?;
    }
    for job in ["waiting", "victim"] {
        fixture.wait_until_running(job).await.context("what waits is admitted")?;
    }
    let reserved = fixture.workload("reserved").await?;
    set_check(&fixture, text(&reserved, "/metadata/name"), "Ready", None).await?;
    fixture.wait_until_running("reserved").await?;
    for job in ["stuck", "going", "slow-victim"] {
        fixture.force_delete_pods(job)?;
    }
    for job in ["behind-stuck", "behind-going", "later"] {
        fixture.wait_until_running(job).await.context("quota of deleted pods is free")?;
    }
    let again = group_member("group-failed-again", "group-failed", "1");
    fixture.objects.create(Kind::POD, &again).await?;
    let queue = fixture.own_name(NARROW);
    let object = fixture.objects.must_get(Kind::CLUSTER_QUEUE, "", &queue).await?;
    let mut groups = object["spec"]["resourceGroups"].clone();
    for resource in groups[0]["flavors"][0]["resources"].as_array_mut().into_iter().flatten() {
        let is_cpu = resource["name"] == "cpu";
        resource["nominalQuota"] = if is_cpu { "100".into() } else { "100Gi".into() };
    }
    fixture.set_spec(Kind::CLUSTER_QUEUE, "", &queue, json!({"resourceGroups": groups})).await
}

/// Ends everything that can end, again and again, until nothing but what remains for ever is unfinished.
pub(crate) async fn finish(cluster: &Cluster) -> Result<()> {
    let fixture = Fixture::new(cluster, NAME);
    within(TIMEOUT, "all jobs end", async || {
        let records = Records::read(&fixture.objects, &[NAME]).await?;
        end_pods(&fixture, &records).await?;
        end_kinds(&fixture, &records).await?;
        for request in records.of_kind(Kind::PROVISIONING_REQUEST) {
            if !condition_is_true(request, "Provisioned") {
                provisioning::set_request_condition(&fixture, request, "Provisioned", "provisioned").await?;
            }
        }
        let remains = |name: &&&str| !REMAIN.iter().any(|beginning| name.starts_with(beginning));
        let unfinished = records.unfinished();
        let left: Vec<&&str> = unfinished.iter().filter(remains).collect();
        if !left.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
        ensure!(left.is_empty(), "{left:?} have not ended");
        Ok(())
    })
    .await
}

/// Running pods succeed.
async fn end_pods(fixture: &Fixture, records: &Records) -> Result<()> {
    for pod in records.of_kind(Kind::POD).filter(|pod| text(pod, "/status/phase") == "Running") {
        let asked = !pod["metadata"]["annotations"]["sluice.dev/run-for"].is_null();
        if asked || !["", "Job"].contains(&text(pod, "/metadata/ownerReferences/0/kind")) {
            continue;
        }
        let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
        let name = text(pod, "/metadata/name");
        ignore_absent(fixture.objects.merge(Kind::POD, NAME, name, &patch).await)?;
    }
    Ok(())
}

/// A pod may have gone meanwhile.
fn ignore_absent(outcome: kube::Result<Value>) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// Jobs of other kinds end, by their status or by being deleted.
async fn end_kinds(fixture: &Fixture, records: &Records) -> Result<()> {
    for row in frameworks().filter(|row| !matches!(row.role, Role::Pods) && row.name != "batch/job") {
        let api = Kind::new(row.gvk.group, row.gvk.version, row.gvk.kind, row.gvk.plural);
        for object in records.of_kind(api) {
            let name = text(object, "/metadata/name");
            let kind = PlayedKind::named(row, name, NARROW)?;
            // Of a set that another kind owns, the owner is deleted.
            if !object["metadata"]["deletionTimestamp"].is_null() {
                continue;
            }
            if !kind.ends() {
                fixture.objects.delete(api, NAME, name, PropagationPolicy::Background).await?;
            } else if !kind.is_suspended(fixture).await? {
                kind.bring_to(fixture, PlayedState::Succeeded).await?;
            }
        }
    }
    Ok(())
}

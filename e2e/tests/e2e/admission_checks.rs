//! Admission checks that change from Ready to Retry and Rejected, at each stage of a workload.

use crate::fixture::Fixture;
use crate::history::History;
use crate::watch_faults::max_reserved;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, condition, condition_is_true, text};
use sluice_e2e::wait::eventually;

const STAMP: &str = "2026-01-01T00:00:00Z";
const CHECKS: [&str; 2] = ["gate", "other"];

/// Stage of the workload when its check changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckStage {
    /// Both checks are Pending.
    Reserved,
    /// One check is Ready, the other Pending.
    HalfReady,
    /// Both checks are Ready and the Job is running.
    Running,
    /// Like `Running`, with pods that do not end when deleted.
    PodsDoNotEnd,
}

const STAGES: [(&str, CheckStage); 4] = [
    ("reserved", CheckStage::Reserved),
    ("half-ready", CheckStage::HalfReady),
    ("running", CheckStage::Running),
    ("stubborn", CheckStage::PodsDoNotEnd),
];

/// Retry evicts the workload and resets its checks; Rejected deactivates it. Its quota stays reserved while its pods
/// exist, is released once and never reserved twice.
pub(crate) async fn check_turns_retry_then_rejected(_: &Cluster, fixture: &Fixture) -> Result<()> {
    for check in CHECKS {
        let name = fixture.own_name(check);
        let spec = json!({"controllerName": "e2e.example/manual"});
        fixture
            .create_tracked(Kind::ADMISSION_CHECK, json!({"metadata": {"name": name}, "spec": spec}))
            .await?;
        let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": STAMP});
        let status = json!({"status": {"conditions": [active]}});
        fixture.objects.merge_status(Kind::ADMISSION_CHECK, "", &name, &status).await?;
    }
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let outcomes = STAGES.map(async |(name, stage)| {
        scenario(fixture, name, stage).await.err().map(|error| format!("{name}: {error:#}"))
    });
    let failures: Vec<String> = futures::future::join_all(outcomes).await.into_iter().flatten().collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    ensure!(max_reserved(&history.revisions()?, 1)? == 1, "no workload reserved quota");
    Ok(())
}

async fn scenario(fixture: &Fixture, name: &str, stage: CheckStage) -> Result<()> {
    let checks = CHECKS.map(|check| json!({"name": fixture.own_name(check)}));
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": checks}});
    fixture.create_queue(name, "", &[("cpu", "1", None)], strategy).await?;
    fixture.wait_until_queue_active(name).await?;
    let job = fixture.job(name, name, "1");
    let stubborn = |job: Job| job.pod_annotation("sluice.dev/ignores-deletion", "true");
    fixture.submit(if stage == CheckStage::PodsDoNotEnd { stubborn(job) } else { job }).await?;
    let next = format!("next-{name}");

    reach_stage(fixture, name, stage).await?;
    set_check_state(fixture, name, "gate", "Retry").await?;
    if stage == CheckStage::PodsDoNotEnd {
        // The check changes again while the pods are terminating.
        fixture.wait_for_condition(name, "Evicted", "True", "AdmissionCheck").await?;
        set_check_state(fixture, name, "gate", "Rejected").await?;
        check_quota_kept(fixture, name).await?;
        fixture.force_delete_pods(name)?;
    } else {
        wait_for_requeue(fixture, name).await?;
        reach_stage(fixture, name, stage).await?;
        set_check_state(fixture, name, "gate", "Rejected").await?;
    }
    fixture.wait_until_pending(name, "Deactivated").await?;
    let workload = fixture.workload(name).await?;
    ensure!(workload["spec"]["active"] == false, "it is still active: {workload}");
    fixture.submit(fixture.job(&next, name, "1")).await?;
    reach_stage(fixture, &next, CheckStage::Running).await?;
    fixture.wait_for_queue_counts(name, (0, 1, 1), &[("cpu", "1")]).await?;
    fixture.check_pending(name).await
}

/// Waits until the workload has quota and sets its checks as the stage requires.
async fn reach_stage(fixture: &Fixture, job: &str, stage: CheckStage) -> Result<()> {
    eventually(format!("{job} has quota and pending checks"), async || {
        let workload = fixture.workload(job).await?;
        ensure!(condition_is_true(&workload, "QuotaReserved"), "{}", workload["status"]);
        let states = check_states(&workload);
        ensure!(states == ["Pending", "Pending"], "{states:?}");
        Ok(())
    })
    .await?;
    if stage != CheckStage::Reserved {
        set_check_state(fixture, job, "gate", "Ready").await?;
    }
    if matches!(stage, CheckStage::Running | CheckStage::PodsDoNotEnd) {
        set_check_state(fixture, job, "other", "Ready").await?;
        return fixture.wait_until_running(job).await;
    }
    let object = fixture.objects.must_get(Kind::JOB, &fixture.name, job).await?;
    ensure!(object["spec"]["suspend"] == true, "it started before its checks were ready");
    Ok(())
}

/// Waits until the workload was evicted once and its checks were reset.
async fn wait_for_requeue(fixture: &Fixture, job: &str) -> Result<()> {
    eventually(format!("{job} was evicted and its checks are pending again"), async || {
        let workload = fixture.workload(job).await?;
        let evicted = condition(&workload, "Evicted");
        ensure!(!evicted.status.is_empty(), "it was not evicted: {}", workload["status"]);
        ensure!(check_states(&workload) == ["Pending", "Pending"], "{:?}", check_states(&workload));
        let evictions = workload["status"]["schedulingStats"]["evictions"].clone();
        ensure!(evictions.is_null() || evictions[0]["count"] == 1, "{evictions}");
        Ok(())
    })
    .await
}

/// Checks that the quota stays reserved while the pods are terminating.
async fn check_quota_kept(fixture: &Fixture, job: &str) -> Result<()> {
    eventually("the pods are terminating", async || {
        let pods = fixture.pods(job).await?;
        let is_terminating = |pod: &serde_json::Value| pod["metadata"]["deletionTimestamp"].is_string();
        ensure!(!pods.is_empty() && pods.iter().all(is_terminating), "{} pods", pods.len());
        Ok(())
    })
    .await?;
    let workload = fixture.workload(job).await?;
    ensure!(
        condition_is_true(&workload, "QuotaReserved"),
        "quota was released while a pod was running: {}",
        workload["status"]
    );
    Ok(())
}

/// Returns the states of all checks, ordered by check name.
fn check_states(workload: &serde_json::Value) -> Vec<String> {
    let all = workload["status"]["admissionChecks"].as_array();
    let mut all: Vec<_> =
        all.into_iter().flatten().map(|check| (text(check, "/name"), text(check, "/state"))).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, state)| state.to_owned()).collect()
}

/// Sets the state of a check as its controller would, on the newest resourceVersion.
async fn set_check_state(fixture: &Fixture, job: &str, check: &str, state: &str) -> Result<()> {
    let name = fixture.own_name(check);
    eventually(format!("{check} is {state}"), async || {
        let workload = fixture.workload(job).await?;
        let mut checks = workload["status"]["admissionChecks"].clone();
        let all = checks.as_array_mut().into_iter().flatten();
        for entry in all.filter(|entry| entry["name"] == *name) {
            entry["state"] = json!(state);
        }
        let version = &workload["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "status": {"admissionChecks": checks}});
        let name = text(&workload, "/metadata/name");
        fixture.objects.merge_status(Kind::WORKLOAD, &fixture.name, name, &patch).await?;
        Ok(())
    })
    .await
}

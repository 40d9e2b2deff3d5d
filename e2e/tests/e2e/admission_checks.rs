//! Admission checks whose controller changes its mind, at each stage of a workload.

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

/// How far it is when its check takes back what it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckStage {
    /// No check has answered.
    Reserved,
    /// This one has, another has not.
    HalfReady,
    /// All have, and it runs.
    Running,
    /// The same, and its pods do not go when they are asked to.
    PodsDoNotEnd,
}

const STAGES: [(&str, CheckStage); 4] = [
    ("reserved", CheckStage::Reserved),
    ("half-ready", CheckStage::HalfReady),
    ("running", CheckStage::Running),
    ("stubborn", CheckStage::PodsDoNotEnd),
];

/// Retry evicts it and it is asked for again from the start; Rejected ends it; quota is kept while its pods are there,
/// given back once, and never held twice.
pub(crate) async fn check_turns_retry_then_rejected(_: &Cluster, ground: &Fixture) -> Result<()> {
    for check in CHECKS {
        let name = ground.own_name(check);
        let spec = json!({"controllerName": "e2e.example/mind"});
        ground
            .create_tracked(Kind::ADMISSION_CHECK, json!({"metadata": {"name": name}, "spec": spec}))
            .await?;
        let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": STAMP});
        let status = json!({"status": {"conditions": [active]}});
        ground.objects.merge_status(Kind::ADMISSION_CHECK, "", &name, &status).await?;
    }
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let all = STAGES.map(async |(name, stage)| {
        scenario(ground, name, stage).await.err().map(|error| format!("{name}: {error:#}"))
    });
    let wrong: Vec<String> = futures::future::join_all(all).await.into_iter().flatten().collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(max_reserved(&history.revisions()?, 1)? == 1, "nobody held anything");
    Ok(())
}

async fn scenario(ground: &Fixture, name: &str, stage: CheckStage) -> Result<()> {
    let checks = CHECKS.map(|check| json!({"name": ground.own_name(check)}));
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": checks}});
    ground.create_queue(name, "", &[("cpu", "1", None)], strategy).await?;
    ground.wait_until_queue_active(name).await?;
    let job = ground.job(name, name, "1");
    let stubborn = |job: Job| job.pod_annotation("sluice.dev/ignores-deletion", "true");
    ground.submit(if stage == CheckStage::PodsDoNotEnd { stubborn(job) } else { job }).await?;
    let next = format!("next-{name}");

    reach_stage(ground, name, stage).await?;
    set_check_state(ground, name, "gate", "Retry").await?;
    if stage == CheckStage::PodsDoNotEnd {
        // It changes its mind once more while the pods are going.
        ground.wait_for_condition(name, "Evicted", "True", "AdmissionCheck").await?;
        set_check_state(ground, name, "gate", "Rejected").await?;
        check_quota_kept(ground, name).await?;
        ground.force_delete_pods(name)?;
    } else {
        wait_for_requeue(ground, name).await?;
        reach_stage(ground, name, stage).await?;
        set_check_state(ground, name, "gate", "Rejected").await?;
    }
    ground.wait_until_pending(name, "Deactivated").await?;
    let workload = ground.workload(name).await?;
    ensure!(workload["spec"]["active"] == false, "it is active: {workload}");
    ground.submit(ground.job(&next, name, "1")).await?;
    reach_stage(ground, &next, CheckStage::Running).await?;
    ground.wait_for_queue_counts(name, (0, 1, 1), &[("cpu", "1")]).await?;
    ground.check_pending(name).await
}

/// It holds quota and its checks have answered as far as the stage wants.
async fn reach_stage(ground: &Fixture, job: &str, stage: CheckStage) -> Result<()> {
    eventually(format!("{job} is asked for"), async || {
        let workload = ground.workload(job).await?;
        ensure!(condition_is_true(&workload, "QuotaReserved"), "{}", workload["status"]);
        let states = check_states(&workload);
        ensure!(states == ["Pending", "Pending"], "{states:?}");
        Ok(())
    })
    .await?;
    if stage != CheckStage::Reserved {
        set_check_state(ground, job, "gate", "Ready").await?;
    }
    if matches!(stage, CheckStage::Running | CheckStage::PodsDoNotEnd) {
        set_check_state(ground, job, "other", "Ready").await?;
        return ground.wait_until_running(job).await;
    }
    let object = ground.objects.must_get(Kind::JOB, &ground.name, job).await?;
    ensure!(object["spec"]["suspend"] == true, "it started before its checks were ready");
    Ok(())
}

/// It was evicted once for its check.
async fn wait_for_requeue(ground: &Fixture, job: &str) -> Result<()> {
    eventually(format!("{job} was evicted and its checks are asked again"), async || {
        let workload = ground.workload(job).await?;
        let evicted = condition(&workload, "Evicted");
        ensure!(!evicted.status.is_empty(), "it was not evicted: {}", workload["status"]);
        ensure!(check_states(&workload) == ["Pending", "Pending"], "{:?}", check_states(&workload));
        let evictions = workload["status"]["schedulingStats"]["evictions"].clone();
        ensure!(evictions.is_null() || evictions[0]["count"] == 1, "{evictions}");
        Ok(())
    })
    .await
}

/// Its pods are there: so is its quota, whatever the check says.
async fn check_quota_kept(ground: &Fixture, job: &str) -> Result<()> {
    eventually("its pods were asked to go", async || {
        let pods = ground.pods(job).await?;
        let asked = |pod: &serde_json::Value| pod["metadata"]["deletionTimestamp"].is_string();
        ensure!(!pods.is_empty() && pods.iter().all(asked), "{} pods", pods.len());
        Ok(())
    })
    .await?;
    let workload = ground.workload(job).await?;
    ensure!(
        condition_is_true(&workload, "QuotaReserved"),
        "quota was given back under a pod: {}",
        workload["status"]
    );
    Ok(())
}

/// States of the checks by name.
fn check_states(workload: &serde_json::Value) -> Vec<String> {
    let all = workload["status"]["admissionChecks"].as_array();
    let mut all: Vec<_> =
        all.into_iter().flatten().map(|check| (text(check, "/name"), text(check, "/state"))).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, state)| state.to_owned()).collect()
}

/// Says what the controller of a check says, on the newest version.
async fn set_check_state(ground: &Fixture, job: &str, check: &str, state: &str) -> Result<()> {
    let name = ground.own_name(check);
    eventually(format!("{check} says {state}"), async || {
        let workload = ground.workload(job).await?;
        let mut checks = workload["status"]["admissionChecks"].clone();
        let all = checks.as_array_mut().into_iter().flatten();
        for entry in all.filter(|entry| entry["name"] == *name) {
            entry["state"] = json!(state);
        }
        let version = &workload["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "status": {"admissionChecks": checks}});
        let name = text(&workload, "/metadata/name");
        ground.objects.merge_status(Kind::WORKLOAD, &ground.name, name, &patch).await?;
        Ok(())
    })
    .await
}

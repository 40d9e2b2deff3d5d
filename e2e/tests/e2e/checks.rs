//! Admission checks whose controller changes its mind, at each stage of a workload.

use crate::ground::Ground;
use crate::history::History;
use crate::watches::most_held;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, condition, holds, text};
use sluice_e2e::wait::eventually;

const STAMP: &str = "2026-01-01T00:00:00Z";
const CHECKS: [&str; 2] = ["gate", "other"];

/// How far it is when its check takes back what it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No check has answered.
    Reserved,
    /// This one has, another has not.
    HalfReady,
    /// All have, and it runs.
    Running,
    /// The same, and its pods do not go when they are asked to.
    Stubborn,
}

const STAGES: [(&str, Stage); 4] = [
    ("reserved", Stage::Reserved),
    ("half-ready", Stage::HalfReady),
    ("running", Stage::Running),
    ("stubborn", Stage::Stubborn),
];

/// Retry evicts it and it is asked for again from the start; Rejected ends it; quota is kept while its pods are there,
/// given back once, and never held twice.
pub(crate) async fn a_check_changes_its_mind(_: &Cluster, ground: &Ground) -> Result<()> {
    for check in CHECKS {
        let name = ground.own(check);
        let spec = json!({"controllerName": "e2e.example/mind"});
        ground.keep(Kind::ADMISSION_CHECK, json!({"metadata": {"name": name}, "spec": spec})).await?;
        let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": STAMP});
        let status = json!({"status": {"conditions": [active]}});
        ground.objects.merge_status(Kind::ADMISSION_CHECK, "", &name, &status).await?;
    }
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let all = STAGES.map(async |(name, stage)| {
        story(ground, name, stage).await.err().map(|error| format!("{name}: {error:#}"))
    });
    let wrong: Vec<String> = futures::future::join_all(all).await.into_iter().flatten().collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(most_held(&history.revisions()?, 1)? == 1, "nobody held anything");
    Ok(())
}

async fn story(ground: &Ground, name: &str, stage: Stage) -> Result<()> {
    let checks = CHECKS.map(|check| json!({"name": ground.own(check)}));
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": checks}});
    ground.queue(name, "", &[("cpu", "1", None)], strategy).await?;
    ground.active(name).await?;
    let job = ground.job(name, name, "1");
    let stubborn = |job: Job| job.pod_annotation("sluice.dev/ignores-deletion", "true");
    ground.submit(if stage == Stage::Stubborn { stubborn(job) } else { job }).await?;
    let next = format!("next-{name}");

    reach(ground, name, stage).await?;
    answer(ground, name, "gate", "Retry").await?;
    if stage == Stage::Stubborn {
        // It changes its mind once more while the pods are going.
        ground.condition(name, "Evicted", "True", "AdmissionCheck").await?;
        answer(ground, name, "gate", "Rejected").await?;
        stays(ground, name).await?;
        ground.force_pods_away(name)?;
    } else {
        again(ground, name).await?;
        reach(ground, name, stage).await?;
        answer(ground, name, "gate", "Rejected").await?;
    }
    ground.waits(name, "Deactivated").await?;
    let workload = ground.workload(name).await?;
    ensure!(workload["spec"]["active"] == false, "it is active: {workload}");
    ground.submit(ground.job(&next, name, "1")).await?;
    reach(ground, &next, Stage::Running).await?;
    ground.counts(name, (0, 1, 1), &[("cpu", "1")]).await?;
    ground.still_waits(name).await
}

/// It holds quota and its checks have answered as far as the stage wants.
async fn reach(ground: &Ground, job: &str, stage: Stage) -> Result<()> {
    eventually(format!("{job} is asked for"), async || {
        let workload = ground.workload(job).await?;
        ensure!(holds(&workload, "QuotaReserved"), "{}", workload["status"]);
        let states = states(&workload);
        ensure!(states == ["Pending", "Pending"], "{states:?}");
        Ok(())
    })
    .await?;
    if stage != Stage::Reserved {
        answer(ground, job, "gate", "Ready").await?;
    }
    if matches!(stage, Stage::Running | Stage::Stubborn) {
        answer(ground, job, "other", "Ready").await?;
        return ground.runs(job).await;
    }
    let object = ground.objects.need(Kind::JOB, &ground.name, job).await?;
    ensure!(object["spec"]["suspend"] == true, "it started before its checks were ready");
    Ok(())
}

/// It was evicted once for its check.
async fn again(ground: &Ground, job: &str) -> Result<()> {
    eventually(format!("{job} was evicted and its checks are asked again"), async || {
        let workload = ground.workload(job).await?;
        let evicted = condition(&workload, "Evicted");
        ensure!(!evicted.status.is_empty(), "it was not evicted: {}", workload["status"]);
        ensure!(states(&workload) == ["Pending", "Pending"], "{:?}", states(&workload));
        let evictions = workload["status"]["schedulingStats"]["evictions"].clone();
        ensure!(evictions.is_null() || evictions[0]["count"] == 1, "{evictions}");
        Ok(())
    })
    .await
}

/// Its pods are there: so is its quota, whatever the check says.
async fn stays(ground: &Ground, job: &str) -> Result<()> {
    eventually("its pods were asked to go", async || {
        let pods = ground.pods(job).await?;
        let asked = |pod: &serde_json::Value| pod["metadata"]["deletionTimestamp"].is_string();
        ensure!(!pods.is_empty() && pods.iter().all(asked), "{} pods", pods.len());
        Ok(())
    })
    .await?;
    let workload = ground.workload(job).await?;
    ensure!(holds(&workload, "QuotaReserved"), "quota was given back under a pod: {}", workload["status"]);
    Ok(())
}

/// States of the checks by name.
fn states(workload: &serde_json::Value) -> Vec<String> {
    let all = workload["status"]["admissionChecks"].as_array();
    let mut all: Vec<_> =
        all.into_iter().flatten().map(|check| (text(check, "/name"), text(check, "/state"))).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, state)| state.to_owned()).collect()
}

/// Says what the controller of a check says, on the newest version.
async fn answer(ground: &Ground, job: &str, check: &str, state: &str) -> Result<()> {
    let name = ground.own(check);
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

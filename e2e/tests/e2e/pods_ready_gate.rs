//! Admissions that wait until the pods of admitted workloads are ready (`waitForPodsReady` with `blockAdmission`).

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::wait::eventually;

/// While an admitted workload has pods that are not ready, no other workload gets quota, but a workload that already
/// has quota is admitted. When the slow workload is deactivated, the next one is admitted.
pub(crate) async fn admission_waits_for_ready_pods(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let waiting = json!({"waitForPodsReady": {"timeout": "10m", "blockAdmission": true}});
    let before = cluster.reconfigure(&waiting).await?;
    let check = fixture.own_name("gate");
    let spec = json!({"controllerName": "e2e.example/gate"});
    fixture.create_tracked(Kind::ADMISSION_CHECK, json!({"metadata": {"name": check}, "spec": spec})).await?;
    let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [active]}});
    fixture.objects.merge_status(Kind::ADMISSION_CHECK, "", &check, &status).await?;
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}});
    fixture.create_queue("checked", "", &[("cpu", "1", None)], strategy).await?;
    fixture.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;

    fixture.submit(fixture.job("reserving", "checked", "1")).await?;
    fixture.wait_for_condition("reserving", "QuotaReserved", "True", "QuotaReserved").await?;
    let slow = fixture.job("slow", "main", "1").pod_spec("nodeSelector", json!({"e2e.example/none": "none"}));
    fixture.submit(slow).await?;
    fixture.wait_for_condition("slow", "Admitted", "True", "Admitted").await?;
    fixture.submit(fixture.job("next", "main", "1")).await?;
    fixture.wait_until_pending("next", "WaitingForPodsReady").await?;
    mark_check_ready(fixture, "reserving", &check).await?;
    fixture.wait_until_running("reserving").await?;
    fixture.check_pending("next").await?;
    ensure!(
        condition_is_true(&fixture.workload("slow").await?, "Admitted"),
        "the slow workload lost its admission"
    );
    fixture.set_workload_spec("slow", json!({"active": false})).await?;
    fixture.wait_until_running("next").await?;
    fixture.finish_job("next").await?;
    fixture.finish_job("reserving").await?;
    cluster.reconfigure(&before).await.map(drop)
}

/// Sets the check to Ready, as its controller would.
async fn mark_check_ready(fixture: &Fixture, job: &str, check: &str) -> Result<()> {
    eventually("the check is Ready", async || {
        let workload = fixture.workload(job).await?;
        let mut checks = workload["status"]["admissionChecks"].clone();
        for state in checks.as_array_mut().into_iter().flatten().filter(|state| state["name"] == check) {
            state["state"] = json!("Ready");
        }
        ensure!(checks != Value::Null, "the Workload lists no checks");
        let patch = json!({"metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]},
            "status": {"admissionChecks": checks}});
        let name = text(&workload, "/metadata/name");
        fixture.objects.merge_status(Kind::WORKLOAD, &fixture.name, name, &patch).await?;
        Ok(())
    })
    .await
}

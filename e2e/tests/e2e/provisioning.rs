//! ProvisioningRequests against their real definition; the case answers as a cluster autoscaler would.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::definitions;
use sluice_e2e::objects::{Kind, condition, expect_condition, text};
use sluice_e2e::wait::eventually;

/// A Job waits for the room that was asked for and starts with the request named on its pods; one whose request fails
/// is asked for again after the wait, by another request.
pub(crate) async fn request_is_created_and_answered(_: &Cluster, ground: &Fixture) -> Result<()> {
    definitions::provisioning_requests(&ground.kubectl, &ground.objects).await?;
    let check = create_check(ground).await?;
    let strategy = json!({"admissionChecks": [{"name": check}]});
    ground
        .create_queue("main", "", &[("cpu", "2", None)], json!({"admissionChecksStrategy": strategy}))
        .await?;
    ground.wait_until_queue_active("main").await?;

    ground.submit(ground.job("grows", "main", "1").annotation("provreq.kueue.x-k8s.io/zone", "z1")).await?;
    let first = wait_for_request(ground, "grows", 1).await?;
    ensure!(first["spec"]["parameters"] == json!({"speed": "fast", "zone": "z1"}), "{}", first["spec"]);
    let template = text(&first, "/spec/podSets/0/podTemplateRef/name").to_owned();
    eventually("its pod template exists", async || {
        let made = ground.objects.must_get(Kind::POD_TEMPLATE, &ground.name, &template).await?;
        let cpu = made.pointer("/template/spec/containers/0/resources/requests/cpu");
        ensure!(cpu == Some(&json!("1")), "{made}");
        Ok(())
    })
    .await?;
    let job = ground.objects.must_get(Kind::JOB, &ground.name, "grows").await?;
    ensure!(job["spec"]["suspend"] == json!(true), "it started before there was room");
    expect_condition(&ground.workload("grows").await?, "QuotaReserved", "True", "QuotaReserved")?;
    set_request_condition(ground, &first, "Provisioned", "room was made").await?;
    ground.wait_until_running("grows").await?;
    let job = ground.objects.must_get(Kind::JOB, &ground.name, "grows").await?;
    let named =
        job.pointer("/spec/template/metadata/annotations/autoscaling.x-k8s.io~1consume-provisioning-request");
    ensure!(named == first.pointer("/metadata/name"), "its pods name {named:?}");

    ground.submit(ground.job("fails", "main", "1")).await?;
    let failed = wait_for_request(ground, "fails", 1).await?;
    set_request_condition(ground, &failed, "Failed", "no such machine").await?;
    let again = wait_for_request(ground, "fails", 2).await?;
    eventually("the failed request is gone", async || {
        let name = text(&failed, "/metadata/name");
        let left = ground.objects.get(Kind::PROVISIONING_REQUEST, &ground.name, name).await?;
        ensure!(left.is_none(), "it is there");
        Ok(())
    })
    .await?;
    set_request_condition(ground, &again, "Provisioned", "room was made").await?;
    ground.wait_until_running("fails").await?;
    ground.finish_job("grows").await?;
    ground.finish_job("fails").await?;
    eventually("no request is left", async || {
        let left = ground.objects.list(Kind::PROVISIONING_REQUEST, &ground.name, "").await?;
        ensure!(left.is_empty(), "{} are left", left.len());
        Ok(())
    })
    .await
}

/// A check of the controller with its configuration; waits until it is active.
async fn create_check(ground: &Fixture) -> Result<String> {
    let name = ground.own_name("room");
    let spec = json!({
        "provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
        "parameters": {"speed": "fast"},
        "retryStrategy": {"backoffLimitCount": 2, "backoffBaseSeconds": 1, "backoffMaxSeconds": 2},
    });
    let config = json!({"metadata": {"name": name}, "spec": spec});
    ground.create_tracked(Kind::PROVISIONING_CONFIG, config).await?;
    let spec = json!({
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": name},
    });
    let check = ground
        .create_tracked(Kind::ADMISSION_CHECK, json!({"metadata": {"name": name}, "spec": spec}))
        .await?;
    eventually("the check is active", async || {
        let object = ground.objects.must_get(Kind::ADMISSION_CHECK, "", &check).await?;
        let found = condition(&object, "Active");
        ensure!(found.status == "True", "{}: {}", found.reason, found.message);
        Ok(())
    })
    .await?;
    Ok(check)
}

/// The request of an attempt for a Job's Workload, once it is there.
async fn wait_for_request(ground: &Fixture, job: &str, attempt: u32) -> Result<Value> {
    let end = format!("-{attempt}");
    eventually(format!("request {attempt} for {job}"), async || {
        let workload = ground.workload(job).await?;
        let all = ground.objects.list(Kind::PROVISIONING_REQUEST, &ground.name, "").await?;
        let ours = |request: &&Value| {
            request.pointer("/metadata/ownerReferences/0/uid") == workload.pointer("/metadata/uid")
                && text(request, "/metadata/name").ends_with(&end)
        };
        all.iter()
            .find(ours)
            .cloned()
            .with_context(|| format!("there are {} others, and it says {}", all.len(), workload["status"]))
    })
    .await
}

async fn set_request_condition(ground: &Fixture, request: &Value, kind: &str, message: &str) -> Result<()> {
    let name = text(request, "/metadata/name");
    let said = json!({
        "type": kind, "status": "True", "reason": kind, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({"conditions": [said]});
    let patch = json!({"status": status});
    ground.objects.merge_status(Kind::PROVISIONING_REQUEST, &ground.name, name, &patch).await?;
    Ok(())
}

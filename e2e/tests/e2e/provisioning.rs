//! ProvisioningRequests with their real definition; the test acts as the cluster autoscaler.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::definitions;
use sluice_e2e::objects::{Kind, condition, expect_condition, text};
use sluice_e2e::wait::eventually;

/// A Job waits until its request is Provisioned and starts with the name of the request on its pods. If a request
/// fails, another one is created after the back-off.
pub(crate) async fn request_is_created_and_answered(_: &Cluster, fixture: &Fixture) -> Result<()> {
    definitions::provisioning_requests(&fixture.kubectl, &fixture.objects).await?;
    let check = create_check(fixture).await?;
    let strategy = json!({"admissionChecks": [{"name": check}]});
    fixture
        .create_queue("main", "", &[("cpu", "2", None)], json!({"admissionChecksStrategy": strategy}))
        .await?;
    fixture.wait_until_queue_active("main").await?;

    fixture.submit(fixture.job("grows", "main", "1").annotation("provreq.kueue.x-k8s.io/zone", "z1")).await?;
    let first = wait_for_request(fixture, "grows", 1).await?;
    ensure!(first["spec"]["parameters"] == json!({"speed": "fast", "zone": "z1"}), "{}", first["spec"]);
    let template = text(&first, "/spec/podSets/0/podTemplateRef/name").to_owned();
    eventually("the pod template exists", async || {
        let pod_template = fixture.objects.must_get(Kind::POD_TEMPLATE, &fixture.name, &template).await?;
        let cpu = pod_template.pointer("/template/spec/containers/0/resources/requests/cpu");
        ensure!(cpu == Some(&json!("1")), "{pod_template}");
        Ok(())
    })
    .await?;
    let job = fixture.objects.must_get(Kind::JOB, &fixture.name, "grows").await?;
    ensure!(job["spec"]["suspend"] == json!(true), "it started before its request was Provisioned");
    expect_condition(&fixture.workload("grows").await?, "QuotaReserved", "True", "QuotaReserved")?;
    set_request_condition(fixture, &first, "Provisioned", "capacity was provisioned").await?;
    fixture.wait_until_running("grows").await?;
    let job = fixture.objects.must_get(Kind::JOB, &fixture.name, "grows").await?;
    let named =
        job.pointer("/spec/template/metadata/annotations/autoscaling.x-k8s.io~1consume-provisioning-request");
    ensure!(named == first.pointer("/metadata/name"), "its pods have {named:?}");

    fixture.submit(fixture.job("fails", "main", "1")).await?;
    let failed = wait_for_request(fixture, "fails", 1).await?;
    set_request_condition(fixture, &failed, "Failed", "no such machine").await?;
    let second = wait_for_request(fixture, "fails", 2).await?;
    eventually("the failed request is deleted", async || {
        let name = text(&failed, "/metadata/name");
        let left = fixture.objects.get(Kind::PROVISIONING_REQUEST, &fixture.name, name).await?;
        ensure!(left.is_none(), "it still exists");
        Ok(())
    })
    .await?;
    set_request_condition(fixture, &second, "Provisioned", "capacity was provisioned").await?;
    fixture.wait_until_running("fails").await?;
    fixture.finish_job("grows").await?;
    fixture.finish_job("fails").await?;
    eventually("all requests are deleted", async || {
        let left = fixture.objects.list(Kind::PROVISIONING_REQUEST, &fixture.name, "").await?;
        ensure!(left.is_empty(), "{} still exist", left.len());
        Ok(())
    })
    .await
}

/// Creates a provisioning check with its configuration and waits until it is active.
pub(crate) async fn create_check(fixture: &Fixture) -> Result<String> {
    let name = fixture.own_name("capacity");
    let spec = json!({
        "provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
        "parameters": {"speed": "fast"},
        "retryStrategy": {"backoffLimitCount": 2, "backoffBaseSeconds": 1, "backoffMaxSeconds": 2},
    });
    let config = json!({"metadata": {"name": name}, "spec": spec});
    fixture.create_tracked(Kind::PROVISIONING_CONFIG, config).await?;
    let spec = json!({
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": name},
    });
    let check = fixture
        .create_tracked(Kind::ADMISSION_CHECK, json!({"metadata": {"name": name}, "spec": spec}))
        .await?;
    eventually("the check is active", async || {
        let object = fixture.objects.must_get(Kind::ADMISSION_CHECK, "", &check).await?;
        let found = condition(&object, "Active");
        ensure!(found.status == "True", "{}: {}", found.reason, found.message);
        Ok(())
    })
    .await?;
    Ok(check)
}

/// Waits until the request of this attempt for a Job's Workload exists; returns it.
pub(crate) async fn wait_for_request(fixture: &Fixture, job: &str, attempt: u32) -> Result<Value> {
    let end = format!("-{attempt}");
    eventually(format!("request {attempt} for {job} exists"), async || {
        let workload = fixture.workload(job).await?;
        let all = fixture.objects.list(Kind::PROVISIONING_REQUEST, &fixture.name, "").await?;
        let ours = |request: &&Value| {
            request.pointer("/metadata/ownerReferences/0/uid") == workload.pointer("/metadata/uid")
                && text(request, "/metadata/name").ends_with(&end)
        };
        all.iter()
            .find(ours)
            .cloned()
            .with_context(|| format!("not among {} requests; status: {}", all.len(), workload["status"]))
    })
    .await
}

pub(crate) async fn set_request_condition(
    fixture: &Fixture,
    request: &Value,
    kind: &str,
    message: &str,
) -> Result<()> {
    let name = text(request, "/metadata/name");
    let new_condition = json!({
        "type": kind, "status": "True", "reason": kind, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({"conditions": [new_condition]});
    let patch = json!({"status": status});
    fixture.objects.merge_status(Kind::PROVISIONING_REQUEST, &fixture.name, name, &patch).await?;
    Ok(())
}

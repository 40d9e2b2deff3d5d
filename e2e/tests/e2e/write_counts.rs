//! Limits on the number of writes.

use crate::cases::note;
use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_e2e::audit::{AuditedRequest, count_by_verb_and_resource};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::{ACCOUNT, NAMESPACE};
use sluice_e2e::objects::{Kind, text};
use sluice_e2e::wait::eventually;
use std::time::Duration;

/// How long a stable cluster must not write.
const QUIET_PERIOD: Duration = Duration::from_mins(1);

fn manager_account() -> String {
    format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
}

fn is_lease(request: &AuditedRequest) -> bool {
    request.resource == "leases"
}

/// A Job that is pending once causes at most 7 writes and 6 events, not counting queue status.
pub(crate) async fn writes_and_events_per_job(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.wait_until_queue_active("main").await?;
    fixture.submit(fixture.job("running", "main", "1")).await?;
    fixture.wait_until_running("running").await?;
    wait_without_writes(cluster, Duration::from_secs(2)).await?;
    let mut audit = cluster.audit()?;
    fixture.submit(fixture.job("counted", "main", "1")).await?;
    fixture.wait_until_pending("counted", "WaitingForQuota").await?;
    fixture.finish_job("running").await?;
    fixture.wait_until_running("counted").await?;
    fixture.finish_job("counted").await?;
    fixture.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    wait_without_writes(cluster, Duration::from_secs(2)).await?;

    let all: Vec<AuditedRequest> = audit.new_writes_by(&manager_account())?;
    let own: Vec<AuditedRequest> = all
        .into_iter()
        .filter(|request| request.namespace == fixture.name && request.name.contains("counted"))
        .collect();
    let (events, writes): (Vec<AuditedRequest>, Vec<AuditedRequest>) =
        own.into_iter().partition(|r| r.resource == "events");
    note(format_args!("{:?}; {} events", count_by_verb_and_resource(&writes), events.len()));
    ensure!(writes.len() <= 7, "{} writes: {:?}", writes.len(), count_by_verb_and_resource(&writes));
    ensure!(events.len() <= 6, "{} events", events.len());
    ensure!(!writes.is_empty(), "the audit log shows no writes");
    Ok(())
}

/// Checks whose controllers own fields of their entries, or the entries, are removed from the queue: the entries vanish, the
/// Jobs run, and nothing is written any more.
pub(crate) async fn checks_of_other_field_managers(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let check = fixture.own_name("budget");
    let spec = json!({"controllerName": "e2e.example/budget"});
    fixture.create_tracked(Kind::ADMISSION_CHECK, json!({"metadata": {"name": check}, "spec": spec})).await?;
    let stamp = "2026-01-01T00:00:00Z";
    let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": stamp});
    let status = json!({"status": {"conditions": [active]}});
    fixture.objects.merge_status(Kind::ADMISSION_CHECK, "", &check, &status).await?;
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}});
    let queue = fixture.create_queue("main", "", &[("cpu", "2", None)], strategy).await?;
    fixture.wait_until_queue_active("main").await?;
    for job in ["patched", "applied"] {
        fixture.submit(fixture.job(job, "main", "1")).await?;
        eventually(format!("{job} waits for its check"), async || {
            let workload = fixture.workload(job).await?;
            ensure!(
                text(&workload, "/status/admissionChecks/0/state") == "Pending",
                "{}",
                workload["status"]
            );
            Ok(())
        })
        .await?;
        let workload = fixture.workload(job).await?;
        let name = text(&workload, "/metadata/name");
        let entry = |state: &str| json!([{"name": check, "state": state, "message": "waits for approval", "lastTransitionTime": stamp}]);
        if job == "patched" {
            let patch = json!({"status": {"admissionChecks": entry("Pending")}});
            fixture.objects.merge_status(Kind::WORKLOAD, &fixture.name, name, &patch).await?;
        } else {
            let body = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
                "metadata": {"name": name}, "status": {"admissionChecks": entry("Ready")}});
            let params = PatchParams::apply("budget-controller").force();
            let api = fixture.objects.api(Kind::WORKLOAD, &fixture.name);
            api.patch_status(name, &params, &Patch::Apply(&body)).await?;
        }
    }
    fixture.set_spec(Kind::CLUSTER_QUEUE, "", &queue, json!({"admissionChecksStrategy": null})).await?;
    for job in ["patched", "applied"] {
        fixture.wait_until_running(job).await?;
        eventually(format!("{job} has no check"), async || {
            let workload = fixture.workload(job).await?;
            let checks = &workload["status"]["admissionChecks"];
            ensure!(checks.as_array().is_none_or(Vec::is_empty), "{checks}");
            Ok(())
        })
        .await?;
    }
    wait_without_writes(cluster, Duration::from_secs(5)).await
}

/// With running, pending and finished Jobs, only the lease is written.
pub(crate) async fn settled_cluster_writes_nothing(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job("done", "main", "1").runs_for("0s")).await?;
    fixture.wait_until_finished("done", "Succeeded").await?;
    fixture.submit(fixture.job("runs", "main", "1")).await?;
    fixture.wait_until_running("runs").await?;
    fixture.submit(fixture.job("waits", "main", "1")).await?;
    fixture.wait_until_pending("waits", "WaitingForQuota").await?;
    fixture.submit(fixture.job("never", "main", "9")).await?;
    fixture.wait_until_pending("never", "ExceedsMaxQuota").await?;
    fixture.wait_for_queue_counts("main", (2, 1, 1), &[("cpu", "1")]).await?;
    wait_without_writes(cluster, Duration::from_secs(5)).await?;
    let mut audit = cluster.audit()?;
    tokio::time::sleep(QUIET_PERIOD).await;
    let all = audit.new_writes_by(&manager_account())?;
    let (leases, others): (Vec<AuditedRequest>, Vec<AuditedRequest>) = all.into_iter().partition(is_lease);
    ensure!(
        others.is_empty(),
        "{} writes in {} s: {:?}",
        others.len(),
        QUIET_PERIOD.as_secs(),
        count_by_verb_and_resource(&others)
    );
    ensure!(!leases.is_empty(), "the audit log shows no lease renewal");
    Ok(())
}

/// Waits until the manager has written nothing but the lease for `period`: it has completed all earlier work.
async fn wait_without_writes(cluster: &Cluster, period: Duration) -> Result<()> {
    eventually(format!("{} s without writes", period.as_secs()), async || {
        let mut audit = cluster.audit()?;
        tokio::time::sleep(period).await;
        let writes: Vec<AuditedRequest> =
            audit.new_writes_by(&manager_account())?.into_iter().filter(|r| !is_lease(r)).collect();
        ensure!(writes.is_empty(), "{:?}", count_by_verb_and_resource(&writes));
        Ok(())
    })
    .await
}

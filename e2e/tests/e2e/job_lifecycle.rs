//! A Job's whole life, and its end by deletion in each state.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, expect_condition, text};
use sluice_e2e::wait::eventually;

pub(crate) async fn job_runs_and_releases_quota(_: &Cluster, ground: &Fixture) -> Result<()> {
    let queue = ground.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    ground.submit(ground.job("first", "main", "2")).await?;
    ground.wait_until_running("first").await?;
    let workload = ground.workload("first").await?;
    ensure!(
        text(&workload, "/status/admission/clusterQueue") == queue,
        "{}",
        workload["status"]["admission"]
    );
    let assignment = &workload["status"]["admission"]["podSetAssignments"][0];
    ensure!(text(assignment, "/flavors/cpu") == ground.own_name("any"), "{assignment}");
    ensure!(text(assignment, "/resourceUsage/cpu") == "2", "{assignment}");

    ground.submit(ground.job("second", "main", "2")).await?;
    ground.wait_until_pending("second", "WaitingForQuota").await?;
    ground.wait_for_queue_counts("main", (1, 1, 1), &[("cpu", "2")]).await?;

    ground.finish_job("first").await?;
    ground.wait_until_running("second").await?;
    ground.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", "2")]).await?;
    ground.finish_job("second").await?;
    ground.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    eventually("events tell the story", async || {
        let events = ground.objects.list(Kind::EVENT, &ground.name, "").await?;
        for reason in ["CreatedWorkload", "QuotaReserved", "Admitted", "Started", "FinishedWorkload"] {
            ensure!(events.iter().any(|event| text(event, "/reason") == reason), "no event {reason}");
        }
        Ok(())
    })
    .await
}

pub(crate) async fn failed_job_releases_quota(_: &Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let fails = ground.job("fails", "main", "1").runs_for("0s").pod_annotation("sluice.dev/exit-code", "7");
    ground.submit(fails).await?;
    ground.wait_until_finished("fails", "Failed").await?;
    ground.submit(ground.job("next", "main", "1")).await?;
    ground.wait_until_running("next").await
}

pub(crate) async fn bare_workload_is_admitted(_: &Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    let body = json!({
        "metadata": {"namespace": ground.name, "name": "alone"},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 2, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "registry.example/work:1", "resources": {"requests": {"cpu": "1"}}}],
        }}}]},
    });
    ground.objects.create(Kind::WORKLOAD, &body).await?;
    eventually("it is admitted", async || {
        expect_condition(
            &ground.objects.must_get(Kind::WORKLOAD, &ground.name, "alone").await?,
            "Admitted",
            "True",
            "Admitted",
        )
    })
    .await?;
    ground.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", "2")]).await?;
    ground.objects.delete(Kind::WORKLOAD, &ground.name, "alone", PropagationPolicy::Background).await?;
    ground.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await
}

/// Pending, reserved and running; each deleted with its dependents orphaned, in the background and in the foreground.
pub(crate) async fn jobs_deleted_in_every_state(_: &Cluster, ground: &Fixture) -> Result<()> {
    let check = ground
        .create_tracked(
            Kind::ADMISSION_CHECK,
            json!({"metadata": {"name": ground.own_name("check")}, "spec": {"controllerName": "e2e.example/nobody"}}),
        )
        .await?;
    let active = json!({"status": {"conditions": [{
        "type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    ground.objects.merge_status(Kind::ADMISSION_CHECK, "", &check, &active).await?;
    let quota: crate::fixture::QuotaSpec<'_> = &[("cpu", "1", None)];
    ground.create_queue("plain", "", quota, json!({})).await?;
    let checked = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}});
    ground.create_queue("checked", "", quota, checked).await?;
    for (how, policy) in [
        ("orphan", PropagationPolicy::Orphan),
        ("background", PropagationPolicy::Background),
        ("foreground", PropagationPolicy::Foreground),
    ] {
        let names = [format!("pending-{how}"), format!("reserved-{how}"), format!("running-{how}")];
        let [pending, reserved, running] = &names;
        ground.submit(ground.job(running, "plain", "1")).await?;
        ground.wait_until_running(running).await?;
        ground.submit(ground.job(pending, "plain", "1")).await?;
        ground.wait_until_pending(pending, "WaitingForQuota").await?;
        ground.submit(ground.job(reserved, "checked", "1")).await?;
        ground.wait_for_condition(reserved, "QuotaReserved", "True", "QuotaReserved").await?;
        ensure!(
            !condition_is_true(&ground.workload(reserved).await?, "Admitted"),
            "{reserved} is admitted past its check"
        );
        for name in &names {
            let workload = text(&ground.workload(name).await?, "/metadata/name").to_owned();
            ground.objects.delete(Kind::JOB, &ground.name, name, policy.clone()).await?;
            eventually(format!("{name} is gone, its Workload gone or finished"), async || {
                ensure!(
                    ground.objects.get(Kind::JOB, &ground.name, name).await?.is_none(),
                    "the Job is there"
                );
                let left = ground.objects.get(Kind::WORKLOAD, &ground.name, &workload).await?;
                ensure!(
                    left.is_none_or(|left| condition_is_true(&left, "Finished")),
                    "the Workload is there"
                );
                Ok(())
            })
            .await?;
        }
        ground.wait_for_queue_counts("plain", (0, 0, 0), &[("cpu", "0")]).await?;
        ground.wait_for_queue_counts("checked", (0, 0, 0), &[("cpu", "0")]).await?;
    }
    Ok(())
}

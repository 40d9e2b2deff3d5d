//! A Job's whole life, and its end by deletion in each state.

use crate::ground::Ground;
use anyhow::{Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, expect, holds, text};
use sluice_e2e::wait::eventually;

pub(crate) async fn one_job_from_creation_to_the_next(_: &Cluster, ground: &Ground) -> Result<()> {
    let queue = ground.queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    ground.submit(ground.job("first", "main", "2")).await?;
    ground.runs("first").await?;
    let workload = ground.workload("first").await?;
    ensure!(
        text(&workload, "/status/admission/clusterQueue") == queue,
        "{}",
        workload["status"]["admission"]
    );
    let assignment = &workload["status"]["admission"]["podSetAssignments"][0];
    ensure!(text(assignment, "/flavors/cpu") == ground.own("any"), "{assignment}");
    ensure!(text(assignment, "/resourceUsage/cpu") == "2", "{assignment}");

    ground.submit(ground.job("second", "main", "2")).await?;
    ground.waits("second", "WaitingForQuota").await?;
    ground.counts("main", (1, 1, 1), &[("cpu", "2")]).await?;

    ground.finish("first").await?;
    ground.runs("second").await?;
    ground.counts("main", (0, 1, 1), &[("cpu", "2")]).await?;
    ground.finish("second").await?;
    ground.counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    eventually("events tell the story", async || {
        let events = ground.objects.list(Kind::EVENT, &ground.name, "").await?;
        for reason in ["CreatedWorkload", "QuotaReserved", "Admitted", "Started", "FinishedWorkload"] {
            ensure!(events.iter().any(|event| text(event, "/reason") == reason), "no event {reason}");
        }
        Ok(())
    })
    .await
}

pub(crate) async fn a_failed_job_gives_its_quota_back(_: &Cluster, ground: &Ground) -> Result<()> {
    ground.queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let fails = ground.job("fails", "main", "1").runs_for("0s").pod_annotation("sluice.dev/exit-code", "7");
    ground.submit(fails).await?;
    ground.finished("fails", "Failed").await?;
    ground.submit(ground.job("next", "main", "1")).await?;
    ground.runs("next").await
}

pub(crate) async fn a_workload_without_a_job_is_scheduled(_: &Cluster, ground: &Ground) -> Result<()> {
    ground.queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    let body = json!({
        "metadata": {"namespace": ground.name, "name": "alone"},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 2, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "registry.example/work:1", "resources": {"requests": {"cpu": "1"}}}],
        }}}]},
    });
    ground.objects.create(Kind::WORKLOAD, &body).await?;
    eventually("it is admitted", async || {
        expect(
            &ground.objects.need(Kind::WORKLOAD, &ground.name, "alone").await?,
            "Admitted",
            "True",
            "Admitted",
        )
    })
    .await?;
    ground.counts("main", (0, 1, 1), &[("cpu", "2")]).await?;
    ground.objects.delete(Kind::WORKLOAD, &ground.name, "alone", PropagationPolicy::Background).await?;
    ground.counts("main", (0, 0, 0), &[("cpu", "0")]).await
}

/// Pending, reserved and running; each deleted with its dependents orphaned, in the background and in the foreground.
pub(crate) async fn jobs_deleted_in_every_state(_: &Cluster, ground: &Ground) -> Result<()> {
    let check = ground
        .keep(
            Kind::ADMISSION_CHECK,
            json!({"metadata": {"name": ground.own("check")}, "spec": {"controllerName": "e2e.example/nobody"}}),
        )
        .await?;
    let active = json!({"status": {"conditions": [{
        "type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    ground.objects.merge_status(Kind::ADMISSION_CHECK, "", &check, &active).await?;
    let quota: crate::ground::Quota<'_> = &[("cpu", "1", None)];
    ground.queue("plain", "", quota, json!({})).await?;
    let checked = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}});
    ground.queue("checked", "", quota, checked).await?;
    for (how, policy) in [
        ("orphan", PropagationPolicy::Orphan),
        ("background", PropagationPolicy::Background),
        ("foreground", PropagationPolicy::Foreground),
    ] {
        let names = [format!("pending-{how}"), format!("reserved-{how}"), format!("running-{how}")];
        let [pending, reserved, running] = &names;
        ground.submit(ground.job(running, "plain", "1")).await?;
        ground.runs(running).await?;
        ground.submit(ground.job(pending, "plain", "1")).await?;
        ground.waits(pending, "WaitingForQuota").await?;
        ground.submit(ground.job(reserved, "checked", "1")).await?;
        ground.condition(reserved, "QuotaReserved", "True", "QuotaReserved").await?;
        ensure!(
            !holds(&ground.workload(reserved).await?, "Admitted"),
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
                ensure!(left.is_none_or(|left| holds(&left, "Finished")), "the Workload is there");
                Ok(())
            })
            .await?;
        }
        ground.counts("plain", (0, 0, 0), &[("cpu", "0")]).await?;
        ground.counts("checked", (0, 0, 0), &[("cpu", "0")]).await?;
    }
    Ok(())
}

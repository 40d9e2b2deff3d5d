//! The lifecycle of a Job, and its deletion in each state.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, expect_condition, text};
use sluice_e2e::wait::eventually;

pub(crate) async fn job_runs_and_releases_quota(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let queue = fixture.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    fixture.submit(fixture.job("first", "main", "2")).await?;
    fixture.wait_until_running("first").await?;
    let workload = fixture.workload("first").await?;
    ensure!(
        text(&workload, "/status/admission/clusterQueue") == queue,
        "{}",
        workload["status"]["admission"]
    );
    let assignment = &workload["status"]["admission"]["podSetAssignments"][0];
    ensure!(text(assignment, "/flavors/cpu") == fixture.own_name("any"), "{assignment}");
    ensure!(text(assignment, "/resourceUsage/cpu") == "2", "{assignment}");

    fixture.submit(fixture.job("second", "main", "2")).await?;
    fixture.wait_until_pending("second", "WaitingForQuota").await?;
    fixture.wait_for_queue_counts("main", (1, 1, 1), &[("cpu", "2")]).await?;

    fixture.finish_job("first").await?;
    fixture.wait_until_running("second").await?;
    fixture.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", "2")]).await?;
    fixture.finish_job("second").await?;
    fixture.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    eventually("every step has an event", async || {
        let events = fixture.objects.list(Kind::EVENT, &fixture.name, "").await?;
        for reason in ["CreatedWorkload", "QuotaReserved", "Admitted", "Started", "FinishedWorkload"] {
            ensure!(events.iter().any(|event| text(event, "/reason") == reason), "no event {reason}");
        }
        Ok(())
    })
    .await
}

pub(crate) async fn failed_job_releases_quota(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let fails = fixture.job("fails", "main", "1").runs_for("0s").pod_annotation("sluice.dev/exit-code", "7");
    fixture.submit(fails).await?;
    fixture.wait_until_finished("fails", "Failed").await?;
    fixture.submit(fixture.job("next", "main", "1")).await?;
    fixture.wait_until_running("next").await
}

pub(crate) async fn bare_workload_is_admitted(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    let body = json!({
        "metadata": {"namespace": fixture.name, "name": "alone"},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 2, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "registry.example/work:1", "resources": {"requests": {"cpu": "1"}}}],
        }}}]},
    });
    fixture.objects.create(Kind::WORKLOAD, &body).await?;
    eventually("the workload is admitted", async || {
        expect_condition(
            &fixture.objects.must_get(Kind::WORKLOAD, &fixture.name, "alone").await?,
            "Admitted",
            "True",
            "Admitted",
        )
    })
    .await?;
    fixture.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", "2")]).await?;
    fixture.objects.delete(Kind::WORKLOAD, &fixture.name, "alone", PropagationPolicy::Background).await?;
    fixture.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await
}

/// Deletes pending, reserving and running Jobs, each with orphan, background and foreground propagation.
pub(crate) async fn jobs_deleted_in_every_state(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let check = fixture
        .create_tracked(
            Kind::ADMISSION_CHECK,
            json!({"metadata": {"name": fixture.own_name("check")}, "spec": {"controllerName": "e2e.example/none"}}),
        )
        .await?;
    let active = json!({"status": {"conditions": [{
        "type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    fixture.objects.merge_status(Kind::ADMISSION_CHECK, "", &check, &active).await?;
    let quota: crate::fixture::QuotaSpec<'_> = &[("cpu", "1", None)];
    fixture.create_queue("plain", "", quota, json!({})).await?;
    let checked = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}});
    fixture.create_queue("checked", "", quota, checked).await?;
    for (propagation, policy) in [
        ("orphan", PropagationPolicy::Orphan),
        ("background", PropagationPolicy::Background),
        ("foreground", PropagationPolicy::Foreground),
    ] {
        let names = [
            format!("pending-{propagation}"),
            format!("reserved-{propagation}"),
            format!("running-{propagation}"),
        ];
        let [pending, reserved, running] = &names;
        fixture.submit(fixture.job(running, "plain", "1")).await?;
        fixture.wait_until_running(running).await?;
        fixture.submit(fixture.job(pending, "plain", "1")).await?;
        fixture.wait_until_pending(pending, "WaitingForQuota").await?;
        fixture.submit(fixture.job(reserved, "checked", "1")).await?;
        fixture.wait_for_condition(reserved, "QuotaReserved", "True", "QuotaReserved").await?;
        ensure!(
            !condition_is_true(&fixture.workload(reserved).await?, "Admitted"),
            "{reserved} is admitted without its check"
        );
        for name in &names {
            let workload = text(&fixture.workload(name).await?, "/metadata/name").to_owned();
            fixture.objects.delete(Kind::JOB, &fixture.name, name, policy.clone()).await?;
            eventually(format!("{name} is deleted, its Workload deleted or finished"), async || {
                ensure!(
                    fixture.objects.get(Kind::JOB, &fixture.name, name).await?.is_none(),
                    "the Job still exists"
                );
                let workload_left = fixture.objects.get(Kind::WORKLOAD, &fixture.name, &workload).await?;
                ensure!(
                    workload_left.is_none_or(|workload| condition_is_true(&workload, "Finished")),
                    "the Workload still exists"
                );
                Ok(())
            })
            .await?;
        }
        fixture.wait_for_queue_counts("plain", (0, 0, 0), &[("cpu", "0")]).await?;
        fixture.wait_for_queue_counts("checked", (0, 0, 0), &[("cpu", "0")]).await?;
    }
    Ok(())
}

/// A prebuilt Workload without any of the defaults that the API server sets in a Job's template starts the Job.
pub(crate) async fn prebuilt_workload_without_defaults(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "2", None), ("memory", "4Gi", None)], json!({})).await?;
    let get = json!({"httpGet": {"port": 80}});
    let name = json!({"path": "name", "fieldRef": {"fieldPath": "metadata.name"}});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let template = json!({"spec": {
        "restartPolicy": "Never",
        "serviceAccountName": "default",
        "initContainers": [{"name": "init", "image": "work@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}],
        "containers": [{
            "name": "main", "image": "registry.example:5000/work", "ports": [{"containerPort": 80}],
            "env": [{"name": "EMPTY", "value": ""}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}}],
            "livenessProbe": get.clone(), "startupProbe": get.clone(), "readinessProbe": {"grpc": {"port": 81}},
            "lifecycle": {"preStop": get}, "tty": false, "resources": {"requests": {"cpu": "500500u", "memory": "1024Mi"}},
        }],
        "volumes": [
            {"name": "none"},
            {"name": "secret", "secret": {"secretName": "s"}},
            {"name": "config", "configMap": {"name": "c"}},
            {"name": "downward", "downwardAPI": {"items": [name.clone()]}},
            {"name": "host", "hostPath": {"path": "/data"}},
            {"name": "projected", "projected": {"sources": [
                {"serviceAccountToken": {"path": "t"}}, {"downwardAPI": {"items": [name]}}]}},
            {"name": "claim", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}},
        ],
    }});
    let body = json!({"metadata": {"namespace": fixture.name, "name": "mine"},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template.clone()}]}});
    fixture.objects.create(Kind::WORKLOAD, &body).await?;
    let job = fixture.job("prebuilt", "main", "1").label("kueue.x-k8s.io/prebuilt-workload-name", "mine");
    fixture.submit(job.spec("template", template)).await?;
    eventually("the Job is started", async || {
        let workload = fixture.objects.must_get(Kind::WORKLOAD, &fixture.name, "mine").await?;
        expect_condition(&workload, "Admitted", "True", "Admitted")?;
        let job = fixture.objects.must_get(Kind::JOB, &fixture.name, "prebuilt").await?;
        ensure!(job["spec"]["suspend"] == json!(false), "it is suspended");
        Ok(())
    })
    .await?;
    // It is as equal after a stop.
    fixture.set_workload_spec("prebuilt", json!({"active": false})).await?;
    fixture.wait_until_pending("prebuilt", "Deactivated").await?;
    fixture.set_workload_spec("prebuilt", json!({"active": true})).await?;
    fixture.wait_for_condition("prebuilt", "Admitted", "True", "Admitted").await
}

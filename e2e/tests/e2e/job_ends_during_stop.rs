//! A Job that completes while its user or a preemptor stops it, at each step of the stop.

use crate::fixture::Fixture;
use crate::history::History;
use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use http::Method;
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::proxy::{Call, Fault, Proxy};
use sluice_e2e::wait::eventually;

/// Why the Job is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    User,
    Preemptor,
}

/// Selects the write that is in flight when the Job completes.
type Step = fn(&Call, &str) -> bool;

const CAUSES: [(&str, Cause); 2] = [("user", Cause::User), ("other", Cause::Preemptor)];
const STEPS: [(&str, Step); 2] = [
    ("evict", |call, job| {
        call.matches(&Method::PATCH, "/status")
            && call.path.contains(&format!("/workloads/job-{job}-"))
            && call.sets_condition("Evicted", "True")
    }),
    ("stop", |call, job| {
        call.matches(&Method::PATCH, &format!("/jobs/{job}")) && call.body["spec"]["suspend"] == true
    }),
];

/// The Job finishes once with its own result, its quota is released once, and the next Job gets it.
pub(crate) async fn job_ends_during_each_step(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    let proxy = Proxy::open(&cluster.plane).await?;
    let settings = ManagerSettings { api_server_url: Some(proxy.url()), ..old.settings().clone() };
    let manager = Manager::start(&cluster.plane, &settings).await?;
    manager.wait_until_ready().await?;
    cluster.wait_for_webhooks().await?;
    fixture.create_priority_class("high", 100).await?;
    let all = CAUSES.iter().flat_map(|cause| STEPS.iter().map(move |step| (cause, step)));
    let failures: Vec<String> = join_all(all.map(async |((cause_name, cause), (step_name, step))| {
        let job = format!("{cause_name}-{step_name}");
        scenario(fixture, &proxy, &job, *cause, *step).await.err().map(|error| format!("{job}: {error:#}"))
    }))
    .await
    .into_iter()
    .flatten()
    .collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));

    manager.terminate();
    let direct = Manager::start(&cluster.plane, old.settings()).await?;
    direct.wait_until_ready().await?;
    cluster.put_manager(direct);
    cluster.wait_for_webhooks().await
}

async fn scenario(fixture: &Fixture, proxy: &Proxy, job: &str, cause: Cause, step: Step) -> Result<()> {
    let next = format!("next-{job}");
    let policy = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    fixture.create_queue(job, "", &[("cpu", "1", None)], policy).await?;
    fixture.submit(fixture.job(job, job, "1")).await?;
    fixture.wait_until_running(job).await?;
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let is_step = {
        let job = job.to_owned();
        move |call: &Call| step(call, &job)
    };
    let fault = proxy.inject(Fault::Hold, 0..1, is_step);
    if cause == Cause::User {
        fixture.set_workload_spec(job, json!({"active": false})).await?;
    }
    fixture.submit(fixture.job(&next, job, "1").priority(&fixture.own_name("high"))).await?;
    fault.wait_until_matched().await?;
    for pod in fixture.pods(job).await? {
        let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
        fixture.objects.merge(Kind::POD, &fixture.name, text(&pod, "/metadata/name"), &patch).await?;
    }
    eventually("the Job is complete", async || {
        let object = fixture.objects.must_get(Kind::JOB, &fixture.name, job).await?;
        ensure!(condition_is_true(&object, "Complete"), "{}", object["status"]);
        Ok(())
    })
    .await?;
    fault.release();
    fault.wait_until_completed().await?;
    fixture.wait_until_finished(job, "Succeeded").await?;
    fixture.wait_until_running(&next).await?;
    fixture.wait_for_queue_counts(job, (0, 1, 1), &[("cpu", "1")]).await?;
    fixture.finish_job(&next).await?;
    fixture.wait_for_queue_counts(job, (0, 0, 0), &[("cpu", "0")]).await?;
    let object = fixture.objects.must_get(Kind::JOB, &fixture.name, job).await?;
    ensure!(
        condition_is_true(&object, "Complete") && !condition_is_true(&object, "Failed"),
        "{}",
        object["status"]
    );
    check_history(&history, job, &next)
}

/// Checks that the Workload stays Finished, and that at no revision both Jobs have quota.
fn check_history(history: &History, job: &str, next: &str) -> Result<()> {
    let (mut finished, mut job_has_quota, mut next_has_quota) = (false, true, false);
    for object in history.revisions()? {
        let owner = text(&object, "/metadata/ownerReferences/0/name");
        let has_quota =
            condition_is_true(&object, "QuotaReserved") && !condition_is_true(&object, "Finished");
        if owner == job {
            ensure!(
                !finished || condition_is_true(&object, "Finished"),
                "Finished was reverted: {}",
                object["status"]
            );
            finished |= condition_is_true(&object, "Finished");
            job_has_quota = has_quota;
        } else if owner == next {
            next_has_quota = has_quota;
        }
        ensure!(!(job_has_quota && next_has_quota), "both Jobs have quota: {}", object["status"]);
    }
    ensure!(finished, "the Workload never finished");
    Ok(())
}

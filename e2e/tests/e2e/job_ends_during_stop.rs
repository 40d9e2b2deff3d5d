//! A Job that ends of itself while it is being stopped, by its user or for another, at each step of that.

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

/// Why it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    User,
    Preemptor,
}

/// The write that is under way when it ends.
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

/// The Job's own end is the only one, what it held is given back once, and the next one has it.
pub(crate) async fn job_ends_during_each_step(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    let proxy = Proxy::open(&cluster.plane).await?;
    let settings = ManagerSettings { api_server_url: Some(proxy.url()), ..old.settings().clone() };
    let manager = Manager::start(&cluster.plane, &settings).await?;
    manager.wait_until_ready().await?;
    cluster.wait_for_webhooks().await?;
    ground.create_priority_class("high", 100).await?;
    let all = CAUSES.iter().flat_map(|cause| STEPS.iter().map(move |step| (cause, step)));
    let wrong: Vec<String> = join_all(all.map(async |((why, cause), (what, step))| {
        let job = format!("{why}-{what}");
        scenario(ground, &proxy, &job, *cause, *step).await.err().map(|error| format!("{job}: {error:#}"))
    }))
    .await
    .into_iter()
    .flatten()
    .collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));

    manager.terminate();
    let direct = Manager::start(&cluster.plane, old.settings()).await?;
    direct.wait_until_ready().await?;
    cluster.put_manager(direct);
    cluster.wait_for_webhooks().await
}

async fn scenario(ground: &Fixture, proxy: &Proxy, job: &str, cause: Cause, step: Step) -> Result<()> {
    let next = format!("next-{job}");
    let policy = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    ground.create_queue(job, "", &[("cpu", "1", None)], policy).await?;
    ground.submit(ground.job(job, job, "1")).await?;
    ground.wait_until_running(job).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let picks = {
        let job = job.to_owned();
        move |call: &Call| step(call, &job)
    };
    let trap = proxy.inject(Fault::Hold, 0..1, picks);
    if cause == Cause::User {
        ground.set_workload_spec(job, json!({"active": false})).await?;
    }
    ground.submit(ground.job(&next, job, "1").priority(&ground.own_name("high"))).await?;
    trap.wait_until_matched().await?;
    for pod in ground.pods(job).await? {
        let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
        ground.objects.merge(Kind::POD, &ground.name, text(&pod, "/metadata/name"), &patch).await?;
    }
    eventually("the Job has ended", async || {
        let object = ground.objects.must_get(Kind::JOB, &ground.name, job).await?;
        ensure!(condition_is_true(&object, "Complete"), "{}", object["status"]);
        Ok(())
    })
    .await?;
    trap.release();
    trap.wait_until_completed().await?;
    ground.wait_until_finished(job, "Succeeded").await?;
    ground.wait_until_running(&next).await?;
    ground.wait_for_queue_counts(job, (0, 1, 1), &[("cpu", "1")]).await?;
    ground.finish_job(&next).await?;
    ground.wait_for_queue_counts(job, (0, 0, 0), &[("cpu", "0")]).await?;
    let object = ground.objects.must_get(Kind::JOB, &ground.name, job).await?;
    ensure!(
        condition_is_true(&object, "Complete") && !condition_is_true(&object, "Failed"),
        "{}",
        object["status"]
    );
    check_history(&history, job, &next)
}

/// Once it has finished it stays so, as it is; at no revision do both hold quota.
fn check_history(history: &History, job: &str, next: &str) -> Result<()> {
    let (mut ended, mut first, mut second) = (false, true, false);
    for object in history.revisions()? {
        let owner = text(&object, "/metadata/ownerReferences/0/name");
        let has = condition_is_true(&object, "QuotaReserved") && !condition_is_true(&object, "Finished");
        if owner == job {
            ensure!(
                !ended || condition_is_true(&object, "Finished"),
                "its end was taken back: {}",
                object["status"]
            );
            ended |= condition_is_true(&object, "Finished");
            first = has;
        } else if owner == next {
            second = has;
        }
        ensure!(!(first && second), "both hold quota: {}", object["status"]);
    }
    ensure!(ended, "nothing was seen of its end");
    Ok(())
}

//! A Job that ends of itself while it is being stopped, by its user or for another, at each step of that.

use crate::ground::Ground;
use crate::history::History;
use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use http::Method;
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, Settings};
use sluice_e2e::objects::{Kind, holds, text};
use sluice_e2e::proxy::{Call, Fault, Proxy};
use sluice_e2e::wait::eventually;

/// Why it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    User,
    Other,
}

/// The write that is under way when it ends.
type Step = fn(&Call, &str) -> bool;

const CAUSES: [(&str, Cause); 2] = [("user", Cause::User), ("other", Cause::Other)];
const STEPS: [(&str, Step); 2] = [
    ("evict", |call, job| {
        call.is(&Method::PATCH, "/status")
            && call.path.contains(&format!("/workloads/job-{job}-"))
            && call.sets("Evicted", "True")
    }),
    ("stop", |call, job| {
        call.is(&Method::PATCH, &format!("/jobs/{job}")) && call.body["spec"]["suspend"] == true
    }),
];

/// The Job's own end is the only one, what it held is given back once, and the next one has it.
pub(crate) async fn a_job_that_ends_while_it_is_stopped(
    cluster: &mut Cluster,
    ground: &Ground,
) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    let proxy = Proxy::open(&cluster.plane).await?;
    let settings = Settings { server: Some(proxy.url()), ..old.settings().clone() };
    let manager = Manager::start(&cluster.plane, &settings).await?;
    manager.ready().await?;
    cluster.webhooks_answer().await?;
    ground.priority("high", 100).await?;
    let all = CAUSES.iter().flat_map(|cause| STEPS.iter().map(move |step| (cause, step)));
    let wrong: Vec<String> = join_all(all.map(async |((why, cause), (what, step))| {
        let job = format!("{why}-{what}");
        story(ground, &proxy, &job, *cause, *step).await.err().map(|error| format!("{job}: {error:#}"))
    }))
    .await
    .into_iter()
    .flatten()
    .collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));

    manager.terminate();
    let direct = Manager::start(&cluster.plane, old.settings()).await?;
    direct.ready().await?;
    cluster.put_manager(direct);
    cluster.webhooks_answer().await
}

async fn story(ground: &Ground, proxy: &Proxy, job: &str, cause: Cause, step: Step) -> Result<()> {
    let next = format!("next-{job}");
    let policy = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    ground.queue(job, "", &[("cpu", "1", None)], policy).await?;
    ground.submit(ground.job(job, job, "1")).await?;
    ground.runs(job).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let picks = {
        let job = job.to_owned();
        move |call: &Call| step(call, &job)
    };
    let trap = proxy.trap(Fault::Hold, 0..1, picks);
    if cause == Cause::User {
        ground.set_workload(job, json!({"active": false})).await?;
    }
    ground.submit(ground.job(&next, job, "1").priority(&ground.own("high"))).await?;
    trap.caught().await?;
    for pod in ground.pods(job).await? {
        let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
        ground.objects.merge(Kind::POD, &ground.name, text(&pod, "/metadata/name"), &patch).await?;
    }
    eventually("the Job has ended", async || {
        let object = ground.objects.need(Kind::JOB, &ground.name, job).await?;
        ensure!(holds(&object, "Complete"), "{}", object["status"]);
        Ok(())
    })
    .await?;
    trap.release();
    trap.over().await?;
    ground.finished(job, "Succeeded").await?;
    ground.runs(&next).await?;
    ground.counts(job, (0, 1, 1), &[("cpu", "1")]).await?;
    ground.finish(&next).await?;
    ground.counts(job, (0, 0, 0), &[("cpu", "0")]).await?;
    let object = ground.objects.need(Kind::JOB, &ground.name, job).await?;
    ensure!(holds(&object, "Complete") && !holds(&object, "Failed"), "{}", object["status"]);
    judge(&history, job, &next)
}

/// Once it has finished it stays so, as it is; at no revision do both hold quota.
fn judge(history: &History, job: &str, next: &str) -> Result<()> {
    let (mut ended, mut first, mut second) = (false, true, false);
    for object in history.revisions()? {
        let owner = text(&object, "/metadata/ownerReferences/0/name");
        let has = holds(&object, "QuotaReserved") && !holds(&object, "Finished");
        if owner == job {
            ensure!(!ended || holds(&object, "Finished"), "its end was taken back: {}", object["status"]);
            ended |= holds(&object, "Finished");
            first = has;
        } else if owner == next {
            second = has;
        }
        ensure!(!(first && second), "both hold quota: {}", object["status"]);
    }
    ensure!(ended, "nothing was seen of its end");
    Ok(())
}

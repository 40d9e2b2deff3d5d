//! The leader is killed while a Workload waits in back-off and while capacity is reserved for a preemptor. Both are facts that the
//! next leader must read from the objects.

use crate::cases::note;
use crate::crashes::wait_for_other_holder;
use crate::fixture::Fixture;
use crate::history::{History, revision};
use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::wait::eventually;

const STAMP: &str = "2026-01-01T00:00:00Z";
/// Longer than a change of leader takes.
const BACKOFF: SignedDuration = SignedDuration::from_secs(20);
/// Termination time of the victim that ends last: longer than a change of leader takes.
const SLOW: &str = "20s";

/// The next leader queues the Workload when its back-off has passed and not before, and starts the preemptor when its last victim
/// is gone: quota that the first victim released is not given to a Workload of lower priority meanwhile.
pub(crate) async fn back_off_and_reserved_capacity_are_kept(
    cluster: &mut Cluster,
    fixture: &Fixture,
) -> Result<()> {
    let first = cluster.take_manager().context("no manager")?;
    let leader = wait_for_other_holder(&fixture.objects, "").await?;
    let settings = ManagerSettings { name: "next".to_owned(), webhook_port: 0, ..first.settings().clone() };
    let second = Manager::start(&cluster.plane, &settings).await?;
    second.wait_until_ready().await?;

    let requeue_at = begin_back_off(fixture).await?;
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    begin_preemption(fixture).await?;
    let balancer = cluster.balancer.as_ref().context("no balancer")?;
    balancer.set_backends(vec![second.settings().webhook_port]);
    first.kill();
    wait_for_other_holder(&fixture.objects, &leader).await?;
    let left = requeue_at.duration_since(Timestamp::now());
    ensure!(left.is_positive(), "the back-off ended before the leader changed");
    note(format_args!("{} s of the back-off are left for the next leader", left.as_secs()));

    fixture.wait_until_running("urgent").await?;
    fixture.check_pending("small").await.context("a workload of lower priority")?;
    eventually("later has quota again", async || {
        ensure!(condition_is_true(&fixture.workload("later").await?, "QuotaReserved"), "not yet");
        Ok(())
    })
    .await?;
    ensure!(Timestamp::now() >= requeue_at, "it got quota before its back-off had passed");

    let revisions = history.revisions()?;
    let has_quota = |job: &str| {
        revisions.iter().find(|object| {
            text(object, "/metadata/ownerReferences/0/name") == job
                && condition_is_true(object, "QuotaReserved")
        })
    };
    let urgent = revision(has_quota("urgent").context("urgent never got quota")?)?;
    ensure!(has_quota("small").is_none(), "small got quota that is reserved for urgent");
    let mut released = revisions.iter().filter(|object| {
        text(object, "/metadata/ownerReferences/0/name") == "slow"
            && condition_is_true(object, "Evicted")
            && !condition_is_true(object, "QuotaReserved")
    });
    let released = revision(released.next().context("slow was never released")?)?;
    ensure!(released < urgent, "urgent got quota at {urgent}, its victim released it at {released}");
    fixture.finish_job("urgent").await?;
    for job in ["quick", "slow"] {
        fixture.wait_until_running(job).await?;
    }
    cluster.put_manager(second);
    cluster.wait_for_webhooks().await
}

/// A check asks for a retry after some time. Returns when the Workload may be queued again.
async fn begin_back_off(fixture: &Fixture) -> Result<Timestamp> {
    let check = fixture.own_name("check");
    let spec = json!({"controllerName": "e2e.example/manual"});
    fixture.create_tracked(Kind::ADMISSION_CHECK, json!({"metadata": {"name": check}, "spec": spec})).await?;
    let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": STAMP});
    let status = json!({"status": {"conditions": [active]}});
    fixture.objects.merge_status(Kind::ADMISSION_CHECK, "", &check, &status).await?;
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}});
    fixture.create_queue("checked", "", &[("cpu", "1", None)], strategy).await?;
    fixture.wait_until_queue_active("checked").await?;
    fixture.submit(fixture.job("later", "checked", "1")).await?;
    fixture.wait_for_condition("later", "QuotaReserved", "True", "QuotaReserved").await?;
    eventually("the check asks for a retry", async || {
        let workload = fixture.workload("later").await?;
        let mut checks = workload["status"]["admissionChecks"].clone();
        checks[0]["state"] = json!("Retry");
        checks[0]["requeueAfterSeconds"] = json!(BACKOFF.as_secs());
        checks[0]["lastTransitionTime"] = json!(format!("{:.0}", Timestamp::now()));
        let version = &workload["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "status": {"admissionChecks": checks}});
        let name = text(&workload, "/metadata/name");
        fixture.objects.merge_status(Kind::WORKLOAD, &fixture.name, name, &patch).await?;
        Ok(())
    })
    .await?;
    let requeue_at = eventually("later is in back-off", async || {
        let workload = fixture.workload("later").await?;
        let requeue_at = text(&workload, "/status/requeueState/requeueAt").to_owned();
        ensure!(
            !condition_is_true(&workload, "QuotaReserved") && !requeue_at.is_empty(),
            "{}",
            workload["status"]
        );
        Ok(requeue_at)
    })
    .await?;
    Ok(requeue_at.parse()?)
}

/// A preemptor has two victims, of which one has ended and one still terminates; a workload of low priority waits behind it.
async fn begin_preemption(fixture: &Fixture) -> Result<()> {
    let policy = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    fixture.create_queue("main", "", &[("cpu", "2", None)], policy).await?;
    let (low, high) =
        (fixture.create_priority_class("low", 1).await?, fixture.create_priority_class("high", 100).await?);
    let slow = fixture.job("slow", "main", "1").pod_annotation("sluice.dev/terminate-after", SLOW);
    for (name, job) in [("quick", fixture.job("quick", "main", "1")), ("slow", slow)] {
        fixture.submit(job.priority(&low)).await?;
        fixture.wait_until_running(name).await?;
    }
    fixture.submit(fixture.job("urgent", "main", "2").priority(&high)).await?;
    for victim in ["quick", "slow"] {
        fixture.wait_for_condition(victim, "Evicted", "True", "Preempted").await?;
    }
    eventually("the first victim has released its quota", async || {
        let workload = fixture.workload("quick").await?;
        ensure!(!condition_is_true(&workload, "QuotaReserved"), "not yet");
        Ok(())
    })
    .await?;
    fixture.submit(fixture.job("small", "main", "1").priority(&low)).await
}

//! Preemption in two steps: running workloads are evicted, and the quota they release is reserved for the preemptor.

use crate::fixture::Fixture;
use crate::history::{History, revision};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition, condition_is_true, text};
use sluice_e2e::wait::{eventually, is_soak_run};
use std::collections::BTreeSet;

/// Victim, termination time of its pods, and their termination time in a soak run.
const VICTIMS: [(&str, Option<&str>, Option<&str>); 3] =
    [("quick", None, Some("1s")), ("slow", Some("5s"), Some("60s")), ("slowest", Some("20s"), Some("600s"))];

/// The preemptor starts when the pod of the last victim is gone, not before; quota released by earlier victims stays
/// reserved for it; each victim is preempted once and runs again later.
pub(crate) async fn victims_end_at_different_times(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let policy = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    fixture.create_queue("main", "", &[("cpu", "3", None)], policy).await?;
    let (low, high) =
        (fixture.create_priority_class("low", 1).await?, fixture.create_priority_class("high", 100).await?);
    for (victim, ends, long) in VICTIMS {
        let ends = if is_soak_run() { long } else { ends };
        let job = fixture.job(victim, "main", "1").priority(&low);
        let job = ends.iter().fold(job, |job, time| job.pod_annotation("sluice.dev/terminate-after", time));
        fixture.submit(job).await?;
        fixture.wait_until_running(victim).await?;
    }
    let workloads = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let pods = History::start(&fixture.objects, Kind::POD, &fixture.name).await?;
    let mut running = Vec::new();
    for (victim, ..) in VICTIMS {
        running.extend(fixture.pods(victim).await?.iter().map(|pod| text(pod, "/metadata/name").to_owned()));
    }
    fixture.submit(fixture.job("urgent", "main", "3").priority(&high)).await?;
    for (victim, ..) in VICTIMS {
        fixture.wait_for_condition(victim, "Evicted", "True", "Preempted").await?;
        fixture.wait_for_condition(victim, "Preempted", "True", "InClusterQueue").await?;
    }
    fixture.wait_until_running("urgent").await?;
    let left = fixture.objects.list(Kind::POD, &fixture.name, "").await?;
    for pod in &running {
        ensure!(
            left.iter().all(|other| text(other, "/metadata/name") != pod),
            "{pod} still exists while urgent is running"
        );
    }
    fixture.finish_job("urgent").await?;
    for (victim, ..) in VICTIMS {
        fixture.wait_until_running(victim).await?;
    }
    let workloads = workloads.revisions()?;
    let admitted = first_revision_with(&workloads, "urgent", "QuotaReserved")?;
    for pod in &running {
        let gone = pods.revisions()?.iter().rfind(|other| text(other, "/metadata/name") == pod).map(revision);
        let gone = gone.with_context(|| format!("no revision of {pod} was recorded"))??;
        ensure!(gone < admitted, "{pod} was deleted at revision {gone}, urgent got quota at {admitted}");
    }
    let ended = first_revision_with(&workloads, "urgent", "Finished")?;
    for (victim, ..) in VICTIMS {
        check_evicted_once(&workloads, victim, ended)?;
    }
    Ok(())
}

/// Returns the first revision at which the Workload of a Job has this condition.
fn first_revision_with(revisions: &[Value], job: &str, condition: &str) -> Result<u64> {
    let found =
        revisions.iter().find(|object| is_workload_of(object, job) && condition_is_true(object, condition));
    revision(found.with_context(|| format!("{job} never became {condition}"))?)
}

fn is_workload_of(workload: &Value, job: &str) -> bool {
    text(workload, "/metadata/ownerReferences/0/name") == job
}

/// Checks that the victim was evicted once and had no quota from its release until the preemptor finished.
fn check_evicted_once(revisions: &[Value], victim: &str, ended: u64) -> Result<()> {
    let (mut evictions, mut evicted, mut released) = (0, false, false);
    for object in revisions.iter().filter(|object| is_workload_of(object, victim)) {
        evictions += u32::from(condition_is_true(object, "Evicted") && !evicted);
        evicted = condition_is_true(object, "Evicted");
        let reserved = condition_is_true(object, "QuotaReserved");
        ensure!(
            !(released && reserved && revision(object)? < ended),
            "{victim} got quota before its preemptor finished"
        );
        released |= !reserved;
    }
    ensure!(evictions == 1, "{victim} was evicted {evictions} times");
    Ok(())
}

/// The value of a WorkloadPriorityClass is live: a running Job whose class is lowered below that of a waiting one is preempted.
pub(crate) async fn lowered_priority_is_preempted(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let policy = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    fixture.create_queue("main", "", &[("cpu", "1", None)], policy).await?;
    let nightly = fixture.create_priority_class("nightly", 100).await?;
    let daily = fixture.create_priority_class("daily", 50).await?;
    fixture.submit(fixture.job("nightly", "main", "1").priority(&nightly)).await?;
    fixture.wait_until_running("nightly").await?;
    fixture.submit(fixture.job("daily", "main", "1").priority(&daily)).await?;
    fixture.wait_until_pending("daily", "WaitingForQuota").await?;
    fixture.objects.merge(Kind::PRIORITY_CLASS, "", &nightly, &json!({"value": 10})).await?;
    fixture.wait_until_running("daily").await?;
    let victim = fixture.workload("nightly").await?;
    let preempted = condition(&victim, "Preempted");
    ensure!(preempted.reason == "InClusterQueue", "nightly has the condition {preempted:?}");
    ensure!(
        victim["spec"]["priority"] == json!(10),
        "the priority of nightly is {}",
        victim["spec"]["priority"]
    );
    fixture.finish_job("daily").await?;
    fixture.wait_until_running("nightly").await
}

/// A queue reclaims the quota that it lent, from as many borrowers as needed.
pub(crate) async fn lent_quota_is_reclaimed(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let cohort = fixture.own_name("family");
    let policy = json!({"preemption": {"reclaimWithinCohort": "Any"}});
    let owner = fixture.create_queue("owner", &cohort, &[("cpu", "2", None)], policy).await?;
    let borrower = fixture.create_queue("borrower", &cohort, &[("cpu", "2", None)], json!({})).await?;
    let guests = ["guest-1", "guest-2", "guest-3", "guest-4"];
    for guest in guests {
        fixture.submit(fixture.job(guest, "borrower", "1")).await?;
        fixture.wait_until_running(guest).await?;
    }
    fixture.submit(fixture.job("host", "owner", "2")).await?;
    fixture.wait_until_running("host").await?;
    fixture.wait_for_queue_counts("borrower", (2, 2, 2), &[("cpu", "2")]).await?;
    fixture.wait_for_queue_counts("owner", (0, 1, 1), &[("cpu", "2")]).await?;
    let mut evicted = Vec::new();
    for guest in guests {
        let workload = fixture.workload(guest).await?;
        let preempted = condition(&workload, "Preempted");
        if condition_is_true(&workload, "QuotaReserved") {
            ensure!(preempted.status != "True", "{guest} is running and has Preempted=True");
            continue;
        }
        ensure!(preempted.reason == "InCohortReclamation", "{guest} has the condition {preempted:?}");
        for end in
            [format!("preemptor path: /{cohort}/{owner}"), format!("preemptee path: /{cohort}/{borrower}")]
        {
            ensure!(
                preempted.message.contains(&end),
                "the message of {guest} is {:?}, without {end:?}",
                preempted.message
            );
        }
        evicted.push(guest);
    }
    ensure!(evicted.len() == 2, "{evicted:?} were evicted");
    fixture.finish_job("host").await?;
    for guest in guests {
        fixture.wait_until_running(guest).await?;
    }
    Ok(())
}

/// Each of three queues that share a cohort's quota gets a third of it, although the first queue used all of it before.
pub(crate) async fn three_queues_reach_equal_shares(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let strategies = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"];
    let fair = json!({"fairSharing": {"preemptionStrategies": strategies}});
    let before = cluster.reconfigure(&fair).await?;
    let cohort = fixture.create_cohort("pool", "", &[("cpu", "9", None)]).await?;
    let policy = json!({"preemption": {"reclaimWithinCohort": "Any"}});
    let queues = ["early", "late", "later"];
    for queue in queues {
        fixture.create_queue(queue, &cohort, &[("cpu", "0", None)], policy.clone()).await?;
    }
    let workloads = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    for (index, queue) in queues.into_iter().enumerate() {
        for number in 0..9 {
            fixture.submit(fixture.job(&format!("{queue}-{number}"), queue, "1")).await?;
        }
        if index == 0 {
            fixture.wait_for_queue_counts(queue, (0, 9, 9), &[("cpu", "9")]).await?;
        }
    }
    for queue in queues {
        fixture.wait_for_queue_counts(queue, (6, 3, 3), &[("cpu", "3")]).await?;
    }
    eventually("all queues have the same weighted share", async || {
        for queue in queues {
            let object = fixture.objects.must_get(Kind::CLUSTER_QUEUE, "", &fixture.own_name(queue)).await?;
            let share = &object["status"]["fairSharing"]["weightedShare"];
            ensure!(*share == json!(334), "the weighted share of {queue} is {share}");
        }
        Ok(())
    })
    .await?;
    // The second queue may have reached half of the quota before the third had workloads, so it may lose one. The third
    // queue never exceeds its share, so none of its workloads is preempted.
    let mut preempted = BTreeSet::new();
    for object in workloads.revisions()?.iter().filter(|object| condition_is_true(object, "Preempted")) {
        let found = condition(object, "Preempted");
        ensure!(found.reason == "InCohortFairSharing", "{found:?}");
        let job = text(object, "/metadata/ownerReferences/0/name").to_owned();
        ensure!(!job.starts_with("later-"), "{job} was preempted");
        preempted.insert(job);
    }
    let early = preempted.iter().filter(|job| job.starts_with("early-")).count();
    ensure!(early == 6 && preempted.len() <= 7, "{preempted:?} were preempted");
    cluster.reconfigure(&before).await.map(drop)
}

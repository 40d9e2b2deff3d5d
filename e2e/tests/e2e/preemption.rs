//! Preemption: quota is taken from those that run, in two steps, and kept for whom it was taken.

use crate::ground::Ground;
use crate::history::{History, revision};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition, holds, text};
use sluice_e2e::wait::{eventually, soaks};
use std::collections::BTreeSet;

/// Victims, how long their pods take to end, and how long where faults last as long as they may.
const VICTIMS: [(&str, Option<&str>, Option<&str>); 3] =
    [("quick", None, Some("1s")), ("slow", Some("5s"), Some("60s")), ("slowest", Some("20s"), Some("600s"))];

/// The preemptor starts when the last victim's pod is gone, not before; what the first victims gave back is kept for it;
/// each victim is preempted once and runs again later.
pub(crate) async fn victims_that_end_at_different_times(_: &Cluster, ground: &Ground) -> Result<()> {
    let policy = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    ground.queue("main", "", &[("cpu", "3", None)], policy).await?;
    let (low, high) = (ground.priority("low", 1).await?, ground.priority("high", 100).await?);
    for (victim, ends, long) in VICTIMS {
        let ends = if soaks() { long } else { ends };
        let job = ground.job(victim, "main", "1").priority(&low);
        let job = ends.iter().fold(job, |job, time| job.pod_annotation("sluice.dev/terminate-after", time));
        ground.submit(job).await?;
        ground.runs(victim).await?;
    }
    let workloads = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let pods = History::start(&ground.objects, Kind::POD, &ground.name).await?;
    let mut running = Vec::new();
    for (victim, ..) in VICTIMS {
        running.extend(ground.pods(victim).await?.iter().map(|pod| text(pod, "/metadata/name").to_owned()));
    }
    ground.submit(ground.job("urgent", "main", "3").priority(&high)).await?;
    for (victim, ..) in VICTIMS {
        ground.condition(victim, "Evicted", "True", "Preempted").await?;
        ground.condition(victim, "Preempted", "True", "InClusterQueue").await?;
    }
    ground.runs("urgent").await?;
    let left = ground.objects.list(Kind::POD, &ground.name, "").await?;
    for pod in &running {
        ensure!(
            left.iter().all(|other| text(other, "/metadata/name") != pod),
            "{pod} is there beside urgent"
        );
    }
    ground.finish("urgent").await?;
    for (victim, ..) in VICTIMS {
        ground.runs(victim).await?;
    }
    let workloads = workloads.revisions()?;
    let admitted = first(&workloads, "urgent", "QuotaReserved")?;
    for pod in &running {
        let gone = pods.revisions()?.iter().rfind(|other| text(other, "/metadata/name") == pod).map(revision);
        let gone = gone.with_context(|| format!("nothing was seen of {pod}"))??;
        ensure!(gone < admitted, "{pod} went at revision {gone}, urgent was admitted at {admitted}");
    }
    let ended = first(&workloads, "urgent", "Finished")?;
    for (victim, ..) in VICTIMS {
        stopped_once(&workloads, victim, ended)?;
    }
    Ok(())
}

/// The revision at which the Workload of a Job first had a condition.
fn first(revisions: &[Value], job: &str, condition: &str) -> Result<u64> {
    let found = revisions.iter().find(|object| is_of(object, job) && holds(object, condition));
    revision(found.with_context(|| format!("{job} never was {condition}"))?)
}

fn is_of(workload: &Value, job: &str) -> bool {
    text(workload, "/metadata/ownerReferences/0/name") == job
}

/// It was evicted once, and between its end and that of its preemptor it never held quota.
fn stopped_once(revisions: &[Value], victim: &str, ended: u64) -> Result<()> {
    let (mut evictions, mut evicted, mut released) = (0, false, false);
    for object in revisions.iter().filter(|object| is_of(object, victim)) {
        evictions += u32::from(holds(object, "Evicted") && !evicted);
        evicted = holds(object, "Evicted");
        let held = holds(object, "QuotaReserved");
        ensure!(
            !(released && held && revision(object)? < ended),
            "{victim} got quota before its preemptor ended"
        );
        released |= !held;
    }
    ensure!(evictions == 1, "{victim} was evicted {evictions} times");
    Ok(())
}

/// What a queue lent comes back when it needs it, from as many borrowers as it takes.
pub(crate) async fn lent_quota_is_reclaimed(_: &Cluster, ground: &Ground) -> Result<()> {
    let cohort = ground.own("family");
    let policy = json!({"preemption": {"reclaimWithinCohort": "Any"}});
    let owner = ground.queue("owner", &cohort, &[("cpu", "2", None)], policy).await?;
    let borrower = ground.queue("borrower", &cohort, &[("cpu", "2", None)], json!({})).await?;
    let guests = ["guest-1", "guest-2", "guest-3", "guest-4"];
    for guest in guests {
        ground.submit(ground.job(guest, "borrower", "1")).await?;
        ground.runs(guest).await?;
    }
    ground.submit(ground.job("host", "owner", "2")).await?;
    ground.runs("host").await?;
    ground.counts("borrower", (2, 2, 2), &[("cpu", "2")]).await?;
    ground.counts("owner", (0, 1, 1), &[("cpu", "2")]).await?;
    let mut evicted = Vec::new();
    for guest in guests {
        let workload = ground.workload(guest).await?;
        let preempted = condition(&workload, "Preempted");
        if holds(&workload, "QuotaReserved") {
            ensure!(preempted.status != "True", "{guest} runs and is said to be preempted");
            continue;
        }
        ensure!(preempted.reason == "InCohortReclamation", "{guest} was stopped by {preempted:?}");
        for end in
            [format!("preemptor path: /{cohort}/{owner}"), format!("preemptee path: /{cohort}/{borrower}")]
        {
            ensure!(
                preempted.message.contains(&end),
                "{guest} is told {:?}, without {end:?}",
                preempted.message
            );
        }
        evicted.push(guest);
    }
    ensure!(evicted.len() == 2, "{evicted:?} were stopped");
    ground.finish("host").await?;
    for guest in guests {
        ground.runs(guest).await?;
    }
    Ok(())
}

/// Each of three queues that share a cohort's quota ends up with a third of it, however much the first has taken.
pub(crate) async fn three_queues_reach_equal_shares(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let strategies = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"];
    let fair = json!({"fairSharing": {"preemptionStrategies": strategies}});
    let plain = cluster.reconfigure(&fair).await?;
    let cohort = ground.cohort("pool", "", &[("cpu", "9", None)]).await?;
    let policy = json!({"preemption": {"reclaimWithinCohort": "Any"}});
    let queues = ["early", "late", "later"];
    for queue in queues {
        ground.queue(queue, &cohort, &[("cpu", "0", None)], policy.clone()).await?;
    }
    let workloads = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    for (place, queue) in queues.into_iter().enumerate() {
        for number in 0..9 {
            ground.submit(ground.job(&format!("{queue}-{number}"), queue, "1")).await?;
        }
        if place == 0 {
            ground.counts(queue, (0, 9, 9), &[("cpu", "9")]).await?;
        }
    }
    for queue in queues {
        ground.counts(queue, (6, 3, 3), &[("cpu", "3")]).await?;
    }
    eventually("all have the same share", async || {
        for queue in queues {
            let object = ground.objects.need(Kind::CLUSTER_QUEUE, "", &ground.own(queue)).await?;
            let share = &object["status"]["fairSharing"]["weightedShare"];
            ensure!(*share == json!(334), "{queue} has {share}");
        }
        Ok(())
    })
    .await?;
    // The second may have had its half before the third came; whoever takes no more than a share is left alone.
    let mut stopped = BTreeSet::new();
    for object in workloads.revisions()?.iter().filter(|object| holds(object, "Preempted")) {
        let found = condition(object, "Preempted");
        ensure!(found.reason == "InCohortFairSharing", "{found:?}");
        let job = text(object, "/metadata/ownerReferences/0/name").to_owned();
        ensure!(!job.starts_with("later-"), "{job} was stopped");
        stopped.insert(job);
    }
    let early = stopped.iter().filter(|job| job.starts_with("early-")).count();
    ensure!(early == 6 && stopped.len() <= 7, "{stopped:?} were stopped");
    cluster.reconfigure(&plain).await.map(drop)
}

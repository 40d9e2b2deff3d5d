//! Elastic Jobs: they are resized while they run.

use crate::fixture::Fixture;
use crate::history::{History, in_store_order, is_deleted, revision};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, expect_condition, number, text};
use sluice_e2e::wait::eventually;
use std::collections::BTreeMap;

pub(crate) const GATE: &str = "kueue.x-k8s.io/elastic-job";
const REPLACES: &str = "/metadata/annotations/kueue.x-k8s.io~1workload-slice-replacement-for";
/// Quota of the queue; each pod requests one CPU.
pub(crate) const QUOTA: i64 = 8;

/// A Job of three pods grows to six, waits while another one has the quota, shrinks and ends. In each revision that the API
/// server had, Workloads are charged no more than the quota, and no more pods of the Job are ungated than it is charged for.
pub(crate) async fn job_grows_waits_shrinks_and_ends(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "8", None)], json!({})).await?;
    let workloads = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let pods = History::start(&fixture.objects, Kind::POD, &fixture.name).await?;
    fixture.submit(fixture.job("other", "main", "1").pods(4)).await?;
    let elastic = fixture.job("grows", "main", "1").pods(3).spec("completions", Value::Null);
    fixture.submit(elastic.annotation(GATE, "true")).await?;
    fixture.wait_until_running("other").await?;
    wait_for_pods(fixture, 3, 0).await?;

    resize(fixture, 6).await?;
    wait_for_pods(fixture, 3, 3).await?;
    fixture.wait_for_queue_counts("main", (1, 2, 2), &[("cpu", "7")]).await?;
    fixture.finish_job("other").await?;
    wait_for_pods(fixture, 6, 0).await?;
    fixture.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", "6")]).await?;

    resize(fixture, 2).await?;
    wait_for_pods(fixture, 2, 0).await?;
    fixture.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", "2")]).await?;
    for pod in fixture.pods("grows").await? {
        let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
        fixture.objects.merge(Kind::POD, &fixture.name, text(&pod, "/metadata/name"), &patch).await?;
    }
    eventually("both slices have finished", async || {
        let mut slices = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
        slices.retain(|workload| text(workload, "/metadata/ownerReferences/0/name") == "grows");
        ensure!(slices.len() == 2, "{} slices", slices.len());
        let (newer, older): (Vec<_>, Vec<_>) =
            slices.iter().partition(|workload| workload.pointer(REPLACES).is_some());
        for (slices, reason) in [(older, "WorkloadSliceReplaced"), (newer, "Succeeded")] {
            for slice in slices {
                expect_condition(slice, "Finished", "True", reason)?;
            }
        }
        Ok(())
    })
    .await?;
    fixture.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    let seen = check_revisions(&workloads.revisions()?, &pods.revisions()?, "grows")?;
    ensure!(seen == 6, "at most {seen} pods were seen to run");
    Ok(())
}

async fn resize(fixture: &Fixture, parallelism: i64) -> Result<()> {
    fixture.set_spec(Kind::JOB, &fixture.name, "grows", json!({"parallelism": parallelism})).await
}

/// Waits until the Job has this many ready pods, and this many that wait for quota, and is not suspended.
async fn wait_for_pods(fixture: &Fixture, ready: usize, gated: usize) -> Result<()> {
    eventually(format!("{ready} pods are ready and {gated} are gated"), async || {
        let job = fixture.objects.must_get(Kind::JOB, &fixture.name, "grows").await?;
        ensure!(job["spec"]["suspend"] == json!(false), "it is suspended");
        let mut pods = fixture.pods("grows").await?;
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let is = (
            pods.iter().filter(|pod| condition_is_true(pod, "Ready")).count(),
            pods.iter().filter(|pod| is_gated(pod)).count(),
        );
        ensure!(is == (ready, gated), "{} pods: {} ready, {} gated", pods.len(), is.0, is.1);
        Ok(())
    })
    .await
}

pub(crate) fn is_gated(pod: &Value) -> bool {
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == GATE))
}

/// Checks every revision of Workloads and pods: Workloads are charged no more than the quota, and of an elastic job no more pods run
/// than it is charged for. Returns the largest number of its pods that ran.
pub(crate) fn check_revisions(workloads: &[Value], pods: &[Value], job: &str) -> Result<i64> {
    let (mut known_workloads, mut known_pods) = (BTreeMap::new(), BTreeMap::new());
    let mut seen = 0;
    for (at, object) in in_store_order(&[workloads, pods])? {
        let name = text(object, "/metadata/name");
        let known =
            if object["spec"].get("podSets").is_some() { &mut known_workloads } else { &mut known_pods };
        if is_deleted(object) {
            known.remove(name);
        } else {
            known.insert(name, object);
        }
        let (all, of_job) = charged(&known_workloads, job);
        ensure!(all <= QUOTA, "{all} CPU are charged: {known_workloads:#?}");
        let runs = |pod: &&&Value| {
            let ended = ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"));
            text(pod, "/metadata/ownerReferences/0/name") == job && !ended && !is_gated(pod)
        };
        let running = i64::try_from(known_pods.values().filter(runs).count())?;
        ensure!(
            running <= of_job,
            "{running} pods run, {of_job} are charged: {}",
            history_of(job, workloads, pods, at)
        );
        seen = seen.max(running);
    }
    Ok(seen)
}

/// Describes the revisions of the last Workloads and pods of a job up to a revision, for a failure.
fn history_of(job: &str, workloads: &[Value], pods: &[Value], end: u64) -> String {
    let mut lines = Vec::new();
    for object in workloads.iter().chain(pods) {
        let at = revision(object).unwrap_or(0);
        let recent = at <= end && end.saturating_sub(at) < 60;
        if !recent || text(object, "/metadata/ownerReferences/0/name") != job {
            continue;
        }
        let sets = object["spec"]["podSets"].as_array().into_iter().flatten();
        let counts: Vec<i64> = sets.map(|set| number(set, "/count")).collect();
        let marks = [
            ("reserved", condition_is_true(object, "QuotaReserved")),
            ("finished", condition_is_true(object, "Finished")),
            ("gated", is_gated(object)),
            ("ending", !object["metadata"]["deletionTimestamp"].is_null()),
            ("deleted", is_deleted(object)),
        ];
        let marks: Vec<&str> = marks.iter().filter(|(_, holds)| *holds).map(|(mark, _)| *mark).collect();
        lines.push((at, format!("{at} {} {counts:?} {marks:?}", text(object, "/metadata/name"))));
    }
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join("\n")
}

/// Number of pods for which all Workloads, and those of a job, are charged. A slice whose quota has gone over to the next one
/// is not charged.
fn charged(workloads: &BTreeMap<&str, &Value>, job: &str) -> (i64, i64) {
    let holds = |workload: &Value| {
        condition_is_true(workload, "QuotaReserved") && !condition_is_true(workload, "Finished")
    };
    let replaced: Vec<&str> = workloads
        .values()
        .filter(|workload| holds(workload))
        .filter_map(|workload| workload.pointer(REPLACES)?.as_str()?.split('/').nth(1))
        .collect();
    let (mut all, mut of_job) = (0, 0);
    for (name, workload) in workloads.iter().filter(|(_, workload)| holds(workload)) {
        if !replaced.contains(name) {
            let counts = |list: &Value| -> i64 {
                list.as_array().into_iter().flatten().map(|entry| number(entry, "/count")).sum()
            };
            // Pods that have succeeded are reported before the Workload finishes, and give their quota back.
            let pods = counts(&workload["spec"]["podSets"]) - counts(&workload["status"]["reclaimablePods"]);
            all += pods;
            of_job += if text(workload, "/metadata/ownerReferences/0/name") == job { pods } else { 0 };
        }
    }
    (all, of_job)
}

//! What `sluice what-if` says of a change is so when the change is made: nodes added, a node drained, a quota raised, a priority
//! lowered, a running Job deleted.

use crate::fixture::Fixture;
use crate::topology::{HOST, RACK, REQUIRED, create_racks_for};
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, condition_is_true, text};
use sluice_e2e::wait::eventually;
use std::collections::BTreeMap;

/// Exit code of `what-if` if it skipped objects, which another case may have made unreadable.
const INCOMPLETE_EXIT_CODE: i32 = 3;

/// Each change is asked about first, and then made. The expected effects are fixed here, so that answer and cluster cannot agree by
/// accident.
pub(crate) async fn changes_do_what_was_said(cluster: &Cluster, fixture: &Fixture) -> Result<()> {
    nodes_are_added_and_drained(cluster, fixture).await.context("nodes")?;
    quota_is_raised(cluster, fixture).await.context("quota")?;
    priority_is_lowered(cluster, fixture).await.context("priority")?;
    running_job_is_deleted(cluster, fixture).await.context("deletion")
}

/// Asks, and returns the effect on each Job of the case that fares differently.
async fn effects(cluster: &Cluster, fixture: &Fixture, change: &[&str]) -> Result<BTreeMap<String, String>> {
    let output = tokio::process::Command::new(&cluster.manager()?.settings().program)
        .args(["what-if", "--output", "json", "--namespace", &fixture.name, "--kubeconfig"])
        .arg(cluster.plane.admin_kubeconfig())
        .args(change)
        .output()
        .await?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code().unwrap_or(-1);
    ensure!(code == 0 || code == INCOMPLETE_EXIT_CODE, "{change:?}: code {code}: {stderr}");
    let answer: Value = serde_json::from_slice(&output.stdout).with_context(|| stderr)?;
    let prefix = format!("{}/", fixture.name);
    let rows = answer["workloads"].as_array().context("no workloads")?.iter();
    let own = rows.filter_map(|row| {
        Some((text(row, "/job").strip_prefix(&prefix)?.to_owned(), text(row, "/effect").to_owned()))
    });
    Ok(own.collect())
}

async fn expect(
    cluster: &Cluster,
    fixture: &Fixture,
    change: &[&str],
    expected: &[(&str, &str)],
) -> Result<()> {
    let found = effects(cluster, fixture, change).await?;
    let expected: BTreeMap<String, String> =
        expected.iter().map(|(job, effect)| ((*job).to_owned(), (*effect).to_owned())).collect();
    ensure!(found == expected, "{change:?}: {found:?}, expected {expected:?}");
    Ok(())
}

/// Builds a Job with pods of 1 CPU within one rack, which are recreated when their node goes.
fn racked(fixture: &Fixture, name: &str, pods: i32) -> Job {
    let job = fixture.job(name, "racks", "1").pods(pods).pod_annotation(REQUIRED, RACK);
    job.spec("completionMode", json!("Indexed")).spec("backoffLimit", json!(6))
}

/// Returns whether all pods of a Job are on nodes of a rack.
async fn is_on_rack(fixture: &Fixture, job: &str, rack: &str) -> Result<bool> {
    let start = fixture.own_name(rack);
    Ok(fixture.pods(job).await?.iter().all(|pod| text(pod, "/spec/nodeName").starts_with(&start)))
}

async fn nodes_are_added_and_drained(cluster: &Cluster, fixture: &Fixture) -> Result<()> {
    create_racks_for(fixture, "racks").await?;
    for job in ["one", "other"] {
        fixture.submit(racked(fixture, job, 4)).await?;
        fixture.wait_until_running(job).await?;
    }
    fixture.submit(racked(fixture, "waits", 2)).await?;
    fixture.wait_until_pending("waits", "").await?;
    let (like, drained) = (fixture.own_name("a1"), fixture.own_name("b1"));
    expect(cluster, fixture, &["--add-nodes", "2", "--like", &like], &[("waits", "earlier")]).await?;
    // A quota adds no nodes.
    let quota = format!("{0}-racks:{0}-racks:cpu=200", fixture.name);
    expect(cluster, fixture, &["--quota", &quota], &[]).await?;
    let node = fixture.objects.must_get(Kind::NODE, "", &like).await?;
    for name in ["a3", "a4"] {
        let name = fixture.own_name(name);
        let mut labels = node["metadata"]["labels"].clone();
        labels[HOST] = json!(name);
        let capacity = &node["status"]["allocatable"];
        let body = json!({
            "metadata": {"name": name, "labels": labels}, "spec": {"taints": node["spec"]["taints"]},
            "status": {"capacity": capacity, "allocatable": capacity},
        });
        fixture.create_tracked(Kind::NODE, body).await?;
    }
    fixture.wait_until_running("waits").await?;

    let victim = if is_on_rack(fixture, "one", "b").await? { "one" } else { "other" };
    expect(cluster, fixture, &["--drain", &drained], &[(victim, "evicted")]).await?;
    fixture.objects.delete(Kind::NODE, "", &drained, PropagationPolicy::Background).await?;
    eventually(format!("{victim} is evicted"), async || {
        let workload = fixture.workload(victim).await?;
        let has_quota = condition_is_true(&workload, "QuotaReserved");
        ensure!(condition_is_true(&workload, "Evicted") || !has_quota, "{}", workload["status"]);
        Ok(())
    })
    .await?;
    // No kubelet ends the pods of a node that is gone.
    fixture.force_delete_pods(victim)?;
    fixture.wait_until_pending(victim, "").await
}

/// Fills a queue of one CPU with the Job `NAME-runs`, and submits `NAME-waits` behind it.
async fn fill(fixture: &Fixture, queue: &str, classes: [&str; 2], spec: Value) -> Result<[String; 2]> {
    fixture.create_queue(queue, "", &[("cpu", "1", None)], spec).await?;
    let names = [format!("{queue}-runs"), format!("{queue}-waits")];
    let jobs = names.each_ref().map(|name| fixture.job(name, queue, "1"));
    let [runs, waits] = jobs;
    let [first, second] = classes;
    let with = |job: Job, class: &str| if class.is_empty() { job } else { job.priority(class) };
    fixture.submit(with(runs, first)).await?;
    fixture.wait_until_running(&names[0]).await?;
    fixture.submit(with(waits, second)).await?;
    fixture.wait_until_pending(&names[1], "WaitingForQuota").await?;
    Ok(names)
}

async fn quota_is_raised(cluster: &Cluster, fixture: &Fixture) -> Result<()> {
    let [_, waits] = fill(fixture, "raised", ["", ""], json!({})).await?;
    let (queue, any) = (fixture.own_name("raised"), fixture.own_name("any"));
    let change = format!("{queue}:{any}:cpu=2");
    expect(cluster, fixture, &["--quota", &change], &[(waits.as_str(), "earlier")]).await?;
    let quota = json!([{"name": "cpu", "nominalQuota": "2"}]);
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": any, "resources": quota}]}]);
    fixture.set_spec(Kind::CLUSTER_QUEUE, "", &queue, json!({"resourceGroups": groups})).await?;
    fixture.wait_until_running(&waits).await
}

async fn priority_is_lowered(cluster: &Cluster, fixture: &Fixture) -> Result<()> {
    let high = fixture.create_priority_class("what-if-high", 100).await?;
    let middle = fixture.create_priority_class("what-if-middle", 50).await?;
    let low = fixture.create_priority_class("what-if-low", 10).await?;
    let policy = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let [runs, waits] = fill(fixture, "lowered", [&high, &middle], policy).await?;
    let change = format!("job/{runs}={low}");
    let expected = [(runs.as_str(), "evicted"), (waits.as_str(), "earlier")];
    expect(cluster, fixture, &["--priority", &change], &expected).await?;
    let label = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": low}}});
    fixture.objects.merge(Kind::JOB, &fixture.name, &runs, &label).await?;
    fixture.wait_until_running(&waits).await?;
    fixture.wait_until_pending(&runs, "WaitingForQuota").await
}

async fn running_job_is_deleted(cluster: &Cluster, fixture: &Fixture) -> Result<()> {
    let [runs, waits] = fill(fixture, "deleted", ["", ""], json!({})).await?;
    let change = format!("job/{runs}");
    let expected = [(runs.as_str(), "deleted"), (waits.as_str(), "earlier")];
    expect(cluster, fixture, &["--delete", &change], &expected).await?;
    fixture.objects.delete(Kind::JOB, &fixture.name, &runs, PropagationPolicy::Background).await?;
    fixture.wait_until_running(&waits).await
}

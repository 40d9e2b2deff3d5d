//! Node failures under workloads: during preemption, two nodes of one workload, two workloads at once, and nodes that
//! return.

use crate::fixture::Fixture;
use crate::history::History;
use anyhow::{Context as _, Result, bail, ensure};
use futures::future::join_all;
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{self, Kind, assigned_hosts, condition, condition_is_true, text};
use sluice_e2e::wait::eventually;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const HOST: &str = "kubernetes.io/hostname";
const LABEL: &str = "e2e.example/site";
/// Second passes scheduled within this time are due together when the manager is paused for it.
pub(crate) const PASS_WAIT: Duration = Duration::from_millis(1600);

/// Creates tainted nodes with one CPU each, which no other pod tolerates, and a queue for them.
pub(crate) async fn create_site(fixture: &Fixture, name: &str, nodes: usize, cpu: &str) -> Result<()> {
    let full_name = fixture.own_name(name);
    for number in 1..=nodes {
        let object = node(fixture, name, &fixture.own_name(&format!("{name}-{number}")));
        fixture.create_tracked(Kind::NODE, object).await?;
    }
    let levels = json!([{"nodeLabel": HOST}]);
    fixture
        .create_tracked(Kind::TOPOLOGY, json!({"metadata": {"name": full_name}, "spec": {"levels": levels}}))
        .await?;
    let toleration = json!({"key": LABEL, "operator": "Exists"});
    let spec =
        json!({"nodeLabels": {LABEL: full_name}, "tolerations": [toleration], "topologyName": full_name});
    fixture.create_flavor(name, spec).await?;
    let mut body = objects::cluster_queue(&full_name, "", &full_name, &[("cpu", cpu, None)]);
    body["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    fixture.create_tracked(Kind::CLUSTER_QUEUE, body).await?;
    fixture.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(&fixture.name, name, &full_name)).await?;
    for number in 1..=nodes {
        wait_until_node_ready(fixture, &fixture.own_name(&format!("{name}-{number}"))).await?;
    }
    fixture.wait_until_queue_active(name).await
}

fn node(fixture: &Fixture, site: &str, name: &str) -> Value {
    let capacity = json!({"cpu": "1", "memory": "8Gi", "pods": "20"});
    let taint = json!({"key": LABEL, "value": fixture.own_name(site), "effect": "NoSchedule"});
    json!({
        "metadata": {"name": name, "labels": {LABEL: fixture.own_name(site), HOST: name}}, "spec": {"taints": [taint]},
        "status": {"capacity": capacity, "allocatable": capacity},
    })
}

/// Waits until a node is Ready and has no taint but that of its site.
pub(crate) async fn wait_until_node_ready(fixture: &Fixture, node: &str) -> Result<()> {
    eventually(format!("{node} is ready"), async || {
        let node = fixture.objects.must_get(Kind::NODE, "", node).await?;
        let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
        ensure!(condition_is_true(&node, "Ready") && taints == 1, "{}", node["spec"]["taints"]);
        Ok(())
    })
    .await
}

pub(crate) async fn delete_node(fixture: &Fixture, node: &str) -> Result<()> {
    Ok(fixture.objects.delete(Kind::NODE, "", node, PropagationPolicy::Background).await?)
}

pub(crate) async fn recreate_node(fixture: &Fixture, site: &str, name: &str) -> Result<()> {
    fixture.objects.create(Kind::NODE, &node(fixture, site, name)).await?;
    wait_until_node_ready(fixture, name).await
}

/// Force-deletes the pods on deleted nodes.
pub(crate) fn delete_pods_on(fixture: &Fixture, nodes: &BTreeSet<String>) -> Result<()> {
    for node in nodes {
        let on = format!("spec.nodeName={node}");
        let force = ["--force", "--grace-period=0", "--wait=false", "--field-selector", &on];
        let pods = ["delete", "pods", "-n", &fixture.name];
        fixture.kubectl.run(&pods.iter().chain(&force).copied().collect::<Vec<_>>())?;
    }
    Ok(())
}

pub(crate) async fn job_hosts(fixture: &Fixture, job: &str) -> Result<BTreeSet<String>> {
    Ok(assigned_hosts(&fixture.workload(job).await?))
}

/// Checks that all active pods of a Job are on the hosts of its topology assignment.
pub(crate) async fn check_pods_on_assigned_hosts(fixture: &Fixture, job: &str) -> Result<()> {
    let hosts = job_hosts(fixture, job).await?;
    let pods = fixture.pods(job).await?;
    let has_ended = |pod: &&Value| {
        let phase = text(pod, "/status/phase");
        !pod["metadata"]["deletionTimestamp"].is_null() || matches!(phase, "Failed" | "Succeeded")
    };
    let active: Vec<&Value> = pods.iter().filter(|pod| !has_ended(pod)).collect();
    let describe = |pod: &Value| {
        let deleted_at = text(pod, "/metadata/deletionTimestamp");
        format!("{} on {:?}, deleted {deleted_at:?}", text(pod, "/status/phase"), text(pod, "/spec/nodeName"))
    };
    let all = || pods.iter().map(describe).collect::<Vec<_>>().join(", ");
    ensure!(!active.is_empty(), "{job} has no active pod: [{}]", all());
    for pod in active {
        let node = text(pod, "/spec/nodeName");
        ensure!(hosts.contains(node), "a pod of {job} is on {node:?}, assigned to {hosts:?}");
    }
    Ok(())
}

/// Checks the transitions of a Job's Workload, also that no pass changes it after eviction; returns its eviction
/// reasons.
pub(crate) fn eviction_reasons(history: &History, job: &str) -> Result<Vec<String>> {
    let prefix = format!("job-{job}-");
    let all = history.revisions()?;
    let own: Vec<&Value> = all.iter().filter(|w| text(w, "/metadata/name").starts_with(&prefix)).collect();
    ensure!(!own.is_empty(), "no revision of {job} was recorded");
    let types = |w: &Value| -> BTreeSet<String> {
        let all = w["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().map(|c| text(c, "/type").to_owned()).filter(|kind| kind != "DeactivationTarget").collect()
    };
    let mut evictions = Vec::new();
    for pair in own.windows(2) {
        let [before, after] = pair else { continue };
        let transition = format!("{} -> {}", before["status"], after["status"]);
        ensure!(types(before).is_subset(&types(after)), "a condition disappeared: {transition}");
        if !condition_is_true(before, "Evicted") && condition_is_true(after, "Evicted") {
            evictions.push(condition(after, "Evicted").reason);
        }
        if !condition_is_true(before, "Evicted") {
            continue;
        }
        ensure!(
            before["status"]["unhealthyNodes"].is_null(),
            "an evicted workload has unhealthyNodes: {transition}"
        );
        if condition_is_true(before, "QuotaReserved") {
            ensure!(
                condition_is_true(after, "Evicted") || condition_is_true(after, "Finished"),
                "the eviction was reverted: {transition}"
            );
            let (old, new) = (&before["status"]["admission"], &after["status"]["admission"]);
            ensure!(new.is_null() || old == new, "an assignment was written after eviction: {transition}");
        }
    }
    Ok(evictions)
}

/// The node of a victim fails before or after the eviction, and returns before or after the victim's pods are gone: the
/// victim is evicted once, by the preemptor, and runs again when the preemptor has finished.
pub(crate) async fn node_fails_under_victim(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_priority_class("low", -1).await?;
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let scenarios = [("b-g", true, false), ("b-l", true, true), ("g-g", false, false), ("g-l", false, true)];
    let failures = join_all(scenarios.map(async |(name, fails_first, returns_late)| {
        let outcome = preemption_scenario(fixture, &history, name, fails_first, returns_late).await;
        outcome.err().map(|error| format!("{name}: {error:#}"))
    }));
    let failures: Vec<String> = failures.await.into_iter().flatten().collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

async fn preemption_scenario(
    fixture: &Fixture,
    history: &History,
    name: &str,
    fails_first: bool,
    returns_late: bool,
) -> Result<()> {
    let (victim, urgent) = (format!("victim-{name}"), format!("urgent-{name}"));
    create_site(fixture, name, 2, "1").await?;
    let job =
        fixture.job(&victim, name, "1").priority(&fixture.own_name("low")).spec("backoffLimit", json!(6));
    fixture.submit(job.pod_annotation("sluice.dev/ignores-deletion", "true")).await?;
    fixture.wait_until_running(&victim).await?;
    let failed_node =
        job_hosts(fixture, &victim).await?.into_iter().next().context("no topology assignment")?;
    if fails_first {
        delete_node(fixture, &failed_node).await?;
    }
    fixture.submit(fixture.job(&urgent, name, "1")).await?;
    fixture.wait_for_condition(&victim, "Evicted", "True", "Preempted").await?;
    if !fails_first {
        delete_node(fixture, &failed_node).await?;
    }
    if !returns_late {
        recreate_node(fixture, name, &failed_node).await?;
    }
    // Long enough for an unexpected second pass.
    tokio::time::sleep(PASS_WAIT).await;
    ensure!(
        condition_is_true(&fixture.workload(&victim).await?, "QuotaReserved"),
        "quota was released while a pod was running"
    );
    fixture.check_pending(&urgent).await?;
    fixture.force_delete_pods(&victim)?;
    fixture.wait_until_running(&urgent).await?;
    if returns_late {
        recreate_node(fixture, name, &failed_node).await?;
    }
    fixture.check_pending(&victim).await?;
    fixture.finish_job(&urgent).await?;
    fixture.wait_until_running(&victim).await?;
    check_pods_on_assigned_hosts(fixture, &victim).await?;
    fixture.wait_for_queue_counts(name, (0, 1, 1), &[("cpu", "1")]).await?;
    fixture.finish_job(&victim).await?;
    fixture.wait_for_queue_counts(name, (0, 0, 0), &[("cpu", "0")]).await?;
    let evictions = eviction_reasons(history, &victim)?;
    ensure!(evictions == ["Preempted"], "it was evicted for {evictions:?}");
    ensure!(job_hosts(fixture, &urgent).await?.len() == 1, "the preemptor had no topology assignment");
    Ok(())
}

/// Two nodes of one workload fail 0, 10 or 1000 ms apart: it is evicted once with a message that names both, or, if
/// 1000 ms apart, each may be replaced separately. Finally it runs on the two remaining nodes.
pub(crate) async fn two_nodes_of_workload_fail(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let failures = join_all([0, 10, 1000].map(async |gap| {
        let outcome = two_node_failure_scenario(fixture, &history, gap).await;
        outcome.err().map(|error| format!("{gap} ms apart: {error:#}"))
    }));
    let failures: Vec<String> = failures.await.into_iter().flatten().collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

async fn two_node_failure_scenario(fixture: &Fixture, history: &History, gap: u64) -> Result<()> {
    let name = format!("gap-{gap}");
    create_site(fixture, &name, 4, "2").await?;
    let job = fixture.job(&name, &name, "1").pods(2).spec("completionMode", json!("Indexed"));
    fixture.submit(job.spec("backoffLimit", json!(6))).await?;
    fixture.wait_until_running(&name).await?;
    let failed_nodes = job_hosts(fixture, &name).await?;
    ensure!(failed_nodes.len() == 2, "the Job runs on {failed_nodes:?}");
    for (index, node) in failed_nodes.iter().enumerate() {
        if index > 0 {
            tokio::time::sleep(Duration::from_millis(gap)).await;
        }
        delete_node(fixture, node).await?;
    }
    eventually("the Job has two other nodes", async || {
        delete_pods_on(fixture, &failed_nodes)?;
        let workload = fixture.workload(&name).await?;
        let hosts = assigned_hosts(&workload);
        let unhealthy = &workload["status"]["unhealthyNodes"];
        let is_admitted = condition_is_true(&workload, "Admitted")
            && !condition_is_true(&workload, "Evicted")
            && unhealthy.is_null();
        ensure!(
            is_admitted && hosts.len() == 2 && hosts.is_disjoint(&failed_nodes),
            "{}",
            workload["status"]
        );
        Ok(())
    })
    .await?;
    fixture.wait_until_running(&name).await?;
    check_pods_on_assigned_hosts(fixture, &name).await?;
    fixture.wait_for_queue_counts(&name, (0, 1, 1), &[("cpu", "2")]).await?;
    fixture.finish_job(&name).await?;
    fixture.wait_for_queue_counts(&name, (0, 0, 0), &[("cpu", "0")]).await?;
    let evictions = eviction_reasons(history, &name)?;
    let evicted_once = evictions == ["NodeFailures"];
    // After 1 s the first node may already have been replaced.
    ensure!(evicted_once || (gap >= 1000 && evictions.is_empty()), "it was evicted for {evictions:?}");
    if evicted_once {
        let names_all_nodes = |w: &Value| {
            let message = condition(w, "Evicted").message;
            failed_nodes.iter().all(|node| message.contains(node.as_str()))
        };
        let job = format!("job-{name}-");
        let reported = history
            .revisions()?
            .iter()
            .any(|w| text(w, "/metadata/name").starts_with(&job) && names_all_nodes(w));
        ensure!(reported, "no eviction message names both nodes");
    }
    Ok(())
}

/// Two Jobs lose their nodes at once, their second passes are due at once, and one other node is free: one Job gets it,
/// the other is evicted with the reason and gets the node afterwards.
pub(crate) async fn two_jobs_need_last_node(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    create_site(fixture, "site", 3, "3").await?;
    for job in ["one", "two"] {
        fixture.submit(fixture.job(job, "site", "1").spec("backoffLimit", json!(6))).await?;
        fixture.wait_until_running(job).await?;
    }
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let failed_nodes: BTreeSet<String> =
        job_hosts(fixture, "one").await?.into_iter().chain(job_hosts(fixture, "two").await?).collect();
    ensure!(failed_nodes.len() == 2, "the Jobs run on {failed_nodes:?}");
    for node in &failed_nodes {
        delete_node(fixture, node).await?;
    }
    eventually("both Workloads list their failed node", async || {
        for job in ["one", "two"] {
            let workload = fixture.workload(job).await?;
            ensure!(!workload["status"]["unhealthyNodes"].is_null(), "{}", workload["status"]);
        }
        Ok(())
    })
    .await?;
    let manager = cluster.manager()?;
    manager.pause();
    tokio::time::sleep(PASS_WAIT).await;
    manager.resume();
    let (winner, loser) = eventually("one Job has the node, the other is evicted", async || {
        delete_pods_on(fixture, &failed_nodes)?;
        for (winner, loser) in [("one", "two"), ("two", "one")] {
            let is_moved = job_hosts(fixture, winner).await?.is_disjoint(&failed_nodes)
                && !job_hosts(fixture, winner).await?.is_empty();
            let is_evicted = !condition_is_true(&fixture.workload(loser).await?, "QuotaReserved");
            if is_moved && is_evicted {
                return Ok((winner, loser));
            }
        }
        bail!("{} and {}", fixture.workload("one").await?["status"], fixture.workload("two").await?["status"])
    })
    .await?;
    fixture.wait_until_running(winner).await?;
    check_pods_on_assigned_hosts(fixture, winner).await?;
    fixture.wait_until_pending(loser, "WaitingForQuota").await?;
    fixture.wait_for_queue_counts("site", (1, 1, 1), &[("cpu", "1")]).await?;
    fixture.finish_job(winner).await?;
    fixture.wait_until_running(loser).await?;
    check_pods_on_assigned_hosts(fixture, loser).await?;
    fixture.finish_job(loser).await?;
    fixture.wait_for_queue_counts("site", (0, 0, 0), &[("cpu", "0")]).await?;
    check_hosts_unshared(&history)?;
    let reasons = eviction_reasons(&history, winner)?;
    ensure!(reasons.is_empty(), "{winner} was evicted for {reasons:?}");
    let reasons = eviction_reasons(&history, loser)?;
    ensure!(reasons == ["NodeFailures"], "{loser} was evicted for {reasons:?}");
    let names_node = |w: &Value| {
        let message = condition(w, "Evicted").message;
        message.contains("no replacement for unhealthy node(s)")
            && failed_nodes.iter().any(|node| message.contains(node))
    };
    ensure!(history.revisions()?.iter().any(names_node), "no eviction message names the node");
    Ok(())
}

/// Checks that at no revision two workloads with quota share a node, which has capacity for one.
fn check_hosts_unshared(history: &History) -> Result<()> {
    let mut hosts_by_name: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for object in history.revisions()? {
        let name = text(&object, "/metadata/name").to_owned();
        let hosts = if condition_is_true(&object, "QuotaReserved") && !condition_is_true(&object, "Finished")
        {
            assigned_hosts(&object)
        } else {
            BTreeSet::new()
        };
        let others = hosts_by_name.iter().filter(|(other, _)| **other != name);
        for (other, other_hosts) in others {
            ensure!(hosts.is_disjoint(other_hosts), "{name} and {other} share nodes of {hosts:?}");
        }
        hosts_by_name.insert(name, hosts);
    }
    Ok(())
}

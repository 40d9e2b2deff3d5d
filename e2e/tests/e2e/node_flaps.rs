//! Nodes that fail and return while the write that ungates a pod is in flight.

use crate::fixture::Fixture;
use crate::history::History;
use crate::node_failures::{
    PASS_WAIT, check_pods_on_assigned_hosts, create_site, delete_node, delete_pods_on, eviction_reasons,
    job_hosts, recreate_node, wait_until_node_ready,
};
use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::ManagerSettings;
use sluice_e2e::objects::{Kind, assigned_hosts, text};
use sluice_e2e::proxy::{Call, Fault, Proxy};
use sluice_e2e::wait::eventually;
use std::collections::BTreeSet;

/// When the write that ungates the pod lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UngateFate {
    /// Before the node fails; the pod is running.
    Landed,
    /// After the node was deleted.
    Lost,
    /// After the node was recreated and the pod was assigned to another node.
    Late,
}

/// A node becomes unready, ready, is deleted and recreated, before or after its pod was ungated: the topology
/// assignment changes once, no workload is evicted, and pods are counted on the nodes where they run.
pub(crate) async fn around_ungating(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let proxy = Proxy::open(&cluster.plane).await?;
    let settings =
        ManagerSettings { api_server_url: Some(proxy.url()), ..cluster.manager()?.settings().clone() };
    let before = cluster.replace_manager(&settings).await?;
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let scenarios = [("open", UngateFate::Landed), ("lost", UngateFate::Lost), ("late", UngateFate::Late)];
    let failures = join_all(scenarios.map(async |(name, fate)| {
        let outcome = node_flap_scenario(fixture, &proxy, &history, name, fate).await;
        outcome.err().map(|error| format!("{name}: {error:#}"))
    }));
    let failures: Vec<String> = failures.await.into_iter().flatten().collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    cluster.replace_manager(&before).await.map(drop)
}

async fn node_flap_scenario(
    fixture: &Fixture,
    proxy: &Proxy,
    history: &History,
    name: &str,
    fate: UngateFate,
) -> Result<()> {
    create_site(fixture, name, 2, "2").await?;
    let pod = format!("/pods/{name}-");
    let is_ungate = move |call: &Call| call.method == Method::PATCH && call.path.contains(&pod);
    let held_ungate = (fate != UngateFate::Landed).then(|| proxy.inject(Fault::Hold, 0..1, is_ungate));
    fixture.submit(fixture.job(name, name, "1").spec("backoffLimit", json!(6))).await?;
    match &held_ungate {
        Some(held_ungate) => held_ungate.wait_until_matched().await?,
        None => fixture.wait_until_running(name).await?,
    }
    let release = async || match &held_ungate {
        Some(held_ungate) => {
            held_ungate.release();
            held_ungate.wait_until_completed().await
        }
        None => Ok(()),
    };
    let node = job_hosts(fixture, name).await?.into_iter().next().context("no topology assignment")?;
    set_ready(fixture, &node, false).await?;
    if fate == UngateFate::Landed {
        // The pod keeps running there: no replacement is needed.
        tokio::time::sleep(PASS_WAIT).await;
        ensure!(
            job_hosts(fixture, name).await?.contains(&node),
            "the assignment moved away from its running pod"
        );
        set_ready(fixture, &node, true).await?;
        delete_node(fixture, &node).await?;
        wait_until_moved(fixture, name, &node).await?;
    } else {
        wait_until_moved(fixture, name, &node).await?;
        set_ready(fixture, &node, true).await?;
        delete_node(fixture, &node).await?;
    }
    if fate == UngateFate::Lost {
        release().await?;
    }
    if fate != UngateFate::Late {
        let deleted_nodes = BTreeSet::from([node.clone()]);
        // kube-scheduler may have bound the pod there before it saw that the node was deleted.
        let pods_moved = async || {
            delete_pods_on(fixture, &deleted_nodes)?;
            check_pods_on_assigned_hosts(fixture, name).await
        };
        eventually("the pod is on its assigned node", pods_moved).await?;
    }
    recreate_node(fixture, name, &node).await?;
    release().await?;
    fixture.wait_until_running(name).await?;
    let pods = fixture.pods(name).await?;
    let running = pods.iter().filter(|pod| text(pod, "/status/phase") == "Running");
    let pod_hosts: BTreeSet<String> = running.map(|pod| text(pod, "/spec/nodeName").to_owned()).collect();
    let assigned = job_hosts(fixture, name).await?;
    let second_job = format!("more-{name}");
    fixture.submit(fixture.job(&second_job, name, "1")).await?;
    if assigned == pod_hosts {
        fixture.wait_until_running(&second_job).await?;
        check_pods_on_assigned_hosts(fixture, &second_job).await?;
        fixture.wait_for_queue_counts(name, (0, 2, 2), &[("cpu", "2")]).await?;
    } else {
        // The assigned node is reserved for the Job, and the node of its pod is in use.
        fixture.wait_until_pending(&second_job, "WaitingForQuota").await?;
        ensure!(fate == UngateFate::Late, "a pod is on {pod_hosts:?}, assigned to {assigned:?}");
    }
    fixture.finish_job(name).await?;
    fixture.wait_until_running(&second_job).await?;
    fixture.finish_job(&second_job).await?;
    fixture.wait_for_queue_counts(name, (0, 0, 0), &[("cpu", "0")]).await?;
    let evictions = eviction_reasons(history, name)?;
    ensure!(evictions.is_empty(), "it was evicted for {evictions:?}");
    let prefix = format!("job-{name}-");
    let own = history.revisions()?;
    let own = own.iter().filter(|w| text(w, "/metadata/name").starts_with(&prefix)).map(assigned_hosts);
    let mut assignments: Vec<BTreeSet<String>> = own.filter(|hosts| !hosts.is_empty()).collect();
    assignments.dedup();
    ensure!(assignments.len() == 2, "its assignments were {assignments:?}");
    Ok(())
}

/// Waits until the Job has another node and its Workload lists no unhealthy node.
async fn wait_until_moved(fixture: &Fixture, job: &str, from: &str) -> Result<()> {
    eventually("the Job has another node", async || {
        let workload = fixture.workload(job).await?;
        let (hosts, unhealthy) = (assigned_hosts(&workload), &workload["status"]["unhealthyNodes"]);
        ensure!(hosts.len() == 1 && !hosts.contains(from) && unhealthy.is_null(), "{}", workload["status"]);
        Ok(())
    })
    .await
}

/// Makes a node Ready or not Ready.
async fn set_ready(fixture: &Fixture, name: &str, ready: bool) -> Result<()> {
    let broken = if ready { Value::Null } else { json!("true") };
    let patch = json!({"metadata": {"annotations": {"sluice.dev/broken": broken}}});
    fixture.objects.merge(Kind::NODE, "", name, &patch).await?;
    if ready {
        return wait_until_node_ready(fixture, name).await;
    }
    eventually("the node is not ready", async || {
        let node = fixture.objects.must_get(Kind::NODE, "", name).await?;
        let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        for ready_condition in conditions.iter_mut().filter(|c| c["type"] == "Ready") {
            ready_condition["status"] = json!("False");
            ready_condition["reason"] = json!("KubeletNotReady");
        }
        let version = &node["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}});
        fixture.objects.merge_status(Kind::NODE, "", name, &patch).await?;
        Ok(())
    })
    .await
}

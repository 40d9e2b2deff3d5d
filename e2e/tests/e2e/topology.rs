//! Topology assignments on KWOK nodes. Each case has its own racks, which no other pod tolerates.

use crate::fixture::Fixture;
use crate::history::History;
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, condition_is_true, text};
use sluice_e2e::wait::eventually;
use std::collections::BTreeMap;

pub(crate) const HOST: &str = "kubernetes.io/hostname";
pub(crate) const RACK: &str = "sluice.dev/rack";
const CASE_LABEL: &str = "sluice.dev/case";
pub(crate) const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";

/// Creates racks, and the queue "main" for them.
pub(crate) async fn create_racks(fixture: &Fixture) -> Result<()> {
    create_racks_for(fixture, "main").await
}

/// Creates two racks of two nodes with 2 CPUs each, a flavor for them, and a queue with more quota than their capacity.
pub(crate) async fn create_racks_for(fixture: &Fixture, queue: &str) -> Result<()> {
    for (rack, nodes) in [("a", ["a1", "a2"]), ("b", ["b1", "b2"])] {
        for node in nodes {
            let name = fixture.own_name(node);
            let labels = json!({CASE_LABEL: fixture.name, RACK: rack, HOST: name});
            let capacity = json!({"cpu": "2", "memory": "8Gi", "pods": "20"});
            let taint = json!({"key": CASE_LABEL, "value": fixture.name, "effect": "NoSchedule"});
            let body = json!({
                "metadata": {"name": name, "labels": labels}, "spec": {"taints": [taint]},
                "status": {"capacity": capacity, "allocatable": capacity},
            });
            fixture.create_tracked(Kind::NODE, body).await?;
        }
    }
    let levels = json!([{"nodeLabel": RACK}, {"nodeLabel": HOST}]);
    let body = json!({"metadata": {"name": fixture.own_name("racks")}, "spec": {"levels": levels}});
    let topology = fixture.create_tracked(Kind::TOPOLOGY, body).await?;
    let toleration = json!({"key": CASE_LABEL, "operator": "Exists"});
    let spec = json!({"nodeLabels": {CASE_LABEL: fixture.name}, "tolerations": [toleration], "topologyName": topology});
    let flavor = fixture.create_flavor("racks", spec).await?;
    let quota = json!([{"name": "cpu", "nominalQuota": "100"}]);
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": quota}]}]);
    fixture.create_queue(queue, "", &[], json!({"resourceGroups": groups})).await?;
    fixture.wait_until_queue_active(queue).await?;
    eventually("the nodes are ready and have no other taint", async || {
        for node in ["a1", "a2", "b1", "b2"] {
            let node = fixture.objects.must_get(Kind::NODE, "", &fixture.own_name(node)).await?;
            ensure!(condition_is_true(&node, "Ready"), "{} is not ready", text(&node, "/metadata/name"));
            let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
            ensure!(taints == 1, "{}", node["spec"]["taints"]);
        }
        Ok(())
    })
    .await
}

/// Builds an indexed Job with pods of 1 CPU, whose annotation requires or prefers a rack.
fn job(fixture: &Fixture, name: &str, pods: i32, annotation: &str) -> Job {
    let job = fixture.job(name, "main", "1").pods(pods).spec("completionMode", json!("Indexed"));
    job.pod_annotation(annotation, RACK)
}

/// Returns the nodes of a Job's pods in index order, without the case's name prefix.
async fn nodes_by_index(fixture: &Fixture, job: &str) -> Result<Vec<String>> {
    let mut by_index = BTreeMap::new();
    for pod in fixture.pods(job).await? {
        let label = "/metadata/labels/batch.kubernetes.io~1job-completion-index";
        let index: u32 = text(&pod, label).parse().context("index")?;
        let node = text(&pod, "/spec/nodeName");
        ensure!(!node.is_empty(), "pod {index} is on no node");
        let wanted = text(&pod, "/spec/nodeSelector/kubernetes.io~1hostname");
        ensure!(wanted == node, "pod {index} is assigned to {wanted:?} and is on {node}");
        let short = node.strip_prefix(&format!("{}-", fixture.name)).unwrap_or(node);
        by_index.insert(index, short.to_owned());
    }
    Ok(by_index.into_values().collect())
}

/// Creates a pod without an owner, bound to a node by hand.
async fn create_bound_pod(fixture: &Fixture, name: &str, node: &str, cpu: &str) -> Result<()> {
    let container = json!({"name": "c", "image": "work:1", "resources": {"requests": {"cpu": cpu}}});
    let tolerations = json!([{"operator": "Exists"}]);
    let body = json!({
        "metadata": {"name": name, "namespace": fixture.name},
        "spec": {"nodeName": fixture.own_name(node), "containers": [container], "tolerations": tolerations},
    });
    fixture.objects.create(Kind::POD, &body).await?;
    Ok(())
}

async fn wait_until_pod_runs(fixture: &Fixture, name: &str) -> Result<()> {
    eventually(format!("the pod {name} is running"), async || {
        let pod = fixture.objects.must_get(Kind::POD, &fixture.name, name).await?;
        ensure!(text(&pod, "/status/phase") == "Running", "{}", pod["status"]);
        Ok(())
    })
    .await
}

/// Pods run on their assigned nodes in index order; non-TAS usage of nodes counts; a Job that prefers a rack is spread
/// if no rack has enough capacity; released capacity is used again.
pub(crate) async fn pods_land_on_assigned_nodes(_: &Cluster, fixture: &Fixture) -> Result<()> {
    create_racks(fixture).await?;
    create_bound_pod(fixture, "other", "a1", "1").await?;
    wait_until_pod_runs(fixture, "other").await?;
    fixture.submit(job(fixture, "required", 4, REQUIRED)).await?;
    fixture.wait_until_running("required").await?;
    let found = nodes_by_index(fixture, "required").await?;
    ensure!(found == ["b1", "b1", "b2", "b2"], "rack a has capacity for 3 pods: {found:?}");

    fixture.submit(job(fixture, "preferred", 3, PREFERRED)).await?;
    fixture.wait_until_running("preferred").await?;
    let mut found = nodes_by_index(fixture, "preferred").await?;
    found.sort();
    ensure!(found == ["a1", "a2", "a2"], "{found:?}");

    fixture.submit(job(fixture, "waits", 1, REQUIRED)).await?;
    fixture.wait_until_pending("waits", "WaitingForQuota").await?;
    fixture.objects.delete(Kind::POD, &fixture.name, "other", PropagationPolicy::Background).await?;
    fixture.wait_until_running("waits").await?;
    let found = nodes_by_index(fixture, "waits").await?;
    ensure!(found == ["a1"], "{found:?}");

    let workload = fixture.workload("required").await?;
    let levels = workload.pointer("/status/admission/podSetAssignments/0/topologyAssignment/levels");
    ensure!(levels == Some(&json!([HOST])), "{levels:?}");
    // A finished Job releases the capacity of its nodes.
    fixture.finish_job("required").await?;
    fixture.submit(job(fixture, "reuses", 4, REQUIRED)).await?;
    fixture.wait_until_running("reuses").await?;
    let found = nodes_by_index(fixture, "reuses").await?;
    ensure!(found == ["b1", "b1", "b2", "b2"], "{found:?}");
    for name in ["preferred", "waits", "reuses"] {
        fixture.finish_job(name).await?;
    }
    Ok(())
}

/// A pod that merely names a Workload stays gated, and counts on the node to which it is bound by hand.
pub(crate) async fn unrelated_pod_is_not_ungated(_: &Cluster, fixture: &Fixture) -> Result<()> {
    create_racks(fixture).await?;
    fixture.submit(job(fixture, "owner", 3, REQUIRED)).await?;
    fixture.wait_until_running("owner").await?;
    let found = nodes_by_index(fixture, "owner").await?;
    ensure!(found == ["a1", "a1", "a2"], "{found:?}");
    let workload = fixture.workload("owner").await?;
    let unrelated_pod = |name: &str| {
        let spec = json!({
            "containers": [{"name": "c", "image": "work:1", "resources": {"requests": {"cpu": "1"}}}],
            "tolerations": [{"operator": "Exists"}],
        });
        let metadata = json!({
            "name": name, "namespace": fixture.name, "labels": {"kueue.x-k8s.io/podset": "main"},
            "annotations": {"kueue.x-k8s.io/workload": text(&workload, "/metadata/name")},
        });
        json!({"metadata": metadata, "spec": spec})
    };
    let mut gated = unrelated_pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/topology"}]);
    fixture.objects.create(Kind::POD, &gated).await?;
    let mut bound = unrelated_pod("bound");
    bound["spec"]["nodeName"] = json!(fixture.own_name("a2"));
    fixture.objects.create(Kind::POD, &bound).await?;
    wait_until_pod_runs(fixture, "bound").await?;
    // Rack b has capacity for four pods; the last CPU of rack a is used by the unrelated pod.
    fixture.submit(job(fixture, "fills", 4, REQUIRED)).await?;
    fixture.wait_until_running("fills").await?;
    fixture.submit(job(fixture, "waits", 1, REQUIRED)).await?;
    fixture.wait_until_pending("waits", "WaitingForQuota").await?;
    let pod = fixture.objects.must_get(Kind::POD, &fixture.name, "gated").await?;
    ensure!(
        pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| gates.len() == 1),
        "it was ungated"
    );
    fixture.objects.delete(Kind::POD, &fixture.name, "bound", PropagationPolicy::Background).await?;
    fixture.wait_until_running("waits").await?;
    let found = nodes_by_index(fixture, "waits").await?;
    ensure!(found == ["a2"], "{found:?}");
    for name in ["owner", "fills", "waits"] {
        fixture.finish_job(name).await?;
    }
    Ok(())
}

/// A pod bound by hand to a node that is too small makes the node's free capacity negative: that node is excluded, and
/// no other node is affected.
pub(crate) async fn oversized_pod_affects_one_node(_: &Cluster, fixture: &Fixture) -> Result<()> {
    create_racks(fixture).await?;
    create_bound_pod(fixture, "huge", "a1", "7").await?;
    eventually("the oversized pod is on the node", async || {
        let pod = fixture.objects.must_get(Kind::POD, &fixture.name, "huge").await?;
        ensure!(text(&pod, "/status/phase") != "Failed", "{}", pod["status"]);
        Ok(())
    })
    .await?;
    fixture.submit(job(fixture, "four", 4, REQUIRED)).await?;
    fixture.submit(job(fixture, "two", 2, REQUIRED)).await?;
    fixture.wait_until_running("four").await?;
    fixture.wait_until_running("two").await?;
    let (four, two) = (nodes_by_index(fixture, "four").await?, nodes_by_index(fixture, "two").await?);
    ensure!(four == ["b1", "b1", "b2", "b2"] && two == ["a2", "a2"], "{four:?} {two:?}");
    fixture.submit(job(fixture, "one", 1, REQUIRED)).await?;
    fixture.wait_until_pending("one", "WaitingForQuota").await?;
    fixture.objects.delete(Kind::POD, &fixture.name, "huge", PropagationPolicy::Background).await?;
    fixture.wait_until_running("one").await?;
    fixture.finish_job("four").await
}

/// A node that is deleted under a Job is listed in the status of its Workload. The pods are assigned to another node of
/// the same rack and run there when they are recreated.
pub(crate) async fn deleted_node_is_replaced(_: &Cluster, fixture: &Fixture) -> Result<()> {
    create_racks(fixture).await?;
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    fixture.submit(job(fixture, "runs", 2, REQUIRED).spec("backoffLimit", json!(6))).await?;
    fixture.wait_until_running("runs").await?;
    let before = nodes_by_index(fixture, "runs").await?;
    ensure!(before == ["a1", "a1"], "{before:?}");
    let deleted_node = fixture.own_name("a1");
    fixture.objects.delete(Kind::NODE, "", &deleted_node, PropagationPolicy::Background).await?;
    eventually("the deleted node is listed", async || {
        let want = json!([{"name": deleted_node}]);
        let is_listed = |w: &Value| w.pointer("/status/unhealthyNodes") == Some(&want);
        ensure!(history.revisions()?.iter().any(is_listed), "{}", fixture.workload("runs").await?["status"]);
        Ok(())
    })
    .await?;
    eventually("the node is replaced", async || {
        let status = &fixture.workload("runs").await?["status"];
        ensure!(status["unhealthyNodes"].is_null(), "{status}");
        Ok(())
    })
    .await?;
    fixture.force_delete_pods("runs")?;
    fixture.wait_until_running("runs").await?;
    let after = nodes_by_index(fixture, "runs").await?;
    ensure!(after == ["a2", "a2"], "{after:?}");
    // No condition disappears at any revision.
    let mut known: Vec<String> = Vec::new();
    for revision in history.revisions()? {
        let kinds: Vec<String> = revision["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|condition| text(condition, "/type").to_owned())
            .collect();
        ensure!(known.iter().all(|kind| kinds.contains(kind)), "{known:?} became {kinds:?}");
        known = kinds;
    }
    fixture.finish_job("runs").await
}

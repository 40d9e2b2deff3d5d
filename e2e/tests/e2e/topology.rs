//! Placement on nodes that KWOK plays: racks of their own for each case, tainted so that nobody else's pods go there.

use crate::ground::Ground;
use crate::history::History;
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, holds, text};
use sluice_e2e::wait::eventually;
use std::collections::BTreeMap;

const HOST: &str = "kubernetes.io/hostname";
const RACK: &str = "sluice.dev/rack";
const GROUND: &str = "sluice.dev/ground";
const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";

/// Two racks of two nodes with 2 CPUs each, a flavor for them, and a queue with more quota than they have room.
async fn racks(ground: &Ground) -> Result<()> {
    for (rack, nodes) in [("a", ["a1", "a2"]), ("b", ["b1", "b2"])] {
        for node in nodes {
            let name = ground.own(node);
            let labels = json!({GROUND: ground.name, RACK: rack, HOST: name});
            let room = json!({"cpu": "2", "memory": "8Gi", "pods": "20"});
            let taint = json!({"key": GROUND, "value": ground.name, "effect": "NoSchedule"});
            let body = json!({
                "metadata": {"name": name, "labels": labels}, "spec": {"taints": [taint]},
                "status": {"capacity": room, "allocatable": room},
            });
            ground.keep(Kind::NODE, body).await?;
        }
    }
    let levels = json!([{"nodeLabel": RACK}, {"nodeLabel": HOST}]);
    let body = json!({"metadata": {"name": ground.own("racks")}, "spec": {"levels": levels}});
    let topology = ground.keep(Kind::TOPOLOGY, body).await?;
    let toleration = json!({"key": GROUND, "operator": "Exists"});
    let spec =
        json!({"nodeLabels": {GROUND: ground.name}, "tolerations": [toleration], "topologyName": topology});
    let flavor = ground.flavor("racks", spec).await?;
    let quota = json!([{"name": "cpu", "nominalQuota": "100"}]);
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": quota}]}]);
    ground.queue("main", "", &[], json!({"resourceGroups": groups})).await?;
    ground.active("main").await?;
    eventually("the nodes are ready and nothing but ours keeps pods away", async || {
        for node in ["a1", "a2", "b1", "b2"] {
            let node = ground.objects.need(Kind::NODE, "", &ground.own(node)).await?;
            ensure!(holds(&node, "Ready"), "{} is not ready", text(&node, "/metadata/name"));
            let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
            ensure!(taints == 1, "{}", node["spec"]["taints"]);
        }
        Ok(())
    })
    .await
}

/// A Job of so many pods of 1 CPU, each with an index, that asks for its place by an annotation.
fn job(ground: &Ground, name: &str, pods: i32, annotation: &str) -> Job {
    let job = ground.job(name, "main", "1").pods(pods).spec("completionMode", json!("Indexed"));
    job.pod_annotation(annotation, RACK)
}

/// Nodes of a Job's pods by index, without the name of the ground.
async fn landed(ground: &Ground, job: &str) -> Result<Vec<String>> {
    let mut by_index = BTreeMap::new();
    for pod in ground.pods(job).await? {
        let label = "/metadata/labels/batch.kubernetes.io~1job-completion-index";
        let index: u32 = text(&pod, label).parse().context("index")?;
        let node = text(&pod, "/spec/nodeName");
        ensure!(!node.is_empty(), "pod {index} is on no node");
        let wanted = text(&pod, "/spec/nodeSelector/kubernetes.io~1hostname");
        ensure!(wanted == node, "pod {index} was sent to {wanted:?} and is on {node}");
        let short = node.strip_prefix(&format!("{}-", ground.name)).unwrap_or(node);
        by_index.insert(index, short.to_owned());
    }
    Ok(by_index.into_values().collect())
}

/// A pod of nobody, bound by hand.
async fn bind(ground: &Ground, name: &str, node: &str, cpu: &str) -> Result<()> {
    let container = json!({"name": "c", "image": "work:1", "resources": {"requests": {"cpu": cpu}}});
    let tolerations = json!([{"operator": "Exists"}]);
    let body = json!({
        "metadata": {"name": name, "namespace": ground.name},
        "spec": {"nodeName": ground.own(node), "containers": [container], "tolerations": tolerations},
    });
    ground.objects.create(Kind::POD, &body).await?;
    Ok(())
}

/// Pods land where the assignment says, in the order of their indexes; what others take of nodes counts; a Job that
/// prefers a rack is spread when it must be; room that comes back is found.
pub(crate) async fn pods_land_where_they_were_placed(_: &Cluster, ground: &Ground) -> Result<()> {
    racks(ground).await?;
    bind(ground, "other", "a1", "1").await?;
    eventually("the pod of others runs", async || {
        let pod = ground.objects.need(Kind::POD, &ground.name, "other").await?;
        ensure!(text(&pod, "/status/phase") == "Running", "{}", pod["status"]);
        Ok(())
    })
    .await?;
    ground.submit(job(ground, "required", 4, REQUIRED)).await?;
    ground.runs("required").await?;
    let found = landed(ground, "required").await?;
    ensure!(found == ["b1", "b1", "b2", "b2"], "rack a has room for 3: {found:?}");

    ground.submit(job(ground, "preferred", 3, PREFERRED)).await?;
    ground.runs("preferred").await?;
    let mut found = landed(ground, "preferred").await?;
    found.sort();
    ensure!(found == ["a1", "a2", "a2"], "{found:?}");

    ground.submit(job(ground, "waits", 1, REQUIRED)).await?;
    ground.waits("waits", "WaitingForQuota").await?;
    ground.objects.delete(Kind::POD, &ground.name, "other", PropagationPolicy::Background).await?;
    ground.runs("waits").await?;
    let found = landed(ground, "waits").await?;
    ensure!(found == ["a1"], "{found:?}");

    let workload = ground.workload("required").await?;
    let levels = workload.pointer("/status/admission/podSetAssignments/0/topologyAssignment/levels");
    ensure!(levels == Some(&json!([HOST])), "{levels:?}");
    // A Job that ends gives its places back.
    ground.finish("required").await?;
    ground.submit(job(ground, "again", 4, REQUIRED)).await?;
    ground.runs("again").await?;
    let found = landed(ground, "again").await?;
    ensure!(found == ["b1", "b1", "b2", "b2"], "{found:?}");
    for name in ["preferred", "waits", "again"] {
        ground.finish(name).await?;
    }
    Ok(())
}

/// A pod that was bound by hand to a node that it does not fit on leaves less than nothing there: that node is out, and
/// nobody else notices.
pub(crate) async fn a_pod_larger_than_its_node_spoils_that_node_alone(
    _: &Cluster,
    ground: &Ground,
) -> Result<()> {
    racks(ground).await?;
    bind(ground, "huge", "a1", "7").await?;
    eventually("it is on the node", async || {
        let pod = ground.objects.need(Kind::POD, &ground.name, "huge").await?;
        ensure!(text(&pod, "/status/phase") != "Failed", "{}", pod["status"]);
        Ok(())
    })
    .await?;
    ground.submit(job(ground, "four", 4, REQUIRED)).await?;
    ground.submit(job(ground, "two", 2, REQUIRED)).await?;
    ground.runs("four").await?;
    ground.runs("two").await?;
    let (four, two) = (landed(ground, "four").await?, landed(ground, "two").await?);
    ensure!(four == ["b1", "b1", "b2", "b2"] && two == ["a2", "a2"], "{four:?} {two:?}");
    ground.submit(job(ground, "one", 1, REQUIRED)).await?;
    ground.waits("one", "WaitingForQuota").await?;
    ground.objects.delete(Kind::POD, &ground.name, "huge", PropagationPolicy::Background).await?;
    ground.runs("one").await?;
    ground.finish("four").await
}

/// A node that is deleted under a Job is named in the status of its Workload; the pods get another one in the same rack, and
/// go there when they are made anew.
pub(crate) async fn a_node_that_goes_is_told_and_replaced(_: &Cluster, ground: &Ground) -> Result<()> {
    racks(ground).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    ground.submit(job(ground, "runs", 2, REQUIRED).spec("backoffLimit", json!(6))).await?;
    ground.runs("runs").await?;
    let before = landed(ground, "runs").await?;
    ensure!(before == ["a1", "a1"], "{before:?}");
    let fallen = ground.own("a1");
    ground.objects.delete(Kind::NODE, "", &fallen, PropagationPolicy::Background).await?;
    eventually("the lost node is named", async || {
        let want = json!([{"name": fallen}]);
        let told = |w: &Value| w.pointer("/status/unhealthyNodes") == Some(&want);
        ensure!(history.revisions()?.iter().any(told), "{}", ground.workload("runs").await?["status"]);
        Ok(())
    })
    .await?;
    eventually("another node is given", async || {
        let status = &ground.workload("runs").await?["status"];
        ensure!(status["unhealthyNodes"].is_null(), "{status}");
        Ok(())
    })
    .await?;
    ground.force_pods_away("runs")?;
    ground.runs("runs").await?;
    let after = landed(ground, "runs").await?;
    ensure!(after == ["a2", "a2"], "{after:?}");
    // No condition disappears on the way.
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
    ground.finish("runs").await
}

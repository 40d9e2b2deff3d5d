//! Nodes for topology-aware benchmarks: one block of racks with identical, ready, untainted nodes.

use crate::objects::{Kind, ObjectClient};
use anyhow::Result;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// Nodes per rack.
const NODES_PER_RACK: usize = 64;
const TOPOLOGY: &str = "racks";
const BLOCK: &str = "example.com/block";
const RACK: &str = "example.com/rack";
const HOST: &str = "kubernetes.io/hostname";

/// Creates the topology and `nodes` nodes.
pub(super) async fn create_nodes(objects: &ObjectClient, nodes: usize) -> Result<()> {
    let levels = [BLOCK, RACK, HOST].map(|label| json!({"nodeLabel": label}));
    let topology = json!({"metadata": {"name": TOPOLOGY}, "spec": {"levels": levels}});
    objects.create(Kind::TOPOLOGY, &topology).await?;
    stream::iter(0..nodes)
        .map(async |index| {
            objects.create(Kind::NODE, &node(index)).await?;
            // The server taints new nodes as not ready.
            let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
            let nodes = objects.api(Kind::NODE, "");
            nodes.patch(&node_name(index), &PatchParams::default(), &untainted).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(8)
        .try_collect()
        .await
}

/// Returns the ResourceFlavor spec for these nodes.
pub(super) fn flavor() -> Value {
    json!({"nodeLabels": {BLOCK: "b"}, "topologyName": TOPOLOGY})
}

/// Returns a topology request, by turns: rack required, rack preferred, rack preferred with slices of two pods per
/// host.
pub(super) fn topology_request(number: usize) -> Value {
    match number % 3 {
        0 => required_topology_request(),
        1 => json!({"preferred": RACK}),
        _ => json!({"preferred": RACK, "podSetSliceRequiredTopology": HOST, "podSetSliceSize": 2}),
    }
}

/// Returns the annotations of a pod template that prefers one rack for all pods.
pub(super) fn preferred_topology() -> Value {
    json!({"kueue.x-k8s.io/podset-preferred-topology": RACK})
}

/// Returns a request that requires one rack for all pods.
pub(super) fn required_topology_request() -> Value {
    json!({"required": RACK})
}

/// Returns an assignment of all pods to one host.
pub(super) fn assignment(pods: u32) -> Value {
    json!({"levels": [HOST], "slices": [{
        "domainCount": 1, "valuesPerLevel": [{"universal": node_name(0)}], "podCounts": {"universal": pods},
    }]})
}

/// Returns the name of a rack.
pub(super) fn rack_name(rack: usize) -> String {
    format!("rack-{rack}")
}

/// Returns the name of a node, which starts with the name of its rack.
pub(super) fn node_name(index: usize) -> String {
    format!("{}-node-{}", rack_name(index / NODES_PER_RACK), index % NODES_PER_RACK)
}

/// Returns whether a node is in a rack.
pub(super) fn is_in_rack(rack: usize, index: usize) -> bool {
    index / NODES_PER_RACK == rack
}

fn node(index: usize) -> Value {
    let name = node_name(index);
    let amounts = json!({"cpu": "96", "memory": "256Gi", "pods": "110"});
    json!({
        "metadata": {"name": name, "labels": {BLOCK: "b", RACK: rack_name(index / NODES_PER_RACK), HOST: name}},
        "status": {
            "allocatable": amounts, "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    })
}

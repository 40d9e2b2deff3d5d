//! Nodes that pods are placed on: one block of racks, all nodes alike, ready and without taints.

use crate::objects::{Kind, ObjectClient};
use anyhow::Result;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// Nodes of a rack.
const NODES_PER_RACK: usize = 64;
const TOPOLOGY: &str = "racks";
const BLOCK: &str = "example.com/block";
const RACK: &str = "example.com/rack";
const HOST: &str = "kubernetes.io/hostname";

/// Makes the topology and so many nodes.
pub(super) async fn create_nodes(objects: &ObjectClient, nodes: usize) -> Result<()> {
    let levels = [BLOCK, RACK, HOST].map(|label| json!({"nodeLabel": label}));
    let topology = json!({"metadata": {"name": TOPOLOGY}, "spec": {"levels": levels}});
    objects.create(Kind::TOPOLOGY, &topology).await?;
    stream::iter(0..nodes)
        .map(async |at| {
            objects.create(Kind::NODE, &node(at)).await?;
            // The server taints whatever it has not yet seen ready.
            let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
            let nodes = objects.api(Kind::NODE, "");
            nodes.patch(&node_name(at), &PatchParams::default(), &untainted).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(8)
        .try_collect()
        .await
}

/// The flavor of these nodes.
pub(super) fn flavor() -> Value {
    json!({"nodeLabels": {BLOCK: "b"}, "topologyName": TOPOLOGY})
}

/// A third must be on one rack, a third would like to be, and a third is spread evenly in slices of two pods per host.
pub(super) fn topology_request(number: usize) -> Value {
    match number % 3 {
        0 => required_topology_request(),
        1 => json!({"preferred": RACK}),
        _ => json!({"preferred": RACK, "podSetSliceRequiredTopology": HOST, "podSetSliceSize": 2}),
    }
}

/// All pods must be on one rack.
pub(super) fn required_topology_request() -> Value {
    json!({"required": RACK})
}

/// An assignment of all pods to one host.
pub(super) fn assignment(pods: u32) -> Value {
    json!({"levels": [HOST], "slices": [{
        "domainCount": 1, "valuesPerLevel": [{"universal": node_name(0)}], "podCounts": {"universal": pods},
    }]})
}

/// What a rack is called.
pub(super) fn rack_name(rack: usize) -> String {
    format!("rack-{rack}")
}

/// What a node is called; the name says which rack it is in.
pub(super) fn node_name(at: usize) -> String {
    format!("{}-node-{}", rack_name(at / NODES_PER_RACK), at % NODES_PER_RACK)
}

/// Whether a node is in a rack.
pub(super) fn is_in_rack(rack: usize, at: usize) -> bool {
    at / NODES_PER_RACK == rack
}

fn node(at: usize) -> Value {
    let name = node_name(at);
    let amounts = json!({"cpu": "96", "memory": "256Gi", "pods": "110"});
    json!({
        "metadata": {"name": name, "labels": {BLOCK: "b", RACK: rack_name(at / NODES_PER_RACK), HOST: name}},
        "status": {
            "allocatable": amounts, "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    })
}

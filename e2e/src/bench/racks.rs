//! Nodes of the scenario that places pods: one block of racks, all nodes alike, ready and without taints.

use crate::objects::{Kind, Objects};
use anyhow::Result;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

const RACKS: usize = 10;
const NODES: usize = 64;
const TOPOLOGY: &str = "racks";
const BLOCK: &str = "example.com/block";
const RACK: &str = "example.com/rack";
const HOST: &str = "kubernetes.io/hostname";

/// Makes the topology and its nodes.
pub(super) async fn make(objects: &Objects) -> Result<()> {
    let levels = [BLOCK, RACK, HOST].map(|label| json!({"nodeLabel": label}));
    let topology = json!({"metadata": {"name": TOPOLOGY}, "spec": {"levels": levels}});
    objects.create(Kind::TOPOLOGY, &topology).await?;
    stream::iter((0..RACKS).flat_map(|rack| (0..NODES).map(move |at| (rack, at))))
        .map(async |(rack, at)| {
            objects.create(Kind::NODE, &node(rack, at)).await?;
            // The server taints whatever it has not yet seen ready.
            let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
            let nodes = objects.api(Kind::NODE, "");
            nodes.patch(&name(rack, at), &PatchParams::default(), &untainted).await?;
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
pub(super) fn request(number: usize) -> Value {
    match number % 3 {
        0 => json!({"required": RACK}),
        1 => json!({"preferred": RACK}),
        _ => json!({"preferred": RACK, "podSetSliceRequiredTopology": HOST, "podSetSliceSize": 2}),
    }
}

/// An assignment of all pods to one host.
pub(super) fn assignment(pods: u32) -> Value {
    json!({"levels": [HOST], "slices": [{
        "domainCount": 1, "valuesPerLevel": [{"universal": name(0, 0)}], "podCounts": {"universal": pods},
    }]})
}

fn name(rack: usize, at: usize) -> String {
    format!("node-{rack}-{at}")
}

fn node(rack: usize, at: usize) -> Value {
    let name = name(rack, at);
    let amounts = json!({"cpu": "96", "memory": "256Gi", "pods": "110"});
    json!({
        "metadata": {"name": name, "labels": {BLOCK: "b", RACK: format!("rack-{rack}"), HOST: name}},
        "status": {
            "allocatable": amounts, "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    })
}

//! Nodes, their pods, and topologies of a recorded scenario, for the scheduler.

use crate::api::ObjectKey;
use crate::api::v1beta2::Topology;
use crate::scheduler::Engine;
use crate::state::State;
use crate::topology::{NodeSpec, foreign_pod};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// Hands the objects that make up a cluster to the scheduler; one that cannot be read is left aside.
pub(super) fn feed(engine: &mut Engine, objects: &[Value]) {
    for object in objects {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        match text("/kind") {
            "Topology" => {
                let levels = |topology: Topology| {
                    topology.spec.levels.iter().map(|level| Arc::from(level.node_label.as_str())).collect()
                };
                engine.set_topology(name, read(object).map(levels));
            }
            "Node" => engine.set_node(name, read::<Node>(object).map(|node| NodeSpec::of(&node))),
            "Pod" => {
                let takes = read::<Pod>(object).and_then(|pod| foreign_pod(&pod));
                engine.set_pod(&ObjectKey::new(namespace, name), takes);
            }
            _ => {}
        }
    }
}

/// The same for a core that a test drives.
pub fn place(state: &mut State, objects: &[Value]) {
    feed(state.engine_mut(), objects);
}

fn read<T: DeserializeOwned>(object: &Value) -> Option<T> {
    T::deserialize(object).ok()
}

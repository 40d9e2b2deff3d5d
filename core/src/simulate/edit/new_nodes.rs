//! Nodes that a change adds: each is like one of the cluster.
//!
//! Invariants: a new node has a name and a hostname of its own, and all other labels of the node that it is like, so that it is in the
//! same domains of a topology; it is ready, and has no taint that says otherwise.

use super::{Change, Edit};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::simulate::objects::{text_at, value_at};
use crate::simulate::simulation::Simulation;
use serde_json::{Map, Value, json};

/// Most nodes that one change adds: with more, a simulation takes minutes.
pub(super) const MAX_ADDED_NODES: usize = 5_000;
/// Label with the name of a node, which is the lowest level of most topologies.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Prefix of the taints by which Kubernetes says that a node is not ready or cordoned.
const OWN_TAINTS: &str = "node.kubernetes.io/";

impl Simulation {
    /// Adds nodes that are like another one.
    pub(super) fn add_nodes(&mut self, like: &ObjectKey, count: usize) {
        let Some(node) = self.harness.server.get(Kind::Node, like).cloned() else { return };
        let mut added = 0;
        let mut number: usize = 0;
        while added < count {
            number = number.saturating_add(1);
            let new = copy_of(&node, &format!("added-{number}"));
            // A node of the cluster may have the name.
            if self.harness.server.insert(Kind::Node, new, self.now, true).is_some() {
                added = added.saturating_add(1);
            }
        }
    }
}

impl Edit {
    /// Returns one of the nodes that the change adds, and their number; `None` for another change, or if the node that they are like is
    /// not among the objects.
    pub fn added_node(&self, objects: &[(Kind, Value)]) -> Option<(Value, usize)> {
        let Change::AddNodes(count) = self.change else { return None };
        let mut nodes = objects.iter().filter(|(kind, _)| *kind == Kind::Node).map(|(_, node)| node);
        let like = nodes.find(|node| text_at(node, "/metadata/name") == self.target.name)?;
        Some((copy_of(like, &format!("added-{count}")), count))
    }
}

/// Returns a node that is like another one.
fn copy_of(node: &Value, name: &str) -> Value {
    let own = text_at(node, "/metadata/name");
    let mut labels = value_at(node, "/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    for (label, value) in labels.as_object_mut().into_iter().flatten() {
        if label == HOSTNAME || value.as_str() == Some(own) {
            *value = json!(name);
        }
    }
    let taints = value_at(node, "/spec/taints").and_then(Value::as_array).into_iter().flatten();
    let taints: Vec<&Value> =
        taints.filter(|taint| !text_at(taint, "/key").starts_with(OWN_TAINTS)).collect();
    let mut status = Map::new();
    for field in ["capacity", "allocatable"] {
        if let Some(amounts) = value_at(node, &format!("/status/{field}")) {
            status.insert(field.to_owned(), amounts.clone());
        }
    }
    status.insert("conditions".to_owned(), json!([{"type": "Ready", "status": "True"}]));
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints}, "status": status})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_ready_and_have_their_own_names() {
        let node = json!({
            "metadata": {"name": "h1", "uid": "u", "labels": {(HOSTNAME): "host-1", "rack": "r1", "example.com/node": "h1"}},
            "spec": {"unschedulable": true, "providerID": "x", "taints": [
                {"key": "gpu", "value": "h100", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "5"},
                "conditions": [{"type": "Ready", "status": "Unknown"}]},
        });
        let expected = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "labels": {(HOSTNAME): "n", "rack": "r1", "example.com/node": "n"}},
            "spec": {"taints": [{"key": "gpu", "value": "h100", "effect": "NoSchedule"}]},
            "status": {"capacity": {"cpu": "5"}, "allocatable": {"cpu": "4"},
                "conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(copy_of(&node, "n"), expected);
        assert_eq!(copy_of(&json!({"metadata": {"name": "h1"}}), "n")["metadata"]["labels"], json!({}));
    }

    #[test]
    fn a_change_says_what_it_adds() {
        let node = |name: &str| {
            (Kind::Node, json!({"metadata": {"name": name, "labels": {"rack": format!("of {name}")}}}))
        };
        let objects = [(Kind::Namespace, json!({"metadata": {"name": "h2"}})), node("h1"), node("h2")];
        let (added, count) = Edit::added_nodes(30, "h2").unwrap().added_node(&objects).unwrap();
        assert_eq!((&added["metadata"]["labels"]["rack"], count), (&json!("of h2"), 30));
        for edit in [Edit::added_nodes(30, "h3"), Edit::drained_node("--drain", "h2")] {
            assert_eq!(edit.unwrap().added_node(&objects), None);
        }
    }
}

//! Nodes and pods with only the fields in use. They are numerous and change often, so all other fields are skipped while
//! decoding.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use ::kube::Resource;
use ::kube::core::ClusterResourceScope;
use k8s_openapi::api::core::v1::{PodSchedulingGate, ResourceRequirements, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::metadata;
use crate::api::time::LenientTime;

/// Prefix of the pod annotations in use.
const KUEUE_PREFIX: &str = "kueue.x-k8s.io/";

/// A kind of the core group, with the fields in use.
pub(super) trait PartialKind: Clone + Debug + Send + Sync + 'static {
    /// Fields of the spec in use.
    type Spec: Clone + Debug + Default + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Fields of the status in use.
    type Status: Clone + Debug + Default + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Name of the kind.
    const KIND: &'static str;
    /// Plural name in URL paths.
    const PLURAL: &'static str;
}

/// An object with only the fields in use.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) struct Partial<S: PartialKind> {
    #[serde(default, deserialize_with = "metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: S::Spec,
    #[serde(default)]
    status: S::Status,
}

impl<S: PartialKind> Resource for Partial<S> {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        S::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        S::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut read = metadata::read(deserializer)?;
    if let Some(annotations) = &mut read.annotations {
        annotations.retain(|key, _| key.starts_with(KUEUE_PREFIX));
    }
    Ok(ObjectMeta { generation: None, creation_timestamp: None, finalizers: None, ..read })
}

/// v1 Node.
#[derive(Clone, Debug)]
pub(super) enum PartialNode {}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeSpec {
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeStatus {
    allocatable: BTreeMap<String, Quantity>,
    #[serde(deserialize_with = "readiness")]
    conditions: Vec<NodeCondition>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeCondition {
    r#type: String,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_transition_time: Option<LenientTime>,
}

fn readiness<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NodeCondition>, D::Error> {
    let mut conditions = Vec::<NodeCondition>::deserialize(deserializer)?;
    conditions.retain(|condition| condition.r#type == "Ready");
    Ok(conditions)
}

impl PartialKind for PartialNode {
    type Spec = NodeSpec;
    type Status = NodeStatus;
    const KIND: &'static str = "Node";
    const PLURAL: &'static str = "nodes";
}

/// v1 Pod.
#[derive(Clone, Debug)]
pub(super) enum PartialPod {}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    node_name: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scheduling_gates: Vec<PodSchedulingGate>,
    containers: Vec<Container>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Container>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    overhead: BTreeMap<String, Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<ResourceRequirements>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<ResourceRequirements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    phase: String,
}

impl PartialKind for PartialPod {
    type Spec = PodSpec;
    type Status = PodStatus;
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn partial_decode_keeps_only_needed_fields() {
        let pod: Partial<PartialPod> = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "managedFields": [{}],
                "labels": {"a": "1"}, "annotations": {"kueue.x-k8s.io/workload": "w", "other": "long"}},
            "spec": {"nodeName": "x", "volumes": [{"name": "v"}], "schedulingGates": [{"name": "g"}],
                "containers": [{"name": "c", "image": "i", "env": [], "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running", "conditions": [{}]},
        }))
        .unwrap();
        let expected = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "labels": {"a": "1"}, "annotations": {"kueue.x-k8s.io/workload": "w"}},
            "spec": {"nodeName": "x", "schedulingGates": [{"name": "g"}],
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running"},
        });
        assert_eq!(serde_json::to_value(pod).unwrap(), expected);

        let node: Partial<PartialNode> = serde_json::from_value(json!({
            "metadata": {"name": "x", "labels": {"rack": "r"}, "annotations": {"a": "b"}},
            "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"images": [{}], "allocatable": {"cpu": "4"}, "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:09Z",
                    "lastTransitionTime": "2026-01-01T00:00:00.0000000000Z"}]},
        }))
        .unwrap();
        let expected = json!({
            "metadata": {"name": "x", "labels": {"rack": "r"}, "annotations": {}},
            "spec": {"unschedulable": false, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4"}, "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        assert_eq!(serde_json::to_value(node).unwrap(), expected);
    }
}

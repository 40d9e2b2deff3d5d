//! ResourceFlavor: a class of nodes.

use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A class of nodes that quota can be given on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFlavor {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// What sets the nodes apart.
    pub spec: ResourceFlavorSpec,
}

/// What sets the nodes of a flavor apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFlavorSpec {
    /// Labels of the nodes, which become the node selector of admitted pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the nodes, which pods must tolerate to be given this flavor.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_taints: Vec<Taint>,
    /// Tolerations that admitted pods are given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Topology of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_name: Option<String>,
}

//! ResourceFlavor: a class of nodes.

use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A class of nodes on which quota can be granted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFlavor {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Labels, taints and topology of the nodes.
    pub spec: ResourceFlavorSpec,
}

/// Labels, taints and topology of the nodes of a flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFlavorSpec {
    /// Labels of the nodes; added to the node selector of admitted pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the nodes, which pods must tolerate to be assigned this flavor.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_taints: Vec<Taint>,
    /// Tolerations added to admitted pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Name of the Topology of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_name: Option<String>,
}

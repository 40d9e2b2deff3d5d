//! Topology: the levels (blocks, racks, hosts) of a data centre as node labels.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Levels at which nodes are close to each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// The levels.
    pub spec: TopologySpec,
}

/// Levels of a Topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpec {
    /// From the widest to the narrowest.
    pub levels: Vec<TopologyLevel>,
}

/// One level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyLevel {
    /// The node label whose values name the domains of this level.
    pub node_label: String,
}

//! Topology: the levels (blocks, racks, hosts) of a data centre, as node labels.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hierarchy of domains (such as blocks, racks and hosts) that group nodes by proximity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Levels of the hierarchy.
    pub spec: TopologySpec,
}

/// Levels of a Topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpec {
    /// Levels from the widest to the narrowest.
    pub levels: Vec<TopologyLevel>,
}

/// A level of a Topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyLevel {
    /// Node label whose values name the domains of this level.
    pub node_label: String,
}

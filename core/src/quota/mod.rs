//! The quota tree: ClusterQueues as leaves, cohorts above them, limits at every level, and usage.
//!
//! Invariants: the usage of leaves is the source of truth; every inner sum follows from it (I1). A charge or release
//! updates the whole path or nothing (I3). Sums are exact, so a release undoes a charge exactly, in any order (I4).
//! The state after any sequence of configuration changes equals a fresh build from the final configuration (I6). A
//! cycle of parents makes only the nodes attached to it unusable.
//! Usage has two layers: current usage, and projected usage, which excludes victims and includes capacity
//! reservations.
//! Neighbours: `scheduler` queries what fits, `queue` is notified of usage changes.

mod availability;
mod dominant_share;
mod flavor_resource;
mod node_quota;
mod quota_units;
mod resource_groups;
mod tree;

pub use crate::resources::UsageLayer;
pub use availability::{Bottleneck, LowestSubtree, NodeUsage, ParentRequest, PathHeadroom, borrowed};
pub use dominant_share::DominantResourceShare;
pub use flavor_resource::{FlavorResourceId, Usage};
pub use quota_units::QuotaUnits;
pub use resource_groups::{FlavorQuotas, QuotaLimits, ResourceGroup};
pub use tree::{NodeConfig, NodeId, QuotaTree, UsageChange};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A flavor-resource: the unit in which quota is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FlavorResource {
    /// Name of the ResourceFlavor.
    pub flavor: Arc<str>,
    /// Name of the resource.
    pub resource: Arc<str>,
}

impl FlavorResource {
    /// Returns the flavor-resource of these names.
    pub fn new(flavor: &str, resource: &str) -> Self {
        Self { flavor: Arc::from(flavor), resource: Arc::from(resource) }
    }
}

/// Name of a node of the quota tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeRef {
    /// A leaf.
    ClusterQueue(Arc<str>),
    /// An inner node.
    Cohort(Arc<str>),
}

impl NodeRef {
    /// The name without the kind.
    pub fn as_str(&self) -> &str {
        match self {
            Self::ClusterQueue(name) | Self::Cohort(name) => name,
        }
    }
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterQueue(name) => write!(f, "ClusterQueue {name}"),
            Self::Cohort(name) => write!(f, "Cohort {name}"),
        }
    }
}

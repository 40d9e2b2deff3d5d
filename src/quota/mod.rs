//! The quota tree: ClusterQueues as leaves, cohorts above them, limits at every level, and what is in use.
//!
//! Invariants: what leaves hold is the truth and every inner sum follows from it (I1); a charge or release moves the
//! whole path or nothing (I3); sums are exact, so that a release undoes exactly what a charge did, in any order (I4).
//! Usage has two layers: what is held, and what is planned, with those gone who must go and those in for whom room is
//! kept. The state after any sequence of configuration changes is that of a fresh build from the final configuration (I6);
//! a cycle of parents makes only the nodes that hang on it unusable.
//! Neighbours: `scheduler` asks what fits, `queue` is told what moved.

mod availability;
mod dominant_share;
mod flavor_resource;
mod node_quota;
mod resource_groups;
mod tree;

pub use crate::resources::UsageLayer;
pub use availability::{Bottleneck, NodeUsage};
pub use dominant_share::DominantResourceShare;
pub use flavor_resource::{FlavorResourceId, Usage};
pub use resource_groups::{FlavorQuotas, QuotaLimits, ResourceGroup};
pub use tree::{NodeConfig, NodeId, QuotaTree, UsageChange};

use std::fmt;
use std::sync::Arc;

/// A resource of a flavor: what quota is counted in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorResource {
    /// Name of the ResourceFlavor.
    pub flavor: Arc<str>,
    /// Name of the resource.
    pub resource: Arc<str>,
}

impl FlavorResource {
    /// The resource of the flavor.
    pub fn new(flavor: &str, resource: &str) -> Self {
        Self { flavor: Arc::from(flavor), resource: Arc::from(resource) }
    }
}

/// A node of the tree by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeRef {
    /// A leaf.
    ClusterQueue(Arc<str>),
    /// An inner node.
    Cohort(Arc<str>),
}

impl NodeRef {
    /// The bare name.
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

//! Topology-aware scheduling: the domains of topologies, their free capacity, and placements.
//!
//! A flavor with a Topology has a tree of domains over its nodes. A placement counts how many pods fit into each domain,
//! selects domains at the requested level, and descends to the narrowest level. This module only answers queries: the
//! scheduler changes usage through `TasCache::shift_usage`; simulated usage is undone from a log, and nothing is cloned.
//!
//! Invariants: usage is the sum of all assigned pods, also on deleted nodes (I1, I21); a node may be overcommitted in one
//! resource, which excludes only pods that request it; no input causes a panic (I23).

mod balance;
mod copies;
mod count_cache;
mod counts;
mod domain_selection;
mod empty_limit;
mod encoding;
mod filter;
mod flavor_capacity;
mod flavor_nodes;
mod leaf_capacity;
mod node_replacement;
mod place;
mod placement_error;
mod placement_params;
mod pod_requirements;
mod resource_vector;
mod slice_growth;
mod tas_cache;
mod tree;

pub use copies::PlacedCopies;
pub use empty_limit::TopologyLimit;
pub use encoding::{decode, encode};
pub use filter::{LabelMap, prevents_scheduling, requirement_holds, tolerates};
pub use flavor_capacity::{AskedFlavor, CapacityLimit, LeafView, LevelCapacity, NodeAmount, NodeAmounts};
pub use flavor_nodes::FlavorNodes;
pub use leaf_capacity::{CapacityView, Footprint};
pub use place::{PodSetPlacementError, PriorPlacement, TasPodSetRequest};
pub use placement_error::{CapacityShortage, PlacementError};
pub use pod_requirements::{DomainPath, HOSTNAME_LABEL, Occupancy, Placement, PodRequirements};
pub use tas_cache::{NodeSpec, NonTasPod, TasCache};
pub use tree::FlavorSpec;

/// Feature gates of Kueue that change placements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TasGates {
    /// `TASProfileMixed`: pods without constraints go to the domains with the least free capacity.
    pub mixed_profile: bool,
    /// `TASBalancedPlacement`
    pub balanced_placement: bool,
    /// `TASRespectNodeAffinityPreferred`
    pub respect_preferred_affinity: bool,
}

impl Default for TasGates {
    fn default() -> Self {
        Self { mixed_profile: true, balanced_placement: false, respect_preferred_affinity: false }
    }
}

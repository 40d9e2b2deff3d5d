//! Where pods go: the domains of topologies, what is free in them, and placements.
//!
//! A flavor with a Topology has a tree of domains over the nodes of the flavor. Placing counts what each domain could
//! take, chooses domains at the level that is asked for, and goes down to the narrowest. Everything here is a question:
//! usage changes when the scheduler says so, and what is tried out is taken back from a log, never from a copy.
//!
//! Invariants: usage is the sum of what stands in the domains, nodes that are gone included (I1, I21); a node may have
//! less than nothing of one resource, which keeps out pods that need it and no others; nothing panics (I23).

mod balance;
mod count_cache;
mod counts;
mod domain_selection;
mod encoding;
mod filter;
mod leaf_capacity;
mod node_replacement;
mod place;
mod placement_error;
mod placement_params;
mod pod_requirements;
mod resource_vector;
mod tas_cache;
mod tree;

pub use encoding::{decode, encode};
pub use filter::{LabelMap, prevents_scheduling, requirement_holds, tolerates};
pub use leaf_capacity::{CapacityView, Footprint};
pub use place::{PodSetPlacementError, TasPodSetRequest};
pub use placement_error::PlacementError;
pub use pod_requirements::{DomainPath, HOSTNAME_LABEL, Occupancy, Placement, PodRequirements};
pub use tas_cache::{NodeSpec, TasCache};
pub use tree::FlavorSpec;

/// Feature gates of Kueue that change placements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TasGates {
    /// `TASProfileMixed`: pods without constraints go where the least is free.
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

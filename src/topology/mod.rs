//! Where pods go: the domains of topologies, what is free in them, and placements.
//!
//! A flavor with a Topology has a tree of domains over the nodes of the flavor. Placing counts what each domain could
//! take, chooses domains at the level that is asked for, and goes down to the narrowest. Everything here is a question:
//! usage changes when the scheduler says so, and what is tried out is taken back from a log, never from a copy.
//!
//! Invariants: usage is the sum of what stands in the domains, nodes that are gone included (I1, I21); a node may have
//! less than nothing of one resource, which keeps out pods that need it and no others; nothing panics (I23).

mod balance;
mod choose;
mod cluster;
mod counts;
mod encoding;
mod filter;
mod place;
mod pods;
mod reason;
mod replace;
mod spots;
mod tally;
mod terms;
mod tree;
mod vector;

pub use cluster::{Cluster, NodeSpec};
pub use encoding::{decode, encode};
pub use filter::{Labels, is_hard, requirement_holds, tolerates};
pub use place::{Part, Refused};
pub use pods::{HOSTNAME, Occupancy, Path, Placement, Pods};
pub use reason::Refusal;
pub use spots::{Footprint, View};
pub use tree::FlavorSpec;

/// Feature gates of Kueue that change placements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `TASProfileMixed`: pods without constraints go where the least is free.
    pub mixed_profile: bool,
    /// `TASBalancedPlacement`
    pub balanced: bool,
    /// `TASRespectNodeAffinityPreferred`
    pub affinity: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { mixed_profile: true, balanced: false, affinity: false }
    }
}

//! Pending workloads: their order, which of them wait for what, and which a change wakes.
//!
//! Invariants: a pending workload is in exactly one class of exactly one ClusterQueue, and a class is either active or
//! parked (I7); a parked class is woken by every change that could let it in (I8); the order is total (I9); no event costs
//! more than the logarithm of what is pending, and nothing is polled.
//! Neighbours: `scheduler` takes heads and parks them, `quota` says what moved.

mod equivalence_class;
mod equivalence_hash;
mod hash_counts;
mod pending_queue;
mod queue_manager;
mod verdict;
mod wake_index;
mod workload;

pub use equivalence_class::{ClassId, FlavorCursor, HeadClaim, Parked, UsageRank};
pub use pending_queue::{Head, PendingCounts};
pub use queue_manager::QueueManager;
pub use verdict::{Blocker, BlockerKind, Verdict};
pub use wake_index::WakeConditions;
pub use workload::{PodSet, Variant, Workload};

//! Pending workloads: their order, which of them wait for what, and which a change wakes.
//!
//! Invariants: a pending workload is in exactly one class of exactly one ClusterQueue, and a class is either active or
//! parked (I7); a parked class is woken by every change that could let it in (I8); the order is total (I9); no event costs
//! more than the logarithm of what is pending, and nothing is polled.
//! Neighbours: `scheduler` takes heads and parks them, `quota` says what moved.

mod hashes;
mod pending;
mod queues;
mod shape;
mod verdict;
mod waits;
mod workload;

pub use pending::{Claim, ClassId, Cursor, Head, Parked, PendingCounts, Rank};
pub use queues::Queues;
pub use verdict::{Blocker, BlockerKind, Verdict};
pub use waits::Waits;
pub use workload::{PodSet, Variant, Workload};

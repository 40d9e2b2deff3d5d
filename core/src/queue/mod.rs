//! Pending workloads: their order, what each class waits for, and which classes a change wakes.
//!
//! Invariants: a pending workload is in exactly one class of exactly one ClusterQueue, and a class is either active
//! or parked (I7). Every change that could let a parked class in wakes it (I8). The order is total (I9). No event
//! costs more than the logarithm of the number of pending workloads, and nothing is polled. `PendingOrder` has the same
//! order for readers, who share it without a copy.
//! Neighbours: `scheduler` takes heads and parks them, `quota` reports usage changes.

mod alone;
mod announcements;
mod before;
mod equivalence_class;
mod equivalence_hash;
mod hash_counts;
pub(crate) mod order_tree;
mod pending_order;
mod pending_queue;
mod queue_manager;
mod standing;
mod verdict;
mod wake_index;
mod workload;

pub use alone::{Alone, FlavorMismatch, NeverFits, WrongFlavor};
pub use before::ClassBefore;
pub use equivalence_class::{ClassId, FlavorCursor, HeadClaim, Parked, UsageRank};
pub use pending_order::{PendingOrder, PendingPosition};
pub use pending_queue::{Head, PendingCounts};
pub use queue_manager::QueueManager;
pub use standing::{ClassName, QueueStanding};
pub use verdict::{Blocker, BlockerKind, Verdict};
pub use wake_index::WakeConditions;
pub use workload::{ListedFields, PodSet, Variant, Workload};

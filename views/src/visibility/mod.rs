//! Answers to users about queues, from the published snapshot.
//!
//! Invariants: an answer costs what it shows, not the length of the queues; only the rows of a page are copied; unknown facts are
//! stated as unknown, never guessed. HTTP, rights and discovery are in `server`.

pub mod access;
pub mod age;
mod amounts;
mod before;
mod blocker_text;
mod candidate;
pub mod estimate;
pub mod findings;
pub mod flavors;
pub mod history;
pub mod managers;
mod next_heads;
mod next_limits;
pub mod node_workloads;
mod occupants;
pub mod offline;
pub mod own_workloads;
pub mod page;
pub mod pending;
pub mod pending_list;
mod preemptors;
pub mod questions;
mod queue_state;
pub mod queue_views;
mod quota;
mod quota_changes;
pub mod recent_list;
mod row_standing;
pub mod selector;
mod supposed;
pub mod table;
pub mod verdict;
mod verdict_facts;
pub mod view_tables;
pub mod views;
mod workload_row;
pub mod workloads;

pub use pending::{PageRequest, PendingPage, PendingWorkload, QueueId, Unanswered};

//! Answers to users about queues, from the published snapshot.
//!
//! Invariants: an answer costs what it shows, not what is queued; nothing is copied but the rows of a page; what is not known
//! yet is said, never guessed. HTTP, rights and discovery are in `server`.

pub mod pending;
pub mod table;

pub use pending::{PageRequest, PendingPage, PendingWorkload, QueueId, Unanswered};

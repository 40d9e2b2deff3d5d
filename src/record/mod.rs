//! The durable record: one file that keeps what the history of a process loses with it. Off by default.
//!
//! Invariants:
//! - one process writes the file, and it follows the objects: it leads nothing, and a slow or full disk delays no decision;
//! - records, open runs, sums and the time until which they hold change in one transaction, so that after a crash at any point they
//!   still agree;
//! - the sums of an hour are those of the runs in it; what is not known is a gap with its times;
//! - nothing but `store` calls the database;
//! - an answer ends with the last commit: what happened later, and is not in the file, counts for nothing.

mod changes;
mod export;
mod periods;
mod recorder;
mod rows;
mod runs;
mod store;
mod usage;

pub use recorder::{CommitError, Left, Recorder, RecorderStats};
pub use store::OpenError;

#[cfg(test)]
mod laws;

//! The durable record: one file that keeps the history of a process after its end. Off by default.
//!
//! Invariants:
//! - one process writes the file, and it only follows the objects: it does not lead, and a slow or full disk delays no decision;
//! - records, open runs, sums and the time until which they hold change in one transaction, so that after a crash at any point
//!   they still agree;
//! - the sums of an hour equal the runs in it; time without a recorder is a gap with its times;
//! - only `store` calls the database;
//! - an answer ends with the last commit: later events, which are not in the file, do not count.

mod changes;
mod export;
mod export_rows;
mod periods;
mod recorder;
mod rows;
mod runs;
mod scan;
mod store;
mod usage;

pub use recorder::{CommitError, Left, Recorder, RecorderStats};
pub use store::OpenError;

#[cfg(test)]
mod laws;

//! Talking to the API server: client, watches, effect executor, events, lease, certificates.
//!
//! Invariants: every call that is not a watch has a timeout; nothing here decides about workloads; what is lost by a
//! failure is repaired by the next list, never by memory.
#![allow(clippy::disallowed_methods, reason = "the shell reads clocks and starts tasks")]

pub mod access;
pub mod board;
pub mod budget;
mod certificate_folder;
pub mod certificates;
pub mod client;
pub mod events;
pub mod execute;
pub mod guard;
pub mod lease;
pub mod list;
mod metadata;
pub mod object;
pub mod pki;
pub mod pulse;
pub mod queue;
pub mod server_clock;
pub mod serving;
mod slim;
pub mod watch;
pub mod workload;

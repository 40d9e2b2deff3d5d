//! Communication with the API server: client, watches, effect executor, events, lease, certificates.
//!
//! Invariants: every call except a watch has a timeout; nothing here decides about workloads; data lost by a failure is
//! restored by the next list, never from memory.
#![allow(clippy::disallowed_methods, reason = "the shell reads clocks and starts tasks")]

mod certificate_folder;
pub mod certificates;
pub mod client;
pub mod cryptography;
pub mod definition_check;
pub mod event_queue;
pub mod events;
pub mod executor;
pub mod heartbeat;
pub mod leader_call;
pub mod lease;
pub mod lease_follower;
pub mod list;
mod metadata;
pub mod object;
mod partial_objects;
pub mod pki;
pub mod private_keys;
pub mod rate_limit;
pub mod rbac_check;
mod refusal_text;
pub mod refused_writes;
pub mod server_clock;
pub mod serving_certificate;
pub mod sink;
pub mod task_queue;
pub mod watch;
pub mod watch_status;
pub mod webhook_config_watch;
pub mod webhook_ownership;
pub mod workload;

//! Integration tests of the library, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper of tests fails its test; those that skip say so"
)]

mod admission;
mod charging;
mod contracts;
mod core_gates;
mod core_settings;
mod crds;
mod fake_api;
mod feature_gates;
mod held_quota;
mod job_workload;
mod laws;
mod layering;
mod manifests;
mod metrics;
mod observed;
mod pod_template;
mod priority;
mod queue_status;
mod rendered;
mod shared;
mod shell_access;
mod shell_callers;
mod shell_certificates;
mod shell_edge;
mod shell_executor;
mod shell_lease;
mod shell_metrics;
mod shell_server;
mod shell_serving;
mod shell_watch;
mod sim;
mod simulate_cluster;
mod simulate_command;
mod simulate_manifests;
mod simulate_replay;
mod switch;
mod tables;
mod topology;
mod unreviewed;

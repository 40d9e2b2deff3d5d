//! Benchmarks on a real control plane. BENCHMARKS.md lists the results with their commands; no test depends on a
//! result.

pub mod api_server_baseline;
mod api_server_only;
pub mod burst;
pub mod clickers;
mod cycle_times;
mod gate_watch;
pub mod load;
pub mod pending;
mod racks;
pub mod report;
pub mod run;
pub mod scenario;
pub mod sizing;
pub mod start;
pub mod ungating;
pub mod viewers;
pub mod webhooks;

//! Measurements on a real control plane. Their figures stand in BENCHMARKS.md, each with its command; none is a test's
//! pass or fail.

pub mod api_server_baseline;
mod api_server_only;
pub mod burst;
pub mod load;
pub mod pending;
mod racks;
pub mod report;
pub mod run;
pub mod scenario;
pub mod start;
pub mod webhooks;

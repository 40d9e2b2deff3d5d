//! Measurements on a real control plane. Their figures stand in BENCHMARKS.md, each with its command; none is a test's
//! pass or fail.

mod bare;
pub mod burst;
pub mod floor;
pub mod load;
pub mod pending;
mod racks;
pub mod report;
pub mod run;
pub mod scenario;
pub mod start;
pub mod webhooks;

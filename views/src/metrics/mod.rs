//! Metrics derived from published snapshots and observations. Pure: values in, text out.

pub mod build;
pub mod certificates;
mod configuration_gaps;
pub mod counters;
mod exposition;
mod gauges;
mod history;
pub mod model;
pub mod recent;
pub mod record;

pub use configuration_gaps::ConfigurationGaps;
pub use counters::text;
pub use exposition::render;
pub use gauges::gauges;

//! Metrics derived from published snapshots and observations. Pure: values in, text out.

pub mod certificates;
pub mod counters;
mod gauges;
pub mod metrics;
mod page;
mod standing;

pub use counters::text;
pub use gauges::gauges;
pub use page::render;
pub use standing::ConfigurationGaps;

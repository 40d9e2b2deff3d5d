//! What the snapshot looks like from outside. Pure: published values in, text out.

pub mod counters;
pub mod metrics;

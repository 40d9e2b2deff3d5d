//! The core: deltas in, effects out.

pub mod interface;

pub use interface::*;

//! Small state machines.

pub mod certificates;
pub mod lease;

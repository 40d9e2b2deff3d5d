//! Commands that plan.

mod simulate;
mod simulate_changes;

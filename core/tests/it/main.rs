//! Integration tests of the core, in one binary: they use nothing above it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper fails its test; tests print what they have compared"
)]

mod fixtures;
mod kinds;
mod laws;
mod owners;
mod pods;
mod reconciler;
mod recorded_lives;
mod reviews;
mod sim;
mod simulate;
mod topology;
mod units;

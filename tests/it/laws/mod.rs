//! Laws of the engine, by the numbers of the invariants that they check, over random worlds.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that finds something amiss fails"
)]

mod churn;
mod cluster;
mod conservation;
mod contention;
mod failures;
mod histories;
mod model;
mod plain;
mod queueing;
mod scenarios;
mod strict;
mod turns;
mod world;

//! Laws of the engine, by the numbers of the invariants that they check, over random worlds.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that finds something amiss fails"
)]

mod alike;
mod churn;
mod cluster;
mod conservation;
mod contention;
mod draws;
mod extremes;
mod failures;
mod fair_rules;
mod fair_victims;
mod histories;
mod kept_room;
mod levels;
mod long;
mod metrics;
mod model;
mod mutations;
mod order;
mod plain;
mod queueing;
mod scenarios;
mod search;
mod second_passes;
mod shares;
mod strict;
mod turns;
mod victims;
mod world;

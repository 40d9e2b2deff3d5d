//! Laws of the engine, by the numbers of the invariants that they check, over random worlds.

mod conservation;
mod failures;
mod model;
mod queueing;
mod scenarios;
mod world;

//! Property tests of the engine over random worlds, named by the invariants that they check.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails on the first violation"
)]

mod builders;
mod capacity_reservations;
mod charged_pods;
mod classic_preemption;
mod cluster;
mod conservation;
mod contention;
mod conversion;
mod cycle_decisions;
mod dominant_shares;
mod edge_cases;
mod equivalence;
mod extreme_values;
mod fair_preemption;
mod fair_preemption_model;
mod fast_model;
mod flavor_search;
mod forbidden_reclaim;
pub(crate) mod gates;
mod histories;
mod infeasible_workloads;
mod long_histories;
mod metrics;
mod model;
mod not_before;
mod object_wake_ups;
mod obstacles;
mod owner_chains;
mod owner_chains_model;
mod pending_order;
mod preemptors;
mod priority_boost;
mod queue_churn;
mod queueing;
mod review_mutations;
mod scenarios;
mod second_passes;
mod simulated_obstacles;
mod strategies;
mod strict_fifo;
mod topology_verdicts;
mod tree_queries;
mod unreadable_statuses;
mod wake_ups;

pub(crate) use builders::sample;

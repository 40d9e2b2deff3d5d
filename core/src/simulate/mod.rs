//! Simulation of a cluster: runs the same core on manifests or recorded scenarios in simulated time.
//!
//! `replay` runs one recorded scenario: it feeds the objects to a core, as watches would, runs scheduling cycles one by one,
//! and reads the outcome from the objects as the core has written them. `Simulation` runs a whole cluster:
//! a leading core, a fake API server, and jobs that start and finish in simulated time.
//! Invariant: this module makes no scheduling decisions; equal input gives equal output, byte for byte.

mod apply;
mod blocker_row;
mod builtin_schemas;
mod cel_rules;
mod changes;
mod comparison;
mod dump;
mod edit;
pub mod estimate;
#[cfg(test)]
mod every_row;
pub mod fake_api_server;
mod fate;
mod flavor_amounts;
mod foreign_kinds;
mod harness;
mod job_runner;
mod jobs_without_workload;
mod livelock;
mod manifest;
mod non_finite;
mod objects;
mod outcome;
mod pod_owners;
mod pod_rules;
mod pods;
mod quantities;
mod quota_units;
mod redaction;
mod replay;
mod report;
mod run_annotations;
mod scenario;
mod schema;
mod server_rules;
mod simulation;
mod source_line;
mod tables;
mod timeline;
mod watched;
mod what_if;

pub use blocker_row::BlockerRow;
pub use changes::{Changes, Start};
pub use comparison::{ComparedWorkload, Comparison, Totals};
pub use dump::{Dump, SkippedResource};
pub use edit::{ChangeRight, Edit};
pub use fate::{Effect, Fate, FatePart, FateState};
pub use flavor_amounts::ComparedAmounts;
pub use harness::Harness;
pub use manifest::{Manifest, Manifests, Problem, SourceLocation};
pub use outcome::{Grant, Outcome, PodSetGrant};
pub use redaction::Redaction;
pub use replay::replay;
pub use report::{
    AdmittedRow, ConditionRow, PendingRow, PreemptedRow, QueueRow, Report, SimulationEnd, UsageRow,
};
pub use scenario::{Scenario, ScenarioError};
pub use simulation::{KeepGoing, Simulation, SimulationOptions, Until};
pub use tables::format_duration;
pub use timeline::{TimelineEntry, TimelineEventKind, WorkloadRef};
pub use watched::Watched;
pub use what_if::{NoComparison, WhatIf};

//! What a cluster would do, without one: the same core fed from manifests or recorded scenarios, in virtual time.
//!
//! `replay` answers for one recorded scenario: its objects go into a core that does not lead, through the same door as on a
//! cluster; then the scheduler is driven by hand, and the statuses are those that a leader would write. `Simulation` plays a
//! whole cluster: a core that leads, a double of the API server, and jobs that run and end in virtual time.
//! Invariant: nothing here decides; what comes out is a function of what went in, byte by byte.

mod apply;
mod explanation;
pub mod fake_api_server;
mod job_runner;
mod livelock;
mod manifest;
mod objects;
mod outcome;
mod quantities;
mod replay;
mod report;
mod scenario;
mod schema;
mod simulation;
mod source_line;
mod tables;
mod timeline;

pub use explanation::{BlockerRow, Explanation};
pub use manifest::{Manifest, Manifests, Problem, SourceLocation};
pub use outcome::{Grant, Outcome, PodSetGrant};
pub use replay::replay;
pub use report::{
    AdmittedRow, ConditionRow, PendingRow, PreemptedRow, QueueRow, Report, SimulationEnd, UsageRow,
};
pub use scenario::{Scenario, ScenarioError};
pub use simulation::{Simulation, SimulationOptions, Until};
pub use timeline::{TimelineEntry, TimelineEventKind, WorkloadRef};

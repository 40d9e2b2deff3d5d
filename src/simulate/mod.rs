//! What a cluster would do, without one: the same core fed from manifests or recorded scenarios, in virtual time.
//!
//! `replay` answers for one recorded scenario: its objects go into a core that does not lead, through the same door as on a
//! cluster; then the scheduler is driven by hand, and the statuses are those that a leader would write. `Simulation` plays a
//! whole cluster: a core that leads, a double of the API server, and jobs that run and end in virtual time.
//! Invariant: nothing here decides; what comes out is a function of what went in, byte by byte.

mod explained;
mod intake;
mod locate;
mod manifest;
mod objects;
mod outcome;
mod patience;
mod quantities;
mod replay;
mod report;
mod runs;
mod scenario;
mod schema;
pub mod server;
mod tables;
mod timeline;
mod world;

pub use explained::{Explanation, Obstacle};
pub use manifest::{Manifest, Manifests, Place, Problem};
pub use outcome::{Grant, Outcome, PodSetGrant};
pub use replay::replay;
pub use report::{ConditionRow, Ending, Holder, PendingRow, Preempted, QueueRow, Report, Usage};
pub use scenario::{Scenario, ScenarioError};
pub use timeline::{Entry, Happening, Subject};
pub use world::{Options, Simulation, Until};
